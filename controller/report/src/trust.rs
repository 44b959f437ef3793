//! Why the numbers of a run can be trusted, or not: facts, and the limits they must keep.

use std::collections::BTreeMap;

use dwell_record::{Ends, Figures, Kind, Placement, Summary};
use sha2::{Digest as _, Sha256};

use crate::contention;
use crate::data::RunData;
use crate::figures::capital;
use crate::group::{self, Group};
use crate::measured;
use crate::quantity::{count, delay, delay_ns, listed, things};

/// Actual minus intended time of sending above this is worth a warning: a tenth of a millisecond
/// is what the shortest delays of a local network are made of.
const SCHEDULE_ERROR_LIMIT_NS: i64 = 100_000;

/// One fact of the panel.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// The rest of it, which is too long for a panel.
    pub(crate) folded: Option<String>,
    /// What it is good for, for readers who meet it the first time.
    pub(crate) meaning: &'static str,
}

/// The facts of all finished trials: figures over all of them, names as often as they differ.
pub(crate) fn facts(run: &RunData) -> Vec<Fact> {
    let summaries: Vec<&Summary> = summaries(run).collect();
    let mut facts = Vec::new();
    let mut fact = |name, value: Option<String>, meaning| {
        let value = value.unwrap_or_else(|| "not known".to_owned());
        facts.push(Fact { name, value, folded: None, meaning });
    };
    let named = |of: fn(&Summary) -> Option<String>| named(&summaries, of);
    let rungs = |tx: Option<&str>, rx: Option<&str>| {
        let said = |rung: Option<&str>| rung.unwrap_or("none").to_owned();
        format!("sent {}, received {}", said(tx), said(rx))
    };
    fact("Probes", probes(run, &summaries), "Planned, sent and answered in time.");
    fact(
        "Probes leave in",
        named(|s| match s.kind {
            Kind::Relay => Some("open loop, one way".to_owned()),
            _ => Some(measured::mode_of(s)?.replace('-', " ")),
        }),
        "Open loop: at times fixed in advance. Closed loop: each after the reply to the one before, which hides stalls.",
    );
    fact(
        "Percentiles",
        named(|s| s.trust.percentile_resolution.map(|resolution| resolution.name().to_owned())),
        "How true they are: exact is a value that was observed; 0.1% is within that of one.",
    );
    fact(
        "Warm-up",
        sum(&summaries, |s| s.trust.warm_up_sent.filter(|_| watched(s)))
            .map(|n| format!("{} before the first one counted", things(n, "probe"))),
        "The first packets meet cold caches; they are sent and not counted.",
    );
    fact(
        "Stamps",
        named(|s| {
            Some([s.stamps.tx, s.stamps.rx]).filter(|r| r.iter().any(Option::is_some)).map(
                |[tx, rx]| {
                    let name =
                        |rung: Option<dwell_engine::stamps::Rung>| rung.map(|rung| rung.name());
                    format!("{}\u{1f}{}", name(tx).unwrap_or(""), name(rx).unwrap_or(""))
                },
            )
        })
        .map(|said| {
            let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let each = said.split(" / ").map(|pair| {
                let (tx, rx) = pair.split_once('\u{1f}').unwrap_or((pair, ""));
                rungs(known(tx).as_deref(), known(rx).as_deref())
            });
            each.collect::<Vec<_>>().join(" / ")
        }),
        "Who noted the times, per direction: hw is the network card, kernel-sw the kernel, user the program itself. Deeper is truer.",
    );
    fact(
        "Schedule error",
        schedule_error(&summaries),
        "Actual minus intended time of sending: percentiles of the worst trial; large errors mean that the sender itself was late.",
    );
    fact(
        "Samples dropped",
        sum(&summaries, Summary::ring_dropped).map(count),
        "Results lost on the way from the timing thread to the recorder (ring overflow); must be 0.",
    );
    fact(
        "Dropped by the sender",
        dropped_by_sender(&summaries),
        "Probes that the sender's kernel did not take: they never left.",
    );
    fact(
        "Dropped by network cards",
        dropped_by_cards(run),
        "What the interfaces dropped by which probes left and came, of the probes and of everything else, while trials were measured. A queueing discipline counts its own.",
    );
    fact(
        "Clock source",
        named(|s| s.environment.clocksource.clone()),
        "The hardware that the kernel reads its clocks from.",
    );
    fact(
        "Clocks apart",
        clocks(&summaries),
        "The wall clock and the steady clock of this machine, from start to end of the worst trial; beyond 100 ns the clock was stepped and the samples concerned are void.",
    );
    fact(
        "Floor",
        summaries.iter().filter_map(|s| s.trust.floor_ns).max().map(delay_ns),
        "What this machine adds to every round trip by itself; delays below it mean nothing.",
    );
    fact(
        "Offloads",
        named(|s| s.environment.offloads.as_deref().map(offloads)),
        "Work the network card does for the kernel; GRO and TSO, which join packets, change delays.",
    );
    fact(
        "Queueing discipline",
        named(|s| s.environment.qdisc.clone()),
        "How packets wait for the network card.",
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
        "Where probes leave the machine, and its driver.",
    );
    fact(
        "CPU governor",
        named(|s| s.environment.governor.clone()),
        "How the kernel chooses the processor's frequency; anything but performance makes idle machines slower.",
    );
    fact(
        "Processor",
        named(|s| {
            let cpu = s.environment.cpu.as_ref()?;
            Some(
                s.environment.cores.map_or_else(
                    || cpu.clone(),
                    |n| format!("{cpu}, {}", things(n.into(), "core")),
                ),
            )
        }),
        "The machine at this end.",
    );
    fact(
        "Placement",
        named(|s| placement(&s.environment.placement)),
        "On which CPU each end ran, how it waited for packets, and its scheduling class. A blocking exchange costs some 4 us on one core and some 70 us on two.",
    );
    fact("Kernel", named(|s| s.environment.kernel.clone()), "Release of Linux at this end.");
    fact(
        "dwell",
        Some(builds(run, &summaries)),
        "The version, and after the plus sign the start of the SHA-256 of the program, as sha256sum prints it: the same means the same build.",
    );
    fact(
        "Plan",
        plan(run, &summaries),
        "Its name and the start of the SHA-256 of its text, as sha256sum prints it: runs with the same one asked for the same.",
    );
    let every = named(|s| s.environment.offloads.as_ref().map(|names| names.join(", ")));
    let offloads = facts.iter_mut().find(|fact| fact.name == "Offloads");
    if let (Some(fact), Some(every)) = (offloads, every.filter(|every| !every.is_empty())) {
        fact.folded = Some(every);
    }
    facts
}

