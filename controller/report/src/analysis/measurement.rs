//! Description of what was measured, for readers who have not seen the plan: from the plan if there
//! is one, else from the trials.

use std::collections::BTreeSet;
use std::fmt::Display;

use dwell_plan::{
    CrossPlan, FlowPlan, ForwardingMode, LabSpec, LabTopology, LinkPlan, Load, Measurement, Order,
    PacePlan, PingPlan, Plan, Topology, Transport,
};
use dwell_protocol::{FlowParameters, Generator, PaceKind, PaceParameters, PingParameters};
use dwell_record::{Kind, Summary};
use dwell_units::Nanos;
use serde::Serialize;

use crate::analysis::contention;
use crate::model::quantity::{count, count_noun, delay_ns, listed};
use crate::model::{Axis, RunData, TrialData};

/// One aspect of the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasurementAspect {
    /// Aspect: `What`, `Packets`, `Sending`, `Nodes and links` ...
    pub name: &'static str,
    /// Plain text without markup.
    pub text: String,
}

/// Returns what the run measured, the most important first; empty if nothing is known.
pub fn measurement_aspects(run: &RunData) -> Vec<MeasurementAspect> {
    let plan = run.plan();
    let mut all = Vec::new();
    let mut say = |name, text: Option<String>| {
        all.extend(text.map(|text| MeasurementAspect { name, text }));
    };
    say("What", plan.map_or_else(|| of_file(run), |plan| Some(what(run, plan))));
    say("Packets", packets(run, plan));
    say("Sending", sending(run, plan));
    if let Some(plan) = plan {
        say("Nodes and links", Some(network(run, plan)));
        say("Loads", loads(run, plan));
    }
    say("Machine", machine(run));
    if let Some(plan) = plan {
        say("Trials", Some(trials(run, plan)));
    }
    if let Some(plan) = &run.plan {
        let text = match plan.settings.as_slice() {
            [] => "none".to_owned(),
            some => listed(some),
        };
        say("Overrides", Some(text));
    }
    all
}

/// Sending mode of all trials; `None` if they differ or none states it.
pub(crate) fn mode(run: &RunData) -> Option<&'static str> {
    let modes: BTreeSet<&str> = run.summaries().filter_map(mode_of).collect();
    match modes.into_iter().collect::<Vec<_>>().as_slice() {
        ["closed-loop"] => Some("closed loop"),
        ["open-loop"] => Some("open loop"),
        _ => None,
    }
}

/// Returns `open-loop` or `closed-loop` as reported by the measuring node; `None` if not reported.
pub fn mode_of(summary: &Summary) -> Option<&str> {
    summary.text("mode")
}

fn what(run: &RunData, plan: &Plan) -> String {
    match &plan.measurement {
        Measurement::Pace(pace) => departures(run, pace),
        Measurement::Ping(ping) => format!(
            "Round trips between two nodes: {} sends a probe, {} sends it back. {}",
            value(run, &["from", "ping.from"], || ping.from.clone()),
            value(run, &["to", "ping.to"], || ping.to.clone()),
            protocol(run, ping)
        ),
        Measurement::Flow(flow) => flow_text(run, flow),
    }
}

fn protocol(run: &RunData, ping: &PingPlan) -> String {
    if let Some(axis) = varied(run, &["protocol", "ping.protocol"]) {
        return format!("Protocols: {}.", listed(&axis.values));
    }
    format!("Protocol: {}.", ping.protocol.spec().description)
}

fn flow_text(run: &RunData, flow: &FlowPlan) -> String {
    let ends = format!("UDP packets one way, from {} to {}", flow.from, flow.to);
    let Some(relay) = &flow.relay else { return format!("{ends}, timestamped at both ends.") };
    let mode = |name: &str| match name {
        "route" => "routes (the kernel forwards packets)".to_owned(),
        "translate" => "translates (a program rewrites addresses and ports)".to_owned(),
        "encrypt" => "encrypts (a program encrypts the payload)".to_owned(),
        "decrypt" => "decrypts (a program decrypts the payload)".to_owned(),
        other => other.to_owned(),
    };
    let modes = match varied(run, &["relay", "relay.mode"]) {
        Some(axis) => axis.values.iter().map(|name| mode(name)).collect::<Vec<_>>().join(", or "),
        None => mode(ForwardingMode::name(relay.mode)),
    };
    format!("{ends}, through {}, which {modes}. Packets are timestamped at every node.", relay.on)
}

