//! Two machines of a yard, which share the list of workers over a real database.

#[path = "../../store-postgres/tests/server/mod.rs"]
mod server;

use kilnyard_yard::image::Admitted;
use kilnyard_yard::yard::Documents;
use server::Server;
use std::fs;
use std::path::Path;

const TOKEN: &str = "state/farm/tokens/abc";
const WORKER: &str = "state/farm/workers/far.json";

fn write(home: &Path, name: &str, text: &str) {
    fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
    fs::write(home.join(name), text).unwrap();
}

#[test]
fn what_was_used_or_removed_stays_so_on_all_machines() {
    let server = Server::start().unwrap();
    let documents = Documents::open(&server.database("farm").unwrap()).unwrap();
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, two] = [homes[0].path(), homes[1].path()];
    let (mut first, mut second) = (Admitted::default(), Admitted::default());
    write(one, TOKEN, "issued");
    first.share(one, &documents).unwrap();
    second.share(two, &documents).unwrap();
    assert_eq!(fs::read_to_string(two.join(TOKEN)).unwrap(), "issued");

    // A worker joins on the first machine, whose process ends before it could share that.
    fs::remove_file(one.join(TOKEN)).unwrap();
    write(one, WORKER, "far");
    drop(first);
    let mut first = Admitted::default();
    first.share(one, &documents).unwrap();
    assert!(!one.join(TOKEN).exists(), "the used token is back");
    second.share(two, &documents).unwrap();
    assert!(!two.join(TOKEN).exists() && two.join(WORKER).exists());

    // It is removed on the second one, and the first one has not seen that when it starts again.
    fs::remove_file(two.join(WORKER)).unwrap();
    second.share(two, &documents).unwrap();
    drop(first);
    Admitted::default().share(one, &documents).unwrap();
    assert!(!one.join(WORKER).exists(), "the removed worker is back");
    Admitted::default().share(two, &documents).unwrap();
    assert!(!two.join(WORKER).exists() && !two.join(TOKEN).exists());

    // A name from the store that leads elsewhere is refused.
    documents.save_document("admitted/state/farm/workers/../../key.asc", b"mine").unwrap();
    let refused = Admitted::default().share(two, &documents).unwrap_err();
    assert!(refused.message.contains("the store names"), "{refused}");
    assert!(!two.join("state/key.asc").exists());
    server.end();
}
