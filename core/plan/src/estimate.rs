//! Cost estimate of a plan before it runs.

use dwell_engine::departures::{lead_in_duration, lead_in_len};
use dwell_protocol::{PaceKind, PaceParameters, PingParameters};
use dwell_units::{Nanos, Rate};

use crate::error::PlanError;
use crate::expand::Expansion;
use crate::flow::FlowPlan;
use crate::measurement::Measurement;
use crate::pacing::PacePlan;
use crate::plan::{PingPlan, Plan, Transport};

/// Overhead of a trial besides measuring and warm-up: starting and stopping.
const TRIAL_OVERHEAD: Nanos = Nanos::from_millis(70);

/// IPv4 and UDP headers of traffic.
const IPV4_UDP_HEADER_LEN: u64 = 28;

/// Size of a full IP packet of a TCP connection over Ethernet.
const TCP_PACKET_LEN: u64 = 1_500;

/// Estimated cost of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Total time.
    pub time: Nanos,
    /// Time spent sending, without warm-up, waiting and trial overhead.
    pub sending: Nanos,
    /// Whether it may take longer: a closed loop depends on the reply times.
    pub at_least: bool,
    /// Whether fewer probes may be sent: the duration of a closed loop may end before its count.
    pub at_most: bool,
    /// Probes sent, including warm-up, or packets of a flow; `None` for a closed loop with a
    /// duration only.
    pub probes: Option<u64>,
    /// Bytes of IP packets of probes and replies; for a flow, as they leave the sender.
    pub bytes: Option<u64>,
    /// Packets sent by loads within [`Self::time`], without TCP loads that have no rate.
    pub load_packets: u64,
    /// Bytes of these packets, including IP headers.
    pub load_bytes: u64,
}

impl Estimate {
    /// Estimates one trial of `plan`.
    pub fn of(plan: &Plan) -> Self {
        let measuring = match &plan.measurement {
            Measurement::Ping(ping) => Self::of_ping(ping),
            Measurement::Flow(flow) => Self::of_flow(flow),
            Measurement::Pace(pace) => Self::of_pace(pace),
        };
        let busy = Nanos(measuring.time.0.saturating_add(TRIAL_OVERHEAD.0));
        let (load_packets, load_bytes) = load(plan, busy);
        let time = Nanos(busy.0.saturating_add(plan.trials.pause.0));
        Self { time, load_packets, load_bytes, ..measuring }
    }

    fn of_flow(flow: &FlowPlan) -> Self {
        let gap = flow.packet_rate().gap().unwrap_or(Nanos::MAX).0.max(1);
        let fitting = flow.parameters.duration.map(|time| (time.0 / gap) as u64 + 1);
        let wanted =
            flow.parameters.count.map(|count| count.saturating_add(u64::from(flow.warm_up)));
        let packets = wanted.unwrap_or(u64::MAX).min(fitting.unwrap_or(u64::MAX));
        let sending = gap.saturating_mul(i64::try_from(packets).unwrap_or(i64::MAX));
        let sending = sending.min(flow.parameters.duration.map_or(i64::MAX, |time| time.0));
        let headers = if flow.ipv6 { 48 } else { 28 };
        Self {
            time: Nanos(sending.saturating_add(flow.settle.0)),
            sending: Nanos(sending),
            probes: Some(packets),
            bytes: Some(packets.saturating_mul(flow.size().0 + headers)),
            ..Self::default()
        }
    }

    fn of_pace(pace: &PacePlan) -> Self {
        let PaceParameters { pattern, count, warm_up: warm_up_trains, .. } = pace.parameters;
        let (packets, time) = pace.extent();
        let count = u64::from(if pattern == PaceKind::Pair { 2 } else { count });
        let trains = packets / count.max(1);
        let train = time.0 / i64::try_from(trains).unwrap_or(i64::MAX).max(1);
        let warm_up = u64::from(warm_up_trains).saturating_mul(count);
        let warming = train.saturating_mul(i64::from(warm_up_trains));
        let all = packets.saturating_add(warm_up);
        // Lead-in packets are sent as well, during the pause before a train or longer, and count
        // only as bytes.
        let (gap, times) =
            (pace.gap_ns().unwrap_or(0.0), trains.saturating_add(warm_up_trains.into()));
        let sent =
            all.saturating_add(times.saturating_mul(lead_in_len(count as usize, gap) as u64));
        let ahead = (lead_in_duration(count as usize, gap) - pace.mean_pause()).max(Nanos::ZERO);
        let leading = ahead.0.saturating_mul(i64::try_from(times).unwrap_or(i64::MAX));
        Self {
            time: Nanos(time.0.saturating_add(warming).saturating_add(leading)),
            sending: time,
            probes: Some(all),
            bytes: pace.packet_size().map(|size| sent.saturating_mul(size.ip().0)),
            ..Self::default()
        }
    }