/// Description of an imported file.
fn of_file(run: &RunData) -> Option<String> {
    let imported = |summary: &&Summary| summary.kind == Kind::Import;
    let engines: BTreeSet<&str> =
        run.summaries().filter(imported).map(|summary| summary.engine.as_str()).collect();
    let engines: Vec<String> = engines.into_iter().map(str::to_owned).collect();
    (!engines.is_empty()).then(|| {
        format!(
            "Read from the file {} (format: {}); only what the file states is known.",
            run.name,
            listed(&engines)
        )
    })
}

fn departures(run: &RunData, pace: &PacePlan) -> String {
    let engines = varied(run, &["engine", "pace.engine"])
        .map_or_else(|| pace.parameters.engine.name().to_owned(), |axis| axis.values.join(", "));
    let asked = |summary: &Summary| summary.parameters.get("sink").is_some_and(|sink| sink == true);
    let mut paced = run.summaries().filter(|summary| summary.kind == Kind::Pace).peekable();
    let is_known = paced.peek().is_some();
    let [some, not_all] = paced.fold([false; 2], |[some, not_all], summary| {
        [some | asked(summary), not_all | !asked(summary)]
    });
    let stamped = match pace.sink {
        Some(false) => "no sink",
        Some(true) => "the sink timestamps arrivals",
        None if is_known && !not_all => "the sink timestamps arrivals",
        None if is_known && !some => "the sink discards arrivals",
        None => {
            "the sink timestamps arrivals of senders without timestamps of their own and discards the rest"
        }
    };
    format!(
        "Send-time accuracy: {} sends to {}; {stamped}. Engines: {engines}.",
        value(run, &["from", "pace.from"], || pace.from.clone()),
        value(run, &["to", "pace.to"], || pace.to.clone()),
    )
}

/// Packet sizes as given and as IP packets.
fn paced_packets(run: &RunData, pace: &PacePlan) -> Option<String> {
    let names = ["size", "payload_size", "frame_size"];
    let all = names.iter().find_map(|name| varied(run, &[name, &format!("pace.{name}")]));
    let family = if pace.ipv6 { "IPv6" } else { "IPv4" };
    let text = match (all, pace.packet_size()) {
        (Some(axis), _) => values(axis),
        (None, Some(size)) => size.to_string(),
        (None, None) => return None,
    };
    Some(format!("{text}, {family}; rates count the size as given"))
}

fn trains(run: &RunData, pace: &PacePlan) -> String {
    let PaceParameters { pattern, count, repeat, rate, pairs, gap, warm_up, .. } = pace.parameters;
    let trains = || {
        let rate = varied(run, &["rate", "pace.rate"]).map_or_else(
            || rate.map_or_else(|| "no rate".to_owned(), spaced),
            |axis| {
                // Pairs have none.
                let rates = axis.values.iter().filter(|value| *value != "none");
                rates.cloned().collect::<Vec<_>>().join(", ")
            },
        );
        let shorter = varied(run, &["count", "pace.count"])
            .map_or_else(String::new, |axis| format!(" (in some trials {})", values(axis)));
        let gaps = if pattern == PaceKind::Poisson { ", Poisson gaps" } else { "" };
        format!("{repeat} trains of {count} packets{shorter} at {rate}{gaps}")
    };
    let pairs = || format!("{pairs} pairs, {} apart", spaced(gap));
    let sent = match varied(run, &["pattern", "pace.pattern"]) {
        Some(_) => format!("{}; and {}", trains(), pairs()),
        None if pattern == PaceKind::Pair => pairs(),
        None => trains(),
    };
    format!(
        "{sent}, after a warm-up of {}, at scheduled times.",
        count_noun(warm_up.into(), "train")
    )
}

