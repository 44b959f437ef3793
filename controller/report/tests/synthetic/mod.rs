//! Synthetic runs with seeded random delays, in the form that the store provides.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_documents::{judge_claims, published};
use dwell_record::{
    Batch, Clocks, Column, Ends, Environment, Figures, Kind, Packets, PairingRecord, Placement,
    Scalar, Scheduling, Stamps, Summary, Trust, TrustWarning, Waiting,
};
use dwell_report::model::{
    Axis, Hampel, PacketData, Point, RunData, SampleReader, Series, Step, TimeBin, TrialData,
    TrialState,
};
use dwell_sample::TimestampSource;
use dwell_stats::{Distribution, Quantile, Resolution, quantile_interval};
use dwell_units::Nanos;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Delay distribution of a trial: a log-normal body and a tail with a given share.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) median_ns: f64,
    pub(crate) sigma: f64,
    pub(crate) tail_share: f64,
    pub(crate) tail_factor: f64,
    pub(crate) loss: f64,
    pub(crate) samples: usize,
}

const SAMPLE_INTERVAL_NS: i64 = 1_000_000;

/// The three cases of Roedlach/Vock: idle, network load, CPU load; the last has the lowest median
/// and the longest tail. Three repetitions each.
pub(crate) fn loads() -> RunData {
    let body = Shape {
        median_ns: 279e3,
        sigma: 0.05,
        tail_share: 0.002,
        tail_factor: 3.0,
        loss: 0.0,
        samples: 4_000,
    };
    let cases = [
        ("none", body),
        ("network", Shape { median_ns: 262e3, sigma: 0.08, loss: 0.002, ..body }),
        (
            "cpu",
            Shape { median_ns: 246e3, sigma: 0.10, tail_share: 0.04, tail_factor: 9.0, ..body },
        ),
    ];
    let axes = vec![axis("load", &cases.map(|(name, _)| name), None)];
    let mut run =
        run("20261121-1", "quick", Some("Round trips between two nodes, idle and loaded"), axes);
    for repetition in 1..=3 {
        for (name, shape) in cases {
            let mut trial = trial(&run, repetition, &[("load", name)], shape, 41);
            if name != "none" {
                trial.loads.push(load(name));
            }
            run.trials.push(trial);
        }
    }
    run.notes.push("Heating was on; the window was shut.".to_owned());
    run
}

/// Delay over packet size and rate: it grows with the size, and the highest rate has losses.
pub(crate) fn sweep() -> RunData {
    let sizes = [100, 300, 500, 700, 900, 1100, 1300];
    let rates = [50, 200, 400, 800];
    let size_names: Vec<String> = sizes.iter().map(|size| format!("{size}B")).collect();
    let rate_names: Vec<String> = rates.iter().map(|rate| format!("{rate}pps")).collect();
    let axes = vec![
        axis("size", &names(&size_names), Some((sizes.map(f64::from).to_vec(), "B"))),
        axis("rate", &names(&rate_names), Some((rates.map(f64::from).to_vec(), "pps"))),
    ];
    let mut run = run(
        "20261121-2",
        "relay-encrypt",
        Some("What encryption in a relay costs, by size and rate"),
        axes,
    );
    for repetition in 1..=2 {
        for (i, size) in sizes.iter().enumerate() {
            for (j, rate) in rates.iter().enumerate() {
                let shape = Shape {
                    median_ns: 210e3 + 640.0 * f64::from(*size) + 12e3 * j as f64,
                    sigma: 0.06 + 0.02 * j as f64,
                    tail_share: 0.004 * (j + 1) as f64,
                    tail_factor: 4.0,
                    loss: if *rate == 800 { 0.01 * (i + 1) as f64 } else { 0.0 },
                    samples: 1_500,
                };
                let values = [("size", size_names[i].as_str()), ("rate", rate_names[j].as_str())];
                run.trials.push(trial(&run, repetition, &values, shape, 97));
            }
        }
    }
    let failed = &mut run.trials[9];
    failed.state = TrialState::Failed;
    failed.reason = Some("node relay vanished after 1.2 s".to_owned());
    failed.summary = None;
    failed.series.clear();
    for trial in &mut run.trials {
        if let Some(summary) = &mut trial.summary {
            summary.trust.warn(TrustWarning {
                code: "gro".into(),
                text: "GRO is on at eth0: packets may be joined before they are stamped".to_owned(),
                on: None,
            });
        }
    }
    run
}

