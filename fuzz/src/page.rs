//! The HTML page of a report.

use crate::{markup, text};
use kilnyard_web::{
    CycleCut, LeftOut, PackageState, PathStep, Report, ReportFailure, ReportOutput, ReportPackage,
    ReportStage, RepositoryFacts, page as render,
};

/// Whatever a report contains, its page is well-formed, has no external links and runs no script. An input that is
/// not a report becomes the text of every field of one.
pub fn page(data: &[u8]) {
    let report: Report = match (serde_json::from_slice(data), text(data)) {
        (Ok(report), _) => report,
        (Err(_), Some(text)) => report_of(text),
        (Err(_), None) => return,
    };
    let page = render(&report);
    if let Err(wrong) = markup::check(&page) {
        panic!("{wrong}");
    }
    assert!(!page.to_ascii_lowercase().contains("<script"));
    assert_eq!(render(&report), page);
}

fn report_of(text: &str) -> Report {
    let word = || text.to_owned();
    let all = || vec![word(), word()];
    let package = |state| ReportPackage {
        name: word(),
        version: word(),
        state,
        reason: word(),
        slot: Some(text.len() as u32),
        attempts: 2,
        started_seconds: Some(1.0),
        wall_seconds: text.len() as f64,
        stages: vec![ReportStage {
            name: word(),
            outcome: word(),
            log: Some(word()),
            ..ReportStage::default()
        }],
        outputs: vec![ReportOutput { name: word(), version: word(), architecture: word(), size_bytes: 1 }],
        depends: all(),
        blocked_by: all(),
        blocks: all(),
        failure: Some(ReportFailure {
            stage: word(),
            kind: word(),
            message: word(),
            line_number: Some(1),
            lines: text.lines().map(str::to_owned).collect(),
        }),
        ..ReportPackage::default()
    };
    Report {
        kilnyard: word(),
        yard: word(),
        ecosystem: word(),
        release: word(),
        architecture: word(),
        wall_seconds: 100.0,
        slots: 4,
        path: vec![PathStep { package: word(), seconds: 1.0 }, PathStep { package: word(), seconds: 2.0 }],
        packages: [PackageState::Failed, PackageState::Blocked, PackageState::Built].map(package).into(),
        cycles_cut: vec![CycleCut { package: word(), dependency: word(), members: all(), how: word() }],
        left_out: vec![LeftOut { package: word(), reason: word() }],
        repository: Some(RepositoryFacts {
            path: word(),
            sources_line: word(),
            fingerprint: word(),
            packages: 1,
        }),
        notes: all(),
        ..Report::default()
    }
}
