//! `dwell hub alerts`, and the delivery of messages by `dwell hub --embedded`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_hub::{Delivery, Rules, SqliteStore, ingest};
use dwell_io::process::{Handle, Signal};
use dwell_rollup::{
    Body, BootId, ClockQuality, DelayRollup, Identity, Incarnation, Level, Name, ProbeCounts,
    Record, Rollup, RollupMetric, Stream,
};
use dwell_units::Nanos;
use serde_json::{Value, json};

use crate::fixture::{
    STEP_TIMEOUT, Sandbox, object, skip, stderr, stdout, wait_for_exit, wait_until,
};
use crate::schema::assert_matches_schema;

const SECOND: i64 = 1_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A data directory with a schedule in which `a` sends a probe per second to `b`, and results of slow
/// probes from two minutes before now until four minutes after now.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let mesh = sandbox.write(
        "mesh.toml",
        "version = 1\n[nodes.a]\naddress = \"192.0.2.1\"\n[nodes.b]\naddress = \"192.0.2.2\"\n\
         [[measure]]\nname = \"mesh\"\npairs = [\"a:b\"]\n",
    );
    let applied = sandbox.dwell(&["hub", "schedule", "apply", &mesh]);
    assert!(applied.status.success(), "{applied:?}");
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
    let start = (now - 120 * SECOND).div_euclid(10 * SECOND) * 10 * SECOND;
    let mut message = Vec::new();
    for n in 0..36 {
        let mut delays = DelayRollup::default();
        (0..9).for_each(|_| assert!(delays.record(Nanos::from_millis(50))));
        let counts = ProbeCounts { sent: 10, received: 9, lost: 1, ..ProbeCounts::default() };
        let start_wall_ns = start + n * 10 * SECOND;
        let sequence = n as u64 + 1;
        let record = Record {
            identity: Identity { node: name("a"), incarnation: Incarnation(1), sequence },
            wall_ns: start_wall_ns + 11 * SECOND,
            boot_ns: (n + 1) * 10 * SECOND,
            boot_id: BootId([1; 16]),
            body: Body::Rollup(Rollup {
                level: Level::TenSeconds,
                stream: Stream {
                    reflector: name("b"),
                    protocol: name("stamp"),
                    entry: name("mesh+b"),
                },
                schedule_version: 1,
                start_wall_ns,
                start_boot_ns: n * 10 * SECOND,
                duration_ns: 10 * SECOND as u64,
                counts,
                delays: vec![(RollupMetric::Rtt, delays)],
                clock: ClockQuality { is_synchronised: true, ..ClockQuality::default() },
            }),
        };
        record.encode(&mut message).unwrap();
    }
    let mut store = SqliteStore::open(&sandbox.data()).unwrap();
    let delivery = Delivery { node: &name("a"), arrival_ns: now, message: &message };
    ingest(&mut store, &[delivery], &Rules::default()).unwrap();
    sandbox
}

/// A mail server that keeps messages in a directory.
struct MailServer {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl MailServer {
    /// Starts the server; `None` if it is not installed.
    fn start(sandbox: &Sandbox, options: &[&str]) -> Option<Self> {
        // The package belongs to the Python of the distribution.
        let python = || Command::new("/usr/bin/python3");
        let found = python().args(["-c", "import aiosmtpd"]).output().ok()?.status.success();
        if !found {
            skip("python3-aiosmtpd is not installed");
            return None;
        }
        let dir = sandbox.path("mail");
        // Another program may take the port before the server does, which fails the test.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = python()
            .args(["-m", "aiosmtpd", "--nosetuid", "--listen", &format!("127.0.0.1:{port}")])
            .args(options)
            .args(["--class", "aiosmtpd.handlers.Mailbox"])
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, dir, port };
        wait_until("the mail server", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(server)
    }

