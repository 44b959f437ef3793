//! Every figure is a valid Vega-Lite 6 specification of limited size.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;
#[path = "synthetic/paced.rs"]
mod trains;

use std::sync::LazyLock;

use dwell_record::{Cause, CauseKind, Spike, SpikePart, Spikes};
use dwell_report::model::{RunData, Series, SmokeDelays, SmokeSeries, SmokeStep};
use dwell_report::{Figure, Finding, comparison_figures, figures, smoke};
use serde_json::Value;

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../assets/vega-lite-schema.json")).unwrap();
    jsonschema::validator_for(&schema).expect("compile the schema of Vega-Lite")
});

fn ids(figures: &[Figure]) -> Vec<&str> {
    figures.iter().map(|figure| figure.id.as_str()).collect()
}

fn check(figures: &[Figure]) {
    for figure in figures {
        let id = &figure.id;
        let errors: Vec<String> = SCHEMA
            .iter_errors(&figure.spec)
            .map(|e| format!("{} at {}", e, e.instance_path()))
            .collect();
        assert!(
            errors.is_empty(),
            "{id}: {}",
            errors.join("\n").chars().take(2_000).collect::<String>()
        );
        let marks = rows(&figure.spec);
        assert!((1..=6_000).contains(&marks), "{id} has {marks} rows");
        assert!(!figure.finding.is_empty() && !figure.title.is_empty(), "{id}");
        assert!(!figure.table.rows.is_empty(), "{id} has no table");
        for row in &figure.table.rows {
            assert_eq!(row.len(), figure.table.columns.len(), "{id}");
        }
        assert!(figure.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id}");
    }
    let mut ids = ids(figures);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), figures.len(), "two figures share an id");
}

/// Number of rows of inline data in a specification.
fn rows(spec: &Value) -> usize {
    match spec {
        Value::Array(items) => items.iter().map(rows).sum(),
        Value::Object(map) => {
            let here =
                map.get("data").and_then(|data| data["values"].as_array()).map_or(0, Vec::len);
            here + map
                .iter()
                .filter(|(key, _)| *key != "data")
                .map(|(_, value)| rows(value))
                .sum::<usize>()
        }
        _ => 0,
    }
}

/// The first trial of the loads with other delays.
fn single(delays: &[Option<i64>]) -> RunData {
    let mut run = synthetic::loads();
    run.axes.clear();
    run.trials.truncate(1);
    let trial = &mut run.trials[0];
    trial.parameters.clear();
    trial.series = [("rtt_ns".to_owned(), synthetic::timed(delays))].into();
    run
}

#[test]
fn smoke_timeline_has_gaps_losses_and_pauses() {
    const HOUR: i64 = 3_600_000_000_000;
    let step = |hour: i64| {
        let ms = 1_000_000 * (10 + hour);
        let delays = SmokeDelays {
            n: 3_600,
            min_ns: ms - 400_000,
            p5_ns: Some(ms - 300_000),
            p25_ns: Some(ms - 100_000),
            p50_ns: Some(ms),
            p75_ns: Some(ms + 200_000),
            p95_ns: Some(ms + 900_000),
            p99_ns: None,
            max_ns: 2 * ms,
        };
        let has_records = hour != 5;
        SmokeStep {
            from_ns: hour * HOUR,
            to_ns: (hour + 1) * HOUR,
            label: format!("{hour}:00"),
            sent: if has_records { 3_600 } else { 0 },
            lost: if hour == 3 { 36 } else { 0 },
            coverage: Some(if has_records { 1.0 } else { 0.0 }),
            is_gap: !has_records,
            delays: has_records.then_some(delays),
        }
    };
    let series = SmokeSeries {
        id: "smoke-a".into(),
        title: "Round trip from a to b".into(),
        caption: "mesh, stamp".into(),
        from_ns: 0,
        to_ns: 24 * HOUR,
        steps: (0..24).map(step).collect(),
        pauses: vec![(7 * HOUR, 8 * HOUR)],
    };
    let figure = smoke(&series).unwrap();
    check(std::slice::from_ref(&figure));
    let [main, strip] = &figure.spec["vconcat"].as_array().unwrap()[..] else {
        panic!("two plots")
    };
    let rows = main["data"]["values"].as_array().unwrap();
    let breaks = rows.iter().filter(|row| row["p50"].is_null()).map(|row| row["time"].as_f64());
    assert_eq!(breaks.collect::<Vec<_>>(), [Some(5.0), Some(24.0)], "the gap is not bridged");
    let domain = &strip["encoding"]["y"]["scale"]["domain"];
    assert_eq!(*domain, serde_json::json!(["lost", "no records", "paused"]));
    assert_eq!(figure.finding, "Median 10 ms to 33 ms; 0.0435 % lost of 82,800 probes.");
    assert_eq!((figure.table.rows.len(), figure.table.rows[5][3].as_str()), (24, "0 %"));
    // A pair without any record is all gap.
    let empty = SmokeStep { delays: None, sent: 0, coverage: None, is_gap: true, ..step(0) };
    let nothing = SmokeSeries { steps: vec![empty], to_ns: HOUR, pauses: Vec::new(), ..series };
    let figure = smoke(&nothing).unwrap();
    check(std::slice::from_ref(&figure));
    assert!(figure.finding.starts_with("Cannot tell"));
}

