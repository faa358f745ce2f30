//! Figures over plain HTTP.

use crate::support::{Served, plain};
use kilnyard_farm::relay::{PoolStatus, Status, ToDoor, write};
use kilnyard_model::backlog::Backlog;
use std::io::Write;
use std::net::{TcpListener, TcpStream};

fn text(status: &Status) -> String {
    let names: Vec<&str> = status.pools.iter().map(|pool| pool.name.as_str()).collect();
    format!("run {} workers {} pools {}\n", status.has_run, status.workers.len(), names.join(","))
}

#[test]
fn figures_are_shown_to_anyone_and_nothing_else_is() {
    // An address that is free again.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = Served::with_metrics(address, text);
    let _one = served.joined("one");
    served.control.set_pools(vec![PoolStatus { name: "lab".to_owned(), ..PoolStatus::default() }]);
    // Connections that never begin a request, or do not end one, keep no other client out.
    let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost: x").unwrap();
    let http = plain(&served, None);
    let at = |path: &str| format!("http://{address}{path}");
    let answer = http.get(at("/metrics")).send().unwrap();
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(answer.text().unwrap(), "run false workers 1 pools lab\n");
    for (path, expected) in
        [("/", 404), ("/v1/messages", 404), ("/v1/challenge", 404), ("/metrics/../v1/blobs/x", 404)]
    {
        assert_eq!(http.get(at(path)).send().unwrap().status().as_u16(), expected, "{path}");
    }
    assert_eq!(http.post(at("/metrics")).body("x").send().unwrap().status().as_u16(), 405);
    drop((silent, half));
}

#[test]
fn the_work_that_is_left_is_that_of_the_run_that_is_connected() {
    let served = Served::new();
    let one = served.joined("one");
    assert_eq!(served.control.backlog(), None);
    let mut run = served.run();
    served.until_run(true);
    let backlog = Backlog { core_seconds: 9.0, ..Backlog::default() };
    write(&mut run, &ToDoor { backlog: Some(backlog.clone()), ..ToDoor::default() }, b"").unwrap();
    write(&mut run, &ToDoor { to: "one".to_owned(), ..ToDoor::default() }, b"after it").unwrap();
    assert_eq!(crate::support::message(&one), b"after it");
    assert_eq!(served.control.backlog(), Some(backlog));
    drop(run);
    served.until_run(false);
    assert_eq!(served.control.backlog(), None);
}
