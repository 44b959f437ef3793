//! Validated job of UDP traffic: all checks that need no open socket.

use std::net::SocketAddr;

use dwell_engine::schedule::Gaps;
use dwell_protocol::{ThreadPlacement, TrafficHeader, TrafficJob};
use dwell_units::{Nanos, Rate};
use dwell_wire::iperf2;
use dwell_wire::traffic::Mark;

use crate::{Failure, placement};
use dwell_io::pacer::{SPIN_LEAD, WaitMode};

/// A validated job.
pub(super) struct TrafficSetup {
    pub(super) peer: SocketAddr,
    /// Payload size in bytes.
    pub(super) size: usize,
    /// IP packet size in bytes.
    pub(super) ip_size: usize,
    pub(super) gaps: Gaps,
    /// Mean gap between packets of all flows together, in nanoseconds.
    pub(super) mean: f64,
    /// Packets to send before the FINs; `None`: no limit.
    pub(super) count: Option<u64>,
    pub(super) place: ThreadPlacement,
}

impl TrafficSetup {
    pub(super) fn new(job: &TrafficJob) -> Result<Self, Failure> {
        let usage = |text: String| Failure::usage(text);
        let peer = peer(job)?;
        let headers = if peer.is_ipv4() { 28 } else { 48 };
        let min_size = match job.header() {
            TrafficHeader::Dwell => Mark::LEN,
            // A server reads flags after number and time.
            TrafficHeader::Iperf => iperf2::LEN + 4,
        };
        let size = usize::try_from(job.size().0).ok().filter(|n| (min_size..=65_507).contains(n));
        let size = size.ok_or_else(|| {
            usage(format!("invalid value {} for --size: {min_size}B to 65507B", job.size()))
        })?;
        if !(1..=1_000).contains(&job.flows) {
            return Err(usage(format!("invalid value {} for --flows: 1 to 1000", job.flows)));
        }
        let gaps = job
            .distribution
            .parse()
            .map_err(|error| usage(format!("invalid value for --distribution: {error}")))?;
        let ip_size = size + headers;
        let mean = match job.rate {
            Rate::Bits(rate) => ip_size as f64 * 8e9 / rate.0 as f64,
            Rate::Packets(rate) => 1e9 / rate.as_f64(),
        };
        if !mean.is_finite() {
            return Err(usage("invalid value 0 for --rate: give a rate like 80Mbit/s".into()));
        }
        if job.parameters.duration.is_some_and(|time| time <= Nanos::ZERO) {
            return Err(usage("invalid value 0s for --duration: give a time like 2s".into()));
        }
        let place = job.place;
        placement::check(&place)?;
        let count = count(job)?;
        Ok(Self { peer, size, ip_size, gaps, mean, count, place })
    }

    /// Returns the waiting method of the timing loop. Measured traffic is always sent precisely;
    /// plain load only if that takes at most a tenth of a CPU.
    pub(super) fn wait_mode(&self, measures: bool) -> WaitMode {
        if self.place.busy_poll {
            WaitMode::Spin
        } else if measures || self.mean >= 10.0 * SPIN_LEAD.0 as f64 {
            WaitMode::SleepSpin
        } else {
            WaitMode::CatchUp
        }
    }

    /// Whether the timing loop sleeps most of the time, so that real-time priority does not starve
    /// other processes.
    pub(super) fn mostly_sleeps(&self) -> bool {
        self.mean >= 4.0 * SPIN_LEAD.0 as f64
    }
}

/// Returns the packets to send before the FINs: like iperf2, `--count` includes one FIN per flow.
fn count(job: &TrafficJob) -> Result<Option<u64>, Failure> {
    let count = job.parameters.count;
    let (Some(count), TrafficHeader::Iperf) = (count, job.header()) else { return Ok(count) };
    let flows = u64::from(job.flows);
    if count < 2 * flows {
        return Err(Failure::usage(format!(
            "invalid value {count} for --count: {} or more, because the last packet of each iperf \
             flow is its end",
            2 * flows
        )));
    }
    Ok(Some(count - flows))
}

/// Resolves the address to send to.
fn peer(job: &TrafficJob) -> Result<SocketAddr, Failure> {
    let fits = |address: &SocketAddr| match (job.ipv4, job.ipv6) {
        (true, _) => address.is_ipv4(),
        (_, true) => address.is_ipv6(),
        _ => true,
    };
    let addresses = crate::load::udp_addresses(&job.url)?;
    addresses.into_iter().find(fits).ok_or_else(|| {
        Failure::usage(format!("{} has no address of the requested family", job.url))
    })
}
