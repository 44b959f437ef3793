//! Trust in the numbers of a run: facts, and the limits that they must keep.

use std::collections::BTreeMap;

use dwell_record::{CpuIdle, Ends, Kind, Placement, Severity, Summary};
use sha2::{Digest as _, Sha256};

use crate::analysis::group::Group;
use crate::analysis::warnings::{RunWarning, warnings};
use crate::analysis::{clock_bound, contention, measurement};
use crate::model::RunData;
use crate::model::quantity::{capital, count, count_noun, delay, delay_ns, listed};

/// A fact of the trust panel.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// Full value, if too long for the panel.
    pub(crate) folded: Option<String>,
    /// Explanation for readers new to it.
    pub(crate) meaning: &'static str,
}

/// Facts of all finished trials: figures over all of them, and each distinct name.
pub(crate) fn facts(run: &RunData) -> Vec<Fact> {
    let summaries: Vec<&Summary> = run.summaries().collect();
    let mut facts = Vec::new();
    let mut fact = |name, value: Option<String>, meaning| {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        facts.push(Fact { name, value, folded: None, meaning });
    };
    let named = |of: fn(&Summary) -> Option<String>| named(&summaries, of);
    let sources = |tx: Option<&str>, rx: Option<&str>| {
        let said = |timestamp_source: Option<&str>| timestamp_source.unwrap_or("none").to_owned();
        format!("sent {}, received {}", said(tx), said(rx))
    };
    fact("Probes", probes(run, &summaries), "Planned, sent, and answered in time.");
    fact(
        "Sending mode",
        named(|s| match s.kind {
            Kind::Relay => Some("open loop, one way".to_owned()),
            _ => Some(measurement::mode_of(s)?.replace('-', " ")),
        }),
        "Open loop: at scheduled times. Closed loop: each probe after the previous reply, which hides stalls.",
    );
    fact(
        "Percentiles",
        named(|s| s.trust.percentile_resolution.map(|resolution| resolution.name().to_owned())),
        "Resolution: exact means an observed value; 0.1% means within 0.1 % of one.",
    );
    fact(
        "Warm-up",
        sum(&summaries, |s| s.trust.warm_up_sent.filter(|_| is_measured_by_dwell(s)))
            .map(|n| format!("{} discarded", count_noun(n, "probe"))),
        "The first packets meet cold caches and are not counted.",
    );
    fact(
        "Timestamps",
        named(|s| {
            Some([s.stamps.tx, s.stamps.rx]).filter(|r| r.iter().any(Option::is_some)).map(
                |[tx, rx]| {
                    let name = |timestamp_source: Option<dwell_sample::TimestampSource>| {
                        timestamp_source.map(|timestamp_source| timestamp_source.name())
                    };
                    format!("{}\u{1f}{}", name(tx).unwrap_or(""), name(rx).unwrap_or(""))
                },
            )
        })
        .map(|said| {
            let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let each = said.split(" / ").map(|pair| {
                let (tx, rx) = pair.split_once('\u{1f}').unwrap_or((pair, ""));
                sources(known(tx).as_deref(), known(rx).as_deref())
            });
            each.collect::<Vec<_>>().join(" / ")
        }),
        "Source per direction: hw is the network card, kernel-sw the kernel, user the program. Sources closer to the wire are more accurate.",
    );
    fact(
        "Schedule error",
        schedule_error(&summaries),
        "Actual minus intended send time: percentiles of the worst trial. Large errors mean that the sender was late.",
    );
    fact(
        "Samples dropped",
        sum(&summaries, Summary::ring_dropped).map(count),
        "Samples lost between the timing thread and the recorder (ring overflow); must be 0.",
    );
    fact(
        "Dropped by the sender",
        dropped_by_sender(&summaries),
        "Probes that the sender's kernel did not accept.",
    );
    fact(
        "Dropped by network cards",
        dropped_by_cards(run),
        "Packets dropped by the interfaces of the probes during trials, including other traffic. Drops of a queueing discipline are not included.",
    );
    fact(
        "Clock source",
        named(|s| s.environment.clocksource.clone()),
        "Hardware behind the kernel's clocks.",
    );
    fact(
        "Clock offset",
        clocks(&summaries),
        "Change between the wall clock and the monotonic clock of this machine over the worst trial. Beyond 100 ns the clock was stepped, and the affected samples are void.",
    );
    fact(
        "Floor",
        summaries.iter().filter_map(|s| s.trust.floor_ns).max().map(delay_ns),
        "Round-trip delay that this machine itself adds; smaller differences mean nothing.",
    );
    fact(
        "Offloads",
        named(|s| s.environment.offloads.as_deref().map(offloads)),
        "Work done by the network card for the kernel. GRO and TSO merge packets and change delays.",
    );
    fact(
        "Queueing discipline",
        named(|s| s.environment.qdisc.clone()),
        "Queue in front of the network card.",
    );
    fact(
        "Interface",
        named(|s| {
            let name = s.environment.interface.as_ref()?;
            Some(
                s.environment
                    .driver
                    .as_ref()
                    .map_or_else(|| name.clone(), |driver| format!("{name} ({driver})")),
            )
        }),
        "Interface of the probes and its driver.",
    );
    fact(
        "CPU governor",
        named(|s| s.environment.governor.clone()),
        "Policy for the CPU frequency; any but performance makes idle machines slower.",
    );
    fact(
        "Idle states",
        named(|s| s.environment.cpu_idle.as_ref().map(idle_states)),
        "Driver and idle states of the CPUs; a deeper state takes longer to leave. ping --no-idle keeps CPUs out of them.",
    );
    fact(
        "Processor",
        named(|s| {
            let cpu = s.environment.cpu.as_ref()?;
            Some(s.environment.cores.map_or_else(
                || cpu.clone(),
                |n| format!("{cpu}, {}", count_noun(n.into(), "core")),
            ))
        }),
        "CPU of this end.",
    );
    fact(
        "Placement",
        named(|s| placement(&s.environment.placement)),
        "CPU of each end, how it waits for packets, and its scheduling class. A blocking exchange costs about 4 us on one core and about 70 us on two.",
    );
    fact("Kernel", named(|s| s.environment.kernel.clone()), "Linux release of this end.");
    fact(
        "dwell",
        Some(builds(run, &summaries)),
        "Version and, after the plus sign, the start of the program's SHA-256; equal values mean the same build.",
    );
    fact(
        "Plan",
        plan(run, &summaries),
        "Name and the start of the SHA-256 of its text; equal values mean the same plan.",
    );
    let every = named(|s| s.environment.offloads.as_ref().map(|names| names.join(", ")));
    let offloads = facts.iter_mut().find(|fact| fact.name == "Offloads");
    if let (Some(fact), Some(every)) = (offloads, every.filter(|every| !every.is_empty())) {
        fact.folded = Some(every);
    }
    if let Some(bound) = clock_bound::largest_bound(run) {
        let meaning = "Largest error of one-way delays between machines. The controller compares their clocks by \
                       exchanges.";
        facts.push(Fact {
            name: "Clock bound",
            value: format!("± {bound}"),
            folded: None,
            meaning,
        });
    }
    facts
}

