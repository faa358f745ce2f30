//! A web server on the loopback interface that serves files from memory, and misbehaves on request.

use super::archive::hex_of;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the server misbehaves for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Sends this many bytes, then closes the connection.
    Truncate(usize),
    /// Sends one byte per second.
    Drip,
}

#[derive(Default)]
struct Site {
    files: BTreeMap<String, Vec<u8>>,
    manners: HashMap<String, Manner>,
    /// Path and status of every response.
    answers: Vec<(String, u16)>,
}

/// A running server; its threads end with the process.
#[derive(Clone)]
pub struct Server {
    site: Arc<Mutex<Site>>,
    port: u16,
}

impl Server {
    pub fn start(files: BTreeMap<String, Vec<u8>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let site = Arc::new(Mutex::new(Site { files, ..Site::default() }));
        let server = Server { site: site.clone(), port };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let site = site.clone();
                // A client that goes away ends its own thread.
                std::thread::spawn(move || answer(stream, &site));
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn serve(&self, files: BTreeMap<String, Vec<u8>>) {
        self.site.lock().unwrap().files = files;
    }

    pub fn behave(&self, path: &str, manner: Option<Manner>) {
        let mut site = self.site.lock().unwrap();
        match manner {
            Some(manner) => site.manners.insert(path.to_owned(), manner),
            None => site.manners.remove(path),
        };
    }

    pub fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.site.lock().unwrap().files.get_mut(path).unwrap());
    }

    /// Status codes of the responses for a path so far.
    pub fn answers(&self, path: &str) -> Vec<u16> {
        let site = self.site.lock().unwrap();
        site.answers.iter().filter(|(asked, _)| asked == path).map(|(_, status)| *status).collect()
    }
}

fn answer(mut stream: TcpStream, site: &Mutex<Site>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let (mut tag_seen, mut offset) = (None, 0);
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        match name.to_ascii_lowercase().as_str() {
            "if-none-match" => tag_seen = Some(value.to_owned()),
            "range" => offset = value.strip_prefix("bytes=")?.trim_end_matches('-').parse().ok()?,
            _ => {}
        }
    }
    let (body, manner) = {
        let site = site.lock().unwrap();
        (site.files.get(&path).cloned(), site.manners.get(&path).copied())
    };
    let tag = body.as_ref().map(|body| format!("\"{}\"", hex_of(body)));
    let (status, body) = match body {
        None => (404, Vec::new()),
        Some(_) if tag_seen.is_some() && tag_seen == tag => (304, Vec::new()),
        Some(body) if offset > 0 && offset < body.len() => (206, body),
        Some(body) => (200, body),
    };
    site.lock().unwrap().answers.push((path, status));
    let mut head = format!("HTTP/1.1 {status} Test\r\nConnection: close\r\n");
    if let Some(tag) = tag {
        head.push_str(&format!("ETag: {tag}\r\n"));
    }
    let start = if status == 206 { offset } else { 0 };
    if status == 206 {
        head.push_str(&format!("Content-Range: bytes {start}-{}/{}\r\n", body.len() - 1, body.len()));
    }
    if status != 304 {
        head.push_str(&format!("Content-Length: {}\r\n", body.len() - start));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    match manner {
        Some(Manner::Truncate(count)) if body.len() > count => {
            stream.write_all(&body[start.min(count)..count]).ok()
        }
        Some(Manner::Drip) => body[start..].iter().try_for_each(|byte| {
            stream.write_all(&[*byte]).ok()?;
            std::thread::sleep(Duration::from_secs(1));
            Some(())
        }),
        _ => stream.write_all(&body[start..]).ok(),
    }
}