#[test]
fn validator_rejects_invalid_specification() {
    let mut spec = figures(&synthetic::loads()).remove(0).spec;
    assert!(SCHEMA.is_valid(&spec));
    spec["layer"][0]["mark"]["type"] = "no-such-mark".into();
    assert!(!SCHEMA.is_valid(&spec));
}

#[test]
fn run_over_loads_has_all_figures() {
    let all = figures(&synthetic::loads());
    check(&all);
    let expected = [
        "boxes-load",
        "jitter-load",
        "breakdown",
        "timeline",
        "drift",
        "histogram",
        "ecdf",
        "ccdf",
        "percentiles",
        "loss-load",
    ];
    assert_eq!(ids(&all), expected);
}

#[test]
fn timestamps_of_the_driver_add_their_log_and_histogram() {
    let mut run = synthetic::loads();
    for trial in &mut run.trials {
        let program = &trial.series["rtt_ns"];
        let mut driver = program.clone();
        driver.steps.iter_mut().for_each(|step| step.value_ns -= 20_000);
        driver.points.iter_mut().for_each(|point| point.value_ns -= 20_000);
        trial.series.insert("rtt_driver_ns".to_owned(), driver);
    }
    let all = figures(&run);
    check(&all);
    let all_ids = ids(&all);
    let [log, histogram] = ["driver-timeline", "driver-histogram"].map(|id| {
        all.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("{all_ids:?}"))
    });
    assert!(log.title.contains("over time"), "{}", log.title);
    // Every sample is in one bar, and the longest are in the last one.
    let samples = |group: &str, by: &str| -> u64 {
        let rows = histogram.table.rows.iter().filter(|row| row[0] == group && row[1] == by);
        rows.map(|row| row[4].replace(',', "").parse::<u64>().unwrap()).sum()
    };
    let received = |load: &str| -> u64 {
        let trials = run.trials.iter().filter(|trial| trial.is_at("load", load));
        trials.map(|trial| trial.summary.as_ref().unwrap().packets.unwrap().received).sum()
    };
    for load in ["none", "network", "cpu"] {
        for by in ["program", "driver"] {
            assert_eq!(samples(&format!("load {load}"), by), received(load), "{load} {by}");
        }
    }
    let overflow: Vec<_> = histogram.table.rows.iter().filter(|row| row[3] == "inf").collect();
    assert!(overflow.iter().any(|row| row[0] == "load cpu"), "{overflow:?}");
    assert!(histogram.finding.contains("driver 259 us"), "{}", histogram.finding);
}

