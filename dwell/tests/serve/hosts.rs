//! Names of the server (DNS rebinding), and the headers of its answers.

use crate::support::{Server, make_token};

#[test]
fn other_host_names_are_misdirected_on_every_path() {
    let server = Server::start();
    for path in ["/", "/api/v1/runs", "/login", "/metrics", "/assets/x/app.css", "/absent"] {
        for host in ["evil.example", "localhost.evil.example", "192.0.2.1", "a@localhost", ""] {
            let answer = server.send(&format!("GET {path}"), &[("Host", host)], "");
            assert_eq!(answer.status, 421, "{path} {host}: {answer:?}");
        }
    }
    let page = server.send("GET /", &[("Host", "evil.example")], "").body;
    assert!(page.contains("evil.example") && page.contains("--host NAME"), "{page}");
    let api = server.send("GET /api/v1/runs", &[("Host", "evil.example")], "").body;
    assert!(api.contains("\"code\":\"wrong-host\""), "{api}");
}

#[test]
fn loopback_names_are_answered_with_any_port() {
    let server = Server::start();
    for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:8080", "dwell.localhost"] {
        assert_eq!(server.send("GET /", &[("Host", host)], "").status, 200, "{host}");
    }
}

#[test]
fn hostile_host_is_shown_as_text() {
    let server = Server::start();
    let page = server.send("GET /", &[("Host", "<script>alert(1)</script>")], "").body;
    assert!(!page.contains("<script>alert"), "{page}");
}

#[test]
fn given_host_is_answered_and_needs_a_token() {
    let data = tempfile::tempdir().unwrap();
    let token = make_token(data.path());
    let server = Server::start_with(data, &["--host", "Lab.Example"]);
    let bearer = format!("Bearer {token}");
    let with = |host| {
        let headers = [("Host", host), ("Authorization", bearer.as_str())];
        server.send("GET /api/v1/runs", &headers, "").status
    };
    assert_eq!(with("lab.example:443"), 200);
    assert_eq!(with("other.example"), 421);
    assert_eq!(server.send("GET /api/v1/runs", &[("Host", "lab.example")], "").status, 401);
}

#[test]
fn request_names_exactly_one_host() {
    let server = Server::start();
    let status = |text: &str| server.raw(text.as_bytes()).status;
    assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), 421);
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(two), 421);
    let differing =
        "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(differing), 421);
}

#[test]
fn every_answer_has_the_security_headers() {
    let server = Server::start();
    let refused = server.send("GET /", &[("Host", "evil.example")], "");
    for answer in [server.get("/"), server.get("/api/v1/runs"), server.get("/absent"), refused] {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name} of {}", answer.status);
        }
    }
}

#[test]
fn assets_are_cached_and_texts_compressed() {
    let server = Server::start();
    let page = server.get("/").body;
    let asset = page.split('"').find(|part| part.ends_with("/page.css")).unwrap();
    let answer = server.get(asset);
    assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(answer.header("content-encoding"), None);
    let gzip = server.send(&format!("GET {asset}"), &[("Accept-Encoding", "gzip")], "");
    assert_eq!(gzip.header("content-encoding"), Some("gzip"));
    assert!(gzip.len < answer.len / 2);
}