    fn of_ping(ping: &PingPlan) -> Self {
        let PingParameters { count, duration, closed_loop, pause, .. } = ping.parameters;
        let interval = match (closed_loop, ping.interval()) {
            (true, interval) => interval.or(pause).filter(|time| *time > Nanos::ZERO),
            (false, interval) => Some(interval.unwrap_or(Nanos::from_secs(1))),
        };
        let by_interval = |time: Nanos| interval.map(|gap| (time.0 / gap.0.max(1)) as u64 + 1);
        let probes = match (count, duration.and_then(by_interval)) {
            (Some(count), Some(fitting)) => Some(count.min(fitting)),
            (Some(count), None) => Some(count),
            (None, fitting) => fitting,
        };
        let by_count = count.zip(interval).map(|(count, gap)| {
            Nanos(gap.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
        });
        let measuring = match (by_count, duration) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(Nanos::ZERO),
        };
        let (warm_up, warming) = warm_up(ping);
        let clients = u64::from(ping.parameters.clients());
        let probes = probes.map(|probes| probes.saturating_add(warm_up).saturating_mul(clients));
        Self {
            time: Nanos(measuring.0.saturating_add(warming.0)),
            sending: measuring,
            at_most: closed_loop && count.is_some() && duration.is_some(),
            at_least: closed_loop && duration.is_none(),
            probes,
            bytes: probes.map(|probes| probes.saturating_mul(2 * ping.ip_bytes())),
            ..Self::default()
        }
    }

    /// Estimates all trials.
    ///
    /// # Errors
    /// If the values of a cell are incompatible.
    pub fn of_all(expansion: &Expansion) -> Result<Self, PlanError> {
        let repetitions = expansion.plan().trials.repetitions;
        let mut all = Self { probes: Some(0), bytes: Some(0), ..Self::default() };
        for cell in 0..expansion.cells().len() as u32 {
            let one = Self::of(&expansion.plan_of(cell)?);
            let times = |n: u64| n.saturating_mul(u64::from(repetitions));
            let more = one.time.0.saturating_mul(i64::from(repetitions));
            all.time = Nanos(all.time.0.saturating_add(more));
            let more = one.sending.0.saturating_mul(i64::from(repetitions));
            all.sending = Nanos(all.sending.0.saturating_add(more));
            all.at_least |= one.at_least;
            all.at_most |= one.at_most;
            all.probes = all.probes.zip(one.probes).map(|(a, b)| a.saturating_add(times(b)));
            all.bytes = all.bytes.zip(one.bytes).map(|(a, b)| a.saturating_add(times(b)));
            all.load_packets = all.load_packets.saturating_add(times(one.load_packets));
            all.load_bytes = all.load_bytes.saturating_add(times(one.load_bytes));
        }
        Ok(all)
    }
}

/// Number and duration of warm-up probes, with the defaults of `dwell ping`.
fn warm_up(ping: &PingPlan) -> (u64, Nanos) {
    let defaults = ping.protocol.spec().defaults;
    let probes = ping.parameters.warm_up.unwrap_or(defaults.warm_up);
    (probes.into(), defaults.warm_up_interval.saturating_mul(i64::from(probes)))
}

