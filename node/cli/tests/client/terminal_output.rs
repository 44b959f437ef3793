//! Terminal output: a line per reply, and the five rows of the result.

use std::process::{Command, Output, Stdio};

use crate::support::{DWELL, Server, dwell, said};

/// Runs dwell on its own terminal (script(1)); returns everything it printed.
fn on_a_terminal(test: &str, arguments: &[&str]) -> Option<String> {
    let command = format!("{DWELL} {}", arguments.join(" "));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).stdin(Stdio::null());
    let output: Output = match script.output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP {test}: script(1) does not start: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

fn replies(text: &str) -> usize {
    text.lines().filter(|line| line.contains("bytes from 127.0.0.1: seq=")).count()
}

#[test]
fn terminal_shows_a_line_per_reply_at_slow_rates() {
    const TEST: &str = "terminal_shows_a_line_per_reply_at_slow_rates";
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let slow = ["ping", &urls[0], "-c", "3", "-i", "0.1"];
    let Some(text) = on_a_terminal(TEST, &slow) else { return };
    assert_eq!(replies(&text), 3, "{text}");
    // An echo reply carries the arriving TTL - 1.
    assert!(text.contains("64 bytes from 127.0.0.1: seq=2 ttl=63 time="), "{text}");
    let stream = Server::reflect(&["tcp"], "127.0.0.1", &[]);
    let tcp = ["ping", &stream.1[0], "-c", "3", "-i", "0.1"];
    let text = on_a_terminal(TEST, &tcp).unwrap();
    assert!(replies(&text) == 3 && !text.contains("ttl="), "{text}");
    for without in [&["-q"][..], &["-i", "0.05"], &["--json"]] {
        let text = on_a_terminal(TEST, &[&slow[..4], without].concat()).unwrap();
        assert_eq!(replies(&text), 0, "{without:?} {text}");
    }
    let verbose = on_a_terminal(TEST, &[&slow[..4], &["-i", "0.01", "-v"]].concat()).unwrap();
    assert_eq!(replies(&verbose), 3, "{verbose}");
}

#[test]
fn result_is_five_rows_and_verbose_the_long_table() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let base = ["ping", &urls[0], "-c", "20", "-i", "0.01"];
    let output = dwell(&base);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let notes = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let rows: Vec<_> = text.lines().filter(notes).collect();
    assert_eq!(rows.len(), 5, "{text}");
    assert!(rows[0].starts_with(&urls[0]), "{text}");
    assert!(rows[1].contains("20 sent, 20 received in time, 0 late, 0 lost"), "{text}");
    assert!(rows[2].contains("in time 100 %, late 0 %, lost 0 %"), "{text}");
    assert!(rows[3].contains("median") && rows[4].contains("IPDV"), "{text}");
    assert_eq!(said(&output), "", "lines without a terminal");
    let output = dwell(&[&base[..], &["-v"]].concat());
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.contains("rtt_intended") && table.contains("schedule_error"), "{table}");
    assert_eq!(replies(&said(&output)), 20);
}