/// Those that join or split packets by the names people know, and how many there are.
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

/// What the sender meant to send and did not.
fn dropped_by_sender(summaries: &[&Summary]) -> Option<String> {
    if !summaries.iter().all(|summary| watched(summary)) {
        return None;
    }
    let failed = sum(summaries, |summary| Some(summary.packets?.send_failed));
    failed.map(|failed| format!("{} at the socket", count(failed)))
}

/// What interfaces dropped in all trials, by machine and interface.
fn dropped_by_cards(run: &RunData) -> Option<String> {
    let mut cards: BTreeMap<(Option<&str>, &str), [u64; 3]> = BTreeMap::new();
    for trial in group::finished(run) {
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
        let parts = [(rx, "received"), (tx, "to be sent"), (missed, "for want of room")];
        let parts = parts.into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", count(n))).collect();
        format!("{}: {}", name(card), listed(&parts))
    });
    Some(said.collect::<Vec<_>>().join(" / "))
}

/// Which builds of dwell ran it and measured: one name when all are the same.
fn builds(run: &RunData, summaries: &[&Summary]) -> String {
    let machines = group::finished(run).flat_map(|trial| &trial.machines);
    let measured = summaries.iter().copied().chain(machines.map(|machine| &machine.summary));
    let mut builds: Vec<&str> = Vec::new();
    for summary in measured.filter(|summary| watched(summary)) {
        let build = summary.environment.dwell.as_str();
        if !builds.contains(&build) {
            builds.push(build);
        }
    }
    match builds.as_slice() {
        [] => run.dwell.clone(),
        [only] if *only == run.dwell => run.dwell.clone(),
        several => format!("{} ran it; {} measured", run.dwell, several.join(", ")),
    }
}

/// The plan by name and hash.
fn plan(run: &RunData, summaries: &[&Summary]) -> Option<String> {
    let Some(plan) = &run.plan else {
        let imported = summaries.iter().all(|summary| summary.kind == Kind::Import);
        return imported.then(|| "none: the run was read from a file".to_owned());
    };
    let hash = Sha256::digest(&plan.text);
    let start: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let set = match plan.settings.len() as u64 {
        0 => String::new(),
        n => format!(", {} changed from outside", things(n, "value")),
    };
    Some(format!("{}, {start}{set}", run.name))
}

