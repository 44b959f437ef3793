//! tcpdump at the receiver. The kernel's timestamps do not depend on when a program runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempPath;

/// Time-out of all waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A capture that runs until it is ended, at the latest with its test.
pub(crate) struct Capture {
    tcpdump: Child,
    file: TempPath,
}

/// A captured datagram: arrival time by CLOCK_REALTIME in nanoseconds, and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) at: i64,
    pub(crate) payload: Vec<u8>,
}

impl Capture {
    /// Captures packets that enter a namespace through one of its interfaces and match a pcap
    /// filter, which must only admit UDP.
    pub(crate) fn start(netns: &Path, interface: &str, filter: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut tcpdump = Command::new("nsenter")
            .arg(format!("--net={}", netns.display()))
            .args(["tcpdump", "-i", interface, "-Q", "in", "-Z", "root", "-n", "-U"])
            // Otherwise its buffer has room for only eight packets.
            .args(["--immediate-mode", "--time-stamp-precision=nano", "-s", "2048", "-B", "8192"])
            .arg("-w")
            .arg(&file)
            .arg(filter)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let messages = BufReader::new(tcpdump.stderr.take().unwrap());
        let mut lines = messages.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("listening on")), "tcpdump listens");
        // tcpdump reports its end, for which the pipe must stay open.
        std::thread::spawn(move || lines.for_each(drop));
        Self { tcpdump, file }
    }

    /// Returns the captured packets once `is_all` accepts them.
    pub(crate) fn end(self, is_all: impl Fn(&[Captured]) -> bool) -> Vec<Captured> {
        let since = Instant::now();
        loop {
            let captured = parse(&fs::read(&self.file).unwrap());
            if is_all(&captured) {
                return captured;
            }
            assert!(since.elapsed() < WAIT_TIMEOUT, "too few packets were captured: {captured:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

/// Parses Ethernet frames in libpcap's format, with nanoseconds, in native byte order. The last
/// frame may be incomplete.
fn parse(capture: &[u8]) -> Vec<Captured> {
    let word = |at: usize| Some(u32::from_ne_bytes(capture.get(at..at + 4)?.try_into().unwrap()));
    let head = word(0).zip(word(20)).map(|(magic, link)| (magic, link & 0xffff));
    assert!(head.is_none_or(|head| head == (0xa1b2_3c4d, 1)), "nanoseconds, Ethernet");
    let (mut at, mut packets) = (24, Vec::new());
    while let (Some(seconds), Some(nanos), Some(len)) = (word(at), word(at + 4), word(at + 8)) {
        let Some(frame) = capture.get(at + 16..at + 16 + len as usize) else { break };
        assert_eq!(word(at + 12), Some(len), "the packet is captured whole");
        packets.push(Captured {
            at: 1_000_000_000 * i64::from(seconds) + i64::from(nanos),
            payload: payload(frame).to_vec(),
        });
        at += 16 + len as usize;
    }
    packets
}

/// Returns the payload of a datagram over IPv4 without options or IPv6 without extension headers.
/// Asserts that its lengths are right.
fn payload(frame: &[u8]) -> &[u8] {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let header = match word(12) {
        0x0800 => {
            assert_eq!(usize::from(word(16)), frame.len() - 14);
            20
        }
        0x86dd => 40,
        other => panic!("a frame of type {other:#x}"),
    };
    let udp = 14 + header;
    assert_eq!(usize::from(word(udp + 4)), frame.len() - udp);
    &frame[udp + 8..]
}