/// Packets and bytes that the loads of this plan send in this time.
fn load(plan: &Plan, time: Nanos) -> (u64, u64) {
    let seconds = time.0.max(0) as f64 / 1e9;
    let mut all = (0_u64, 0_u64);
    for traffic in plan.traffic() {
        let each = match traffic.protocol {
            Transport::Udp => traffic.payload().0 + IPV4_UDP_HEADER_LEN,
            Transport::Tcp => TCP_PACKET_LEN,
        };
        let packets = match traffic.rate {
            Some(Rate::Packets(rate)) => rate.as_f64() * seconds,
            Some(Rate::Bits(rate)) => rate.0 as f64 / 8.0 / each as f64 * seconds,
            // Limited only by the path.
            None => continue,
        };
        let packets = packets.round() as u64;
        all.0 = all.0.saturating_add(packets);
        all.1 = all.1.saturating_add(packets.saturating_mul(each));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand;
    use crate::source::Source;

    fn estimate(ping: &str) -> Estimate {
        let text = format!(
            "version = 1\nname = \"e\"\ntopology = {{ lab = \"line:2\" }}\n\
             [ping]\nfrom = \"n1\"\nto = \"n2\"\n{ping}\n[trials]\nrepetitions = 2\n"
        );
        Estimate::of_all(&expand(&Source::parse(&text).unwrap(), 1).unwrap()).unwrap()
    }

    #[test]
    fn time_packets_and_bytes_follow_from_the_plan() {
        let open = estimate("rate = \"200pps\"\nduration = \"5s\"\nsize = \"100B\"");
        assert_eq!(open.probes, Some(2 * (1001 + 8)));
        assert_eq!(open.bytes, Some(2 * (1001 + 8) * 2 * 128));
        assert_eq!((open.time, open.at_least), (Nanos::from_millis(2 * 5_150), false));
        let closed = estimate("closed_loop = true\ncount = 500");
        assert_eq!((closed.probes, closed.at_least), (Some(2 * 508), true));
        let unknown = estimate("closed_loop = true\nduration = \"1s\"");
        assert_eq!((unknown.probes, unknown.at_least), (None, false));
        let both = estimate("closed_loop = true\ncount = 500\nduration = \"1s\"");
        assert_eq!((both.probes, both.at_most, both.at_least), (Some(2 * 508), true, false));
        assert_eq!(estimate("interval = \"1ms\"\ncount = 100").probes, Some(2 * 108));
        assert_eq!(
            estimate("protocol = \"udp\"\ninterval = \"1ms\"\ncount = 100\nclients = 4").probes,
            Some(2 * 4 * 108)
        );
    }

    #[test]
    fn warm_up_adds_time_and_probes() {
        let long = estimate("interval = \"1ms\"\ncount = 100\nwarm_up = 100000");
        assert_eq!(long.probes, Some(2 * 100_100));
        assert_eq!(long.time, Nanos::from_millis(2 * (1_000_000 + 100 + 70)));
    }

    #[test]
    fn loads_send_as_long_as_the_trial_lasts() {
        let text = "version = 1\nname = \"e\"\ntopology = { lab = \"line:2\" }\nload = \"net\"\n\
                    [ping]\nfrom = \"n1\"\nto = \"n2\"\nduration = \"10s\"\nwarm_up = 0\n\
                    [loads.net]\ntraffic = [\
                    { from = \"n1\", to = \"n2\", rate = \"80Mbit/s\", size = \"972B\" },\
                    { from = \"n2\", to = \"n1\", rate = \"100pps\", size = \"72B\" }]\n";
        let of = |text: &str| Estimate::of(&Plan::read(&Source::parse(text).unwrap()).unwrap());
        // 10.07 s: 10,000 packets of 1,000 bytes per second, and 100 of 100.
        let one = of(text);
        assert_eq!(one.load_packets, 100_700 + 1_007);
        assert_eq!(one.load_bytes, 100_700 * 1_000 + 1_007 * 100);
        assert_eq!(of(&text.replace("load = \"net\"", "")).load_packets, 0);
    }

    #[test]
    fn flow_counts_one_direction_and_its_sending_time() {
        let text = "version = 1\nname = \"e\"\ntopology = { lab = \"line:3\" }\n\
                    [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"100B\"\nrate = \"200pps\"\n\
                    duration = \"5s\"\n";
        let all = Estimate::of_all(&expand(&Source::parse(text).unwrap(), 1).unwrap()).unwrap();
        assert_eq!((all.probes, all.bytes), (Some(1_001), Some(1_001 * 128)));
        assert_eq!(all.time, Nanos::from_millis(5_000 + 100 + 70));
        assert_eq!(all.sending, Nanos::from_millis(5_000), "the rest is overhead");
    }
}