/// Driver and names of idle states, and whether they were off.
fn idle_states(idle: &CpuIdle) -> String {
    let Some(driver) = &idle.driver else { return "no driver".to_owned() };
    let off = if idle.is_off() { ", off (--no-idle)" } else { "" };
    format!("{driver}: {}{off}", idle.states.join(", "))
}

/// Offloads that merge or split packets by their common names, and the total number.
fn offloads(names: &[String]) -> String {
    let on = |parts: &[&str]| names.iter().any(|n| parts.iter().any(|part| n.contains(part)));
    let known = [
        ("GRO", on(&["rx-gro", "generic-receive"])),
        ("LRO", on(&["rx-lro", "large-receive"])),
        ("GSO", on(&["tx-generic-segmentation", "generic-segmentation"])),
        ("TSO", on(&["tx-tcp-segmentation", "tx-tcp6-segmentation", "tcp-segmentation-offload"])),
    ];
    let known: Vec<String> =
        known.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect();
    match (names.len(), known.is_empty()) {
        (0, _) => "none".to_owned(),
        (n, true) => format!("{n} on; neither GRO, LRO, GSO nor TSO"),
        (n, false) => format!("{} on; {n} in all", listed(&known)),
    }
}

/// Probes that the sender's socket did not accept.
fn dropped_by_sender(summaries: &[&Summary]) -> Option<String> {
    if !summaries.iter().all(|summary| is_measured_by_dwell(summary)) {
        return None;
    }
    let failed = sum(summaries, |summary| Some(summary.packets?.send_failed));
    failed.map(|failed| format!("{} at the socket", count(failed)))
}

