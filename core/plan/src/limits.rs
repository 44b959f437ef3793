//! Limits of nodes and labs, checked before a run starts. Limits that exist as functions are
//! called; those of the node program are repeated here as numbers.

use dwell_engine::link::LinkParameters;
use dwell_engine::pinger::{Config, ProbeSchedule};
use dwell_engine::protocol::{MAX_PAYLOAD_LEN, PayloadError};
use dwell_engine::schedule::Gaps;
use dwell_units::{BitRate, Bytes, Nanos, Rate};

use crate::error::PlanError;
use crate::plan::{PingPlan, Plan, TrafficLoad, Transport};
use crate::source::Source;
use crate::topology::{LabSpec, LabTopology, LinkPlan, Topology};
use dwell_protocol::Generator;

/// Maximum write size of a TCP load.
const MAX_TCP_WRITE: u64 = 1 << 20;
/// Minimum link rate: tc counts whole bytes per second.
const MIN_LINK_RATE: BitRate = BitRate(8);

/// Checks the fields of a plan, separately and in combination.
pub(crate) fn check(plan: &Plan, source: &Source) -> Result<(), PlanError> {
    if let Some(ping) = plan.measurement.ping() {
        check_ping(ping, source)?;
    }
    check_link(plan, source)?;
    check_traffic(plan, source)?;
    match plan.trials.time_limit {
        Some(limit) if limit <= Nanos::ZERO => {
            Err(source.error("trials.time_limit", "must be above 0"))
        }
        _ => Ok(()),
    }
}

fn check_ping(ping: &PingPlan, source: &Source) -> Result<(), PlanError> {
    let parameters = &ping.parameters;
    if let Some(wrong) = parameters.size.and_then(|size| size_error(ping, size.0)) {
        return Err(source.error("ping.size", wrong));
    }
    let timeout = parameters.timeout();
    let interval = ping.interval().unwrap_or(Nanos::from_secs(1));
    let config = Config {
        departures: ProbeSchedule::Open { interval },
        count: None,
        duration: None,
        timeout,
        warm_up: 0,
        warm_up_interval: Nanos::ZERO,
    };
    if !parameters.closed_loop
        && !ping.protocol.spec().defaults.closed_loop
        && !config.fits_window()
    {
        let limit = Config::MAX_WINDOW;
        let message = format!(
            "{timeout} at this rate allows more than {limit} probes in flight; choose a shorter \
             time-out"
        );
        return Err(source.error("ping.timeout", message));
    }
    Ok(())
}

/// Returns the error of a payload of this size, if it is invalid.
fn size_error(ping: &PingPlan, size: u64) -> Option<String> {
    let (protocol, written) = (ping.protocol, Bytes(size));
    let error = protocol.spec().payload.check(size).err()?;
    Some(match error {
        PayloadError::Fixed(only) => {
            format!("a {protocol} message has a fixed size of {only}B; remove size")
        }
        PayloadError::Either(plain, timed) => {
            format!("a {protocol} message has {plain}B, or {timed}B with the times of a device")
        }
        PayloadError::TooSmall(min) => {
            format!("{written} is too small; {protocol} needs at least {min}B")
        }
        PayloadError::TooLarge(max) => {
            format!("{written} does not fit into a datagram; at most {max}B")
        }
        PayloadError::Between(min, next) => {
            format!("a {protocol} message has {min}B, or with a TLV, {next}B and more")
        }
    })
}

fn check_link(plan: &Plan, source: &Source) -> Result<(), PlanError> {
    let Topology::Lab(LabTopology { lab, link, .. }) = &plan.topology else { return Ok(()) };
    if let Some(rate) = link.rate.filter(|rate| *rate < MIN_LINK_RATE) {
        let message = format!("{rate} is too slow for a link; at least {MIN_LINK_RATE}");
        return Err(source.error("topology.link.rate", message));
    }
    let known = ["netem", "tbf", "tap"];
    if link.mechanism.as_ref().is_some_and(|mechanism| !known.contains(&mechanism.as_str())) {
        let message = format!("known are {}", known.join(", "));
        return Err(source.error("topology.link.mechanism", message));
    }
    if matches!(lab, LabSpec::File(_)) {
        // The lab file may contain the remaining link settings.
        return Ok(());
    }
    let parameters = LinkParameters {
        rate: link.rate,
        delay: link.delay.unwrap_or_default(),
        jitter: link.jitter.unwrap_or_default(),
        loss: link.loss.unwrap_or_default(),
        duplicate: link.duplicate.unwrap_or_default(),
        reorder: link.reorder.unwrap_or_default(),
    };
    parameters.check().map_err(|error| source.error("topology.link", error.to_string()))?;
    // `dwell lab` refuses every setting, even one that changes nothing.
    if let LabSpec::Wifi(count) = lab
        && *link != LinkPlan::default()
    {
        let message = format!(
            "simulated radios have no link settings, such as rate, delay, loss or mechanism; remove \
             them, or use lab = \"forced:{count}\", the same line on a bridge"
        );
        return Err(source.error("topology.link", message));
    }
    let wrong = match link.mechanism.as_deref() {
        Some("tbf") if !parameters.is_rate_only() => {
            "tbf supports a rate only; remove the mechanism, or every setting except the rate"
        }
        Some("netem") if parameters.is_plain() => {
            "netem has nothing to do here; add a rate, a delay or a loss"
        }
        _ => return Ok(()),
    };
    Err(source.error("topology.link.mechanism", wrong))
}

