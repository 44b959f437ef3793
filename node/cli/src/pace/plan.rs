//! What a job of pacing comes to: everything that can be judged before anything is sent.

use std::net::SocketAddr;

use dwell_engine::departures::{Departures, Pattern};
use dwell_io::interface::{self, Interface};
use dwell_plan::{FarStamps, PaceEngine, PaceJob, PacePattern, PaceSize};
use dwell_stats::departures::Asked;
use dwell_units::{BitRate, Bytes, Nanos, Rate};
use dwell_wire::icmp::Family;
use dwell_wire::size::{Counted, PacketSize};
use dwell_wire::traffic::Mark;

use crate::{Failure, PlaceArgs};

/// Of an interface that does not say: Ethernet's.
const MTU: u64 = 1_500;

/// So many packets the far end keeps stamps of, for one sender.
const MOST_WITH_SINK: usize = 1_000_000;

/// A train is built before its first packet leaves, and takes no more memory than this.
const MOST_BYTES: u64 = 1 << 30;

/// What will be sent.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) peer: SocketAddr,
    /// The interface that packets leave by, if that is known.
    pub(super) interface: Option<Interface>,
    pub(super) size: PacketSize,
    /// The MTU, where it made packets smaller that nobody gave a size.
    pub(super) narrowed: Option<Bytes>,
    pub(super) pattern: Pattern,
    pub(super) departures: Departures,
    pub(super) place: PlaceArgs,
    late: Option<Nanos>,
}

impl Plan {
    pub(super) fn new(job: &PaceJob) -> Result<Self, Failure> {
        if job.bypass && job.engine != PaceEngine::PacketRing {
            return Err(Failure::usage(format!(
                "--bypass needs --engine packet-ring: {} cannot go past the queueing discipline, or always \
                 does",
                job.engine.name()
            )));
        }
        let peer = peer(job)?;
        let place = PlaceArgs::from(job.place);
        place.check()?;
        let interface = interface::towards(peer).ok().flatten();
        let first = interface.as_ref().and_then(|found| found.mtu);
        // What is not known yet of the way behind it, nobody can know before packets are sent.
        let way = interface::path_mtu(peer).ok().flatten();
        let mtu = first.into_iter().chain(way).min().map_or(MTU, u64::from);
        let family = if peer.is_ipv4() { Family::V4 } else { Family::V6 };
        let (counted, given) = match job.size {
            None => (Counted::Ip, Bytes(mtu.min(MTU))),
            Some(PaceSize::Ip(bytes)) => (Counted::Ip, bytes),
            Some(PaceSize::Payload(bytes)) => (Counted::Payload, bytes),
            Some(PaceSize::Frame(bytes)) => (Counted::Frame, bytes),
        };
        let content = Bytes(Mark::LEN as u64);
        let size = PacketSize::new(counted, given, family, content, Bytes(mtu))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let pattern = pattern(job, &size)?;
        let departures = pattern
            .departures()
            .map_err(|error| Failure::usage(format!("invalid pattern: {error}")))?;
        if job.sink == FarStamps::Always {
            fits_a_sink(&departures)?;
        }
        let longest = longest(&departures);
        let bytes = longest as u64 * size.payload().0;
        if bytes > MOST_BYTES {
            return Err(Failure::usage(format!(
                "a train of {} packets takes {bytes} B, and is built before it leaves: at most \
                 {MOST_BYTES} B; send shorter trains, --repeat of them",
                longest
            )));
        }
        if let Some(late) = job.late.filter(|late| *late < Nanos::ZERO) {
            return Err(Failure::usage(format!("invalid value {late} for --late: 0s or more")));
        }
        let narrowed = (job.size.is_none() && mtu < MTU).then_some(Bytes(mtu));
        Ok(Self { peer, interface, size, narrowed, pattern, departures, place, late: job.late })
    }

    /// What is asked of every train or pair, where stamps are on this machine's clock or not.
    pub(super) fn asked(&self, same_clock: bool) -> Asked {
        Asked {
            bits: self.size.bits(),
            gap: self.pattern.mean_gap(),
            deadline: match &self.pattern {
                // When the next pair is due.
                Pattern::Pair { gap, .. } => self.late.or(Some(*gap)),
                _ => self.late,
            },
            same_clock,
        }
    }

    /// Whether two packets are due at once, and never more.
    pub(super) fn is_pairs(&self) -> bool {
        matches!(self.pattern, Pattern::Pair { .. })
    }

    /// The longest train, with what leads it.
    pub(super) fn longest(&self) -> usize {
        longest(&self.departures) + self.pattern.leads()
    }
}

/// Whether a far end can keep all stamps of these.
pub(super) fn fits_a_sink(departures: &Departures) -> Result<(), Failure> {
    match departures.at().len() {
        ..=MOST_WITH_SINK => Ok(()),
        n => Err(Failure::usage(format!(
            "{n} packets are too many for --sink: at most {MOST_WITH_SINK}"
        ))),
    }
}

/// Packets of the longest train.
pub(super) fn longest(departures: &Departures) -> usize {
    departures.trains().iter().map(std::iter::ExactSizeIterator::len).max().unwrap_or(0)
}

/// How long the longest train takes.
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
        Failure::usage(format!("{} has no address of the family asked for", job.target))
    })
}
