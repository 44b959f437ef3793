//! A client of the API with one connection, and readers of event streams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Time-out of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is used for one request after the other.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream), address })
    }

    /// Sends a request and returns status and body of its answer. A body is sent as JSON.
    pub(crate) fn send(&mut self, request: &str, body: Option<&str>) -> Result<(u16, String)> {
        let mut text = format!("{request} HTTP/1.1\r\nHost: {}\r\n", self.address);
        if let Some(body) = body {
            let length = body.len();
            text += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        text = format!("{text}\r\n{}", body.unwrap_or_default());
        self.reader.get_mut().write_all(text.as_bytes())?;
        let head = head(&mut self.reader)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.context("the answer has no length")?];
        self.reader.read_exact(&mut body)?;
        let status = status.context("the answer has no status")?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Reads the head of an answer.
fn head(reader: &mut BufReader<TcpStream>) -> Result<String> {
    let mut head = String::new();
    loop {
        let start = head.len();
        ensure!(reader.read_line(&mut head)? > 0, "the server closed the connection");
        if head[start..].trim().is_empty() {
            return Ok(head);
        }
    }
}

/// Opens an event stream and reads up to its first event.
pub(crate) fn open_stream(address: SocketAddr, path: &str) -> Result<BufReader<TcpStream>> {
    let mut reader = Client::connect(address)?.reader;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    reader.get_mut().write_all(request.as_bytes())?;
    let head = head(&mut reader)?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {}", head.lines().next().unwrap_or(""));
    let mut line = String::new();
    while !line.starts_with("event: state") && !line.starts_with("event:state") {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "{path}: the stream ended");
    }
    Ok(reader)
}

/// Readers of one event stream, a thread each, as open pages are.
#[derive(Debug)]
pub(crate) struct Watchers {
    threads: Vec<JoinHandle<()>>,
    sockets: Vec<TcpStream>,
    updates: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Watchers {
    pub(crate) fn open(address: SocketAddr, path: &str, count: usize) -> Result<Self> {
        let (updates, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut watchers = Self { threads: Vec::new(), sockets: Vec::new(), updates, ended };
        for _ in 0..count {
            let reader = open_stream(address, path)?;
            reader.get_ref().set_read_timeout(None)?;
            watchers.sockets.push(reader.get_ref().try_clone()?);
            let updates = watchers.updates.clone();
            let ended = watchers.ended.clone();
            let watch = move || {
                for line in reader.lines().map_while(Result::ok) {
                    if line.starts_with("event:") && line.ends_with("progress") {
                        updates.fetch_add(1, Ordering::Relaxed);
                    }
                }
                ended.store(true, Ordering::Relaxed);
            };
            watchers.threads.push(thread::spawn(watch));
        }
        Ok(watchers)
    }

    /// Closes all streams. Returns the number of updates that each received, on average.
    ///
    /// # Errors
    /// A stream had ended before.
    pub(crate) fn close(self) -> Result<f64> {
        let count = self.threads.len();
        let early = self.ended.load(Ordering::Relaxed);
        for socket in &self.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        ensure!(!early, "an event stream ended before the experiment");
        let updates = self.updates.load(Ordering::Relaxed) as f64;
        Ok(if count == 0 { 0.0 } else { updates / count as f64 })
    }
}
