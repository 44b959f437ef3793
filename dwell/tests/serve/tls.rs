//! HTTPS, with a certificate made for the test and `openssl s_client` as an independent client.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{Answer, Server, make_token, refused};

/// A certificate of `localhost` with its key.
struct Certificate {
    dir: TempDir,
}

impl Certificate {
    fn make(name: &str) -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        let subject = format!("/CN={name}");
        let alternative = format!("subjectAltName=DNS:{name},IP:127.0.0.1");
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", &subject, "-addext", &alternative, "-keyout"])
            .arg(this.key())
            .arg("-out")
            .arg(this.certificate())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        this
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.dir.path().join("key.pem")
    }

    fn options(&self) -> [String; 4] {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        ["--tls-cert".into(), text(self.certificate()), "--tls-key".into(), text(self.key())]
    }
}

fn serve(certificate: &Certificate, args: &[&str]) -> (Server, String) {
    let data = tempfile::tempdir().unwrap();
    let token = make_token(data.path());
    let options = certificate.options();
    let options: Vec<_> = options.iter().map(String::as_str).chain(args.iter().copied()).collect();
    (Server::start_with(data, &options), token)
}

/// Sends a request by `openssl s_client`, which verifies the certificate.
fn request(port: u16, authority: &Path, text: &str) -> Answer {
    let address = SocketAddr::from(([127, 0, 0, 1], port)).to_string();
    let mut client = Command::new("timeout")
        .args(["20", "openssl", "s_client", "-quiet", "-verify_return_error", "-servername"])
        .args(["localhost", "-alpn", "http/1.1", "-connect", &address, "-CAfile"])
        .arg(authority)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    Answer::parse(&output.stdout)
}

fn head(first: &str, headers: &str) -> String {
    format!("{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

#[test]
fn https_answers_on_any_address_with_secure_cookies() {
    let certificate = Certificate::make("localhost");
    let (server, token) = serve(&certificate, &["--listen", "0.0.0.0:0"]);
    let port = server.address.port();
    let ca = certificate.certificate();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(request(port, &ca, &head("GET /api/v1/runs", &bearer)).status, 200);
    assert_eq!(request(port, &ca, &head("GET /api/v1/runs", "")).status, 401);

    let csrf = request(port, &ca, &head("GET /login", "")).csrf();
    let fields = format!("csrf={csrf}&token={token}");
    let form = |origin: &str| {
        let headers = format!(
            "Origin: {origin}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
            fields.len()
        );
        request(port, &ca, &(head("POST /login", &headers) + &fields))
    };
    assert_eq!(form("http://localhost").status, 403, "the same host without TLS is foreign");
    let answer = form("https://localhost");
    assert_eq!(answer.status, 303, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-dwell-") && cookie.ends_with("; Secure"), "{cookie}");
}

#[test]
fn plain_http_gets_no_answer_from_an_https_port() {
    let certificate = Certificate::make("localhost");
    let (server, _) = serve(&certificate, &[]);
    assert_eq!(server.get("/").status, 0);
    assert_eq!(
        request(server.address.port(), &certificate.certificate(), &head("GET /login", "")).status,
        200
    );
}

#[test]
fn hangup_reads_a_renewed_certificate() {
    let (first, second) = (Certificate::make("localhost"), Certificate::make("localhost"));
    let (server, _) = serve(&first, &[]);
    let answer = |ca: &Path| request(server.address.port(), ca, &head("GET /login", "")).status;
    assert_eq!((answer(&first.certificate()), answer(&second.certificate())), (200, 0));
    let former = tempfile::tempdir().unwrap();
    let former = former.path().join("former.pem");
    fs::copy(first.certificate(), &former).unwrap();
    fs::write(first.key(), "broken").unwrap();
    server.signal("HUP");
    server.wait_for_line("former certificate stays in use");
    assert_eq!(answer(&former), 200);
    fs::copy(second.certificate(), first.certificate()).unwrap();
    fs::copy(second.key(), first.key()).unwrap();
    server.signal("HUP");
    server.wait_for_line("read again");
    assert_eq!((answer(&former), answer(&second.certificate())), (0, 200));
}

#[test]
fn unusable_certificates_are_usage_errors() {
    let (one, other) = (Certificate::make("localhost"), Certificate::make("localhost"));
    let check = |certificate: &Path, key: &Path, part: &str| {
        let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
        let (output, _) = refused(&["--tls-cert", files[0], "--tls-key", files[1]]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(part), "{text}");
    };
    check(&one.certificate(), &other.key(), "cannot use");
    check(&one.key(), &one.certificate(), "certificate");
    fs::set_permissions(one.key(), fs::Permissions::from_mode(0o644)).unwrap();
    check(&one.certificate(), &one.key(), "chmod o-rwx");
}