/// Drops of interfaces in all trials, by machine and interface.
fn dropped_by_cards(run: &RunData) -> Option<String> {
    let mut cards: BTreeMap<(Option<&str>, &str), [u64; 3]> = BTreeMap::new();
    for trial in run.finished_trials() {
        let own = trial.summary.iter().map(|summary| (None, summary));
        let others =
            trial.machines.iter().map(|machine| (Some(machine.node.as_str()), &machine.summary));
        for (node, summary) in own.chain(others) {
            for nic in summary.trust.nic_dropped.iter().flatten() {
                let sums = cards.entry((node, nic.interface.as_str())).or_default();
                let each = [nic.rx_dropped, nic.tx_dropped, nic.rx_missed];
                sums.iter_mut().zip(each).for_each(|(sum, n)| *sum = sum.saturating_add(n));
            }
        }
    }
    let total = cards.values().flatten().fold(0u64, |sum, n| sum.saturating_add(*n));
    let name = |(node, interface): (Option<&str>, &str)| match node {
        Some(node) => format!("{interface} of node {node}"),
        None => interface.to_owned(),
    };
    if total == 0 {
        let names: Vec<String> = cards.into_keys().map(name).collect();
        return (!names.is_empty()).then(|| format!("0 at {}", listed(&names)));
    }
    let dropping = cards.into_iter().filter(|(_, sums)| sums.iter().any(|n| *n > 0));
    let said = dropping.map(|(card, [rx, tx, missed])| {
        let parts = [(rx, "rx dropped"), (tx, "tx dropped"), (missed, "rx missed")];
        let parts = parts.into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", count(n))).collect();
        format!("{}: {}", name(card), listed(&parts))
    });
    Some(said.collect::<Vec<_>>().join(" / "))
}

/// Builds of dwell that controlled the run and measured; one name if all are equal.
fn builds(run: &RunData, summaries: &[&Summary]) -> String {
    let machines = run.finished_trials().flat_map(|trial| &trial.machines);
    let measured = summaries.iter().copied().chain(machines.map(|machine| &machine.summary));
    let mut builds: Vec<&str> = Vec::new();
    for summary in measured.filter(|summary| is_measured_by_dwell(summary)) {
        let build = summary.environment.dwell.as_str();
        if !builds.contains(&build) {
            builds.push(build);
        }
    }
    match builds.as_slice() {
        [] => run.dwell.clone(),
        [only] if *only == run.dwell => run.dwell.clone(),
        several => format!("controller {}; nodes {}", run.dwell, several.join(", ")),
    }
}

/// Name and hash of the plan.
fn plan(run: &RunData, summaries: &[&Summary]) -> Option<String> {
    let Some(plan) = &run.plan else {
        let imported = summaries.iter().all(|summary| summary.kind == Kind::Import);
        return imported.then(|| "none (imported file)".to_owned());
    };
    let hash = Sha256::digest(&plan.text);
    let start: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let set = match plan.settings.len() as u64 {
        0 => String::new(),
        n => format!(", {} overridden", count_noun(n, "value")),
    };
    Some(format!("{}, {start}{set}", run.name))
}