#[test]
fn spikes_add_a_bar_of_causes_whose_parts_sum() {
    let mut run = synthetic::loads();
    let part = |kind, by: Option<&str>, ns| {
        let cause = Cause { kind, by: by.map(str::to_owned), pid: None };
        SpikePart { cause, ns }
    };
    let parts: Vec<_> = CauseKind::ALL
        .into_iter()
        .map(|kind| part(kind, None, 1_000))
        .chain([part(CauseKind::Waiting, Some("hog"), 900_000)])
        .collect();
    let rtt_ns: i64 = parts.iter().map(|part| part.ns).sum();
    let mut spikes = Spikes { count: 1, ..Spikes::default() };
    spikes.add(Spike {
        id: 0,
        at_ns: 0,
        rtt_ns,
        cause: parts[parts.len() - 1].cause.clone(),
        parts,
        page_faults: 0,
        complete: true,
    });
    for trial in &mut run.trials {
        trial.summary.as_mut().unwrap().spikes = Some(spikes.clone());
    }
    let all = figures(&run);
    check(&all);
    let causes = all.iter().find(|figure| figure.id == "spike-causes").unwrap();
    assert!(causes.finding.contains("(100 %): waiting behind hog"), "{}", causes.finding);
    let last = causes.table.columns.len() - 1;
    for row in &causes.table.rows {
        let number = |cell: &String| cell.parse::<f64>().unwrap();
        let sum: f64 = row[2..last].iter().map(number).sum();
        assert!((sum - number(&row[last])).abs() < 0.01, "{row:?}");
        assert_eq!(row.len(), 2 + 6 + 1, "six segments: {:?}", causes.table.columns);
    }
}

#[test]
fn numeric_sweep_adds_bands_fits_and_heat_map() {
    let all = figures(&synthetic::sweep());
    check(&all);
    for id in [
        "bands-size",
        "fit-size",
        "bands-rate",
        "fit-rate",
        "heat-size-rate",
        "jitter-size",
        "loss-rate",
    ] {
        assert!(ids(&all).contains(&id), "{id} is missing of {:?}", ids(&all));
    }
}

#[test]
fn compared_runs_share_axes() {
    let (one, mut other) = (synthetic::loads(), synthetic::loads());
    other.id = "another".to_owned();
    let all = comparison_figures(&[one.clone(), other.clone(), one], "rtt_ns", &[]);
    check(&all);
    assert_eq!(ids(&all), ["boxes-run", "boxes-cells", "histogram", "ecdf", "ccdf", "percentiles"]);
    other.trials.iter_mut().for_each(|trial| trial.series.clear());
    assert!(comparison_figures(&[synthetic::loads(), other], "rtt_ns", &[]).is_empty());
}

#[test]
fn comparison_figures_repeat_findings() {
    let finding = |text: &str| Finding { id: "shift".to_owned(), text: text.to_owned() };
    let repeated = [finding("rtt: A to B: p50 fell by 34 us")];
    let (mut one, mut other) = (synthetic::loads(), synthetic::loads());
    for run in [&mut one, &mut other] {
        run.axes.clear();
        run.trials.truncate(1);
        run.trials[0].parameters.clear();
    }
    other.id = "another".to_owned();
    let all = comparison_figures(&[one, other], "rtt_ns", &repeated);
    assert_eq!(all[0].id, "boxes-run");
    assert!(all[0].finding.starts_with("rtt: A to B: p50 fell by 34 us."), "{}", all[0].finding);
    assert!(!all[0].finding.contains("cannot tell"), "{}", all[0].finding);
    // With several cells, the verdict is in the figure with one box per cell.
    let all = comparison_figures(&[synthetic::loads(), synthetic::loads()], "rtt_ns", &repeated);
    assert!(all[0].finding.starts_with("Median over all parameters"), "{}", all[0].finding);
    assert!(all[1].finding.starts_with("rtt: A to B: p50 fell by 34 us. "), "{}", all[1].finding);
}

#[test]
fn single_trials_of_any_size_are_drawn() {
    for n in [1, 2, 3, 50, 400] {
        let delays: Vec<Option<i64>> =
            (0..n).map(|i| Some(200_000 + (i * 7_919) % 50_000)).collect();
        let all = figures(&single(&delays));
        check(&all);
        assert_eq!(
            ids(&all),
            ["breakdown", "timeline", "histogram", "ecdf", "ccdf", "percentiles"],
            "{n} samples"
        );
    }
}

