//! A small HTTP server on loopback that misbehaves in every way a mirror can.

#![allow(dead_code)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kilnyard_mirror::{Limits, Sha256Hex, Wanted};

/// How the server handles one request.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends the file, or the rest of the file if a range is requested.
    Serve,
    /// Sends the whole file, ignoring ranges.
    IgnoreRange,
    /// Announces the full length, sends this many bytes, and closes.
    Truncate(usize),
    /// As before, but without a length: only the close ends the body.
    TruncateWithoutLength(usize),
    /// Announces the full length, sends this many bytes at once, and then byte by byte.
    Trickle(usize),
    /// Accepts, but never responds.
    Silence,
    /// Closes without a response.
    Close,
    /// Sends other bytes of the same length.
    Lie,
    /// Sends the file and more, chunked, so that no length reveals it.
    TooMuch,
    /// Sends the file and more, with the true total length.
    Longer,
    /// Sends a range that starts elsewhere than requested.
    WrongRange,
    /// Sends only a status.
    Status(u16),
    /// Redirects the client to another path.
    Redirect(String),
    /// Sends 304 if the request has this condition, or else the file with this tag and date.
    Conditional { etag: String, date: String },
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn range(&self) -> Option<&str> {
        self.headers.get("range").map(String::as_str)
    }
}

struct Page {
    content: Vec<u8>,
    acts: Vec<Act>,
    served: usize,
}

#[derive(Default)]
struct State {
    pages: Mutex<HashMap<String, Page>>,
    requests: Mutex<Vec<Request>>,
    ended: AtomicBool,
}

pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                // A client that disconnects is not a failure of the server.
                std::thread::spawn(move || stream.and_then(|stream| shared.answer(stream)));
            }
        });
        Server { address, state, thread: Some(thread) }
    }

    /// Serves a file under a path. The acts apply to the requests in order, and the last one to all that follow.
    pub fn page(&self, path: &str, content: &[u8], acts: impl Into<Vec<Act>>) -> String {
        let page = Page { content: content.to_vec(), acts: acts.into(), served: 0 };
        self.state.pages.lock().unwrap().insert(path.to_owned(), page);
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// The ranges requested, in order.
    pub fn ranges(&self) -> Vec<Option<String>> {
        self.requests().iter().map(|request| request.range().map(str::to_owned)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl State {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let request = read_request(&stream)?;
        self.requests.lock().unwrap().push(request.clone());
        let (act, content) = {
            let mut pages = self.pages.lock().unwrap();
            match pages.get_mut(&request.path) {
                Some(page) => {
                    let act = page.acts[page.served.min(page.acts.len() - 1)].clone();
                    page.served += 1;
                    (act, page.content.clone())
                }
                None => (Act::Status(404), Vec::new()),
            }
        };
        let size = content.len();
        match act {
            Act::Serve => match first_of(&request).filter(|first| *first < size) {
                Some(first) => {
                    let range = format!("Content-Range: bytes {first}-{}/{size}\r\n", size - 1);
                    head(&mut stream, 206, Some(size - first), &range)?;
                    stream.write_all(&content[first..])
                }
                None if request.range().is_some() => head(&mut stream, 416, Some(0), ""),
                None => whole(&mut stream, &content, ""),
            },
            Act::IgnoreRange => whole(&mut stream, &content, ""),
            Act::Truncate(count) => {
                let first = first_of(&request).unwrap_or(0).min(size);
                if first > 0 {
                    let range = format!("Content-Range: bytes {first}-{}/{size}\r\n", size - 1);
                    head(&mut stream, 206, Some(size - first), &range)?;
                } else {
                    head(&mut stream, 200, Some(size), "")?;
                }
                stream.write_all(&content[first..size.min(first + count)])
            }
            Act::TruncateWithoutLength(count) => {
                head(&mut stream, 200, None, "")?;
                stream.write_all(&content[..count])
            }
            Act::Trickle(count) => {
                head(&mut stream, 200, Some(size), "")?;
                stream.write_all(&content[..count])?;
                for byte in &content[count..] {
                    self.wait(Duration::from_millis(20))?;
                    stream.write_all(&[*byte])?;
                }
                Ok(())
            }
            Act::Silence => loop {
                self.wait(Duration::from_millis(20))?;
            },
            Act::Close => Ok(()),
            Act::Lie => whole(&mut stream, &vec![b'?'; size], ""),
            Act::TooMuch => {
                head(&mut stream, 200, None, "Transfer-Encoding: chunked\r\n")?;
                write!(stream, "{size:x}\r\n")?;
                stream.write_all(&content)?;
                // Endless, so that a client that reads on would never finish.
                loop {
                    self.wait(Duration::from_millis(1))?;
                    stream.write_all(b"\r\n4\r\nmore")?;
                }
            }
            Act::Longer => whole(&mut stream, &[&content[..], b"more"].concat(), ""),
            Act::WrongRange => {
                head(
                    &mut stream,
                    206,
                    Some(size),
                    &format!("Content-Range: bytes 0-{}/{size}\r\n", size - 1),
                )?;
                stream.write_all(&content)
            }
            Act::Status(code) => head(&mut stream, code, Some(0), ""),
            Act::Redirect(to) => head(&mut stream, 302, Some(0), &format!("Location: {to}\r\n")),
            Act::Conditional { etag, date } => {
                let asked = |name: &str| request.headers.get(name).cloned();
                if asked("if-none-match").as_ref() == Some(&etag)
                    || asked("if-modified-since").as_ref() == Some(&date)
                {
                    head(&mut stream, 304, None, "")
                } else {
                    whole(&mut stream, &content, &format!("ETag: {etag}\r\nLast-Modified: {date}\r\n"))
                }
            }
        }
    }

    /// Waits; fails once the test is over.
    fn wait(&self, duration: Duration) -> std::io::Result<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        std::thread::sleep(duration);
        Ok(())
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Request { path, headers })
}

/// The first byte of the requested range.
fn first_of(request: &Request) -> Option<usize> {
    let range = request.range()?.strip_prefix("bytes=")?;
    range.strip_suffix('-')?.parse().ok()
}

fn head(stream: &mut TcpStream, status: u16, length: Option<usize>, more: &str) -> std::io::Result<()> {
    let length = length.map_or_else(String::new, |length| format!("Content-Length: {length}\r\n"));
    write!(stream, "HTTP/1.1 {status} Status\r\nConnection: close\r\n{length}{more}\r\n")
}

fn whole(stream: &mut TcpStream, content: &[u8], more: &str) -> std::io::Result<()> {
    head(stream, 200, Some(content.len()), more)?;
    stream.write_all(content)
}

/// Limits without long pauses, but patient enough for a busy machine.
pub fn limits() -> Limits {
    Limits {
        connect_max: Duration::from_secs(30),
        patience: Duration::from_secs(30),
        speed_min_bytes_per_second: 10_000,
        attempts_max: 3,
        pause_first: Duration::from_millis(1),
        pause_max: Duration::from_millis(2),
        redirects_max: 4,
    }
}

/// Limits that soon abort a stalled mirror.
pub fn impatient() -> Limits {
    Limits { patience: Duration::from_millis(400), ..limits() }
}

/// Bytes without a repeating pattern that a shifted copy would match.
pub fn content(size: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub fn wanted(content: &[u8], urls: impl Into<Vec<String>>) -> Wanted {
    Wanted {
        urls: urls.into(),
        sha256: Sha256Hex::of(content),
        size_bytes: content.len() as u64,
        name: "thing-1.0.tar.xz".to_owned(),
    }
}
