//! The witness that judges all senders, at the far end of the link: a netfilter program in the
//! kernel that records the timestamps of arriving packets and drops them (catch.bpf.c).

use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use dwell_io::datagram::DatagramSocket;
use dwell_io::netns;
use dwell_io::port::{SocketOptions, StampRequest};
use dwell_wire::traffic::Mark;
use libbpf_rs::{
    Link, MapCore as _, MapFlags, NetfilterOpts, Object, ObjectBuilder, RingBufferBuilder,
};

use crate::lab::sibling;
use crate::{Lab, Node};

/// From linux/netfilter.h.
const IPV4: i32 = 2;
const PRE_ROUTING: i32 = 0;

/// Time until timestamps are enabled, which is asynchronous (net/core/dev.c,
/// `net_enable_timestamp`).
const TIMESTAMPING_DELAY: Duration = Duration::from_millis(20);

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Nanoseconds since 1970, on the clock of [`now`].
    pub(super) at: i64,
    /// Bytes of the IP packet.
    pub(super) size: u32,
    /// Packet number, if it is dwell's.
    pub(super) seq: Option<u64>,
}

/// Recorded arrivals.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// In the order of arrival.
    pub(super) arrivals: Vec<Arrival>,
    /// Packets dropped because the ring was full.
    pub(super) missed: u64,
}

/// Reads the clock of the witness's timestamps.
pub(super) fn now() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock before 1970")?;
    i64::try_from(since.as_nanos()).context("a clock after 2262")
}

/// Watches until dropped.
pub(super) struct Witness {
    object: Object,
    _link: Link,
    /// Keeps the kernel's receive timestamps enabled.
    _asks: DatagramSocket,
}

impl Witness {
    /// Starts recording and dropping packets that arrive at n2, so that no stream needs a receiver.
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let program = fs::read(sibling("catch.bpf.o")?).context("cannot read catch.bpf.o")?;
        let object = ObjectBuilder::default().open_memory(&program)?.load()?;
        let link = netns::within(&lab.netns(Node::N2)?, || {
            let program = object.progs_mut().find(|program| program.name() == "catch_all");
            let place =
                NetfilterOpts { protocol_family: IPV4, hooknum: PRE_ROUTING, ..Default::default() };
            let link = program
                .context("catch.bpf.o has no program catch_all")?
                .attach_netfilter_with_opts(place);
            link.context("cannot attach to PRE_ROUTING")
        })??;
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::server() };
        let asks = DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options);
        let asks = asks.context("cannot enable timestamps of arrivals")?;
        thread::sleep(TIMESTAMPING_DELAY);
        Ok(Self { object, _link: link, _asks: asks })
    }

    /// Returns arrivals since the last call; `missed` counts from the start.
    pub(super) fn seen(&self) -> Result<Seen> {
        let map = |name: &str| {
            let map = self.object.maps().find(|map| map.name() == name);
            map.with_context(|| format!("catch.bpf.o has no map {name}"))
        };
        let mut arrivals = Vec::new();
        let ring = map("caught")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&ring, |event: &[u8]| {
            arrivals.extend(caught(event));
            0
        })?;
        builder.build()?.consume()?;
        let missed = map("missed")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let missed = missed.context("catch.bpf.o counts no missed packets")?;
        let missed =
            missed.as_slice().try_into().context("the count of missed packets is not 8 bytes")?;
        Ok(Seen { arrivals, missed: u64::from_ne_bytes(missed) })
    }
}

/// Parses `struct arrival` of catch.bpf.c.
fn caught(event: &[u8]) -> Option<Arrival> {
    let (stamp, rest) = event.split_first_chunk()?;
    let (at, size) = (i64::from_ne_bytes(*stamp), u32::from_ne_bytes(*rest.first_chunk()?));
    let seq = Mark::parse(rest.get(8..)?).ok().map(|mark| mark.seq);
    (at > 0).then_some(Arrival { at, size, seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrival_has_time_and_size() {
        let event = [&7_i64.to_ne_bytes()[..], &1_500_u32.to_ne_bytes(), &[0; 20]].concat();
        assert_eq!(caught(&event), Some(Arrival { at: 7, size: 1_500, seq: None }));
        assert_eq!(caught(&event[..11]), None);
        assert_eq!(caught(&[0; 32]), None, "a packet without timestamp");
        let mut marked = event;
        Mark { flow: 1, seq: 4 }.emit(&mut marked[16..]);
        assert_eq!(caught(&marked).and_then(|arrival| arrival.seq), Some(4));
    }
}
