//! tcpdump in a node, before whoever receives: by stamps of the kernel, which no program can make late.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempPath;

use crate::fixture::{DWELL, PATIENCE, TestLab, kill};

/// A capture that goes on until it is ended, with its test at the latest.
pub(crate) struct Capture {
    tcpdump: Child,
    file: TempPath,
}

/// A datagram over IPv4: when it came by CLOCK_REALTIME, in nanoseconds, and its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) at: i64,
    pub(crate) payload: Vec<u8>,
}

/// Of Ethernet, of IPv4 without options, and of UDP.
const HEADERS: usize = 14 + 20 + 8;

impl Capture {
    /// What comes into a node through one of its interfaces and passes a filter of pcap's, which lets
    /// only datagrams through.
    pub(crate) fn start(lab: &TestLab, node: &str, interface: &str, filter: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut tcpdump = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, node, "--", "tcpdump", "-i", interface])
            .args(["-Q", "in", "-Z", "root", "-n", "-U", "--immediate-mode"])
            // Else its buffer has room for eight packets.
            .args(["--time-stamp-precision=nano", "-s", "2048", "-B", "8192", "-w"])
            .arg(&file)
            .arg(filter)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let talk = BufReader::new(tcpdump.stderr.take().unwrap());
        let mut lines = talk.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("listening on")), "tcpdump listens");
        // It tells of its end; nobody may be told that nobody listens.
        std::thread::spawn(move || lines.for_each(drop));
        Self { tcpdump, file }
    }

    /// What was captured, once that is all.
    pub(crate) fn end(self, is_all: impl Fn(&[Captured]) -> bool) -> Vec<Captured> {
        let since = Instant::now();
        loop {
            let captured = parse(&fs::read(&self.file).unwrap());
            if is_all(&captured) {
                return captured;
            }
            assert!(since.elapsed() < PATIENCE, "too few were captured: {captured:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        kill(&mut self.tcpdump);
    }
}

/// Reads libpcap's format with nanoseconds, in this machine's order; the last packet may not yet be
/// whole.
fn parse(capture: &[u8]) -> Vec<Captured> {
    let word = |at: usize| Some(u32::from_ne_bytes(capture.get(at..at + 4)?.try_into().unwrap()));
    assert!(word(0).is_none_or(|magic| magic == 0xa1b2_3c4d), "nanoseconds");
    let (mut at, mut packets) = (24, Vec::new());
    while let (Some(seconds), Some(nanos), Some(len)) = (word(at), word(at + 4), word(at + 8)) {
        let Some(frame) = capture.get(at + 16..at + 16 + len as usize) else { break };
        packets.push(Captured {
            at: 1_000_000_000 * i64::from(seconds) + i64::from(nanos),
            payload: frame[HEADERS..].to_vec(),
        });
        at += 16 + len as usize;
    }
    packets
}