#[test]
fn zero_negative_and_equal_delays_are_drawn() {
    for delays in [vec![Some(0); 200], vec![Some(250_000); 200], (-100..100).map(Some).collect()] {
        check(&figures(&single(&delays)));
    }
    check(&figures(&single(&[Some(i64::MIN + 1), Some(i64::MAX)])));
}

#[test]
fn relay_breakdown_has_node_and_links() {
    let mut run = synthetic::loads();
    let means = [
        ("node_delay_ns", 60e3),
        ("queueing_in_ns", 20e3),
        ("processing_ns", 30e3),
        ("link_delay_ns", 200e3),
    ];
    for trial in &mut run.trials {
        let metrics = &mut trial.summary.as_mut().unwrap().metrics;
        let like = metrics["rtt_ns"];
        for (name, mean) in means {
            metrics.insert(name.to_owned(), dwell_record::Figures { mean: Some(mean), ..like });
        }
    }
    let all = figures(&run);
    check(&all);
    let breakdown = all.iter().find(|figure| figure.id == "breakdown").unwrap();
    let heads = [
        "group",
        "queueing on arrival [us]",
        "processing [us]",
        "links together [us]",
        "not stamped [us]",
        "end-to-end delay [us]",
    ];
    assert_eq!(breakdown.table.columns, heads);
    assert_eq!(breakdown.table.rows[0][1..], ["20.000", "30.000", "200.000", "10.000", "260.000"]);
    // Components that exceed the whole are not stacked.
    for trial in &mut run.trials {
        let metrics = &mut trial.summary.as_mut().unwrap().metrics;
        metrics.get_mut("processing_ns").unwrap().mean = Some(90e3);
    }
    let fallback = figures(&run).into_iter().find(|figure| figure.id == "breakdown").unwrap();
    assert!(fallback.table.columns[1].starts_with("in the reflector"));
}

#[test]
fn host_activity_has_one_panel_per_quantity() {
    let run = synthetic::with_machines("n2");
    let all = figures(&run);
    check(&all);
    assert_eq!(ids(&all)[..3], ["breakdown", "timeline", "host"]);
    let panels = all[2].spec["vconcat"].as_array().unwrap();
    let titles: Vec<&str> =
        panels.iter().map(|panel| panel["title"]["text"].as_str().unwrap()).collect();
    let expected = [
        "round-trip delay, 99th percentile [us]",
        "CPU use [%]",
        "CPU time taken by a hypervisor [%]",
        "run-queue wait, all threads [ms/s]",
        "run-queue wait, measuring process [ms/s]",
        "CPU frequency [GHz]",
        "temperature, hottest zone [deg C]",
        "interrupts [1/s]",
        "received signal (RSSI) [dBm]",
        "busiest channel in use [%]",
    ];
    assert_eq!(titles, expected);
    assert_eq!(all[2].table.rows.len(), 18, "nine quantities of two machines");
    let domain = |panel: &Value| panel["encoding"]["x"]["scale"]["domain"].clone();
    assert!(panels.iter().all(|panel| domain(panel) == domain(&panels[0])), "shared time axis");
    // Part of a run has host data only with its trial.
    let mut other = run.clone();
    other.host.as_mut().unwrap().wanted.trial = 99;
    assert!(!ids(&figures(&other)).contains(&"host"));
}

#[test]
fn total_loss_gives_no_delay_figure() {
    assert_eq!(figures(&single(&[None; 300])), []);
    let mut lost = synthetic::loads();
    for trial in &mut lost.trials {
        trial.series.clear();
        let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
        (packets.received, packets.lost) = (0, packets.sent);
    }
    let all = figures(&lost);
    check(&all);
    assert_eq!(ids(&all), ["loss-load"]);
}

#[test]
fn thousand_trials_stay_below_mark_limit() {
    let mut run = synthetic::sweep();
    let trials = run.trials.clone();
    for i in 0..1_000 {
        let mut trial = trials[i % trials.len()].clone();
        (trial.trial, trial.order, trial.repetition) =
            (i as u32 + 1, i as u32 + 1, i as u32 / 28 + 1);
        run.trials.push(trial);
    }
    check(&figures(&run));
    run.trials
        .iter_mut()
        .flat_map(|trial| trial.series.values_mut())
        .for_each(|s| *s = Series::default());
    assert!(ids(&figures(&run)).iter().all(|id| id.starts_with("loss")));
}

