//! The one witness by which all senders of a part are judged, at the far end of the link: a capture of
//! trains, on the other core than the sender, and of pairs a program in the kernel that drops them. Their
//! stamps are the kernel's.

use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use dwell_io::netns;
use dwell_io::port::StampRequest;
use dwell_io::udp::{ServerOptions, UdpServer};
use dwell_wire::traffic::Mark;
use libbpf_rs::{Link, MapCore as _, NetfilterOpts, Object, ObjectBuilder, RingBufferBuilder};
use tempfile::TempDir;

use crate::lab::sibling;
use crate::{Lab, Node, Server};

/// Nanosecond stamps, the order of bytes of the machine that wrote it.
const MAGIC: u32 = 0xa1b2_3c4d;
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Where an Ethernet frame has the length of its IP packet.
const IP_LENGTH: usize = 16;
/// And the payload of UDP over IPv4.
const PAYLOAD: usize = 42;

/// Of linux/netfilter.h.
const IPV4: i32 = 2;
const PRE_ROUTING: i32 = 0;

/// The port of pairs: catch.bpf.c's.
pub(super) const CAUGHT: u16 = 5_002;

/// Switching stamps on is asynchronous (net/core/dev.c, `net_enable_timestamp`).
const SWITCHED_ON: Duration = Duration::from_millis(20);

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
    /// Its number, if it is dwell's.
    pub(super) seq: Option<u64>,
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

/// catch.bpf.c at the far end, which drops what it has seen.
pub(super) struct Catcher {
    object: Object,
    _link: Link,
    /// The kernel stamps what arrives as long as somebody asks for it.
    _asks: UdpServer,
}

impl Catcher {
    /// Catches what comes to [`CAUGHT`] at n2.
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let program = fs::read(sibling("catch.bpf.o")?).context("cannot read the catcher")?;
        let object = ObjectBuilder::default().open_memory(&program)?.load()?;
        let link = netns::within(&lab.netns(Node::N2)?, || {
            let program = object.progs_mut().find(|program| program.name() == "catch_all");
            let place =
                NetfilterOpts { protocol_family: IPV4, hooknum: PRE_ROUTING, ..Default::default() };
            let link = program.context("no program catch_all")?.attach_netfilter_with_opts(place);
            link.context("cannot attach to PRE_ROUTING")
        })??;
        let options = ServerOptions { stamps: StampRequest::Kernel, metadata: false };
        let asks = UdpServer::bind((Ipv4Addr::LOCALHOST, 0).into(), options);
        let asks = asks.context("cannot ask for stamps of arrivals")?;
        thread::sleep(SWITCHED_ON);
        Ok(Self { object, _link: link, _asks: asks })
    }

    /// Ends it and takes what it saw.
    pub(super) fn stop(self) -> Result<Seen> {
        let mut arrivals = Vec::new();
        let map = self.object.maps().find(|map| map.name() == "caught");
        let map = map.context("no ring of what was caught")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, |event: &[u8]| {
            arrivals.extend(caught(event));
            0
        })?;
        builder.build()?.consume()?;
        Ok(Seen { arrivals, dropped: 0 })
    }
}

/// `struct arrival` of catch.bpf.c.
fn caught(event: &[u8]) -> Option<Arrival> {
    let (stamp, rest) = event.split_first_chunk()?;
    let (at, size) = (i64::from_ne_bytes(*stamp), u32::from_ne_bytes(*rest.first_chunk()?));
    let seq = Mark::parse(rest.get(8..)?).ok().map(|mark| mark.seq);
    (at > 0).then_some(Arrival { at, size, seq })
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
            let mark = frame.get(PAYLOAD..).map(Mark::parse);
            let seq = mark.and_then(Result::ok).map(|mark| mark.seq);
            arrivals.push(Arrival { at: stamp, size, seq });
        }
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets with number 9 of a flow.
    fn capture(magic: u32, packets: &[(u32, u32, u16)]) -> Vec<u8> {
        let mut bytes = magic.to_ne_bytes().to_vec();
        bytes.resize(FILE_HEADER, 0);
        for &(seconds, nanos, size) in packets {
            for word in [seconds, nanos, 64, 1_514] {
                bytes.extend(word.to_ne_bytes());
            }
            let mut frame = [0; 64];
            frame[IP_LENGTH..IP_LENGTH + 2].copy_from_slice(&size.to_be_bytes());
            Mark { flow: 1, seq: 9 }.emit(&mut frame[PAYLOAD..]);
            bytes.extend(frame);
        }
        bytes
    }

    #[test]
    fn a_capture_says_when_packets_came_and_how_long_they_were() {
        let bytes = capture(MAGIC, &[(2, 5, 200), (3, 0, 1_500)]);
        let first = Arrival { at: 2_000_000_005, size: 200, seq: Some(9) };
        let second = Arrival { at: 3_000_000_000, size: 1_500, seq: Some(9) };
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
    fn what_was_caught_has_its_time_and_size() {
        let event = [&7_i64.to_ne_bytes()[..], &1_500_u32.to_ne_bytes(), &[0; 20]].concat();
        assert_eq!(caught(&event), Some(Arrival { at: 7, size: 1_500, seq: None }));
        assert_eq!(caught(&event[..11]), None);
        assert_eq!(caught(&[0; 32]), None, "it was not stamped");
        let mut marked = event;
        Mark { flow: 1, seq: 4 }.emit(&mut marked[16..]);
        assert_eq!(caught(&marked).and_then(|arrival| arrival.seq), Some(4));
    }

    #[test]
    fn what_the_capture_lost_is_read_from_its_last_words() {
        let talk =
            "10 packets captured\n12 packets received by filter\n2 packets dropped by kernel\n";
        assert_eq!(dropped(talk), Some(2));
        assert_eq!(dropped("10 packets captured\n"), None);
    }
}
