//! Live views on a real pseudo-terminal, with a real reflector and a real lab.

mod pty;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use dwell_io::netns;
use dwell_io::process::Signal;
use pty::{DWELL, OnTerminal};

/// `dwell reflect` on loopback, ended with its test.
struct Reflector(Child);

impl Reflector {
    fn start() -> (Self, String) {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("stamp://127.0.0.1:{port}");
        let mut command = Command::new(DWELL);
        command.args(["reflect", &url]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines: Vec<_> = stderr.lines().map_while(Result::ok).take(1).collect();
        assert!(lines.iter().any(|line| line.contains("listening")), "{lines:?}");
        (Self(child), url)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Number of frames: each begins by moving up over the one before it.
fn frames(text: &str) -> usize {
    let ups = text.split("\r\x1b[").skip(1);
    ups.filter(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('A'))
        .count()
}

/// Whether a line of the screen has all of these words.
fn has_line(screen: &str, words: &[&str]) -> bool {
    screen.lines().any(|line| words.iter().all(|word| line.contains(word)))
}

#[test]
fn live_ping_redraws_and_then_prints_the_result() {
    let (_reflector, url) = Reflector::start();
    let mut ping = OnTerminal::start(&["ping", "--live", "-c", "40", "-i", "0.05", &url], &[]);
    ping.wait_until("a frame", |screen| {
        has_line(screen, &[&url, " left"]) && has_line(screen, &["p50 ", "p99        -", "max "])
    });
    ping.wait_until("the chart", |screen| screen.contains('\u{2502}'));
    let ended = ping.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.screen);
    ended.assert_restored();
    assert!(has_line(&ended.screen, &["sent 40/40", "received 40", "lost 0"]), "{}", ended.screen);
    assert!(has_line(&ended.screen, &["packets ", "40 sent, 40 received in time"]));
    assert_eq!(ended.screen.matches("p50 ").count(), 1, "one frame is left:\n{}", ended.screen);
    let frames = frames(&ended.text);
    assert!((5..=40).contains(&frames), "2 s at most ten times a second: {frames}");
}

#[test]
fn interrupted_live_ping_prints_its_result() {
    let (_reflector, url) = Reflector::start();
    for by_key in [true, false] {
        let mut ping = OnTerminal::start(&["ping", "--live", "-i", "0.02", &url], &[]);
        ping.wait_until("replies", |screen| has_line(screen, &["sent 1", "received 1"]));
        if by_key {
            ping.type_text("\x03");
        } else {
            ping.signal(Signal::Terminate);
        }
        let ended = ping.end();
        assert_eq!(ended.status.code(), Some(130), "{}", ended.screen);
        ended.assert_restored();
        assert!(has_line(&ended.screen, &["round trip  min "]), "{}", ended.screen);
    }
}

#[test]
fn killed_live_ping_leaves_a_usable_terminal() {
    let (_reflector, url) = Reflector::start();
    let mut ping = OnTerminal::start(&["ping", "--live", "-i", "0.02", &url], &[]);
    ping.wait_until("replies", |screen| has_line(screen, &["sent 1", "received 1"]));
    ping.signal(Signal::Kill);
    let ended = ping.end();
    assert_eq!(ended.status.signal(), Some(9));
    ended.assert_restored();
}

#[test]
fn continued_live_ping_draws_below_what_the_shell_wrote() {
    let (_reflector, url) = Reflector::start();
    let mut ping = OnTerminal::start(&["ping", "--live", "-i", "0.02", &url], &[]);
    ping.wait_until("replies", |screen| has_line(screen, &["sent 1", "received 1"]));
    // The view is 11 lines high, so that both fit.
    ping.signal(Signal::Stop);
    ping.signal(Signal::Continue);
    ping.wait_until("a second view", |screen| screen.matches("p50 ").count() == 2);
    ping.type_text("\x03");
    ping.end().assert_restored();
}

#[test]
fn live_ping_ends_with_its_terminal() {
    let (_reflector, url) = Reflector::start();
    let mut ping = OnTerminal::start(&["ping", "--live", "-i", "0.02", &url], &[]);
    ping.wait_until("replies", |screen| has_line(screen, &["sent 1", "received 1"]));
    assert_eq!(ping.close().signal(), Some(1));
}

#[test]
fn stopped_terminal_does_not_stop_recording() {
    let (_reflector, url) = Reflector::start();
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.csv");
    let path = rows.display().to_string();
    let arguments = ["ping", "--live", "-c", "600", "-i", "0.005", "--csv", &path, &url];
    let mut ping = OnTerminal::start(&arguments, &[]);
    ping.wait_until("replies", |screen| has_line(screen, &["sent 1", "received 1"]));
    // ^S: the terminal accepts no more output.
    ping.type_text("\x13");
    // A line per probe and a header.
    ping.wait_until("all rows", |_| {
        std::fs::read_to_string(&rows).is_ok_and(|text| text.lines().count() == 601)
    });
    assert!(!ping.screen().contains("600 sent"), "{}", ping.screen());
    ping.type_text("\x11");
    let ended = ping.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.screen);
    assert!(has_line(&ended.screen, &["600 sent, 600 received in time"]), "{}", ended.screen);
    assert!(has_line(&ended.screen, &["sent 600/600"]), "{}", ended.screen);
}

#[test]
fn live_ping_follows_the_size_of_the_terminal() {
    let (_reflector, url) = Reflector::start();
    let mut ping = OnTerminal::start(&["ping", "--live", "-i", "0.02", &url], &[]);
    ping.wait_until("the chart", |screen| screen.contains("lost/late"));
    // All are high enough for the view before and after the change: a terminal moves lines that no
    // longer fit to its scrollback.
    for (columns, rows, axis) in [(120, 40, 109), (60, 16, 49), (100, 24, 89)] {
        ping.resize(columns, rows);
        ping.wait_until("one frame of the new width", |screen| {
            let widths = screen.lines().filter(|line| line.trim_start().starts_with("0 s"));
            screen.matches("p50 ").count() == 1
                && widths.map(|line| line.trim_start().len()).eq([axis])
        });
    }
    ping.type_text("\x03");
    ping.end().assert_restored();
}

#[test]
fn terminal_without_unicode_or_colours_gets_neither() {
    let (_reflector, url) = Reflector::start();
    let arguments = ["ping", "--live", "-c", "10", "-i", "0.02", &url];
    let ended = OnTerminal::start(&arguments, &[("LC_ALL", "C"), ("NO_COLOR", "1")]).end();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.text.is_ascii() && ended.screen.contains("lost/late"), "{}", ended.screen);
    assert!(!ended.text.contains(";3"), "{:?}", ended.text);
    let dumb = OnTerminal::start(&arguments, &[("TERM", "dumb")]).end();
    assert_eq!(dumb.status.code(), Some(0));
    assert!(!dumb.text.contains('\x1b'), "{:?}", dumb.text);
    assert!(dumb.text.contains("cannot move the cursor"), "{}", dumb.text);
}