#[test]
fn relay_run_has_figures_of_miya_2020() {
    let mut run = synthetic::relays(synthetic::PI_ZERO);
    synthetic::add_packets(&mut run);
    let figures = figures(&run);
    check(&figures);
    let ids = ids(&figures);
    let wanted = "p95-size p95-rate p95-load end-to-end breakdown waterfall ecdf timeline boxes-load \
                  jitter-size-encrypt fit-size-encrypt loss-size-encrypt";
    for id in wanted.split_whitespace() {
        assert!(ids.contains(&id), "{id} is missing: {ids:?}");
    }
    let figure = |id: &str| figures.iter().find(|figure| figure.id == id).unwrap();
    let waterfall = figure("waterfall");
    assert!(waterfall.finding.contains("largest component 9 us"), "{}", waterfall.finding);
    let breakdown = figure("breakdown");
    // Two links x three modes x three sizes; components sum to the whole, so there is no remainder.
    assert_eq!(breakdown.table.rows.len(), 18);
    assert!(!breakdown.table.columns.iter().any(|name| name.contains("not stamped")));
    assert!(breakdown.table.columns.iter().any(|name| name.starts_with("end-to-end delay")));
}

/// Distinct values of a field anywhere in a specification.
fn drawn<'a>(spec: &'a Value, field: &str) -> std::collections::BTreeSet<&'a str> {
    match spec {
        Value::Array(items) => items.iter().flat_map(|item| drawn(item, field)).collect(),
        Value::Object(map) => {
            let here = map.get(field).and_then(Value::as_str);
            map.values().flat_map(|value| drawn(value, field)).chain(here).collect()
        }
        _ => [].into(),
    }
}

#[test]
fn relay_figure_names_fixed_parameters() {
    let run = synthetic::relays(synthetic::PI_ZERO);
    let figures = figures(&run);
    let figure = |id: &str| figures.iter().find(|figure| figure.id == id).unwrap();
    // Of 100, 700 and 1400 B, 700 B is nearest to 1000 B of Miya 2020; 200 pps is common to all
    // modes.
    for (id, held) in [
        ("ecdf", "link rate none, size 700B (Miya 2020: 1000 B), rate 200pps, load none."),
        ("p95-size", "link rate none, rate 200pps, load none."),
        ("p95-rate", "link rate none, size 700B (Miya 2020: 1000 B), load none."),
        ("p95-load", "link rate none, size 700B (Miya 2020: 1000 B), rate 200pps."),
        ("end-to-end", "link rate 65Mbit/s, rate 200pps, load none."),
        ("breakdown", "rate 200pps, load none."),
        ("fit-size-encrypt", "link rate none, load none."),
    ] {
        let finding = &figure(id).finding;
        assert!(finding.contains(&format!("Fixed: {held}")), "{id}: {finding}");
    }
    let modes = ["relay route", "relay translate", "relay encrypt"];
    for id in ["ecdf", "percentiles", "p95-size", "p95-rate", "p95-load", "boxes-relay"] {
        assert_eq!(drawn(&figure(id).spec, "group"), modes.into(), "{id}");
    }
}

#[test]
fn p95_figure_uses_trials_at_condition() {
    let run = synthetic::relays(synthetic::PI_ZERO);
    let figures = figures(&run);
    let figure = figures.iter().find(|figure| figure.id == "p95-size").unwrap();
    let row = |delay: &str, mode: &str, size: &str| {
        let is = |row: &&Vec<String>| row[0] == delay && row[1] == mode && row[2] == size;
        figure.table.rows.iter().find(is)
    };
    let trial = run.trials.iter().find(|trial| {
        let of = |name: &str| trial.parameters[name].as_str();
        [of("relay"), of("size"), of("rate"), of("load"), of("topology.link.rate")]
            == ["encrypt", "1400B", "200pps", "none", "none"]
    });
    let p95 = trial.unwrap().summary.as_ref().unwrap().metrics["processing_ns"].p95.unwrap();
    let found = row("processing delay", "encrypt", "1400B").unwrap();
    assert!(figure.table.columns[5].ends_with("[ms]"), "{:?}", figure.table.columns);
    assert_eq!(found[5], format!("{:.3}", p95 as f64 / 1e6));
    assert!(row("processing delay", "route", "1400B").is_none(), "no program handles the packet");
    assert!(figure.finding.contains("No processing delay at route"), "{}", figure.finding);
}