/// Trust in the numbers of a run.
pub(crate) enum TrustLevel {
    /// No limit was exceeded.
    Ok,
    /// No warning, but not all limits are known.
    Unknown,
    /// Number of warnings to read before quoting a number.
    Warnings(usize),
    /// The numbers must not be quoted.
    DoNotQuote,
}

impl TrustLevel {
    /// Level of a run with these warnings. Notes do not lower it.
    pub(crate) fn of(run: &RunData, warnings: &[RunWarning]) -> Self {
        let count = |severity| warnings.iter().filter(|it| it.severity == severity).count();
        match (count(Severity::Invalid), count(Severity::Warning)) {
            (0, 0) if has_schedule_errors(run) => Self::Ok,
            (0, 0) => Self::Unknown,
            (0, n) => Self::Warnings(n),
            _ => Self::DoNotQuote,
        }
    }
}

/// Whether every finished trial recorded its schedule error, so that the absence of warnings is
/// meaningful. Most imported data lack it.
pub(crate) fn has_schedule_errors(run: &RunData) -> bool {
    all_satisfy(run, has_schedule_error)
}

/// Sentences about kept limits, and about those that are unknown.
pub(crate) fn kept_limits_text(run: &RunData) -> String {
    type SummaryPredicate = fn(&Summary) -> bool;
    let limits: [(&str, &str, SummaryPredicate); 5] = [
        ("no clock stepped by more than 100 ns", "clock steps", |summary| {
            is_measured_by_dwell(summary) || summary.trust.clocks.is_some()
        }),
        ("no sample dropped", "dropped samples", |summary| summary.ring_dropped().is_some()),
        ("at most 1 in 100 probes sent more than 100 us late", "send times", has_schedule_error),
        (
            "other programs below 10 % of the CPU time",
            "CPU use of other programs",
            contention::is_known,
        ),
        ("no warning from a node", "warnings from nodes", is_measured_by_dwell),
    ];
    let (mut kept, mut unknown) = (Vec::new(), Vec::new());
    for (kept_limit, unknown_limit, predicate) in limits {
        if all_satisfy(run, predicate) {
            kept.push(kept_limit.to_owned());
        } else {
            unknown.push(unknown_limit.to_owned());
        }
    }
    let mut text = format!("{}.", capital(&listed(&kept)));
    if !unknown.is_empty() {
        text += &format!(" Unknown: {}.", listed(&unknown));
    }
    text
}

fn has_schedule_error(summary: &Summary) -> bool {
    summary.trust.schedule_error_ns.as_ref().is_some_and(|figures| figures.max.is_some())
}

/// Whether there are finished trials and all satisfy the predicate.
fn all_satisfy(run: &RunData, predicate: fn(&Summary) -> bool) -> bool {
    let mut trials = run.finished_trials().peekable();
    trials.peek().is_some() && trials.all(|trial| trial.summary.as_ref().is_some_and(predicate))
}

/// Finding about trust.
pub(crate) fn in_words(run: &RunData) -> String {
    let warnings = warnings(run);
    let trials = run.summaries().count() as u64;
    let first = warnings.first().map(RunWarning::to_string).unwrap_or_default();
    match TrustLevel::of(run, &warnings) {
        TrustLevel::Ok => format!("No trust warnings in {}.", count_noun(trials, "trial")),
        TrustLevel::Unknown => {
            "Trust unknown: not all trials recorded their schedule error.".to_owned()
        }
        TrustLevel::Warnings(1) => format!("Read this warning before quoting a number: {first}."),
        TrustLevel::Warnings(n) => {
            format!("Read {n} warnings before quoting a number; the first: {first}.")
        }
        TrustLevel::DoNotQuote => format!("Do not quote the numbers: {first}."),
    }
}

/// Lists the distinct values over trials.
fn named(summaries: &[&Summary], of: fn(&Summary) -> Option<String>) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for name in summaries.iter().filter_map(|summary| of(summary)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    const MAX_NAMES: usize = 4;
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let text = names.join(" / ");
    (!names.is_empty()).then(|| if more > 0 { format!("{text} and {more} more") } else { text })
}