fn cross(run: &RunData, cross: &CrossPlan) -> String {
    let flows = value(run, &["flows", "cross.flows"], || cross.flows.to_string());
    format!(
        "cross traffic from the same node: {flows} flows of {} each, {} packets, gaps {}{} with seed {}{}",
        spaced(cross.rate),
        spaced(cross.size),
        cross.distribution,
        cross
            .pareto()
            .map(|(_, scale)| format!(" of scale {}", Nanos(scale as i64)))
            .unwrap_or_default(),
        cross.seed,
        match cross.generator {
            Generator::Dwell => "",
            Generator::Itg => ", sent by ITGSend",
        }
    )
}

fn packets(run: &RunData, plan: Option<&Plan>) -> Option<String> {
    if let Some(pace) = plan.and_then(|plan| plan.measurement.pace()) {
        return paced_packets(run, pace);
    }
    let bytes = |summary: &Summary| summary.parameters.get("payload_bytes")?.as_u64();
    let sizes: BTreeSet<u64> = run.summaries().filter_map(bytes).collect();
    let (first, last) = (sizes.first(), sizes.last());
    let payload = match (first, last) {
        (Some(first), Some(last)) if first == last => count_noun(*first, "byte"),
        (Some(first), Some(last)) => format!("{} to {} bytes", count(*first), count(*last)),
        _ => {
            let size = match &plan?.measurement {
                Measurement::Ping(ping) => ping.parameters.size,
                Measurement::Flow(flow) => Some(flow.size()),
                Measurement::Pace(_) => None,
            };
            count_noun(size?.0, "byte")
        }
    };
    let family = match plan.map(|plan| plan.measurement.ipv6()) {
        Some(true) => ", IPv6",
        Some(false) => ", IPv4",
        None => "",
    };
    Some(format!("{payload} of payload{family}"))
}

fn sending(run: &RunData, plan: Option<&Plan>) -> Option<String> {
    let Some(plan) = plan else {
        return mode(run).map(str::to_owned);
    };
    Some(match &plan.measurement {
        Measurement::Ping(ping) => probes(run, ping),
        Measurement::Flow(flow) => {
            let rate = value(run, &["rate", "flow.rate"], || spaced(flow.rate));
            let FlowParameters { count, duration, .. } = flow.parameters;
            let end = end(run, "packet", count, duration.map(|time| time.0));
            format!("Open loop: {rate}, {end} per trial; losses do not delay later packets.")
        }
        Measurement::Pace(pace) => trains(run, pace),
    })
}

fn probes(run: &RunData, ping: &PingPlan) -> String {
    let PingParameters { count, duration, closed_loop, pause, interval, .. } = ping.parameters;
    let end = end(run, "probe", count, duration.map(|time| time.0));
    if varied(run, &["closed_loop", "ping.closed_loop"]).is_some() {
        return format!("Open or closed loop, depending on the trial; {end} per trial.");
    }
    if closed_loop {
        let pause = pause.map_or_else(String::new, |pause| format!(" {}", spaced(pause)));
        return format!(
            "Closed loop: each probe is sent{pause} after the previous reply, so a stall affects only \
             one probe; {end} per trial."
        );
    }
    let rate = varied(run, &["rate", "ping.rate", "interval", "ping.interval"])
        .map(values)
        .or_else(|| ping.rate.map(spaced))
        .or_else(|| Some(format!("one probe every {}", spaced(interval?))))
        .unwrap_or_else(|| "one probe per second".to_owned());
    format!("Open loop: {rate}, at scheduled times; {end} per trial.")
}

/// Length of a trial: `50,000 probes`, `5 s`, or both.
fn end(run: &RunData, thing: &str, packets: Option<u64>, time_ns: Option<i64>) -> String {
    if let Some(axis) = varied(run, &["count", "duration"]) {
        return values(axis);
    }
    let packets = packets.map(|n| count_noun(n, thing));
    let parts: Vec<String> = packets.into_iter().chain(time_ns.map(delay_ns)).collect();
    parts.join(" or ")
}