#[test]
fn loaded_trial_does_not_change_idle_bars() {
    let bars = |run: &RunData| {
        let all = figures(run);
        let of = |id: &str| all.iter().find(|figure| figure.id == id).unwrap().table.clone();
        (of("breakdown"), of("end-to-end"))
    };
    let mut run = synthetic::relays(synthetic::PI_ZERO);
    let before = bars(&run);
    let stressed = run.trials.iter_mut().find(|trial| trial.parameters["load"] == "most").unwrap();
    for figures in stressed.summary.as_mut().unwrap().metrics.values_mut() {
        figures.mean = figures.mean.map(|mean| mean * 1_000.0);
        figures.p95 = figures.p95.map(|p95| p95 * 1_000);
    }
    assert_eq!(bars(&run), before);
}

#[test]
fn lab_nodes_share_machine_quantities() {
    let mut run = synthetic::with_machines("n2");
    run.host = run.host.map(dwell_report::model::HostData::shared);
    let all = figures(&run);
    check(&all);
    let host = all.iter().find(|figure| figure.id == "host").unwrap();
    assert!(host.finding.contains("n1 and n2 are namespaces of one machine"), "{}", host.finding);
    let of = |quantity: &str| -> Vec<&str> {
        let rows = host.table.rows.iter().filter(|row| row[0].starts_with(quantity));
        rows.map(|row| row[1].as_str()).collect()
    };
    assert_eq!(of("CPU use"), ["the shared machine"]);
    assert_eq!(of("interrupts"), ["the shared machine"]);
    assert_eq!(of("run-queue wait, measuring process"), ["n1", "n2"]);
    assert_eq!(of("received signal"), ["n1", "n2"], "an interface belongs to its namespace");
}

#[test]
fn pace_run_has_figures_of_mok_2015() {
    let all = figures(&trains::paces(&[]));
    check(&all);
    let expected =
        ["largest-rates", "rates-0", "rates-25", "pairs", "gap-errors-0", "gap-errors-25"];
    assert_eq!(ids(&all), expected);
    let drawn = |id: &str| {
        let figure = all.iter().find(|figure| figure.id == id).unwrap();
        figure.spec.to_string()
    };
    // The boards of Mok 2015 are in the figures for which it has numbers.
    for (id, device, there) in [
        ("largest-rates", "Raspberry Pi II (B)", true),
        ("rates-0", "ECS LIVA (Mok 2015)", true),
        ("rates-0", "Raspberry Pi I (B) (Mok 2015)", true),
        ("rates-25", "ECS LIVA (Mok 2015)", true),
        ("rates-25", "Raspberry Pi I (B) (Mok 2015)", false),
    ] {
        assert_eq!(drawn(id).contains(device), there, "{id}: {device}");
    }
    // A run of pairs has only their gaps; different links have separate figures.
    let pairs = figures(&trains::paces(&["matrix.pattern=[\"pair\"]"]));
    check(&pairs);
    assert_eq!(ids(&pairs), ["pairs"]);
    let links = "matrix.\"topology.link.rate\"=[\"50Mbit/s\", \"none\"]";
    let several = figures(&trains::paces(&[links]));
    check(&several);
    assert_eq!(several.iter().filter(|figure| figure.id.starts_with("rates-25")).count(), 2);
    assert!(several.iter().any(|figure| figure.title.ends_with("n1, topology.link.rate none")));
}

/// Rows drawn with one kind of mark, by panel.
fn drawn_as(figure: &Figure, wanted: impl Fn(&Value) -> bool) -> Vec<Vec<Value>> {
    let panels = figure.spec["vconcat"].as_array().unwrap();
    let of = |panel: &Value| -> Vec<Value> {
        let layers = panel["layer"].as_array().unwrap().iter();
        let rows = layers.filter(|layer| wanted(&layer["mark"]));
        rows.flat_map(|layer| layer["data"]["values"].as_array().unwrap().clone()).collect()
    };
    panels.iter().map(of).collect()
}

