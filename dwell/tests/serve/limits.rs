//! Large requests and slow clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Answer, Server};

#[test]
fn upload_of_a_gigabyte_is_refused_before_it_is_sent() {
    let server = Server::start();
    for path in ["/data/import", "/api/v1/experiments", "/experiments", "/login"] {
        let start = Instant::now();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\
             Content-Type: application/json\r\n\r\n"
        );
        let answer = server.raw(head.as_bytes());
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{path}");
    }
}

#[test]
fn body_without_a_length_is_refused_at_its_limit() {
    let server = Server::start();
    let mut stream = server.connect();
    let head = "POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
                Content-Type: application/json\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    // The server may close before everything is sent.
    let sent = (0..64).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent > 8, "{sent}");
    assert_eq!(Answer::read(&mut stream).status, 413);
}

#[test]
fn long_header_is_refused() {
    let server = Server::start();
    let long = "x".repeat(64 << 10);
    let answer = server.send("GET /", &[("X-Long", &long)], "");
    assert_eq!(answer.status, 431, "{answer:?}");
    let many: Vec<_> = (0..200).map(|_| ("X", "1")).collect();
    assert_eq!(server.send("GET /", &many, "").status, 431);
}

#[test]
fn slow_clients_are_ended_and_do_not_block_others() {
    let server = Server::start();
    let open = |text: &str, count| -> Vec<TcpStream> {
        let open = |_| {
            let mut stream = server.connect();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        (0..count).map(open).collect()
    };
    let start = Instant::now();
    let silent = open("", 100);
    let headers = open("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", 100);
    let head = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n";
    let bodies = open(&format!("{head}Content-Type: application/json\r\n\r\n{{"), 100);
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(server.get("/api/v1/runs").status, 200);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    for mut stream in silent.into_iter().chain(headers) {
        let ended = stream.read(&mut [0; 1024]);
        assert!(ended.is_ok(), "{ended:?} after {:?}", start.elapsed());
    }
    assert!(start.elapsed() > Duration::from_secs(5), "a slow link is not an attack");
    for mut stream in bodies {
        let answer = Answer::read(&mut stream);
        assert_eq!(answer.status, 408, "{answer:?} after {:?}", start.elapsed());
    }
}