/// Sum over trials; `None` if it is unknown for any.
fn sum(summaries: &[&Summary], of: fn(&Summary) -> Option<u64>) -> Option<u64> {
    let known: Option<Vec<u64>> = summaries.iter().map(|s| of(s)).collect();
    known.filter(|each| !each.is_empty()).map(|each| each.into_iter().fold(0, u64::saturating_add))
}

/// Whether dwell measured the trial. Imported files record neither warnings nor a warm-up.
fn is_measured_by_dwell(summary: &Summary) -> bool {
    summary.kind != Kind::Import
}

fn probes(run: &RunData, summaries: &[&Summary]) -> Option<String> {
    let all = Group::new(String::new(), run.finished_trials().collect(), "");
    let packets = all.packets()?;
    // The others have no packet counts.
    let with_counts: Vec<&Summary> =
        summaries.iter().copied().filter(|summary| summary.packets.is_some()).collect();
    let planned = sum(&with_counts, planned);
    let planned = planned
        .map_or_else(|| "unknown number planned".to_owned(), |n| format!("{} planned", count(n)));
    let mut parts = vec![
        planned,
        format!("{} sent", count(packets.sent)),
        format!("{} received", count(packets.received)),
    ];
    let others = [
        (packets.lost, "lost"),
        (packets.late, "late"),
        (packets.duplicate, "duplicate"),
        (packets.reordered, "reordered"),
        (packets.send_failed, "could not be sent"),
    ];
    parts.extend(
        others.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(n))),
    );
    let (with_counts, all) = (with_counts.len(), summaries.len());
    let of = if with_counts < all {
        format!(" (in the {with_counts} of {all} trials with receive counts)")
    } else {
        String::new()
    };
    Some(listed(&parts) + &of)
}

/// Planned number of probes: as stated, else from the interval and the duration.
fn planned(summary: &Summary) -> Option<u64> {
    let number = |name: &str| summary.parameters.get(name)?.as_u64();
    let timed = || {
        let interval = number("interval_ns").filter(|interval| *interval > 0)?;
        Some(number("deadline_ns")?.div_ceil(interval))
    };
    summary.trust.planned.or_else(timed)
}

fn schedule_error(summaries: &[&Summary]) -> Option<String> {
    let known = || summaries.iter().filter_map(|s| s.trust.schedule_error_ns.as_ref());
    let worst = known().max_by_key(|figures| (figures.p99, figures.max))?;
    let largest = known().filter_map(|figures| figures.max).max();
    let said = |name: &str, ns: Option<i64>| ns.map(|ns| format!("{name} {}", delay_ns(ns)));
    let parts =
        [said("p50", worst.p50), said("p99", worst.p99), said("max of all trials", largest)];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn clocks(summaries: &[&Summary]) -> Option<String> {
    let pairs: Vec<_> = summaries.iter().filter_map(|s| s.trust.clocks).collect();
    let change = |c: &dwell_record::Clocks| c.end.offset_ns.saturating_sub(c.start.offset_ns);
    let worst = pairs.iter().max_by_key(|c| change(c).saturating_abs())?;
    let width = pairs.iter().map(|c| c.start.width_ns.max(c.end.width_ns)).max()?;
    Some(format!("changed by {}, read to within {}", delay(change(worst) as f64), delay_ns(width)))
}

fn placement(ends: &Ends) -> Option<String> {
    let end = |placement: &Placement| {
        let cpu = placement.cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        let word =
            |value: serde_json::Result<serde_json::Value>| Some(value.ok()?.as_str()?.to_owned());
        let mut parts = vec![cpu];
        parts.extend(word(serde_json::to_value(placement.waiting)));
        parts.extend(word(serde_json::to_value(placement.scheduling)));
        parts.join(", ")
    };
    let known = ends.near != Placement::default() || ends.far.is_some();
    let far = ends.far.as_ref().map_or_else(|| "unknown".to_owned(), end);
    known.then(|| format!("near end: {}; far end: {far}", end(&ends.near)))
}