fn is(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |mark| mark["type"] == kind
}

fn figure(run: &RunData, id: &str) -> Figure {
    figures(run).into_iter().find(|figure| figure.id == id).unwrap()
}

#[test]
fn published_rate_range_is_a_horizontal_line() {
    let of_pi = |row: &Value| {
        row["device"].as_str().is_some_and(|name| name.starts_with("Raspberry Pi I (B)"))
    };
    for rates in [
        "[\"10Mbit/s\", \"100Mbit/s\", \"1Gbit/s\"]",
        "[\"1Mbit/s\", \"10Mbit/s\", \"10Gbit/s\"]",
        "[\"10Mbit/s\", \"50Mbit/s\"]",
    ] {
        let run = trains::paces(&[&format!("matrix.rate={rates}")]);
        let figure = figure(&run, "rates-0");
        check(std::slice::from_ref(&figure));
        let [small, large] = drawn_as(&figure, is("rule")).try_into().unwrap();
        assert_eq!(small, [] as [Value; 0], "published only for full-sized packets");
        assert_eq!(large.len(), 1, "{rates}");
        let ends = ["requested", "to", "measured"].map(|name| large[0][name].as_f64().unwrap());
        assert_eq!(ends, [1.0, 100.0, 17.0], "{rates}");
        assert!(of_pi(&large[0]));
        // Mok 2015 did not try 1 Gbit/s on that board.
        for row in drawn_as(&figure, |_| true).iter().flatten().filter(|row| of_pi(row)) {
            assert!(row["requested"].as_f64().unwrap() <= 100.0, "{rates}: {row}");
        }
        let points = drawn_as(&figure, is("point"));
        assert!(!points.iter().flatten().any(of_pi), "{rates}: no mark at a single rate");
        let published =
            figure.table.rows.iter().find(|row| row[0] == "Raspberry Pi I (B) (Mok 2015)").unwrap();
        assert_eq!(published[1..], ["frame 1514B", "each from 1 to 100", "17", "-"]);
        let said = "at every rate tried, 1Mbit/s to 100Mbit/s.";
        assert!(figure.finding.ends_with(said), "{}", figure.finding);
    }
    // A value for one requested rate remains a mark, within the range of the axes.
    let liva = |id: &str| -> Vec<(f64, f64)> {
        let rows = drawn_as(&figure(&trains::paces(&[]), id), is("point")).concat();
        let of = rows.iter().filter(|row| row["device"] == "ECS LIVA (Mok 2015)");
        let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
        of.map(|row| (number(row, "requested"), number(row, "measured"))).collect()
    };
    assert_eq!(liva("rates-0"), [(1_000.0, 760.0)]);
    assert_eq!(liva("rates-25"), [(1_000.0, 430.0)]);
    assert!(!figure(&trains::paces(&[]), "rates-25").finding.contains("Horizontal line"));
}

#[test]
fn rate_line_connects_medians() {
    let mut run = trains::paces(&[]);
    // At the largest rate, one of three trials is disturbed.
    for trial in &mut run.trials {
        let is = |name: &str, value: &str| trial.parameters[name] == value;
        let spin = is("engine", "spin") && is("rate", "1Gbit/s") && is("flows", "0");
        let Some(summary) = trial.summary.as_mut().filter(|_| spin && is("size", "frame:1514B"))
        else {
            continue;
        };
        let rate = [803e6, 1_000e6, 990e6][trial.repetition as usize - 1];
        summary.trains.iter_mut().for_each(|train| train.rate_bps = Some(rate));
    }
    let figure = figure(&run, "rates-0");
    check(std::slice::from_ref(&figure));
    let of_spin = |rows: Vec<Vec<Value>>| -> Vec<(f64, f64)> {
        let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
        let spin = rows[1].iter().filter(|row| row["group"] == "spin");
        spin.map(|row| (number(row, "requested"), number(row, "measured"))).collect()
    };
    let mut line = of_spin(drawn_as(&figure, is("line")));
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(
        line.iter().map(|(requested, _)| *requested).collect::<Vec<_>>(),
        [10.0, 100.0, 1_000.0]
    );
    assert_eq!(line[2].1, 990.0);
    let points = of_spin(drawn_as(&figure, is("point")));
    assert_eq!(points.len(), 9, "every trial has a mark");
    let mut most: Vec<f64> = points
        .iter()
        .filter(|(requested, _)| *requested == 1_000.0)
        .map(|(_, measured)| *measured)
        .collect();
    most.sort_by(f64::total_cmp);
    assert_eq!(most, [803.0, 990.0, 1_000.0]);
    assert!(figure.finding.contains("the median of the trials at each rate"), "{}", figure.finding);
    let once = trains::paces(&["trials.repetitions=1"]);
    let figure = self::figure(&once, "rates-0");
    assert!(!figure.finding.contains("the median of the trials"), "{}", figure.finding);
}