fn check_traffic(plan: &Plan, source: &Source) -> Result<(), PlanError> {
    for (name, load) in &plan.loads {
        for (n, traffic) in load.traffic.iter().enumerate() {
            let wrong = |field: &str, message: String| {
                Err(source.error(&format!("loads.{name}.traffic[{n}].{field}"), message))
            };
            if traffic.from == traffic.to {
                return wrong("to", format!("'{}' would send to itself", traffic.to));
            }
            if let Err(error) = traffic.distribution.parse::<Gaps>() {
                return wrong("distribution", error.to_string());
            }
            let still = match traffic.rate {
                Some(Rate::Bits(rate)) => rate.0 == 0,
                Some(Rate::Packets(rate)) => rate.gap().is_none(),
                None => false,
            };
            if still {
                return wrong("rate", "must be above 0, like \"80Mbit/s\"".into());
            }
            if traffic.protocol == Transport::Tcp {
                if let Some((field, message)) = tcp_error(traffic) {
                    return wrong(field, message.into());
                }
                continue;
            }
            if traffic.rate.is_none() {
                return wrong(
                    "rate",
                    "udp traffic needs a rate, like \"80Mbit/s\"; only tcp works without one"
                        .into(),
                );
            }
            let min = traffic.generator.min_payload().0;
            if !(min..=MAX_PAYLOAD_LEN).contains(&traffic.payload().0) {
                return wrong("size", format!("must be {min}B to {MAX_PAYLOAD_LEN}B"));
            }
        }
    }
    Ok(())
}

/// Returns the field that is invalid for TCP, and the reason.
fn tcp_error(traffic: &TrafficLoad) -> Option<(&'static str, &'static str)> {
    if matches!(traffic.rate, Some(Rate::Packets(_))) {
        return Some((
            "rate",
            "a tcp rate is not in packets; give bits, like \"80Mbit/s\", or no rate",
        ));
    }
    if traffic.size.is_some_and(|size| !(1..=MAX_TCP_WRITE).contains(&size.0)) {
        return Some(("size", "a tcp write must be 1B to 1MiB"));
    }
    if traffic.distribution.parse::<Gaps>() != Ok(Gaps::Constant) {
        return Some(("distribution", "tcp supports constant gaps only; remove distribution"));
    }
    (traffic.generator == Generator::Itg)
        .then_some(("generator", "itg sends udp only; remove generator or protocol"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
version = 1
name = "limits"
topology = { lab = "line:2", link = { rate = "100Mbit/s" } }
[ping]
from = "n1"
to = "n2"
count = 10
[loads.net]
traffic = [{ from = "n1", to = "n2", rate = "1Mbit/s" }]
[trials]
"#;

    #[test]
    fn plan_rejects_values_beyond_node_and_lab_limits() {
        Plan::read(&Source::parse(PLAN).unwrap()).unwrap();
        for (set, field, words) in [
            ("ping.size=70000B", "ping.size", "at most 65507B"),
            ("ping.size=1B", "ping.size", "stamp needs at least 44B"),
            ("ping.size=46B", "ping.size", "48B and more"),
            (
                "ping={from=\"n1\",to=\"n2\",count=1,protocol=\"roundtrip\",size=\"64B\"}",
                "ping.size",
                "24B",
            ),
            ("ping.ttl=0", "ping.ttl", "1 to 255"),
            ("ping.dscp=64", "ping.dscp", "0 to 63"),
            ("ping.interval=1us", "ping.timeout", "shorter"),
            ("topology.link.rate=1bit/s", "topology.link.rate", "8bit/s"),
            ("topology.link.jitter=1ms", "topology.link", "at most the delay"),
            ("topology.link.reorder=1%", "topology.link", "needs a delay"),
            ("topology.lab=wifi:2", "topology.link", "lab = \"forced:2\""),
            (
                "topology={lab=\"wifi:2\",link={mechanism=\"tap\"}}",
                "topology.link",
                "lab = \"forced:2\"",
            ),
            ("topology={lab=\"wifi:2\",link={seed=7}}", "topology.link", "no link settings"),
            ("topology.link.mechanism=veth", "topology.link.mechanism", "netem, tbf, tap"),
            ("topology.link={mechanism=\"netem\"}", "topology.link.mechanism", "nothing to do"),
            ("loads.net.traffic[0].size=70000B", "loads.net.traffic[0].size", "65507B"),
            ("loads.net.traffic[0].to=n1", "loads.net.traffic[0].to", "itself"),
            ("loads.net.traffic[0].rate=0pps", "loads.net.traffic[0].rate", "above 0"),
            (
                "loads.net.traffic[0].distribution=pareto(0)",
                "loads.net.traffic[0].distribution",
                "above 1",
            ),
            (
                "loads.net.traffic=[{from=\"n1\",to=\"n2\"}]",
                "loads.net.traffic[0].rate",
                "needs a rate",
            ),
            (
                "loads.net.traffic=[{from=\"n1\",to=\"n2\",protocol=\"tcp\",rate=\"9pps\"}]",
                "loads.net.traffic[0].rate",
                "give bits",
            ),
            (
                "loads.net.traffic=[{from=\"n1\",to=\"n2\",protocol=\"tcp\",generator=\"itg\"}]",
                "loads.net.traffic[0].generator",
                "udp only",
            ),
            ("trials.time_limit=0s", "trials.time_limit", "above 0"),
        ] {
            let mut source = Source::parse(PLAN).unwrap();
            source.set(set).unwrap();
            let error = Plan::read(&source).unwrap_err();
            assert_eq!(error.field, field, "{set}: {error}");
            assert!(error.message.contains(words), "{set}: {error}");
        }
    }
}
