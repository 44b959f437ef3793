//! Checks the crate's output against `docs/schema/`, and that the schemas reject invalid objects.

use std::path::Path;

use dwell_record::{
    Cause, CauseKind, CpuIdle, DriverStamps, DriverTx, Environment, Figures, Kind, Layer,
    LayerDelay, NicDropped, Packets, Placement, RowFormat, Scalar, Scheduling, Spike, SpikePart,
    Spikes, Stamps, Summary, Trust, Waiting, Warning, metrics, values,
};
use dwell_sample::{Remote, RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_stats::RoundTrip;
use dwell_units::{Instant, Nanos, Pairing};
use jsonschema::Validator;
use serde_json::{Value, json};

const BRIDGE: Pairing =
    Pairing { real: Instant::from_nanos(0), mono: Instant::from_nanos(0), width: Nanos(28) };

fn schema(name: &str) -> Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn summary_schema() -> Validator {
    schema("dwell.summary-1.schema.json")
}

fn errors(schema: &Validator, object: &Value) -> Vec<String> {
    schema.iter_errors(object).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

fn sample(id: u64, state: State) -> Sample {
    let answered = !matches!(state, State::Lost | State::SendFailed);
    let tx = Instant::from_nanos(id as i64 * 1_000_000 + 5);
    let rx = tx + Nanos(250_000 + (id as i64 * 7_919) % 10_000);
    Sample {
        id,
        state,
        reordered: false,
        intended: Instant::from_nanos(id as i64 * 1_000_000),
        tx: TxStamps { app: tx, sched: None, tcx: None, kernel: Some(tx + Nanos(900)), hw: None },
        rx: answered.then_some(RxStamps {
            hw: None,
            driver: None,
            kernel: Some(rx - Nanos(900)),
            app: rx,
        }),
        remote: answered.then_some(Remote {
            rx: tx + Nanos(100_000),
            tx: tx + Nanos(110_000),
            seq: id as u32 + 3,
            ttl: Some(64),
            same_clock: true,
        }),
    }
}

fn summary_of(measured: &RoundTrip) -> Summary {
    let mut trust = Trust::of(measured);
    trust.planned = Some(2_000);
    trust.note_clocks(&BRIDGE, &BRIDGE);
    trust.warn(Warning::LateReplies(1));
    let nic = NicDropped { interface: "eth0".to_owned(), tx_dropped: 3, ..NicDropped::default() };
    trust.note_nics(Some(vec![nic]));
    let mut environment = Environment { kernel: Some("6.1.0".to_owned()), ..Default::default() };
    environment.cpu_idle = Some(CpuIdle {
        driver: Some("intel_idle".to_owned()),
        states: vec!["POLL".to_owned(), "C1".to_owned()],
        ..CpuIdle::default()
    });
    environment.placement.near = Placement {
        cpu: Some(1),
        waiting: Some(Waiting::Polling),
        scheduling: Some(Scheduling::Fifo),
    };
    Summary {
        kind: Kind::Ping,
        target: "stamp://192.0.2.1:862".to_owned(),
        parameters: [
            ("interval_ns".to_owned(), json!(1_000_000)),
            ("warm_up_ids".to_owned(), json!([-2, -1])),
        ]
        .into(),
        packets: Some(measured.packets().into()),
        metrics: metrics(measured),
        values: values(measured),
        stamps: Stamps {
            tx: Some(TimestampSource::KernelSw),
            rx: Some(TimestampSource::KernelSw),
            near: Some(TimestampSource::KernelSw),
        },
        engine: "udp".to_owned(),
        trains: vec![dwell_record::Train::default()],
        spikes: Some(spikes()),
        driver: Some(driver_stamps()),
        trust,
        environment,
    }
}

fn driver_stamps() -> DriverStamps {
    DriverStamps {
        interfaces: vec!["eth0".to_owned()],
        tx: Some(DriverTx::Kernel),
        layers: vec![LayerDelay {
            layer: Layer::Driver,
            rtt_ns: Figures::default(),
            added_ns: None,
        }],
        stamped: 1_999,
        unseen: 1,
        ..DriverStamps::default()
    }
}

/// Spikes with a part of every kind of cause.
fn spikes() -> Spikes {
    let cause = |kind| Cause { kind, by: Some("ksoftirqd/0".to_owned()), pid: Some(15) };
    let mut spikes = Spikes {
        above_ns: Some(1_000_000),
        rule: "given".to_owned(),
        source: "tp_btf".to_owned(),
        missing: vec!["qdisc_enqueue".to_owned()],
        count: 1,
        usual_ns: CauseKind::ALL.map(|kind| (kind, 1)).into(),
        ..Spikes::default()
    };
    spikes.add(Spike {
        id: 17,
        at_ns: 1,
        rtt_ns: 13,
        cause: Cause::of(CauseKind::Unexplained),
        parts: CauseKind::ALL.map(|kind| SpikePart { cause: cause(kind), ns: 1 }).into(),
        page_faults: 1,
        complete: true,
    });
    spikes.finish();
    spikes
}

/// A measurement with every kind of sample.
fn measured() -> RoundTrip {
    let mut measured = RoundTrip::new(TimestampSource::KernelSw, 3);
    for id in 0..2_000 {
        measured.record(&sample(id, State::Received), Some(&BRIDGE));
    }
    let rest = [State::Lost, State::Lost, State::SendFailed];
    for (id, state) in (2_000..).zip(rest) {
        measured.record(&sample(id, state), Some(&BRIDGE));
    }
    measured.record(&sample(2_000, State::Late), Some(&BRIDGE));
    measured.record(&sample(5, State::Duplicate), Some(&BRIDGE));
    measured
}

fn parsed(summary: &Summary) -> Value {
    serde_json::from_str(&summary.to_json()).unwrap()
}

#[test]
fn full_summary_is_valid() {
    let object = parsed(&summary_of(&measured()));
    assert_eq!(errors(&summary_schema(), &object), Vec::<String>::new(), "{object:#}");
    assert_eq!(object["schema"], "dwell.summary/1");
    assert_eq!(object["packets"]["sent"], 2_002);
    assert_eq!(object["metrics"]["rtt_ns"]["count"], 2_000);
    assert!(object["metrics"]["rtt_ns"]["p99_9"].is_i64(), "observed values are integers");
    assert_eq!(object["stamps"]["tx"], "kernel-sw");
    assert_eq!(object["trust"]["percentile_resolution"], "exact");
    assert_eq!(object["trust"]["schedule_error_ns"]["count"], 2_002);
}

#[test]
fn nic_drops_survive_json_and_may_be_missing() {
    let mut object = parsed(&summary_of(&measured()));
    let nics = json!([{"interface": "eth0", "rx_dropped": 0, "tx_dropped": 3, "rx_missed": 0}]);
    assert_eq!(object["trust"]["nic_dropped"], nics);
    let warnings = object["trust"]["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|text| text["text"].as_str().unwrap().contains("eth0 dropped packets"))
    );
    let read: Summary = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(json!(read.trust.nic_dropped), nics);
    object["trust"].as_object_mut().unwrap().remove("nic_dropped");
    let read: Summary = serde_json::from_value(object).unwrap();
    assert_eq!(read.trust.nic_dropped, None);
}

#[test]
fn summary_without_replies_is_valid() {
    let mut nothing = RoundTrip::new(TimestampSource::User, 0);
    nothing.record(&sample(0, State::Lost), None);
    let object = parsed(&summary_of(&nothing));
    assert_eq!(errors(&summary_schema(), &object), Vec::<String>::new(), "{object:#}");
    assert_eq!(object["values"]["loss_ratio"], 1.0);
    assert_eq!(object["values"]["jitter_rfc3550_ns"], Value::Null);
}

#[test]
fn summary_of_a_command_without_probes_is_valid() {
    let summary = Summary {
        kind: Kind::Reflect,
        target: "stamp://[::]:862 stamp://0.0.0.0:862".to_owned(),
        packets: None,
        metrics: Default::default(),
        values: [
            ("answered".to_owned(), Some(Scalar::Count(u64::MAX))),
            ("not_a_number".to_owned(), Some(Scalar::Real(f64::NAN))),
        ]
        .into(),
        stamps: Stamps::default(),
        trust: Trust::default(),
        environment: Environment::default(),
        ..summary_of(&measured())
    };
    let object = parsed(&summary);
    assert_eq!(errors(&summary_schema(), &object), Vec::<String>::new(), "{object:#}");
    assert_eq!(object["values"]["not_a_number"], Value::Null);
}

#[test]
fn summary_keys_have_a_fixed_order() {
    let (first, second) = (summary_of(&measured()).to_json(), summary_of(&measured()).to_json());
    assert_eq!(first, second);
    let top: Vec<_> = first
        .lines()
        .filter_map(|line| line.strip_prefix("  \"")?.split_once('"'))
        .map(|(key, _)| key)
        .collect();
    let expected = [
        "schema",
        "kind",
        "target",
        "parameters",
        "packets",
        "metrics",
        "values",
        "stamps",
        "engine",
        "trains",
        "spikes",
        "driver",
        "trust",
        "environment",
    ];
    assert_eq!(top, expected);
}

#[test]
fn invalid_summary_is_refused() {
    type Break = fn(&mut Value);
    let breaks: [(&str, Break); 11] = [
        ("another version", |o| o["schema"] = json!("dwell.summary/2")),
        ("a missing part", |o| drop(o.as_object_mut().unwrap().remove("trust"))),
        ("an unknown part", |o| o["extra"] = json!(1)),
        ("an unknown kind", |o| o["kind"] = json!("pong")),
        ("an unknown counter", |o| o["packets"]["stray"] = json!(1)),
        ("a negative counter", |o| o["packets"]["lost"] = json!(-1)),
        ("a metric without a unit", |o| o["metrics"]["rtt"] = o["metrics"]["rtt_ns"].clone()),
        ("a time as text", |o| o["metrics"]["rtt_ns"]["p50"] = json!("250us")),
        ("a time in fractions", |o| o["metrics"]["rtt_ns"]["max"] = json!(0.5)),
        ("an unknown source", |o| o["stamps"]["rx"] = json!("kernel")),
        ("an unknown fact", |o| o["environment"]["weather"] = json!("mild")),
    ];
    let (schema, good) = (summary_schema(), parsed(&summary_of(&measured())));
    for (case, change) in breaks {
        let mut object = good.clone();
        change(&mut object);
        assert!(!schema.is_valid(&object), "{case} passed");
    }
}

#[test]
fn sample_lines_are_valid_and_invalid_ones_refused() {
    let schema = schema("dwell.sample-1.schema.json");
    let states = [State::Received, State::Late, State::Lost, State::Duplicate, State::SendFailed];
    let mut out = Vec::new();
    RowFormat::JsonLines.append_header(&mut out);
    for (id, state) in (0..).zip(states) {
        for bridge in [Some(&BRIDGE), None] {
            RowFormat::JsonLines.append(
                &mut out,
                &sample(id, state),
                bridge,
                TimestampSource::KernelSw,
            );
        }
    }
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 10);
    for line in text.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(errors(&schema, &object), Vec::<String>::new(), "{line}");
        let mut broken = object.clone();
        broken["rtt"] = json!(5);
        assert!(!schema.is_valid(&broken));
        let mut broken = object;
        broken.as_object_mut().unwrap().remove("rtt_ns");
        assert!(!schema.is_valid(&broken));
    }
}

