//! Kept work in a build: it is offered to the root before the stages, and packed after them.
//!
//! Only the first build of a lease uses and leaves kept work: builds that compare results start from scratch. If a build
//! fails that began with kept work, the archive is removed, and the build repeated at once without it, unless its
//! failure may have another cause than the package; then the archive is removed alone.

use crate::build::Performance;
use crate::kept::{KeptArchive, Part};
use crate::runner::{Root, Running};
use kilnyard_model::keep::{KEPT_ARCHIVE, KEPT_BUILD, KeepOrder, KeptWork};
use kilnyard_model::order::{BuildOrder, CommandOrder, InputText};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::{CommandOutcome, End};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};

/// How much of a report is read. It is a number.
const REPORT_BYTES_MAX: usize = 32;

/// Kept work of the build in progress.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The archive that its root is offered.
    offered: RefCell<Option<KeptArchive>>,
    /// What was put back, as the root says.
    put_back: Cell<Option<KeptWork>>,
    /// The archive that it leaves if it succeeds.
    packed: RefCell<Option<Part>>,
}

impl Performance<'_> {
    /// The use of kept work; absent for builds that start from scratch.
    fn keeping<'o>(&self, order: &'o BuildOrder, prefix: &str) -> Option<&'o KeepOrder> {
        let is_compared = self.lease.checks_reproducible || !prefix.is_empty();
        order.keep.as_ref().filter(|_| !is_compared)
    }

    /// Chooses the archive that the next root is offered.
    pub(crate) fn choose_kept(&self, order: &BuildOrder, prefix: &str) {
        let keep = self.keeping(order, prefix).filter(|keep| !keep.starts_afresh);
        self.work.offered.replace(keep.and_then(|keep| self.worker.kept.find(keep)));
    }

    /// Gives a root the archive that was chosen.
    pub(crate) fn offer_kept(&self, root: &dyn Root) -> io::Result<()> {
        self.work.put_back.set(None);
        let offered = self.work.offered.borrow();
        let Some(archive) = &*offered else { return Ok(()) };
        let build = InputText { name: KEPT_BUILD.to_owned(), text: archive.build.to_string() };
        root.provide(&[], &[build])?;
        match root.provide_file(KEPT_ARCHIVE, &archive.path) {
            // Another build needed the space.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            provided => provided,
        }
    }

    /// Notes whether a stage put kept work back.
    pub(crate) fn note_kept(&self, order: &BuildOrder, root: &dyn Root) -> Option<KeptWork> {
        let offered = self.work.offered.borrow();
        let (Some(archive), Some(keep)) = (&*offered, &order.keep) else { return None };
        let mut said = Said::default();
        let outcome = self.run_for_kept(&keep.report, root, &mut said);
        let changed_files = std::str::from_utf8(&said.0).ok()?.trim_end().parse().ok();
        let work = changed_files.map(|changed_files| KeptWork { build: archive.build, changed_files });
        self.work.put_back.set(work.filter(|_| outcome.end == End::Exit(0)));
        self.work.put_back.get()
    }

    /// Packs the work of a build that succeeded; [`keep_packed`](Self::keep_packed) completes it. Returns a line for the
    /// log.
    pub(crate) fn pack_kept(&self, order: &BuildOrder, root: &dyn Root, prefix: &str) -> Option<String> {
        let keep = self.keeping(order, prefix)?;
        let nothing = |reason: String| Some(format!("no work is kept: {reason}\n"));
        let mut part = match self.worker.kept.begin(self.lease.attempt) {
            Ok(part) => part?,
            Err(error) => return nothing(error.to_string()),
        };
        match self.run_for_kept(&keep.pack, root, &mut part).end {
            End::Exit(0) if part.bytes() == 0 => nothing("the build left none of the folders".to_owned()),
            End::Exit(0) => {
                let line = format!("work kept for the next build: {} bytes\n", part.bytes());
                self.work.packed.replace(Some(part));
                Some(line)
            }
            End::Exit(code) => nothing(format!("packing it failed with status {code}")),
            End::LogFailed(error) | End::SandboxFailed(error) => nothing(error),
            End::Limit(..) => nothing("packing it exceeded a limit".to_owned()),
            End::Cancelled => nothing("the build was cancelled".to_owned()),
        }
    }

    /// Completes the archive of a build that has succeeded.
    pub(crate) fn keep_packed(&self, order: &BuildOrder) {
        let packed = self.work.packed.take();
        if let (Some(part), Some(keep)) = (packed, &order.keep) {
            // Without it, the next build starts from scratch.
            let _ = self.worker.kept.complete(&part, keep, self.lease.build);
        }
    }

    /// Handles the failure of a build: no other begins with the same work. Returns whether to repeat the build.
    pub(crate) fn give_up_kept(&self, order: &BuildOrder, failure: &Failure, prefix: &str) -> bool {
        let is_repeated = self.is_repeated_without_kept(failure);
        self.work.packed.take();
        if let Some(keep) = self.keeping(order, prefix).filter(|_| failure.kind != FailureKind::Cancelled) {
            self.worker.kept.forget(keep);
        }
        self.work.offered.take();
        is_repeated
    }

    /// Whether a failed build is repeated without the work that it began with.
    pub(crate) fn is_repeated_without_kept(&self, failure: &Failure) -> bool {
        let is_of_package = !failure.kind.is_transient() && failure.kind != FailureKind::Cancelled;
        is_of_package && self.work.put_back.get().is_some()
    }

    fn run_for_kept(
        &self,
        command: &CommandOrder,
        root: &dyn Root,
        output: &mut (dyn Write + Send),
    ) -> CommandOutcome {
        let running = Running {
            command,
            sees_jobserver: false,
            has_network: false,
            limits: self.worker.settings.limits_of(&self.lease.order.terms).limits(None),
            cancel: self.cancel,
            membership: Some(&self.share.membership),
        };
        root.run(&running, output, &mut |_| {})
    }
}

/// The beginning of an output.
#[derive(Debug, Default)]
struct Said(Vec<u8>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = REPORT_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().take(left));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
