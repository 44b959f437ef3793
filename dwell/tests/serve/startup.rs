//! Options, exit codes, and the end of the server.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::support::{Server, dwell, make_token, refused};

#[test]
fn exposed_address_is_refused_within_a_second_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let cases: [(&[&str], &[&str], &[&str]); 4] = [
        (&["--listen", "0.0.0.0:0"], &["dwell serve token", "--tls-cert", "--insecure-http"], &[]),
        (&["--listen", "[::]:0", "--insecure-http"], &["dwell serve token"], &["--tls-cert"]),
        (&["--host", "lab.example"], &["dwell serve token", "proxy"], &["--tls-cert"]),
        (&["--require-token"], &["dwell serve token", data], &["--tls-cert"]),
    ];
    for (args, contained, absent) in cases {
        let (output, took) = refused(&[args, &["--data", data]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(took < Duration::from_secs(1), "{args:?}: {took:?}");
        assert!(contained.iter().all(|part| text.contains(part)), "{args:?}: {text}");
        assert!(!absent.iter().any(|part| text.contains(part)), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    make_token(dir.path());
    let (output, _) = refused(&["--listen", "0.0.0.0:0", "--data", data]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--tls-cert") && !text.contains("serve token"), "{text}");
}

#[test]
fn wrong_options_are_usage_errors() {
    for (args, part) in [
        (&["--listen", "8080"][..], "127.0.0.1:8080"),
        (&["--listen", "lab.example:80"], "127.0.0.1:8080"),
        (&["--tls-cert", "cert.pem"], "--tls-key"),
        (&["--tls-cert", "c", "--tls-key", "k", "--insecure-http"], "--insecure-http"),
        (&["--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"], "/nonexistent"),
        (&["--data", "/dev/null"], "/dev/null"),
    ] {
        let (output, _) = refused(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
    }
}

#[test]
fn port_in_use_is_an_error_that_names_the_option() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (output, _) = refused(&["--listen", &address]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");
}

#[test]
fn missing_data_directory_is_said_and_served() {
    let dir = tempfile::tempdir().unwrap();
    fs::remove_dir(dir.path()).unwrap();
    let server = Server::start_with(dir, &[]);
    assert_eq!(server.get("/runs").status, 200);
    assert_eq!(server.get("/api/v1/runs").status, 200);
    assert!(!server.data.path().exists(), "reading creates nothing");
}

#[test]
fn token_is_printed_once_and_replaced_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let run = || dwell(&["serve", "token", "--data", data.to_str().unwrap()]).output().unwrap();
    let (one, two) = (run(), run());
    assert!(one.status.success() && two.status.success(), "{one:?} {two:?}");
    assert!(one.stdout.starts_with(b"dwell_") && one.stdout.len() == 6 + 64 + 1, "{one:?}");
    assert_ne!(one.stdout, two.stdout);
    let said = |stderr: &[u8]| String::from_utf8_lossy(stderr).contains("former token");
    assert!(!said(&one.stderr) && said(&two.stderr), "{one:?} {two:?}");
    let file = data.join("serve-token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored = fs::read_to_string(&file).unwrap();
    let secret = String::from_utf8(two.stdout).unwrap().trim()[6..].to_owned();
    assert!(!stored.contains(&secret), "{stored}");
}

#[test]
fn signals_end_the_server_within_a_second() {
    for signal in ["INT", "TERM"] {
        let mut server = Server::start();
        let idle = server.connect();
        let mut pending = server.connect();
        std::io::Write::write_all(&mut pending, b"GET / HTTP/1.1\r\nHost: localh").unwrap();
        assert_eq!(server.get("/runs").status, 200);
        server.signal(signal);
        let (status, took) = server.wait();
        assert!(status.success(), "{signal}: {status}");
        assert!(took < Duration::from_millis(1500), "{signal}: {took:?}");
        drop(idle);
    }
}
