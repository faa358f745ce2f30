//! Examines servers, and measures storing and reading: `cargo run --release --example measure` the servers of the tests,
//! with `URL ENDPOINT KEY SECRET` an existing bucket.

#[path = "../tests/server/mod.rs"]
mod server;

use kilnyard_artifacts::Artifacts;
use kilnyard_artifacts_object::{Address, Bucket, Credentials, Options};
use kilnyard_model::sha256::Sha256Hex;
use server::{Kind, Server};
use std::error::Error;
use std::io::{self, Read};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    if let [_, url, endpoint, key_id, secret] = &std::env::args().collect::<Vec<_>>()[..] {
        return examine_and_measure(url, endpoint, key_id, secret);
    }
    for kind in [Kind::S3Proxy, Kind::Versity] {
        let began = Instant::now();
        match Server::start(kind) {
            Err(reason) => println!("{kind:?}: {reason}"),
            Ok(server) => {
                println!("{kind:?}: started in {:.1} s", began.elapsed().as_secs_f64());
                server.bucket("measured");
                examine_and_measure("s3://measured", &server.endpoint(), &server.key_id, &server.secret)?;
            }
        }
    }
    Ok(())
}

fn examine_and_measure(url: &str, endpoint: &str, key_id: &str, secret: &str) -> Result<(), Box<dyn Error>> {
    let options = Options {
        endpoint: Some(endpoint.to_owned()),
        credentials: Some(Credentials { key_id: key_id.to_owned(), secret: secret.to_owned(), token: None }),
        allows_http: true,
        ..Options::default()
    };
    let bucket = Bucket::open(Address::parse(url, options)?, &std::env::temp_dir())?;
    for finding in bucket.examine() {
        println!("  {finding}");
    }
    measure(&bucket, 20_000, 200)?;
    measure(&bucket, 32 << 20, 10)
}

/// One after the other.
fn measure(bucket: &Bucket, size_bytes: usize, count: usize) -> Result<(), Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let mut milliseconds: [Vec<f64>; 5] = Default::default();
    let mut timed = |index: usize, work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>| {
        let began = Instant::now();
        work()?;
        milliseconds[index].push(began.elapsed().as_secs_f64() * 1000.0);
        Ok::<(), Box<dyn Error>>(())
    };
    for number in 0..count {
        let mut content = vec![number as u8; size_bytes];
        content[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let sha256 = Sha256Hex::of(&content);
        std::fs::write(file.path(), &content)?;
        timed(0, &mut || Ok(bucket.put_file(file.path(), &sha256)?))?;
        timed(1, &mut || Ok(bucket.put_file(file.path(), &sha256)?))?;
        timed(2, &mut || {
            let mut reader: Box<dyn Read> = bucket.open(&sha256)?;
            io::copy(&mut reader, &mut io::sink())?;
            Ok(())
        })?;
        timed(3, &mut || Ok(bucket.size_bytes(&sha256).map(drop)?))?;
        timed(4, &mut || Ok(bucket.remove(&sha256)?))?;
    }
    let names = ["put", "put again", "get", "size", "remove"];
    for (name, mut times) in names.into_iter().zip(milliseconds) {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[(times.len() as f64 * share) as usize];
        println!("  {size_bytes:>9} bytes  {name:<9} p50 {:7.2} ms  p90 {:7.2} ms", at(0.5), at(0.9));
    }
    Ok(())
}