fn names(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// A run without trials.
pub(crate) fn run(id: &str, name: &str, title: Option<&str>, axes: Vec<Axis>) -> RunData {
    RunData {
        id: id.to_owned(),
        name: name.to_owned(),
        title: title.map(str::to_owned),
        started: "2026-11-21T07:48:22Z".to_owned(),
        finished: Some("2026-11-21T07:58:40Z".to_owned()),
        dwell: "0.1.0".to_owned(),
        axes,
        trials: Vec::new(),
        notes: Vec::new(),
        claims: None,
        published: Arc::default(),
        packets: Vec::new(),
        host: None,
        plan: None,
        one_machine: true,
        accurate: None,
    }
}

pub(crate) fn axis(name: &str, values: &[&str], numbers: Option<(Vec<f64>, &str)>) -> Axis {
    let unit = numbers.as_ref().map(|(_, unit)| (*unit).to_owned());
    Axis {
        name: name.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        numbers: numbers.map(|(numbers, _)| numbers),
        unit,
    }
}

/// Next trial of a run, with delays seeded by its number and `seed`.
pub(crate) fn trial(
    run: &RunData,
    repetition: u32,
    values: &[(&str, &str)],
    shape: Shape,
    seed: u64,
) -> TrialData {
    let number = run.trials.len() as u32 + 1;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + u64::from(number));
    let body = LogNormal::new(shape.median_ns.ln(), shape.sigma).unwrap();
    let delays: Vec<Option<i64>> = (0..shape.samples)
        .map(|_| {
            let factor = if random.random_bool(shape.tail_share) {
                1.0 + random.random::<f64>() * (shape.tail_factor - 1.0)
            } else {
                1.0
            };
            let delay = (body.sample(&mut random) * factor) as i64;
            (!random.random_bool(shape.loss)).then_some(delay)
        })
        .collect();
    let received: Vec<i64> = delays.iter().flatten().copied().collect();
    let residence: Vec<i64> = received.iter().map(|rtt| rtt / 9 + 4_000).collect();
    let path: Vec<i64> =
        received.iter().zip(&residence).map(|(rtt, stay)| (rtt - stay) * 19 / 20).collect();
    let ipdv: Vec<i64> = received.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let mut series = BTreeMap::new();
    series.insert("rtt_ns".to_owned(), timed(&delays));
    for (name, values) in [("residence_ns", &residence), ("ipdv_ns", &ipdv)] {
        series.insert(name.to_owned(), Series { steps: steps(values), ..Series::default() });
    }
    let metrics = [
        ("rtt_ns", &received),
        ("residence_ns", &residence),
        ("rtt_minus_residence_ns", &path),
        ("ipdv_ns", &ipdv),
    ];
    let sent = shape.samples as u64;
    let packets = Packets {
        sent,
        received: received.len() as u64,
        lost: sent - received.len() as u64,
        ..Packets::default()
    };
    let metrics = metrics.map(|(name, values)| (name.to_owned(), figures(values)));
    let mut summary = summary(packets, metrics.into());
    summary.values = intervals("rtt", &received);
    TrialData {
        trial: number,
        repetition,
        order: number,
        state: TrialState::Finished,
        reason: None,
        parameters: values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        started_ns: Some(1_795_247_302_000_000_000 + i64::from(number) * 5_000_000_000),
        summary: Some(summary),
        loads: Vec::new(),
        witnesses: Vec::new(),
        machines: Vec::new(),
        series,
    }
}

/// Confidence intervals of percentiles, as in the store.
fn intervals(metric: &str, values: &[i64]) -> BTreeMap<String, Option<Scalar>> {
    let quantiles = [("p50", Quantile::P50), ("p95", Quantile::P95), ("p99", Quantile::P99)];
    let known = quantiles.into_iter().filter_map(|(name, quantile)| {
        let found = quantile_interval(values, quantile, 0.95)?;
        let end = |end: &str, ns: Nanos| {
            (format!("{metric}_{name}_{end}_ns"), Some(Scalar::Real(ns.0 as f64)))
        };
        Some([end("low", found.low), end("high", found.high)])
    });
    known.flatten().collect()
}