/// What a reader must know before quoting a number: the nodes' own warnings, those of the loads, and
/// broken limits, each once, with the number of trials it holds for. Those that differ in their numbers
/// only are one, told with the numbers of the first.
pub(crate) fn warnings(run: &RunData) -> Vec<String> {
    let mut seen: Vec<Told> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    let mut trials = 0u64;
    for trial in group::finished(run) {
        let Some(summary) = &trial.summary else { continue };
        trials += 1;
        // A load that did not reach what was asked makes its cell something else than it is called.
        let loads = trial.loads.iter().flat_map(|load| {
            let of_load = |warning: &String| format!("load {}: {warning}", load.target);
            load.trust.warnings.iter().map(of_load)
        });
        // A flow's own warnings have those of all its machines.
        let cards = trial.machines.iter().flat_map(|machine| {
            let of = |warning| format!("{}: {warning}", machine.node);
            machine.summary.trust.nic_warnings().map(of)
        });
        let own = summary.trust.warnings.iter().cloned();
        let mut said: Vec<String> = Vec::new();
        for warning in own.chain(broken(summary)).chain(loads).chain(cards) {
            let shape = without_numbers(&warning);
            let at = *index.entry(shape.clone()).or_insert_with(|| {
                seen.push(Told { text: warning.clone(), trials: 0, differs: false });
                seen.len() - 1
            });
            seen[at].differs |= seen[at].text != warning;
            if !said.contains(&shape) {
                said.push(shape);
                seen[at].trials += 1;
            }
        }
    }
    let said = |Told { text, trials: n, differs }: Told| {
        let numbers = if differs { ", with other numbers in others" } else { "" };
        match trials > 1 {
            true => format!("{text} (in {n} of {}{numbers})", things(trials, "trial")),
            false => text,
        }
    };
    seen.into_iter().map(said).chain(contention::warnings_of_samples(run)).collect()
}

/// A warning of some trials.
struct Told {
    /// As the first of them has it.
    text: String,
    trials: u64,
    /// Others have other numbers.
    differs: bool,
}

/// The text with every number that is a word of its own left out; names keep theirs.
fn without_numbers(text: &str) -> String {
    let number = |word: &&str| {
        let bare = word.trim_matches(['(', ')', ',', ';', '%']);
        !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit() || ".,-+".contains(c))
    };
    let words: Vec<&str> =
        text.split(' ').map(|word| if number(&word) { "#" } else { word }).collect();
    words.join(" ")
}

/// Whether every finished trial says how its schedule was kept: then silence means that nothing was
/// wrong. Of most imported data nobody knows.
pub(crate) fn was_watched(run: &RunData) -> bool {
    all_say(run, says_schedule)
}

/// What held, where no limit was broken, and what of it nobody knows: a sentence or two.
pub(crate) fn what_held(run: &RunData) -> String {
    type Says = fn(&Summary) -> bool;
    let limits: [(&str, &str, Says); 5] = [
        ("no clock was stepped", "a clock was stepped", |summary| {
            watched(summary) || summary.trust.clocks.is_some()
        }),
        ("no sample was dropped", "samples were dropped", |summary| {
            summary.ring_dropped().is_some()
        }),
        ("probes left on time", "probes left on time", says_schedule),
        (
            "other programs left the processors free",
            "other programs used the processors",
            contention::is_known,
        ),
        ("no node warned of anything", "a node had anything to warn of", watched),
    ];
    let (mut held, mut unknown) = (Vec::new(), Vec::new());
    for (is, whether, says) in limits {
        if all_say(run, says) {
            held.push(is.to_owned());
        } else {
            unknown.push(whether.to_owned());
        }
    }
    let mut text = format!("{}.", capital(&listed(&held)));
    if !unknown.is_empty() {
        text += &format!(" Not known: whether {}.", listed(&unknown));
    }
    text
}

fn says_schedule(summary: &Summary) -> bool {
    summary.trust.schedule_error_ns.as_ref().is_some_and(|figures| figures.max.is_some())
}

/// Whether all finished trials say it, and there are any.
fn all_say(run: &RunData, says: fn(&Summary) -> bool) -> bool {
    let mut trials = group::finished(run).peekable();
    trials.peek().is_some() && trials.all(|trial| trial.summary.as_ref().is_some_and(says))
}

/// The state of trust as a finding.
pub(crate) fn in_words(run: &RunData) -> String {
    let warnings = warnings(run);
    let trials = summaries(run).count() as u64;
    match warnings.as_slice() {
        [] if !was_watched(run) => {
            "Nothing is known of how far these numbers can be trusted.".to_owned()
        }
        [] => format!("No limit of trust was broken in {}.", things(trials, "trial")),
        [only] => format!("Before quoting a number, read this warning: {only}."),
        [first, rest @ ..] => {
            format!(
                "Before quoting a number, read {} warnings, the first: {first}.",
                rest.len() + 1
            )
        }
    }
}

