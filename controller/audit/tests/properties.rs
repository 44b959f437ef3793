//! Ticks, clusters and steps of clocks are found also in short and unusual tables.

use dwell_audit::{Finding, Report, audit_tables, read};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEED: u64 = 290_129;

fn rng(stream: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(SEED + stream)
}

fn audit(text: &str) -> Report {
    let mut table = read(text.as_bytes(), "table.csv", &[]).unwrap();
    table.name = "table".to_owned();
    audit_tables("table.csv", &[table], true)
}

fn of<'r>(report: &'r Report, code: &str) -> Vec<&'r Finding> {
    report.findings.iter().filter(|finding| finding.code == code).collect()
}

fn latencies(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    values
        .into_iter()
        .fold("latency_ms\n".to_owned(), |text, value| format!("{text}{value:.decimals$}\n"))
}

/// `counts` values around each of the `middles`, in random order.
fn clusters(middles: &[(f64, usize)]) -> String {
    let mut rng = rng(1);
    let mut values: Vec<(u64, f64)> = Vec::new();
    for (middle, count) in middles {
        for _ in 0..*count {
            values.push((rng.random(), middle + 6.0 * rng.random::<f64>()));
        }
    }
    values.sort_by_key(|(order, _)| *order);
    latencies(values.into_iter().map(|(_, value)| value), 1)
}

#[test]
fn clusters_at_timeouts_may_hold_most_values() {
    for middles in [
        &[(1_002.0, 6), (2_004.0, 7)][..],
        &[(1_000.0, 19), (2_000.0, 20)],
        &[(1_000.0, 21), (2_000.0, 20)],
        &[(1_003.0, 5), (2_008.0, 5), (3_005.0, 6)],
    ] {
        let found = audit(&clusters(middles));
        let found = of(&found, "time-out-cluster");
        assert_eq!(found.len(), middles.len(), "{middles:?}: {found:?}");
        for (finding, (middle, count)) in found.iter().zip(middles) {
            assert!((finding.value.unwrap() - middle).abs() < 8.0, "{finding:?}");
            assert_eq!(finding.rows.len(), *count);
        }
    }
    let late = audit(&clusters(&[(12.0, 10), (3_000.0, 30)]));
    let [finding] = of(&late, "time-out-cluster")[..] else { panic!("{:?}", late.findings) };
    assert_eq!(finding.rows.len(), 30);
}

#[test]
fn short_timeouts_do_not_repeat() {
    let text = clusters(&[(10.0, 15), (90.0, 5)]);
    let report = audit(&text);
    assert!(of(&report, "time-out-cluster").is_empty(), "{:?}", report.findings);
    assert_eq!(of(&report, "detached-cluster").len(), 1);
}

/// Share of tables of `rows` values on a tick that have the finding, with a value near it.
fn detected(rows: usize, decimals: usize, tick: f64, value: impl Fn(f64, f64) -> f64) -> f64 {
    const TABLES: u64 = 40;
    let found = (0..TABLES).filter(|stream| {
        let mut rng = rng(100 + stream);
        let values: Vec<f64> = (0..rows)
            .map(|_| {
                let noise = StandardNormal.sample(&mut rng);
                value(f64::from(rng.random_range(1..=12_u8)), noise)
            })
            .collect();
        let report = audit(&latencies(values, decimals));
        of(&report, "quantisation")
            .first()
            .is_some_and(|finding| (finding.value.unwrap() / tick - 1.0).abs() < 0.02)
    });
    found.count() as f64 / TABLES as f64
}

#[test]
fn ticks_rounded_to_milliseconds_are_found_in_few_rows() {
    for (rows, least) in [(13, 0.5), (20, 0.9), (60, 0.95)] {
        let share = detected(rows, 0, 15.625, |at, _| (15.625 * at).round());
        assert!(share >= least, "seed {SEED}, {rows} rows: {share}");
    }
    let share = detected(20, 0, 46.35, |at, noise| 46.35 * (at + 8.0) + noise);
    assert!(share >= 0.8, "seed {SEED}: {share}");
}

#[test]
fn few_distinct_values_on_a_tick_are_found() {
    let mut rng = rng(2);
    for (tick, decimals, multiples) in [(15.625, 0, 4), (15.625, 0, 7), (16.667, 1, 8)] {
        let values: Vec<f64> =
            (0..60).map(|_| tick * f64::from(rng.random_range(0..multiples))).collect();
        let report = audit(&latencies(values, decimals));
        let [finding] = of(&report, "quantisation")[..] else {
            panic!("seed {SEED}, {multiples} multiples of {tick}: {:?}", report.findings)
        };
        assert!((finding.value.unwrap() / tick - 1.0).abs() < 0.03, "{finding:?}");
        let bounds = finding.message.split(['(', ')']).nth(1).unwrap();
        assert!(bounds.starts_with("between "), "{finding:?}");
    }
}