#[test]
fn live_ping_without_a_terminal_is_a_usage_error() {
    let output = Command::new(DWELL)
        .args(["ping", "--live", "-c", "1", "127.0.0.1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--live needs a terminal") && said.contains("ssh -t"), "{said}");
    let ended = OnTerminal::start(&["ping", "--live", "--jsonl", "127.0.0.1"], &[]).end();
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.text.contains("redirect standard output"), "{}", ended.text);
}

/// A plan of three trials of a second each.
fn plan(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("small.toml");
    let text = "version = 1\nname = \"small\"\n[topology]\nlab = \"line:2\"\n[ping]\nfrom = \"n1\"\n\
                to = \"n2\"\nprotocol = \"udp\"\ncount = 200\ninterval = \"5ms\"\n[matrix]\n\
                size = [\"100B\", \"200B\", \"300B\"]\n[trials]\nrepetitions = 1\nseed = 7\n";
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Whether this process may make namespaces; otherwise the test is skipped.
fn may_make_labs() -> bool {
    let may = netns::may_create();
    if !may {
        println!("SKIP {}: needs root", std::thread::current().name().unwrap_or("live"));
    }
    may
}

#[test]
fn run_on_a_terminal_shows_its_trials() {
    if !may_make_labs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    let variables = [("DWELL_DATA", data.as_str())];
    let mut run = OnTerminal::start(&["run", &plan(&dir)], &variables);
    run.wait_until("figures of a trial", |screen| {
        has_line(screen, &["trials ", "/3"]) && has_line(screen, &["sent ", "lost 0", "p50 "])
    });
    run.wait_until("the chart of a trial", |screen| screen.contains("lost/late"));
    run.wait_until("the median of a trial", |screen| screen.contains("rtt p50"));
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.screen);
    ended.assert_restored();
    assert!(has_line(&ended.screen, &["trials 3/3", "ended"]), "{}", ended.screen);
    assert!(has_line(&ended.screen, &["complete; 3 of 3 trials measured"]), "{}", ended.screen);
    assert!(has_line(&ended.screen, &["3 trials of plan small"]), "earlier output is kept");
    assert!(!ended.screen.contains("lost/late"), "{}", ended.screen);
}

#[test]
fn interrupted_run_restores_the_terminal() {
    if !may_make_labs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    let mut run = OnTerminal::start(&["run", &plan(&dir)], &[("DWELL_DATA", data.as_str())]);
    run.wait_until("a trial", |screen| has_line(screen, &["sent ", "p50 "]));
    run.type_text("\x03");
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.screen);
    ended.assert_restored();
    assert!(has_line(&ended.screen, &["interrupted; the current trial is discarded"]));
    assert!(has_line(&ended.screen, &["--resume"]), "{}", ended.screen);
}
