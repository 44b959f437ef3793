//! Many clients, and the memory of the server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::Server;

/// Maximum resident memory of an idle server in KiB: 30 MB. A debug build maps a program four times as
/// large, so only its own memory counts, without the 20 MB that the program of a release build takes.
const MAX_IDLE_KIB: (&str, u64) = if cfg!(debug_assertions) {
    ("RssAnon", 10_000_000 / 1024)
} else {
    ("VmRSS", 30_000_000 / 1024)
};

#[test]
fn idle_server_needs_little_memory() {
    let (kind, max) = MAX_IDLE_KIB;
    let server = Server::start();
    let after_start = server.resident(kind);
    for path in ["/runs", "/api/v1/runs", "/login", "/absent"] {
        for _ in 0..50 {
            server.get(path);
        }
    }
    let after_requests = server.resident(kind);
    println!("{kind}: {after_start} KiB after start, {after_requests} KiB after 200 requests");
    assert!(after_requests < max, "{after_requests} KiB");
}

#[test]
fn thousand_idle_connections_do_not_disturb_others() {
    let Some(most) = raised_descriptors(1200) else {
        println!("SKIP thousand_idle_connections_do_not_disturb_others: limit of descriptors");
        return;
    };
    assert!(most >= 1200);
    let server = Server::start();
    let mut idle: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for stream in &mut idle {
        let count = stream.read(&mut [0; 4096]).unwrap();
        assert!(count > 0);
    }
    let start = Instant::now();
    assert_eq!(server.get("/runs").status, 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    println!("RssAnon with 1000 idle connections: {} KiB", server.resident("RssAnon"));
}

/// Raises the limit of descriptors of this process; `None` if it is not permitted.
fn raised_descriptors(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).ok()?;
    }
    Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}