#[test]
fn significant_digits_are_no_tick() {
    for stream in 0..100 {
        let mut rng = rng(200 + stream);
        let text = (0..40).fold("rtt_ms\n".to_owned(), |text, _| {
            let noise: f64 = StandardNormal.sample(&mut rng);
            let value = 12.0 * (0.8 * noise).exp();
            let decimals = (2 - value.log10().floor() as i32).max(0) as usize;
            format!("{text}{value:.decimals$}\n")
        });
        let report = audit(&text);
        assert!(of(&report, "quantisation").is_empty(), "seed {SEED}, {stream}: {report:?}");
    }
}

/// A table with an id, send times and unrelated latencies; `sent` in seconds.
fn scheduled(rows: impl IntoIterator<Item = (u64, f64)>) -> String {
    let mut rng = rng(3);
    rows.into_iter().fold("id,sent_s,received_s,latency_ms\n".to_owned(), |text, (id, sent)| {
        let delay = 20 + rng.random_range(0..200_u64);
        format!("{text}{id},{sent:.3},{:.3},{delay}\n", sent + delay as f64 / 1_000.0)
    })
}

#[test]
fn clock_steps_have_their_size() {
    for step in [-3_600.0, -5.5, 0.3, 2.0, 3.7, 27.0, 3_600.0] {
        let rows = (0..100).map(|id| (id, 5_000.0 + id as f64 + if id >= 60 { step } else { 0.0 }));
        let report = audit(&scheduled(rows));
        let [finding] = of(&report, "clock-step")[..] else {
            panic!("{step}: {:?}", report.findings)
        };
        assert_eq!(finding.rows, [61], "{step}");
        assert!((finding.value.unwrap() - step * 1e3).abs() < 1e-3, "{step}: {finding:?}");
        assert_eq!(finding.message.matches("row 61").count(), 1, "{finding:?}");
    }
}

#[test]
fn clock_steps_in_a_closed_loop_are_found() {
    for step in [0.0, -3_600.0, 3.7, 3_600.0] {
        let mut rng = rng(4);
        let mut sent = 5_000.0;
        let text = (0..30).fold("sent_s,latency_ms\n".to_owned(), |text, row| {
            let delay = f64::from(rng.random_range(300..900_u16));
            sent += if row == 20 { step } else { 0.0 };
            let line = format!("{text}{sent:.3},{delay}\n");
            sent += 5.0 + delay / 1e3 + 0.01 * rng.random::<f64>();
            line
        });
        let report = audit(&text);
        let found = of(&report, "clock-step");
        assert_eq!(found.len(), usize::from(step != 0.0), "seed {SEED}, {step}: {found:?}");
        for finding in found {
            assert_eq!(finding.rows, [21]);
            assert!((finding.value.unwrap() - step * 1e3).abs() < 11.0, "{finding:?}");
        }
    }
}

#[test]
fn missing_rows_are_no_clock_step() {
    let rows = (0..100).filter(|id| !(40..45).contains(id)).map(|id| (id, id as f64));
    let report = audit(&scheduled(rows));
    assert_eq!(report.findings, []);
    // Without numbers of rows, single and repeated losses are likelier than a pause.
    let lossy = (0..100_u64).filter(|id| id % 17 != 3).map(|id| (0, id as f64));
    let text = scheduled(lossy).replace("id,", "mode,");
    assert!(of(&audit(&text), "clock-step").is_empty());
}

#[test]
fn ten_complete_rows_leave_properties_undecided() {
    let report = audit(&scheduled((0..10).map(|id| (id, 100.0 + id as f64))));
    assert_eq!(report.findings, []);
    for code in [
        "quantisation",
        "time-out-cluster",
        "drift",
        "closed-loop",
        "autocorrelation",
        "percentile",
    ] {
        let count = report.cannot_tell.iter().filter(|one| one.code == code).count();
        assert_eq!(count, 1, "{code}: {:?}", report.cannot_tell);
    }
}

#[test]
fn rising_values_are_one_independent_value() {
    let report = audit(&latencies((0..20).map(|at| 100.0 + f64::from(at)), 1));
    let [finding] = of(&report, "autocorrelation")[..] else { panic!("{:?}", report.findings) };
    assert_eq!(finding.value, Some(1.0));
    assert!(!finding.message.contains("inf"), "{finding:?}");
}
