//! An origin that sends a file, at a rate for all of its connections together.

use crate::error::{Context, Kind, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is sent at a time, in bytes.
const PART_BYTES: usize = 64 << 10;

/// See the module documentation. Its threads end with the process.
pub struct Origin {
    pub address: SocketAddr,
    /// How often it was asked.
    pub requests: Arc<AtomicUsize>,
}

struct Sends {
    size: usize,
    bytes_per_second: f64,
    /// When the rate allows the next part.
    free: Mutex<Instant>,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    /// One that answers each request with a file of this size.
    pub fn start(size: usize, bytes_per_second: f64) -> Result<Origin> {
        let failed = "start an origin";
        let listener = TcpListener::bind("127.0.0.1:0").context(Kind::Machine, failed)?;
        let address = listener.local_addr().context(Kind::Machine, failed)?;
        let requests = Arc::new(AtomicUsize::new(0));
        let free = Mutex::new(Instant::now());
        let sends = Arc::new(Sends { size, bytes_per_second, free, requests: requests.clone() });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(std::io::Result::ok) {
                let sends = sends.clone();
                std::thread::spawn(move || sends.answer(stream));
            }
        });
        Ok(Origin { address, requests })
    }
}

impl Sends {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 && line != "\r\n" {
            line.clear();
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        let (mut stream, part) = (stream, vec![b'k'; PART_BYTES]);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"1\"\r\nConnection: close\r\n\r\n",
            self.size
        )?;
        let mut left = self.size;
        while left > 0 {
            let count = left.min(PART_BYTES);
            let at = {
                let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
                let at = (*free).max(Instant::now());
                *free = at + Duration::from_secs_f64(count as f64 / self.bytes_per_second);
                at
            };
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            stream.write_all(&part[..count])?;
            left -= count;
        }
        Ok(())
    }
}