    /// The received messages, without line breaks in headers.
    fn messages(&self) -> Vec<String> {
        let files = fs::read_dir(self.dir.join("new")).into_iter().flatten().flatten();
        let text =
            |path| fs::read_to_string(path).unwrap().replace("\r\n", "\n").replace("\n ", " ");
        files.map(|file| text(file.path())).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Receives a request; returns its head and body.
fn receive(listener: &TcpListener) -> (TcpStream, String, Value) {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    wait_until("a request", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let head = head.to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (reader.into_inner(), head, serde_json::from_slice(&body).unwrap())
}

fn answer(mut stream: TcpStream, status: &str) {
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
}

fn events(sandbox: &Sandbox) -> Value {
    object(&sandbox.dwell(&["hub", "alerts", "history", "--format", "json"]))
}

#[test]
fn alert_is_delivered_also_after_a_kill() {
    let sandbox = sandbox();
    let Some(mail) = MailServer::start(&sandbox, &[]) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, smtp) = (listener.local_addr().unwrap(), mail.port);
    let rules = sandbox.write(
        "alerts.toml",
        &format!(
            "version = 1\ndelay = \"1s\"\n[[alert]]\nname = \"slow\"\nwhen = \"p95 > 20ms for 1m\"\n\
             samples = true\nnotify = [\"ops\"]\n\
             [notify.ops]\nwebhook = \"http://{web}/hook/secret\"\n\
             email = [\"ops@example.org\"]\n[smtp]\nhost = \"127.0.0.1\"\nport = {smtp}\n\
             from = \"dwell@example.org\"\nsecurity = \"none\"\n"
        ),
    );
    let applied = sandbox.dwell(&["hub", "alerts", "apply", &rules]);
    let text =
        "alert  condition            watches   notify\nslow   p95 > 20ms for 1min  1 stream  ops\n";
    assert_eq!(stdout(&applied), text, "{applied:?}");
    let mut hub = sandbox.start(&mut sandbox.command(&["hub", "--embedded"]));
    let (unanswered, head, first) = receive(&listener);
    assert!(head.starts_with("post /hook/secret http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_matches_schema("dwell.alert", &first);
    let alert = &first["alerts"][0];
    assert_eq!((&first["event"], &first["rule"]), (&json!("fired"), &json!("slow")));
    assert_eq!(alert["subject"], json!({ "sender": "a", "reflector": "b", "measure": "mesh" }));
    let samples = json!({ "request": null, "reason": "no hub collects from a over SSH" });
    assert_eq!(alert["samples"], samples);
    let value = &alert["value"];
    assert!(value["low"].as_f64().unwrap() > 49e6 && value["high"].as_f64().unwrap() < 51e6);
    // Killed between the message and its answer.
    hub.kill().unwrap();
    hub.wait().unwrap();
    drop(unanswered);
    let mut hub = sandbox.start(&mut sandbox.command(&["hub", "--embedded"]));
    let (stream, _, again) = receive(&listener);
    assert_eq!(again, first, "at least once");
    answer(stream, "200 OK");
    wait_until("the delivery to be noted", || {
        events(&sandbox)["events"][0]["outcomes"].as_array().unwrap().len() == 2
    });
    Handle::open(hub.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert_eq!(wait_for_exit(&mut hub).code(), Some(0));
    assert!(sandbox.stderr().contains("hub stopped"), "{}", sandbox.stderr());
    let history = events(&sandbox);
    assert_matches_schema("dwell.alert-history", &history);
    assert_eq!(history["events"].as_array().unwrap().len(), 1, "{history:#}");
    let table = stdout(&sandbox.dwell(&["hub", "alerts", "history"]));
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains("fired") && row.contains("slow  a:b mesh p95 5"), "{table}");
    assert!(row.contains("; samples: not requested: no hub collects from a"), "{table}");
    assert!(row.ends_with("ops email, ops webhook"), "{table}");
    let messages = mail.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let subject = "Subject: [dwell] fired: slow a:b mesh p95 ";
    assert!(messages[0].contains(subject), "{messages:?}");
    assert!(messages[0].contains("To: ops@example.org"), "{messages:?}");
    let status = object(&sandbox.dwell(&["hub", "alerts", "status", "--format", "json"]));
    assert_matches_schema("dwell.alerts", &status);
    assert_eq!(
        (&status["alerts"][0]["phase"], &status["deliveries"]),
        (&json!("firing"), &json!([]))
    );
    let table = stdout(&sandbox.dwell(&["hub", "alerts", "status"]));
    assert!(table.contains("slow  a:b mesh  firing  "), "{table}");
}

#[test]
fn hub_ends_while_a_mail_server_hangs() {
    let sandbox = sandbox();
    let added = sandbox.dwell(&["device", "add", "a", "192.0.2.1", "--address", "192.0.2.1"]);
    assert!(added.status.success(), "{added:?}");
    // It accepts connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let rules = sandbox.write(
        "alerts.toml",
        &format!(
            "version = 1\ndelay = \"1s\"\n[[alert]]\nname = \"slow\"\nwhen = \"p95 > 20ms for 1m\"\n\
             samples = true\nnotify = [\"ops\"]\n[notify.ops]\nemail = [\"ops@example.org\"]\n\
             [smtp]\nhost = \"127.0.0.1\"\nport = {}\nfrom = \"dwell@example.org\"\n\
             security = \"none\"\n",
            listener.local_addr().unwrap().port()
        ),
    );
    let applied = sandbox.dwell(&["hub", "alerts", "apply", &rules]);
    assert!(applied.status.success(), "{applied:?}");
    let mut command = sandbox.command(&["hub", "--embedded"]);
    let mut hub = sandbox.start(command.env("DWELL_SSH_COMMAND", "/bin/false"));
    let mut connection = None;
    wait_until("a connection to the mail server", || {
        connection = listener.accept().ok();
        connection.is_some()
    });
    let interrupted = Instant::now();
    Handle::open(hub.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert_eq!(wait_for_exit(&mut hub).code(), Some(0));
    assert!(interrupted.elapsed() < Duration::from_secs(15), "{:?}", interrupted.elapsed());
    // The message waits for the next hub, and names the request for samples of the device.
    let history = events(&sandbox);
    let alert = &history["events"][0]["alerts"][0];
    assert_eq!(alert["samples"], json!({ "request": 1, "reason": null }), "{history:#}");
    let listed = stdout(&sandbox.dwell(&["hub", "samples", "list"]));
    let row = listed.lines().nth(1).unwrap();
    assert!(row.contains("a:b") && row.ends_with("alert slow"), "{listed}");
    let samples = object(&sandbox.dwell(&["hub", "samples", "list", "--format", "json"]));
    assert_matches_schema("dwell.hub-samples", &samples);
    assert_eq!(samples["requests"][0]["author"], "alert slow");
}

#[test]
fn test_message_shows_what_is_wrong() {
    let sandbox = sandbox();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let web = listener.local_addr().unwrap();
    let rules = format!("version = 1\n[notify.ops]\nwebhook = \"http://{web}/secret\"\n");
    let rules = sandbox.write("alerts.toml", &rules);
    assert!(sandbox.dwell(&["hub", "alerts", "apply", &rules]).status.success());
    let other = sandbox.dwell(&["hub", "alerts", "test", "oops"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("no receiver [notify.oops]"), "{other:?}");
    let test = |status: &str| {
        let child = sandbox.start(&mut sandbox.command(&["hub", "alerts", "test", "ops"]));
        let (stream, _, message) = receive(&listener);
        answer(stream, status);
        (child.wait_with_output().unwrap().status.code(), message, sandbox.stderr())
    };
    let (code, message, said) = test("204 No Content");
    assert_eq!((code, &message["event"]), (Some(0), &json!("test")));
    assert_matches_schema("dwell.alert", &message);
    assert!(said.contains("sent to ops webhook"), "{said}");
    // Redirects would send the message to another host.
    let (code, _, said) = test("302 Found\r\nlocation: http://192.0.2.1/");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("status 302; redirects are not followed"), "{said}");
    assert!(said.contains(&format!("http://{web} ")) && !said.contains("secret"), "{said}");
    let status = stdout(&sandbox.dwell(&["hub", "alerts", "status"]));
    assert!(status.contains("event 2 waits for ops webhook, 1 attempts"), "{status}");
}

#[test]
fn email_is_sent_over_starttls() {
    let sandbox = sandbox();
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| sandbox.path(name));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .args([&key, &PathBuf::from("-out"), &certificate])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return skip("openssl is not installed");
    }
    let [key, certificate] = [key, certificate].map(|path| path.display().to_string());
    let options = ["--tlscert", &certificate, "--tlskey", &key];
    let Some(mail) = MailServer::start(&sandbox, &options) else { return };
    let rules = sandbox.write(
        "alerts.toml",
        &format!(
            "version = 1\n[notify.ops]\nemail = [\"a@example.org\", \"b@example.org\"]\n[smtp]\n\
             host = \"localhost\"\nport = {}\nfrom = \"dwell@example.org\"\n",
            mail.port
        ),
    );
    assert!(sandbox.dwell(&["hub", "alerts", "apply", &rules]).status.success());
    let test = || sandbox.command(&["hub", "alerts", "test", "ops"]);
    let unknown = test().output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("certificate"), "{unknown:?}");
    assert_eq!(mail.messages(), [""; 0]);
    let trusted = test().env("SSL_CERT_FILE", &certificate).output().unwrap();
    assert!(trusted.status.success(), "{trusted:?}");
    let messages = mail.messages();
    assert!(messages[0].contains("Subject: [dwell] test: ops"), "{messages:?}");
    assert_eq!(messages.len(), 1);
}

#[test]
fn wrong_rules_are_a_usage_error_and_change_nothing() {
    let sandbox = sandbox();
    for (lines, wrong) in [
        ("when = \"p98 > 20ms for 5m\"", "line 4, column 8"),
        ("when = \"p99 > 20ms for 1m\"", "needs at least 100 probes, but a:b mesh sends 60"),
        ("when = \"loss > 1% for 1m\"\npairs = [\"b:a\"]", "no stream of schedule version 1"),
        ("when = \"silent for 15m\"\nnodes = \"x\"", "'x' is no node and no group"),
    ] {
        let text = format!("version = 1\n[[alert]]\nname = \"x\"\n{lines}\n");
        let file = sandbox.write("wrong.toml", &text);
        for command in ["check", "apply"] {
            let refused = sandbox.dwell(&["hub", "alerts", command, &file]);
            assert_eq!(refused.status.code(), Some(2), "{lines}: {refused:?}");
            let said = stderr(&refused);
            assert!(said.contains("wrong.toml: ") && said.contains(wrong), "{said}");
        }
    }
    let status = stdout(&sandbox.dwell(&["hub", "alerts", "status"]));
    assert!(status.contains("no alert rules are applied"), "{status}");
    let unknown = sandbox.dwell(&["hub", "maintenance", "x", "--for", "2h"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let announced = sandbox.dwell(&["hub", "maintenance", "b", "--for", "2h", "--reason", "move"]);
    assert!(stderr(&announced).contains("b: no alerts until 20"), "{announced:?}");
    let status = stdout(&sandbox.dwell(&["hub", "alerts", "status"]));
    assert!(status.contains("b is in maintenance until 20"), "{status}");
    assert!(stderr(&sandbox.dwell(&["hub", "maintenance", "b", "--end"])).contains("has ended"));
    let status = stdout(&sandbox.dwell(&["hub", "alerts", "status"]));
    assert!(!status.contains("is in maintenance"), "{status}");
}
