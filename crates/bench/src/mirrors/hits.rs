//! What a file costs that the mirror has.

use super::Mirror;
use super::origin::Origin;
use crate::Trial;
use crate::error::Result;
use crate::figures::{Report, Series, Unit};
use crate::link::failed;
use crate::scratch::Scratch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Sizes, how often each is asked for, and the CPU time of a request that is the aim, in seconds.
const SIZES: [(&str, usize, usize, f64); 2] =
    [("4 KiB", 4 << 10, 40_000, 15e-6), ("1 MiB", 1 << 20, 3_000, 200e-6)];

/// Asks again and again over one connection.
fn ask(address: &str, count: usize) -> std::io::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut reader, mut stream) = (BufReader::with_capacity(1 << 20, stream.try_clone()?), stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    for _ in 0..count {
        stream.write_all(b"GET /d/pool/f HTTP/1.1\r\nHost: mirror\r\n\r\n")?;
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if line == "\r\n" || line.is_empty() {
                break;
            }
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
    }
    Ok(())
}

/// Adds its figures.
pub fn measure(scratch: &Scratch, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    report.aim("15 and 200 µs of CPU time for a hit of 4 KiB and 1 MiB");
    for (name, size, count, aim) in SIZES {
        trial.say(format!("hits of {name}"));
        let origin = Origin::start(size, 1e12)?;
        let configuration = format!("[archive.d]\nurls = [\"http://{}/d\"]\n", origin.address);
        let mirror = Mirror::start(&scratch.path(&format!("hits-{size}")), &configuration)?;
        ask(&mirror.address, count / 20).map_err(failed)?;
        let mut values = Vec::new();
        for _ in 0..trial.pairs {
            crate::check_interrupt()?;
            let before = mirror.cpu_seconds();
            ask(&mirror.address, count).map_err(failed)?;
            values.push((mirror.cpu_seconds() - before) / count as f64);
        }
        let key = format!("hit_{size}_cpu_seconds");
        let series =
            Series::new(key, format!("a hit of {name}: CPU time of the mirror"), Unit::Seconds, values);
        report.judge(series.median() <= aim, &format!("hits of {name}"));
        report.series.push(series);
    }
    Ok(())
}