fn summaries(run: &RunData) -> impl Iterator<Item = &Summary> {
    group::finished(run).filter_map(|trial| trial.summary.as_ref())
}

/// Limits that the numbers of a trial break and its node did not warn of in words.
fn broken(summary: &Summary) -> Vec<String> {
    let trust = &summary.trust;
    let mut broken = Vec::new();
    if trust.ring_dropped > 0 {
        broken.push("samples were dropped because the recorder could not keep up".to_owned());
    }
    if trust.clock_step_ns.is_some() || trust.void > 0 {
        broken.push("a clock was stepped; the samples concerned are void".to_owned());
    }
    if let Some(late) = trust.schedule_error_ns.as_ref().and_then(late) {
        broken.push(format!("{late} left over {} late", delay_ns(SCHEDULE_ERROR_LIMIT_NS)));
    }
    broken
}

/// How many probes left too late, if more than 1 in 100. Fewer than 100 probes have no 99th percentile:
/// then one is too many.
fn late(figures: &Figures) -> Option<&'static str> {
    let late = |ns: Option<i64>| ns.is_some_and(|ns| ns > SCHEDULE_ERROR_LIMIT_NS);
    let words = [
        (figures.p50, "half of the probes or more"),
        (figures.p90, "more than 1 in 10 probes"),
        (figures.p99, "more than 1 in 100 probes"),
        (figures.max.filter(|_| figures.p99.is_none()), "at least one of few probes"),
    ];
    words.into_iter().find(|(ns, _)| late(*ns)).map(|(_, words)| words)
}

/// What differs between trials is listed, each once.
fn named(summaries: &[&Summary], of: fn(&Summary) -> Option<String>) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for name in summaries.iter().filter_map(|summary| of(summary)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    const SHOWN: usize = 4;
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let text = names.join(" / ");
    (!names.is_empty()).then(|| if more > 0 { format!("{text} and {more} more") } else { text })
}

/// Unknown for one trial is unknown for the sum.
fn sum(summaries: &[&Summary], of: fn(&Summary) -> Option<u64>) -> Option<u64> {
    let known: Option<Vec<u64>> = summaries.iter().map(|s| of(s)).collect();
    known.filter(|each| !each.is_empty()).map(|each| each.into_iter().fold(0, u64::saturating_add))
}

/// Whether a program of ours counted what went wrong. In the files of others nothing says so, and
/// a segment has no word of its warm-up.
fn watched(summary: &Summary) -> bool {
    summary.kind != Kind::Import
}

fn probes(run: &RunData, summaries: &[&Summary]) -> Option<String> {
    let all = Group::new(String::new(), group::finished(run).collect(), "");
    let packets = all.packets()?;
    // Of the others nobody knows what became of their packets.
    let told: Vec<&Summary> =
        summaries.iter().copied().filter(|summary| summary.packets.is_some()).collect();
    let planned = sum(&told, planned);
    let planned = planned.map_or_else(
        || "how many were planned is not known".to_owned(),
        |n| format!("{} planned", count(n)),
    );
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
    let (told, all) = (told.len(), summaries.len());
    let of = if told < all {
        format!(" (of the {told} trials of {all} in which somebody counted what came)")
    } else {
        String::new()
    };
    Some(listed(&parts) + &of)
}

/// How many probes a trial was to send: as stated, or as its interval and its time allow.
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
        [said("p50", worst.p50), said("p99", worst.p99), said("largest of all trials", largest)];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn clocks(summaries: &[&Summary]) -> Option<String> {
    let pairs: Vec<_> = summaries.iter().filter_map(|s| s.trust.clocks).collect();
    let apart = |c: &dwell_record::Clocks| c.end.offset_ns.saturating_sub(c.start.offset_ns);
    let worst = pairs.iter().max_by_key(|c| apart(c).saturating_abs())?;
    let width = pairs.iter().map(|c| c.start.width_ns.max(c.end.width_ns)).max()?;
    Some(format!(
        "moved by {} against each other, read to within {}",
        delay(apart(worst) as f64),
        delay_ns(width)
    ))
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
    let far = ends.far.as_ref().map_or_else(|| "not known".to_owned(), end);
    known.then(|| format!("near end: {}; far end: {far}", end(&ends.near)))
}
