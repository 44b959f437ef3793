//! Validated job of pacing: all checks that need no packet to be sent.

use std::net::SocketAddr;

use dwell_engine::departures::{Departures, Pattern};
use dwell_io::interface::{self, Interface};
use dwell_protocol::{PaceEngine, PaceJob, PacePattern, PaceSize, SinkTimestamps, ThreadPlacement};
use dwell_stats::departures::TrainRequest;
use dwell_units::{BitRate, Bytes, Nanos, Rate};
use dwell_wire::icmp::Family;
use dwell_wire::size::{PacketSize, SizeMeasure};
use dwell_wire::traffic::Mark;

use crate::{Failure, placement};

/// MTU of an interface that does not report one: that of Ethernet.
const DEFAULT_MTU: u64 = 1_500;

/// Maximum packets per sender with a sink, which keeps all timestamps.
const MAX_PACKETS_WITH_SINK: usize = 1_000_000;

/// Maximum size of a train, which is built before its first packet leaves.
const MAX_TRAIN_BYTES: u64 = 1 << 30;

/// A validated job.
#[derive(Debug)]
pub(super) struct PacePlan {
    pub(super) peer: SocketAddr,
    /// Outgoing interface, if known.
    pub(super) interface: Option<Interface>,
    pub(super) size: PacketSize,
    /// The MTU, if it reduced the default size.
    pub(super) narrowed: Option<Bytes>,
    pub(super) pattern: Pattern,
    pub(super) departures: Departures,
    pub(super) place: ThreadPlacement,
    late: Option<Nanos>,
}

impl PacePlan {
    pub(super) fn new(job: &PaceJob) -> Result<Self, Failure> {
        if job.bypass && !job.engine.has_optional_bypass() {
            return Err(Failure::usage(format!(
                "--bypass needs --engine {}: {} either cannot bypass the queueing discipline or always does",
                PaceEngine::names_with_bypass().join(" or "),
                job.engine.name()
            )));
        }
        let peer = peer(job)?;
        let place = job.place;
        placement::check(&place)?;
        let interface = interface::towards(peer).ok().flatten();
        let first = interface.as_ref().and_then(|found| found.mtu);
        // The MTU of the path beyond is unknown until packets are sent.
        let path_mtu = interface::path_mtu(peer).ok().flatten();
        let mtu = first.into_iter().chain(path_mtu).min().map_or(DEFAULT_MTU, u64::from);
        let family = if peer.is_ipv4() { Family::V4 } else { Family::V6 };
        let (counted, given) = match job.size {
            None => (SizeMeasure::Ip, Bytes(mtu.min(DEFAULT_MTU))),
            Some(PaceSize::Ip(bytes)) => (SizeMeasure::Ip, bytes),
            Some(PaceSize::Payload(bytes)) => (SizeMeasure::Payload, bytes),
            Some(PaceSize::Frame(bytes)) => (SizeMeasure::Frame, bytes),
        };
        let content = Bytes(Mark::LEN as u64);
        let size = PacketSize::new(counted, given, family, content, Bytes(mtu))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let pattern = pattern(job, &size)?;
        let departures = pattern
            .departures()
            .map_err(|error| Failure::usage(format!("invalid pattern: {error}")))?;
        if job.sink == SinkTimestamps::Always {
            fits_a_sink(&departures)?;
        }
        let longest = longest(&departures);
        let bytes = longest as u64 * size.payload().0;
        if bytes > MAX_TRAIN_BYTES {
            return Err(Failure::usage(format!(
                "a train of {} packets takes {bytes} B, at most {MAX_TRAIN_BYTES} B are possible; send shorter \
                 trains and more of them (--repeat)",
                longest
            )));
        }
        if let Some(late) = job.late.filter(|late| *late < Nanos::ZERO) {
            return Err(Failure::usage(format!("invalid value {late} for --late: 0s or more")));
        }
        let narrowed = (job.size.is_none() && mtu < DEFAULT_MTU).then_some(Bytes(mtu));
        Ok(Self { peer, interface, size, narrowed, pattern, departures, place, late: job.late })
    }

    /// Returns the requirements for every train or pair. `same_clock`: timestamps are of this
    /// machine's clock.
    pub(super) fn request(&self, same_clock: bool) -> TrainRequest {
        TrainRequest {
            bits: self.size.bits(),
            gap: self.pattern.mean_gap(),
            deadline: match &self.pattern {
                // The next pair is due.
                Pattern::Pair { gap, .. } => self.late.or(Some(*gap)),
                _ => self.late,
            },
            same_clock,
        }
    }

    /// Whether the pattern consists of pairs.
    pub(super) fn is_pairs(&self) -> bool {
        matches!(self.pattern, Pattern::Pair { .. })
    }

    /// Returns the packets of the longest train, lead-in included.
    pub(super) fn longest(&self) -> usize {
        longest(&self.departures) + self.pattern.lead_in_len()
    }
}

/// Fails if a sink cannot keep the timestamps of all packets.
pub(super) fn fits_a_sink(departures: &Departures) -> Result<(), Failure> {
    match departures.at().len() {
        ..=MAX_PACKETS_WITH_SINK => Ok(()),
        n => Err(Failure::usage(format!(
            "{n} packets are too many for --sink: at most {MAX_PACKETS_WITH_SINK}"
        ))),
    }
}

/// Returns the packets of the longest train.
pub(super) fn longest(departures: &Departures) -> usize {
    departures.trains().iter().map(std::iter::ExactSizeIterator::len).max().unwrap_or(0)
}

/// Returns the duration of the longest train.
pub(super) fn train_time(departures: &Departures) -> Nanos {
    let time = |train: &[Nanos]| match train {
        [first, .., last] => *last - *first,
        _ => Nanos::ZERO,
    };
    departures.by_train().map(time).max().unwrap_or_default()
}

fn pattern(job: &PaceJob, size: &PacketSize) -> Result<Pattern, Failure> {
    let gap = |rate: BitRate| {
        size.gap_ns(Rate::Bits(rate))
            .ok_or_else(|| Failure::usage("invalid value 0 for --rate: give a rate like 10Mbit/s"))
    };
    let pause = job.pause;
    Ok(match &job.pattern {
        PacePattern::Pair { pairs, gap } => Pattern::Pair { pairs: *pairs, gap: *gap },
        PacePattern::Train { rate, count, repeat } => {
            Pattern::Train { count: *count, repeat: *repeat, gap: gap(*rate)?, pause }
        }
        PacePattern::Poisson { rate, count, repeat, seed } => {
            let (count, repeat, seed) = (*count, *repeat, *seed);
            Pattern::Poisson { count, repeat, mean: gap(*rate)?, seed, pause }
        }
        PacePattern::Replay { gaps, repeat } => {
            Pattern::Replay { gaps: gaps.clone(), repeat: *repeat, pause }
        }
    })
}

fn peer(job: &PaceJob) -> Result<SocketAddr, Failure> {
    let fits = |address: &SocketAddr| match (job.ipv4, job.ipv6) {
        (true, _) => address.is_ipv4(),
        (_, true) => address.is_ipv6(),
        _ => true,
    };
    let addresses = crate::load::udp_addresses(&job.target)?;
    addresses.into_iter().find(fits).ok_or_else(|| {
        Failure::usage(format!("{} has no address of the requested family", job.target))
    })
}