#[test]
fn below_rate_has_own_mark_and_no_row_is_empty() {
    let figure = figure(&trains::paces(&[]), "largest-rates");
    check(std::slice::from_ref(&figure));
    let below = |mark: &Value| mark["type"] == "point" && mark["filled"] == false;
    let up_to = |mark: &Value| mark["type"] == "point" && mark["filled"] == true;
    let of = |rows: Vec<Vec<Value>>, device: &str| -> Vec<(f64, String)> {
        let rows = rows[0].iter().filter(|row| row["row"] == device);
        rows.map(|row| {
            (row["rate"].as_f64().unwrap(), row["largest rate"].as_str().unwrap().to_owned())
        })
        .collect()
    };
    let expected_mark = |rate: f64, text: &str| (rate, text.to_owned());
    assert_eq!(
        of(drawn_as(&figure, below), "TP-LINK ML-3020"),
        [expected_mark(50.0, "below 50Mbit/s"), expected_mark(100.0, "below 100Mbit/s")]
    );
    assert_eq!(of(drawn_as(&figure, up_to), "TP-LINK ML-3020"), []);
    assert_eq!(
        of(drawn_as(&figure, up_to), "ECS LIVA"),
        [expected_mark(50.0, "50Mbit/s"), expected_mark(100.0, "100Mbit/s")]
    );
    assert_eq!(of(drawn_as(&figure, below), "ECS LIVA"), []);
    // Layers of a panel share a legend: one layer without it removes it from all.
    let layers = figure.spec["vconcat"][0]["layer"].as_array().unwrap();
    let legends = layers.iter().map(|layer| layer["encoding"]["color"].get("legend"));
    assert!(legends.flatten().next().is_none(), "{layers:#?}");
    let text = |mark: &Value| mark["type"] == "text" && mark["text"] == "below";
    assert_eq!(drawn_as(&figure, text)[0].len(), 2, "the mark is named");

    let words = drawn_as(&figure, |mark| mark["type"] == "text" && mark["text"].is_null());
    let said = |panel: usize, row: &str| {
        let of = words[panel].iter().find(|it| it["row"] == row);
        of.map(|row| row["words"].as_str().unwrap())
    };
    // Without cross traffic, sleep keeps 10 Mbit/s with the larger packets.
    assert_eq!(said(0, "sleep"), Some("IP 200 B: none of the tested rates"));
    assert_eq!(said(1, "sleep"), Some("none of the tested rates"));
    for panel in [0, 1] {
        assert_eq!(said(panel, "packet-ring"), Some("cannot tell"));
        assert_eq!(said(panel, "uring"), Some("not run"));
        assert_eq!(said(panel, "spin"), None);
    }
    assert_eq!(said(0, "Raspberry Pi I (B)"), Some("not suitable"));
    let all = drawn_as(&figure, |_| true);
    for (panel, rows) in figure.spec["vconcat"].as_array().unwrap().iter().zip(&all) {
        let order = panel["encoding"]["y"]["scale"]["domain"].as_array().unwrap();
        assert!(order.len() >= 9);
        for row in order {
            assert!(rows.iter().any(|it| it["row"] == *row), "{row} is empty");
        }
    }
}