pub(crate) fn summary(packets: Packets, metrics: BTreeMap<String, Figures>) -> Summary {
    let pairing = |offset_ns| PairingRecord { offset_ns, width_ns: 28 };
    let placement = |cpu| Placement {
        cpu: Some(cpu),
        waiting: Some(Waiting::Blocking),
        scheduling: Some(Scheduling::Fifo),
    };
    Summary {
        kind: Kind::Ping,
        target: "stamp://10.0.0.2:862".to_owned(),
        parameters: [("mode".to_owned(), "open-loop".into())].into(),
        packets: Some(packets),
        metrics,
        values: BTreeMap::new(),
        stamps: Stamps {
            tx: Some(TimestampSource::KernelSw),
            rx: Some(TimestampSource::KernelSw),
            near: Some(TimestampSource::KernelSw),
        },
        engine: "udp".to_owned(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust: Trust {
            schedule_error_ns: Some(Figures {
                count: packets.sent,
                min: Some(120),
                mean: Some(900.0),
                stddev: Some(400.0),
                p50: Some(840),
                p90: Some(1_400),
                p95: Some(1_900),
                p99: Some(4_100),
                p99_9: Some(9_000),
                max: Some(22_000),
            }),
            planned: Some(packets.sent),
            warm_up_sent: Some(20),
            floor_ns: Some(9_800),
            percentile_resolution: Some(Resolution::Exact),
            clocks: Some(Clocks {
                start: pairing(1_795_000_000_000_000_000),
                end: pairing(1_795_000_000_000_000_031),
            }),
            ..Trust::default()
        },
        environment: Environment {
            kernel: Some("6.12.47+rpt-rpi-v8".to_owned()),
            cpu: Some("Cortex-A72".to_owned()),
            cores: Some(4),
            governor: Some("ondemand".to_owned()),
            cpu_idle: None,
            clocksource: Some("arch_sys_counter".to_owned()),
            interface: Some("eth0".to_owned()),
            driver: Some("bcmgenet".to_owned()),
            offloads: Some(vec!["generic-receive-offload".to_owned()]),
            qdisc: Some("mq".to_owned()),
            dwell: "0.1.0".to_owned(),
            placement: Ends { near: placement(2), far: Some(placement(3)) },
        },
    }
}

pub(crate) fn load(name: &str) -> Summary {
    let mut load = summary(Packets::default(), BTreeMap::new());
    load.kind = Kind::Load;
    load.engine = name.to_owned();
    load.target = "node b".to_owned();
    load.packets = None;
    load.values = [("cpu_share_ratio".to_owned(), Some(Scalar::Real(0.98)))].into();
    load
}

/// Adds a capture of the first trial that lacks ten probes.
pub(crate) fn add_witness(run: &mut RunData) {
    let own = &run.trials[0].summary.as_ref().unwrap().metrics["rtt_ns"];
    let mut seen = *own;
    seen.p50 = own.p50.map(|ns| ns - 12_000);
    let difference = Figures { count: own.count, p50: Some(12_000), ..Figures::default() };
    let metrics = [("witness_rtt_ns", seen), ("rtt_minus_witness_ns", difference)];
    let metrics = metrics.map(|(name, figures)| (name.to_owned(), figures)).into();
    let mut witness = summary(Packets::default(), metrics);
    witness.kind = Kind::Import;
    witness.target = "tap.pcapng".to_owned();
    witness.packets = None;
    witness.parameters =
        [("matched", 3_990), ("unseen", 10)].map(|(name, n)| (name.to_owned(), n.into())).into();
    run.trials[0].witnesses.push(witness);
}

pub(crate) fn steps(values: &[i64]) -> Vec<Step> {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for value in values {
        // Resolution of 0.1 %, as in the store.
        let grain = (value.abs() / 1_000).max(1);
        *counts.entry(value / grain * grain).or_default() += 1;
    }
    counts.into_iter().map(|(value_ns, count)| Step { value_ns, count }).collect()
}

fn figures(values: &[i64]) -> Figures {
    let mut distribution = Distribution::new();
    values.iter().for_each(|value| distribution.record(Nanos(*value)));
    distribution.figures().into()
}

/// Series with bins, points and outliers; `None` is a lost probe.
pub(crate) fn timed(delays: &[Option<i64>]) -> Series {
    let received: Vec<i64> = delays.iter().flatten().copied().collect();
    let per_bin = delays.len().div_ceil(120).max(1);
    let bins =
        delays.chunks(per_bin).enumerate().map(|(i, chunk)| bin(i, per_bin, chunk)).collect();
    let mut sorted = received.clone();
    sorted.sort_unstable();
    let limit =
        sorted.get(sorted.len() / 2).map_or(i64::MAX, |median| median.saturating_mul(3) / 2);
    let every = (delays.len() / 200).max(1);
    let point = |(i, value): (usize, &Option<i64>)| {
        let value_ns = (*value)?;
        let outlier = value_ns > limit;
        (outlier || i % every == 0).then_some(Point {
            at_ns: i as i64 * SAMPLE_INTERVAL_NS,
            value_ns,
            outlier,
        })
    };
    Series {
        steps: steps(&received),
        bins,
        points: delays.iter().enumerate().filter_map(point).collect(),
        hampel: Some(Hampel {
            judged: None,
            half_window: 25,
            sigmas: 3.0,
            upper: received.iter().filter(|value| **value > limit).count() as u64,
            lower: 0,
        }),
    }
}

fn bin(i: usize, per_bin: usize, chunk: &[Option<i64>]) -> TimeBin {
    let mut values: Vec<i64> = chunk.iter().flatten().copied().collect();
    values.sort_unstable();
    let n = values.len();
    let at = |q: f64| values.get((n as f64 * q).ceil().max(1.0) as usize - 1).copied();
    TimeBin {
        from_ns: (i * per_bin) as i64 * SAMPLE_INTERVAL_NS,
        to_ns: (i * per_bin + chunk.len()) as i64 * SAMPLE_INTERVAL_NS,
        count: n as u64,
        lost: (chunk.len() - n) as u64,
        min_ns: values.first().copied(),
        p1_ns: at(0.01),
        p50_ns: at(0.5),
        p99_ns: if n >= 100 { at(0.99) } else { None },
        max_ns: values.last().copied(),
    }
}

/// One trial of 40 s with slow periods, during which the CPUs of `busy` are in use; those of the
/// other machine are in use at random.
pub(crate) fn with_machines(busy: &str) -> RunData {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(23);
    // Periods of one second, a third of them slow.
    let slow: Vec<bool> = (0..40).map(|_| random.random_bool(0.33)).collect();
    let other: Vec<bool> = (0..40).map(|_| random.random_bool(0.5)).collect();
    let delays: Vec<Option<i64>> = (0..40_000)
        .map(|i| {
            let factor = if slow[i / 1_000] { 3 } else { 1 };
            Some(factor * random.random_range(200_000..260_000))
        })
        .collect();
    let mut run = loads();
    run.one_machine = false;
    run.axes.clear();
    run.trials.truncate(1);
    run.trials[0].parameters.clear();
    run.trials[0].series = [("rtt_ns".to_owned(), timed(&delays))].into();
    let started = run.trials[0].started_ns.unwrap();
    let windows = run.trials[0].series["rtt_ns"].bins.clone();
    let mut values = Vec::new();
    let mut take = |node: &'static str, at: i64, name: &'static str, value: f64| {
        values.push((node, at, name, value));
    };
    for node in ["n1", "n2"] {
        let works = if node == busy { &slow } else { &other };
        for reading in 0..200 {
            let at = started + reading as i64 * 200_000_000 + 100_000_000;
            let share = if works[reading / 5] { 0.9 } else { 0.1 } + random.random::<f64>() * 0.05;
            take(node, at, "cpu0_busy_ratio", share);
            take(node, at, "cpu1_busy_ratio", share);
            take(node, at, "cpu0_frequency_hz", 1.8e9);
            take(node, at, "interrupts_per_s", 4_000.0 + random.random::<f64>() * 100.0);
            take(node, at, "thermal0_celsius", 41.0 + reading as f64 / 50.0);
            take(node, at, "wlan0_signal_dbm", -56.0 - random.random::<f64>());
            take(node, at, "wlan0_2412mhz_busy_ratio", random.random::<f64>());
            take(node, at, "cpu0_run_queue_wait_ns_per_s", random.random::<f64>() * 1e7);
            take(node, at, "process_run_queue_wait_ns_per_s", random.random::<f64>() * 1e5);
            take(node, at, "cpu0_steal_ratio", random.random::<f64>() * 0.01);
        }
    }
    let Ok(()) = dwell_report::collect(&mut run, &HostRows { windows, values }, false);
    run
}

/// Host activity of one trial, and the windows of its delay.
struct HostRows {
    windows: Vec<TimeBin>,
    values: Vec<(&'static str, i64, &'static str, f64)>,
}

impl SampleReader for HostRows {
    type Error = std::convert::Infallible;

    fn samples(&self, _: u32, _: &[Column], _: &mut dyn FnMut(&Batch)) -> Result<(), Self::Error> {
        Ok(())
    }

    fn host(
        &self,
        _: u32,
        each: &mut dyn FnMut(&str, i64, &str, f64),
    ) -> Result<usize, Self::Error> {
        self.values.iter().for_each(|(node, at, name, value)| each(node, *at, name, *value));
        Ok(0)
    }

    fn windows(&self, _: u32, _: &str, _: i64) -> Result<Vec<TimeBin>, Self::Error> {
        Ok(self.windows.clone())
    }
}

/// Behaviour of a synthetic relay, by mode.
#[derive(Clone, Copy)]
pub(crate) struct Relay {
    /// Node delay of a routed packet between netfilter's hooks.
    pub(crate) route_ns: f64,
    /// Additional delay of a program.
    pub(crate) program_ns: f64,
    /// Additional delay of encryption per byte.
    pub(crate) per_byte_ns: f64,
    /// Loss ratio of encrypted packets from 200 packets/s on.
    pub(crate) loss: f64,
    /// Factor of the program's delay under load.
    pub(crate) stress: f64,
}

/// The board of Miya 2020: programs take more than ten times as long as the kernel, encryption some
/// milliseconds.
pub(crate) const PI_ZERO: Relay =
    Relay { route_ns: 30e3, program_ns: 500e3, per_byte_ns: 2_500.0, loss: 0.02, stress: 1.0 };

/// The experiment of Miya 2020 with few levels, with and without a link rate of 65 Mbit/s, each
/// cell once.
pub(crate) fn relays(relay: Relay) -> RunData {
    relays_repeated(relay, 1)
}

/// The same with several repetitions per cell.
pub(crate) fn relays_repeated(relay: Relay, repetitions: u32) -> RunData {
    let (sizes, fast, slow) = ([100, 700, 1400], [200, 600, 1200], [100, 200, 400]);
    let text = |values: &[i32], unit: &str| -> Vec<String> {
        values.iter().map(|value| format!("{value}{unit}")).collect()
    };
    let rates = [200, 600, 1200, 100, 400];
    let floats = |values: &[i32]| values.iter().map(|value| f64::from(*value)).collect();
    let axes = vec![
        axis("topology.link.rate", &["none", "65Mbit/s"], None),
        axis("relay", &["route", "translate", "encrypt"], None),
        axis("size", &names(&text(&sizes, "B")), Some((floats(&sizes), "B"))),
        axis("rate", &names(&text(&rates, "pps")), Some((floats(&rates), "pps"))),
        axis("load", &["none", "most"], None),
    ];
    let mut run = run("20261121-3", "relay-delay-short", Some("What relaying costs"), axes);
    for repetition in 1..=repetitions {
        for link in ["none", "65Mbit/s"] {
            for mode in ["route", "translate", "encrypt"] {
                for size in sizes {
                    for rate in if mode == "encrypt" { slow } else { fast } {
                        for load in ["none", "most"] {
                            let mut made = one_way(&run, relay, (link, mode, size, rate, load));
                            made.repetition = repetition;
                            run.trials.push(made);
                        }
                    }
                }
            }
        }
    }
    run.claims = judge_claims(&run, "miya-2020");
    run.published = Arc::new(published(&run));
    run
}

/// Adds two example packets of the first trial.
pub(crate) fn add_packets(run: &mut RunData) {
    let parts = [("sender_out_ns", 2_000), ("link_in_ns", 9_000), ("node_delay_netfilter_ns", 600)];
    for which in ["median", "slowest"] {
        run.packets.push(PacketData {
            trial: 1,
            which: which.to_owned(),
            id: 7,
            parts: parts.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect(),
            end_to_end_ns: 11_600,
        });
    }
}

fn one_way(run: &RunData, relay: Relay, cell: (&str, &str, i32, i32, &str)) -> TrialData {
    let (link, mode, size, rate, load_name) = cell;
    let number = run.trials.len() as u32 + 1;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7_000 + u64::from(number));
    let spread = LogNormal::new(0.0, 0.04).unwrap();
    let mut about = |ns: f64| (ns * spread.sample(&mut random)) as i64;
    let stress = if load_name == "most" { relay.stress } else { 1.0 };
    let extra = match mode {
        "encrypt" => relay.program_ns + relay.per_byte_ns * f64::from(size),
        "translate" => relay.program_ns,
        _ => 0.0,
    };
    let on_link = if link == "none" { 2e3 } else { 2.0 * f64::from(size + 28) * 8e3 / 65.0 };
    let count = 300;
    let mut metrics: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for _ in 0..count {
        let (hooks, links, ends) = (about(relay.route_ns), about(on_link), about(4e3));
        let program = if extra > 0.0 { about(extra * stress) } else { 0 };
        let mut push = |name, ns: i64| metrics.entry(name).or_default().push(ns);
        push("node_delay_netfilter_ns", hooks + program);
        push("sender_out_ns", ends / 2);
        push("receiver_in_ns", ends - ends / 2);
        let mut node = hooks + program;
        if extra > 0.0 {
            node += 3_000;
            push("node_delay_ns", node);
            push("queueing_in_ns", hooks / 2);
            push("processing_ns", program);
            push("processing_s0_ns", program + hooks / 4);
            push("queueing_out_ns", hooks - hooks / 2);
            push("qdisc_ns", 3_000);
        }
        push("link_in_ns", links / 2);
        push("link_out_ns", links - links / 2);
        push("link_delay_ns", links);
        push("end_to_end_ns", ends + links + node);
    }
    let end_to_end = &metrics["end_to_end_ns"];
    let ipdv: Vec<i64> = end_to_end.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let jitter = ipdv.iter().sum::<i64>() as f64 / ipdv.len() as f64;
    let lost = if mode == "encrypt" && rate >= 200 { (relay.loss * 300.0) as u64 } else { 0 };
    let packets = Packets { sent: count + lost, received: count, lost, ..Packets::default() };
    let series = metrics.iter().map(|(name, values)| {
        let delays: Vec<Option<i64>> = values.iter().copied().map(Some).collect();
        ((*name).to_owned(), timed(&delays))
    });
    let series = series.collect();
    metrics.insert("ipdv_ns", ipdv);
    let all = metrics.iter().map(|(name, values)| ((*name).to_owned(), figures(values)));
    let mut summary = summary(packets, all.collect());
    summary.kind = Kind::Relay;
    summary.values = [("jitter_rfc3550_ns".to_owned(), Some(Scalar::Real(jitter)))].into();
    let rate_bps = (link != "none").then_some(65_000_000_u64);
    summary.parameters = [
        ("relay".to_owned(), mode.into()),
        ("payload_bytes".to_owned(), size.into()),
        ("rate_pps".to_owned(), f64::from(rate).into()),
        ("link_rate_bps".to_owned(), rate_bps.into()),
    ]
    .into();
    let mut loads = Vec::new();
    if load_name != "none" {
        let mut burner = load("spin");
        let shares = [("asked_ratio", 0.9), ("burnt_ratio", 0.89)];
        let scalar = |(name, share): (&str, f64)| (name.to_owned(), Some(Scalar::Real(share)));
        burner.values = shares.map(scalar).into();
        loads.push(burner);
    }
    let parameters = [
        ("topology.link.rate", link.to_owned()),
        ("relay", mode.to_owned()),
        ("size", format!("{size}B")),
        ("rate", format!("{rate}pps")),
        ("load", load_name.to_owned()),
    ];
    TrialData {
        trial: number,
        repetition: 1,
        order: number,
        state: TrialState::Finished,
        reason: None,
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
        started_ns: Some(1_795_247_302_000_000_000 + i64::from(number) * 2_000_000_000),
        summary: Some(summary),
        loads,
        witnesses: Vec::new(),
        series,
        machines: Vec::new(),
    }
}