#[test]
fn spike_lines_are_valid_and_invalid_ones_refused() {
    let schema = schema("dwell.spike-1.schema.json");
    let mut out = Vec::new();
    spikes().largest[0].append_json(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(errors(&schema, &object), Vec::<String>::new(), "{text}");
    let mut broken = object.clone();
    broken["cause"]["cause"] = json!("weather");
    assert!(!schema.is_valid(&broken));
    let mut broken = object;
    broken.as_object_mut().unwrap().remove("parts");
    assert!(!schema.is_valid(&broken));
}

#[test]
fn figures_and_counters_reach_the_object_unchanged() {
    let measured = measured();
    let from = measured.figures(dwell_stats::Metric::Rtt);
    let to = Figures::from(from);
    assert_eq!((to.count, to.mean, to.stddev), (from.count, from.mean, from.stddev));
    let observed = [from.min, from.p50, from.p90, from.p95, from.p99, from.p99_9, from.max];
    let written = [to.min, to.p50, to.p90, to.p95, to.p99, to.p99_9, to.max];
    assert_eq!(observed.map(|v| v.map(|v| v.0)), written);
    let packets = Packets::from(measured.packets());
    assert_eq!(packets.sent, packets.received + packets.lost + packets.late);
    assert_eq!((packets.late, packets.duplicate, packets.send_failed), (1, 1, 1));
}
