//! A site with further yards at its address.

use crate::support::{Served, message, refused, run_in};
use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_farm::api::YardOffer;
use kilnyard_farm::client::ClientError;
use kilnyard_farm::relay::{self, Allowed, Quota, ToDoor, ToRun};
use kilnyard_model::backlog::{Backlog, Pending};
use kilnyard_model::entitlement::{Entitlement, WorkClass};
use kilnyard_model::role::Role;
use std::path::PathBuf;

const RELEASE: Entitlement = Entitlement { weight: 2.0, class: WorkClass::Release };

/// A site with a yard `b`, and the folder of its socket.
fn site() -> (Served, PathBuf) {
    let site = Served::new();
    let folder = site.path("b");
    std::fs::create_dir(&folder).unwrap();
    site.control.add_yard("b", &folder, None, RELEASE).unwrap();
    (site, folder)
}

fn to(worker: &str) -> ToDoor {
    ToDoor { to: worker.to_owned(), ..ToDoor::default() }
}

#[test]
fn each_yard_has_a_run_of_its_own_and_the_workers_of_the_site() {
    let (site, folder) = site();
    let client = site.joined("w");
    let of_b = client.of_yard("b").unwrap();
    let (mut run, mut run_of_b) = (site.run(), run_in(&folder));
    site.until_run(true);
    while of_b.receive(false).unwrap().run.is_none() {}
    relay::write(&mut run, &to("w"), b"from a").unwrap();
    relay::write(&mut run_of_b, &to("w"), b"from b").unwrap();
    assert_eq!((message(&client), message(&of_b)), (b"from a".to_vec(), b"from b".to_vec()));
    of_b.send(b"to b".to_vec()).unwrap();
    let (ToRun { worker }, body) = relay::read::<ToRun>(&mut run_of_b).unwrap().unwrap();
    assert_eq!((worker.as_str(), &*body), ("w", &b"to b"[..]));
    // What a build of one yard may read, no build of another one may.
    let stored = Folder::open(&site.path("distfiles")).unwrap();
    let (secret, _) = stored.insert(&mut &b"of a"[..], Storage::Plain).unwrap();
    let allows = Allowed { attempt: "1".to_owned(), reads: vec![secret.clone()], logs: None };
    relay::write(&mut run, &ToDoor { allows: Some(allows), ..to("w") }, b"granted").unwrap();
    assert_eq!(message(&client), b"granted");
    assert!(client.open(&secret).is_ok());
    let error = of_b.open(&secret).err().unwrap().to_string();
    assert!(error.contains("no build of this worker names it"), "{error}");
    // A worker that was removed is none of any yard.
    site.roster().remove("w").unwrap();
    for client in [&client, &of_b] {
        refused(client.receive(false), "was removed");
    }
}

#[test]
fn yards_that_do_not_exist_are_refused() {
    let (site, folder) = site();
    let client = site.joined("w");
    for name in ["c", "../b", "b/..", "", "B"] {
        let refused = client.of_yard(name).unwrap().receive(false);
        assert!(matches!(&refused, Err(ClientError::Refused(_))), "{name}: {refused:?}");
    }
    let of_b = client.of_yard("b").unwrap();
    of_b.receive(false).unwrap();
    // A yard has no yards, and nothing of the site.
    assert!(of_b.yards("").unwrap().yards.is_empty());
    site.control.remove_yard("b");
    assert!(matches!(of_b.receive(false), Err(ClientError::Refused(_))));
    for name in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
        assert!(site.control.add_yard(name, &folder, None, RELEASE).is_err(), "{name}");
    }
    // It can come back.
    site.control.add_yard("b", &folder, None, RELEASE).unwrap();
    of_b.receive(false).unwrap();
}

#[test]
fn workers_learn_which_yards_have_work() {
    let (site, folder) = site();
    site.control.set_entitlement(Entitlement::default());
    let client = site.joined("w");
    let first = client.yards("").unwrap();
    let id = first.yards[1].id.clone();
    assert!(id.len() == 64 && first.yards[0].id.is_empty());
    let offer = |name: &str, entitlement, has_ready| {
        let id = if name.is_empty() { String::new() } else { id.clone() };
        YardOffer { name: name.to_owned(), id, entitlement, has_ready, is_spent: false }
    };
    assert_eq!(first.yards, [offer("", Entitlement::default(), false), offer("b", RELEASE, false)]);
    // A run that says nothing may have work; one that says so has none.
    let mut run = run_in(&folder);
    let second = client.yards(&first.version).unwrap();
    assert_eq!(second.yards[1], offer("b", RELEASE, true));
    let say = |run: &mut _, ready: Vec<Pending>| {
        let backlog = Some(Backlog { ready, ..Backlog::default() });
        relay::write(run, &ToDoor { backlog, ..ToDoor::default() }, b"").unwrap();
    };
    say(&mut run, Vec::new());
    let third = client.yards(&second.version).unwrap();
    assert_eq!(third.yards, first.yards);
    let (package, role) = ("zlib".to_owned(), Role::Build);
    say(&mut run, vec![Pending { package, cores: 1, memory_bytes: 0, role, needs_trust: false }]);
    let fourth = client.yards(&third.version).unwrap();
    assert_eq!(fourth.yards, second.yards);
    // What has used its day starts nothing, and no machine is started for it.
    assert_eq!(site.control.backlog().unwrap().ready.len(), 1);
    let quota = |used_core_hours| Some(Quota { core_hours: 2.0, used_core_hours });
    site.control.set_quota("b", quota(2.5));
    let fifth = client.yards(&fourth.version).unwrap();
    assert!(fifth.yards[1].is_spent && !fifth.yards[0].is_spent);
    assert_eq!(site.control.backlog().unwrap().ready.len(), 0);
    site.control.set_quota("b", quota(1.5));
    assert_eq!(client.yards(&fifth.version).unwrap().yards, second.yards);
    // A site with one yard has none to share its workers with.
    site.control.remove_yard("b");
    assert!(client.yards("").unwrap().yards.is_empty());
}
