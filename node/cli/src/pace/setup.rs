//! Validated job of pacing: all checks that need no packet to be sent.

use std::net::SocketAddr;

use dwell_engine::departures::{Departures, Pattern};
use dwell_io::interface::{self, Interface};
use dwell_protocol::{
    NamedSize, PaceEngine, PaceJob, PaceKind, PaceParameters, SinkTimestamps, ThreadPlacement,
};
use dwell_stats::departures::TrainRequest;
use dwell_units::{Bytes, Nanos, Rate};
use dwell_wire::icmp::Family;
use dwell_wire::size::{PacketSize, SizeMeasure};
use dwell_wire::traffic::Mark;

use crate::{Failure, parameter, placement};

/// MTU of an interface that does not report one: that of Ethernet.
const DEFAULT_MTU: u64 = 1_500;

/// Maximum packets per sender with a sink, which keeps all timestamps.
const MAX_PACKETS_WITH_SINK: usize = 1_000_000;

/// Maximum size of a train, which is built before its first packet leaves.
const MAX_TRAIN_BYTES: u64 = 1 << 30;

/// A validated job.
#[derive(Debug)]
pub(super) struct PaceSetup {
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

impl PaceSetup {
    pub(super) fn new(job: &PaceJob) -> Result<Self, Failure> {
        let parameters = &job.parameters;
        parameters.check().map_err(|error| parameter::usage::<PaceParameters>(&error))?;
        if parameters.bypass && !parameters.engine.has_optional_bypass() {
            return Err(Failure::usage(format!(
                "--bypass needs --engine {}: {} either cannot bypass the queueing discipline or always does",
                PaceEngine::names_with_bypass().join(" or "),
                parameters.engine.name()
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
        let given = parameters.named_size();
        let largest = NamedSize { measure: SizeMeasure::Ip, bytes: Bytes(mtu.min(DEFAULT_MTU)) };
        let NamedSize { measure, bytes } = given.unwrap_or(largest);
        let content = Bytes(Mark::LEN as u64);
        let size = PacketSize::new(measure, bytes, family, content, Bytes(mtu))
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
        let narrowed = (given.is_none() && mtu < DEFAULT_MTU).then_some(Bytes(mtu));
        let late = parameters.late;
        Ok(Self { peer, interface, size, narrowed, pattern, departures, place, late })
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

/// Returns the pattern of departures.
fn pattern(job: &PaceJob, size: &PacketSize) -> Result<Pattern, Failure> {
    let PaceParameters { pattern, pairs, gap, rate, count, repeat, pause, seed, .. } =
        job.parameters;
    if let Some(gaps) = &job.gaps {
        return Ok(Pattern::Replay { gaps: gaps.clone(), repeat, pause });
    }
    let mean = || {
        rate.and_then(|rate| size.gap_ns(Rate::Bits(rate))).ok_or_else(|| {
            Failure::usage("a train needs --rate, like --rate 10Mbit/s (or --pattern pair)")
        })
    };
    Ok(match pattern {
        PaceKind::Pair => Pattern::Pair { pairs, gap },
        PaceKind::Train => Pattern::Train { count, repeat, gap: mean()?, pause },
        PaceKind::Poisson => Pattern::Poisson { count, repeat, mean: mean()?, seed, pause },
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
