//! Servers that send an endless stream of bytes without a reply.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::process::Signal;

use crate::support::{DWELL, json, said, signal};

/// Longer than any of these runs, even on a busy machine.
const MAX_DURATION: Duration = Duration::from_secs(20);

/// A server that sends garbage on every connection until it breaks. The channel receives a message
/// per MiB.
fn garbage_server() -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sent, seen) = mpsc::channel();
    thread::spawn(move || {
        // Contains no prefix of "acknowledge" and no session of a probe.
        let garbage = b"0123456789abcdefghijklmnopqrstuv".repeat(1 << 11);
        while let Ok((mut stream, _)) = listener.accept() {
            for pieces in 1_u64.. {
                if stream.write_all(&garbage).is_err() {
                    break;
                }
                if pieces % 16 == 0 && sent.send(()).is_err() {
                    return;
                }
            }
        }
    });
    (address, seen)
}

fn start(url: &str, options: &[&str]) -> Child {
    let mut command = Command::new(DWELL);
    command.args(["ping", url, "--json", "--warm-up", "0", "-i", "0.1", "-W", "0.3"]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a command; kills it and panics after [`MAX_DURATION`].
fn end_in_time(mut child: Child, url: &str) -> Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > MAX_DURATION {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{url}: not ended after {MAX_DURATION:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn run_limits_end_a_ping_that_receives_endless_garbage() {
    for scheme in ["text+tcp", "tcp"] {
        let (address, _sent) = garbage_server();
        let url = format!("{scheme}://{address}");
        for limit in [["-c", "2"], ["-w", "0.5"]] {
            let output = end_in_time(start(&url, &limit), &url);
            assert_eq!(output.status.code(), Some(1), "{url} {limit:?} {}", said(&output));
            let result = json(&output);
            assert!(result["packets"]["lost"].as_u64() >= Some(2), "{url} {limit:?} {result}");
            assert_eq!(result["packets"]["received"], 0, "{url} {limit:?}");
            assert!(result["values"]["stray_bytes"].as_u64() > Some(2_048), "{url} {result}");
        }
    }
}

#[test]
fn interrupt_ends_a_ping_that_receives_endless_garbage() {
    for scheme in ["text+tcp", "tcp"] {
        let (address, sent) = garbage_server();
        let url = format!("{scheme}://{address}");
        let child = start(&url, &[]);
        // The client reads: more was sent than the socket buffers hold.
        for _ in 0..16 {
            sent.recv_timeout(MAX_DURATION).unwrap();
        }
        signal(&child, Signal::Interrupt);
        let output = end_in_time(child, &url);
        assert_eq!(output.status.code(), Some(130), "{url} {}", said(&output));
        assert!(json(&output)["values"]["stray_bytes"].as_u64() > Some(1 << 20), "{url}");
    }
}