fn network(run: &RunData, plan: &Plan) -> String {
    let LabTopology { lab, link, .. } = match &plan.topology {
        Topology::Lab(lab) => lab,
        Topology::Devices(roles) => return format!("Devices: {}.", roles.join(", ")),
    };
    let nodes = match lab {
        LabSpec::Line(n) => format!("{n} nodes in a line"),
        LabSpec::Star(n) => format!("{n} nodes in a star"),
        LabSpec::Forced(n) => format!("{n} nodes on one bridge, forced into a line"),
        LabSpec::Wifi(n) => {
            format!("{n} nodes with 802.11 radios in ad hoc mode, forced into a line")
        }
        LabSpec::File(path) => format!("the lab {path}"),
    };
    let place = if run.one_machine { ": network namespaces of one machine" } else { "" };
    let links = match lab {
        LabSpec::Wifi(_) => "Radios simulated by mac80211_hwsim: no airtime, attenuation or \
                             collisions, and no timestamps of sent packets."
            .to_owned(),
        _ => links(run, link),
    };
    format!("{nodes}{place}. {links}")
}

fn links(run: &RunData, link: &LinkPlan) -> String {
    let of = |field: &str, fixed: Option<String>, words: &str| {
        let name = format!("topology.link.{field}");
        let one_of = |axis: &Axis| values(axis).replace(", ", " or ");
        let value = varied(run, &[&name]).map(one_of).or(fixed)?;
        Some(format!("{words} {value}"))
    };
    let all = [
        of("rate", link.rate.map(spaced), "a rate of"),
        of("delay", link.delay.map(spaced), "a delay of"),
        of("jitter", link.jitter.map(spaced), "jitter of"),
        of("loss", link.loss.map(spaced), "loss of"),
        of("duplicate", link.duplicate.map(spaced), "duplication of"),
        of("reorder", link.reorder.map(spaced), "reordering of"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() {
        return "Bare links: no rate limit, no added delay.".to_owned();
    }
    let by = link.mechanism.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
    let bare = all[0].strip_prefix("a rate of none or ").filter(|_| all.len() == 1);
    match bare {
        Some(rate) => {
            format!("Links are bare in some trials and have a rate of {rate} in others{by}.")
        }
        None => format!("Every link has {}{by}.", listed(&all)),
    }
}

/// Loads of the trials, by name.
fn loads(run: &RunData, plan: &Plan) -> Option<String> {
    let names =
        varied(run, &["load"]).map_or_else(|| vec![plan.load.clone()], |a| a.values.clone());
    let said = |name: &String| match plan.loads.get(name) {
        Some(load) => format!("{name}: {}", load_in_words(load)),
        None => {
            let with =
                |trial: &&TrialData| trial.parameters.get("load").is_none_or(|load| load == name);
            let activity = contention::background_load(run.finished_trials().filter(with));
            format!("{name}: {activity}")
        }
    };
    let mut all: Vec<String> = names.iter().map(said).collect();
    let crossing = plan.measurement.pace().and_then(|pace| pace.cross.as_ref());
    all.extend(crossing.map(|plan| cross(run, plan)));
    (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
}

fn load_in_words(load: &Load) -> String {
    let cpu = load.cpu.iter().map(|cpu| {
        let which = match cpu.cpus.as_slice() {
            [] => "every CPU".to_owned(),
            some => {
                format!("CPU {}", listed(&some.iter().map(usize::to_string).collect::<Vec<_>>()))
            }
        };
        format!("CPU burners keep {which} {} busy on {}", spaced(cpu.level), cpu.on)
    });
    let traffic = load.traffic.iter().map(|traffic| {
        if traffic.protocol == Transport::Tcp {
            let rate = traffic.rate.map_or("bulk".to_owned(), spaced);
            let flows = count_noun(traffic.flows.into(), "connection");
            return format!(
                "{rate} TCP traffic from {} to {} in {flows}",
                traffic.from, traffic.to
            );
        }
        format!(
            "{} of UDP traffic from {} to {} in {} of {} packets",
            traffic.rate.map_or(String::new(), spaced),
            traffic.from,
            traffic.to,
            count_noun(traffic.flows.into(), "flow"),
            spaced(traffic.payload())
        )
    });
    let all: Vec<String> = cpu.chain(traffic).collect();
    if all.is_empty() { "nothing".to_owned() } else { listed(&all) }
}

/// Machine of the measuring end. Other machines are not recorded.
fn machine(run: &RunData) -> Option<String> {
    let said = |summary: &Summary| {
        let environment = &summary.environment;
        let cores = environment.cores.map(|n| count_noun(n.into(), "core"));
        let kernel = environment.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
        let parts = [environment.cpu.clone(), cores, kernel];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    let all: BTreeSet<String> = run.summaries().filter_map(said).collect();
    (!all.is_empty()).then(|| all.into_iter().collect::<Vec<_>>().join(" / "))
}

fn trials(run: &RunData, plan: &Plan) -> String {
    let cells: BTreeSet<_> = run.trials.iter().map(|trial| &trial.parameters).collect();
    let times = match plan.trials.repetitions {
        1 => "measured once".to_owned(),
        n => format!("measured {n} times"),
    };
    let order = match plan.trials.order {
        Order::Blocks => "in blocks of one trial each, in random order",
        Order::Random => "in random order",
        Order::AsWritten => "in the order of the plan",
    };
    let varied: Vec<String> =
        run.axes.iter().map(|axis| format!("{} ({})", axis.name, values(axis))).collect();
    let over = if varied.is_empty() {
        "One combination of parameters".to_owned()
    } else {
        format!("{} of {}", count_noun(cells.len() as u64, "combination"), listed(&varied))
    };
    format!("{over}, {times}, {order}.")
}

/// Values of the first of these axes that varies, or the fixed value.
fn value(run: &RunData, names: &[&str], fixed: impl FnOnce() -> String) -> String {
    varied(run, names).map_or_else(fixed, values)
}

fn varied<'a>(run: &'a RunData, names: &[&str]) -> Option<&'a Axis> {
    run.axes.iter().find(|axis| names.contains(&axis.name.as_str()))
}

/// All values if they are few, else their number with the smallest and the largest.
fn values(axis: &Axis) -> String {
    const MAX_LISTED_VALUES: usize = 4;
    let numbers = axis.numbers.as_ref().filter(|numbers| numbers.len() == axis.values.len());
    if axis.values.len() <= MAX_LISTED_VALUES {
        let mut places: Vec<usize> = (0..axis.values.len()).collect();
        if let Some(numbers) = numbers {
            places.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        }
        let values: Vec<&str> = places.iter().map(|place| axis.values[*place].as_str()).collect();
        return values.join(", ");
    }
    let by_number = |numbers: &Vec<f64>| {
        let of = |place: &usize| numbers[*place];
        let places = || 0..numbers.len();
        let least = places().min_by(|a, b| of(a).total_cmp(&of(b)))?;
        let most = places().max_by(|a, b| of(a).total_cmp(&of(b)))?;
        Some((least, most))
    };
    let (least, most) = numbers.and_then(by_number).unwrap_or((0, axis.values.len() - 1));
    let [least, most] = [least, most].map(|place| &axis.values[place]);
    format!("{} values from {least} to {most}", axis.values.len())
}

/// Quantity with a space before its unit: `100 Mbit/s`, `50 %`.
fn spaced(quantity: impl Display) -> String {
    let text = quantity.to_string();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || ".-".contains(c)));
    match digits {
        Some(at) if at > 0 => format!("{} {}", &text[..at], &text[at..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaced_separates_number_and_unit() {
        let texts = [("100Mbit/s", "100 Mbit/s"), ("0.5%", "0.5 %"), ("none", "none"), ("7", "7")];
        for (text, said) in texts {
            assert_eq!(spaced(text), said);
        }
    }
}
