//! The one witness by which all senders of a part are judged, at the far end of the link: a capture of
//! trains, a socket that keeps pairs. Their stamps are the kernel's. They sit on the other core than the
//! sender.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::grid::HEADERS;
use crate::{Lab, Node, Server};

/// Nanosecond stamps, the order of bytes of the machine that wrote it.
const MAGIC: u32 = 0xa1b2_3c4d;
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Where an Ethernet frame has the length of its IP packet.
const IP_LENGTH: usize = 16;

/// tcpdump is handed what came at the latest after a second; only then may it be stopped.
const HANDED_ON: Duration = Duration::from_millis(1_200);

/// A capture that runs.
pub(super) struct Witness {
    tcpdump: Server,
    home: TempDir,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Nanoseconds since 1970, by the clock of [`now`].
    pub(super) at: i64,
    /// Bytes of the IP packet.
    pub(super) size: u32,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// In the order of arrival.
    pub(super) arrivals: Vec<Arrival>,
    /// Packets that the capture had no room for.
    pub(super) dropped: u64,
}

/// The clock of the witness's stamps.
pub(super) fn now() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock before 1970")?;
    i64::try_from(since.as_nanos()).context("a clock after 2262")
}

impl Witness {
    /// Watches what comes to n2 on its `interface` by UDP.
    pub(super) fn start(lab: &Lab, interface: &str, core: &str) -> Result<Self> {
        let home = tempfile::tempdir().context("cannot make a directory for the capture")?;
        let mut command = lab.on(Node::N2, "taskset");
        command.args(["-c", core, "tcpdump", "-i", interface, "-n", "-p", "-Z", "root"]);
        // Of each packet the headers; for all, room of 64 MiB.
        command.args(["-s", "64", "-B", "65536", "--time-stamp-precision=nano", "-w"]);
        command.arg(home.path().join("capture.pcap"));
        command.arg(format!("udp and dst host {}", lab.address(Node::N2)?));
        let tcpdump = Server::start(command, Some("listening on"))?;
        Ok(Self { tcpdump, home })
    }

    /// Ends the capture and reads it.
    pub(super) fn stop(self) -> Result<Seen> {
        thread::sleep(HANDED_ON);
        let (_, talk) = self.tcpdump.conclude()?;
        let dropped = dropped(&talk).with_context(|| format!("tcpdump said only: {talk}"))?;
        let capture = fs::read(self.home.path().join("capture.pcap"));
        let arrivals = parse(&capture.context("cannot read the capture")?)?;
        Ok(Seen { arrivals, dropped })
    }
}

/// A socket that keeps what comes.
pub(super) struct Catcher(Server);

impl Catcher {
    /// `cpace` is the C program, to be run at n2.
    pub(super) fn start(mut cpace: Command, port: u16) -> Result<Self> {
        cpace.args(["catch", &port.to_string()]);
        Ok(Self(Server::start(cpace, Some("listening on"))?))
    }

    /// Ends it and takes what it says.
    pub(super) fn stop(self) -> Result<Seen> {
        let said = self.0.stop()?;
        caught(&said).with_context(|| format!("cpace catch said: {said}"))
    }
}

/// A line for each packet, its stamp and the bytes of its payload, and at last `0 dropped`.
fn caught(said: &str) -> Option<Seen> {
    let mut lines = said.lines().filter(|line| !line.starts_with("listening")).rev();
    let dropped = lines.next()?.strip_suffix(" dropped")?.parse().ok()?;
    let arrival = |line: &str| {
        let (at, payload) = line.split_once(' ')?;
        let size = payload.parse::<u32>().ok()?.checked_add(HEADERS)?;
        Some(Arrival { at: at.parse().ok()?, size })
    };
    let arrivals: Option<Vec<_>> = lines.rev().map(arrival).collect();
    Some(Seen { arrivals: arrivals?, dropped })
}

/// `12 packets dropped by kernel`.
fn dropped(talk: &str) -> Option<u64> {
    let line = talk.lines().find(|line| line.contains("dropped by kernel"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn parse(capture: &[u8]) -> Result<Vec<Arrival>> {
    let word = |at: usize| {
        let bytes = capture.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    if word(0) != Some(MAGIC) {
        bail!("the capture has no nanosecond stamps");
    }
    let mut arrivals = Vec::new();
    let mut at = FILE_HEADER;
    while let (Some(seconds), Some(nanos), Some(captured)) = (word(at), word(at + 4), word(at + 8))
    {
        let packet = at + PACKET_HEADER;
        at = packet + captured as usize;
        // A capture of whole packets ends with one.
        let frame = capture.get(packet..at).context("the capture is cut off")?;
        if let Some(&[high, low]) = frame.get(IP_LENGTH..IP_LENGTH + 2) {
            let size = u32::from(u16::from_be_bytes([high, low]));
            let stamp = i64::from(seconds) * 1_000_000_000 + i64::from(nanos);
            arrivals.push(Arrival { at: stamp, size });
        }
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(magic: u32, packets: &[(u32, u32, u16)]) -> Vec<u8> {
        let mut bytes = magic.to_ne_bytes().to_vec();
        bytes.resize(FILE_HEADER, 0);
        for &(seconds, nanos, size) in packets {
            for word in [seconds, nanos, 64, 1_514] {
                bytes.extend(word.to_ne_bytes());
            }
            let mut frame = [0; 64];
            frame[IP_LENGTH..IP_LENGTH + 2].copy_from_slice(&size.to_be_bytes());
            bytes.extend(frame);
        }
        bytes
    }

    #[test]
    fn a_capture_says_when_packets_came_and_how_long_they_were() {
        let bytes = capture(MAGIC, &[(2, 5, 200), (3, 0, 1_500)]);
        let first = Arrival { at: 2_000_000_005, size: 200 };
        let second = Arrival { at: 3_000_000_000, size: 1_500 };
        assert_eq!(parse(&bytes).unwrap(), [first, second]);
    }

    #[test]
    fn a_capture_in_microseconds_or_cut_off_is_refused() {
        assert!(parse(&capture(0xa1b2_c3d4, &[(2, 5, 200)])).is_err());
        let bytes = capture(MAGIC, &[(2, 5, 200)]);
        assert!(parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn packets_that_were_kept_have_their_stamps_and_whole_sizes() {
        let seen = caught("listening on it\n5 172\n7 1472\n3 dropped\n").unwrap();
        let arrival = |(at, size)| Arrival { at, size };
        assert_eq!(seen.arrivals, [(5, 200), (7, 1_500)].map(arrival));
        assert_eq!(seen.dropped, 3);
        assert!(caught("listening on it\n5 172\n").is_none());
        assert!(caught("5 x\n0 dropped\n").is_none());
    }

    #[test]
    fn what_the_capture_lost_is_read_from_its_last_words() {
        let talk =
            "10 packets captured\n12 packets received by filter\n2 packets dropped by kernel\n";
        assert_eq!(dropped(talk), Some(2));
        assert_eq!(dropped("10 packets captured\n"), None);
    }
}
