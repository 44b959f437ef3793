//! Messages to a web server and to a mail server on this machine.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dwell_hub::alert::{Message, Security, Smtp, Target};
use dwell_notify::send;
use serde_json::json;

const STEP_TIMEOUT: Duration = Duration::from_secs(60);

fn message() -> Message {
    let (subject, text) = ("[dwell] fired: slow a:b".to_owned(), "p99 31 ms\n".to_owned());
    Message { subject, text, object: json!({ "schema": "dwell.alert/1", "id": 1 }) }
}

/// Posts a message to a server that answers with this status. Returns the result and the request.
fn post(status: &'static str) -> (Result<(), String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook/secret", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let mut reader = BufReader::new(stream);
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
        }
        let mut body = vec![0; message().object.to_string().len()];
        reader.read_exact(&mut body).unwrap();
        request += &String::from_utf8(body).unwrap();
        let mut stream = reader.into_inner();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        request
    });
    let result = send(&Target::Webhook(url), &message()).map_err(|error| error.to_string());
    (result, server.join().unwrap())
}

#[test]
fn webhook_receives_the_object_and_redirects_are_refused() {
    let (result, request) = post("200 OK");
    assert_eq!(result, Ok(()));
    assert!(request.starts_with("POST /hook/secret HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("content-type: application/json"), "{request}");
    assert!(request.ends_with(&message().object.to_string()), "{request}");
    let error = post("302 Found\r\nlocation: http://192.0.2.1/").0.unwrap_err();
    assert!(error.contains("status 302; redirects are not followed"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    let closed = Target::Webhook("http://127.0.0.1:1/secret".to_owned());
    let error = send(&closed, &message()).unwrap_err().to_string();
    assert!(error.starts_with("cannot reach http://127.0.0.1:1: "), "{error}");
}

/// A child that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mail_server_receives_plain_text() {
    // The package belongs to the Python of the distribution.
    let python = || Command::new("/usr/bin/python3");
    let found = python().args(["-c", "import aiosmtpd"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        println!("SKIP mail_server_receives_plain_text: python3-aiosmtpd is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mail = dir.path().join("mail");
    // Another program may take the port before the server does, which fails the test.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = python()
        .args(["-m", "aiosmtpd", "--nosetuid", "--listen", &format!("127.0.0.1:{port}")])
        .args(["--class", "aiosmtpd.handlers.Mailbox"])
        .arg(&mail)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Killed(server);
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(since.elapsed() < STEP_TIMEOUT, "the mail server does not start");
        thread::sleep(Duration::from_millis(10));
    }
    let mut smtp = Smtp {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
        from: "dwell@example.org".to_owned(),
        user: None,
        password_file: None,
        security: Security::None,
    };
    let to = vec!["ops@example.org".to_owned()];
    let target = |smtp: &Smtp| Target::Email { to: to.clone(), smtp: smtp.clone() };
    send(&target(&smtp), &message()).unwrap();
    let received = fs::read_dir(mail.join("new")).unwrap().flatten();
    let received: Vec<_> = received.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
    let [text] = &received[..] else { panic!("{received:?}") };
    assert!(text.contains("Subject: [dwell] fired: slow a:b"), "{text}");
    assert!(text.contains("To: ops@example.org") && text.contains("p99 31 ms"), "{text}");
    // The server has no certificate, so nothing is sent in clear.
    smtp.security = Security::StartTls;
    let error = send(&target(&smtp), &message()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("mail server 127.0.0.1:{port}: ")), "{error}");
    assert_eq!(fs::read_dir(mail.join("new")).unwrap().count(), 1);
}
