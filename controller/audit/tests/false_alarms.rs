//! Clean synthetic tables have no findings, in at least 99 of 100 cases.

use std::fmt::Write as _;

use dwell_audit::{Report, audit_tables, read};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEED: u64 = 20_291;
/// Tables per kind in the normal test; `DWELL_AUDIT_TABLES` overrides it.
const TABLES: u64 = 15;
/// Largest share of clean tables with a finding.
const MAX_FALSE_ALARMS: f64 = 0.01;

/// Distribution of delays.
#[derive(Clone, Copy, Debug)]
enum Delays {
    Normal,
    LogNormal,
    Exponential,
    Uniform,
    Gamma,
    HeavyTail,
}

const DELAYS: [Delays; 6] = [
    Delays::Normal,
    Delays::LogNormal,
    Delays::Exponential,
    Delays::Uniform,
    Delays::Gamma,
    Delays::HeavyTail,
];

/// How programs print delays in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Digits {
    Decimals(usize),
    /// As `%.3g` and `ping` do.
    Significant(usize),
    /// As `%.3e`.
    Exponent(usize),
    /// Rounded, and printed without zeros at the end.
    Shortest(usize),
}

/// How programs print times.
#[derive(Clone, Copy, Debug)]
enum Stamps {
    None,
    /// Time of day with this many decimals of the second.
    Clock(usize),
    /// Date and time as Python's `isoformat()`: six decimals, or none if all are 0. The clock has
    /// this many.
    Iso(usize),
}

/// A kind of clean table.
#[derive(Clone, Copy, Debug)]
struct Kind {
    delays: Delays,
    rows: usize,
    digits: Digits,
    stamps: Stamps,
}

/// Formats of clean tables.
const FORMATS: [(Digits, Stamps); 11] = [
    (Digits::Decimals(0), Stamps::None),
    (Digits::Decimals(1), Stamps::None),
    (Digits::Decimals(3), Stamps::None),
    (Digits::Decimals(0), Stamps::Clock(3)),
    (Digits::Decimals(3), Stamps::Clock(6)),
    (Digits::Decimals(0), Stamps::Iso(3)),
    (Digits::Decimals(3), Stamps::Iso(6)),
    (Digits::Significant(3), Stamps::None),
    (Digits::Significant(4), Stamps::None),
    (Digits::Exponent(3), Stamps::None),
    (Digits::Shortest(2), Stamps::None),
];

/// Prints a delay.
fn printed(value: f64, digits: Digits) -> String {
    match digits {
        Digits::Decimals(decimals) => format!("{value:.decimals$}"),
        Digits::Exponent(decimals) => format!("{value:.decimals$e}"),
        Digits::Shortest(decimals) => {
            let scale = 10_f64.powi(decimals as i32);
            format!("{}", (value * scale).round() / scale)
        }
        Digits::Significant(digits) => {
            // The exponent after rounding, as `%g` has it.
            let exponent: i32 =
                format!("{value:.*e}", digits - 1).split_once('e').unwrap().1.parse().unwrap();
            let decimals = digits as i32 - 1 - exponent;
            let scale = 10_f64.powi(-decimals);
            if decimals > 0 {
                let text = format!("{value:.*}", decimals as usize);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                format!("{}", (value / scale).round() * scale)
            }
        }
    }
}

/// Milliseconds of a day as Python's `isoformat()` prints them.
fn iso(millis: f64, decimals: usize) -> String {
    let text = clock(millis, decimals);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if fraction.bytes().all(|digit| digit == b'0') {
        format!("2024-03-01T{whole}")
    } else {
        format!("2024-03-01T{whole}.{fraction:0<6}")
    }
}

fn delay(kind: Delays, scale: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
    let normal = |rng: &mut Xoshiro256PlusPlus| -> f64 { StandardNormal.sample(rng) };
    let exponential = |rng: &mut Xoshiro256PlusPlus| -> f64 { Exp1.sample(rng) };
    match kind {
        Delays::Normal => (scale * (1.0 + 0.1 * normal(rng))).max(scale * 0.1),
        Delays::LogNormal => scale * (0.4 * normal(rng)).exp(),
        Delays::Exponential => scale * (0.5 + exponential(rng)),
        Delays::Uniform => scale * (0.5 + rng.random::<f64>()),
        Delays::Gamma => scale * (0.2 + exponential(rng) + exponential(rng) + exponential(rng)),
        Delays::HeavyTail => scale * (1.0 + 0.1 * (1.0 / (1.0 - rng.random::<f64>())).powf(0.6)),
    }
}

/// Milliseconds as a time of day.
fn clock(millis: f64, decimals: usize) -> String {
    let seconds =
        (millis / 1_000.0 * 10_f64.powi(decimals as i32)).round() / 10_f64.powi(decimals as i32);
    let whole = seconds.floor();
    let (hours, minutes) = ((whole / 3_600.0).floor(), (whole / 60.0).floor() % 60.0);
    let width = if decimals == 0 { 2 } else { 3 + decimals };
    format!(
        "{hours:02}:{minutes:02}:{:0width$.decimals$}",
        seconds - hours * 3_600.0 - minutes * 60.0
    )
}

/// A clean table: independent delays, and requests on a schedule that does not wait for replies.
fn table(kind: Kind, rng: &mut Xoshiro256PlusPlus) -> String {
    let decimals = if let Digits::Decimals(decimals) = kind.digits { decimals } else { 1 };
    let scale = 10_f64.powf(rng.random::<f64>() * 2.5) + 20.0 * 10_f64.powi(-(decimals as i32));
    let regular: bool = rng.random();
    let interval = scale * 20.0;
    let mut text = String::new();
    text.push_str(match kind.stamps {
        Stamps::None => "seq,latency_ms\n",
        _ => "sent,received,latency_ms\n",
    });
    let mut sent = 3_600_000.0 + rng.random::<f64>() * 36_000_000.0;
    for row in 0..kind.rows {
        let delay = delay(kind.delays, scale, rng);
        let shown = printed(delay, kind.digits);
        let gap: f64 = Exp1.sample(rng);
        sent += interval * if regular { 1.0 } else { gap };
        let _ = match kind.stamps {
            Stamps::None => writeln!(text, "{row},{shown}"),
            Stamps::Clock(digits) => {
                writeln!(text, "{},{},{shown}", clock(sent, digits), clock(sent + delay, digits))
            }
            Stamps::Iso(digits) => {
                writeln!(text, "{},{},{shown}", iso(sent, digits), iso(sent + delay, digits))
            }
        };
    }
    text
}

fn audit(text: &str) -> Report {
    let mut table = read(text.as_bytes(), "table", &[]).unwrap();
    table.name = "table".to_owned();
    audit_tables("table", &[table], true)
}

fn tables() -> u64 {
    std::env::var("DWELL_AUDIT_TABLES").ok().and_then(|n| n.parse().ok()).unwrap_or(TABLES)
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for delays in DELAYS {
        for rows in [10, 13, 30, 100, 1_000] {
            for (digits, stamps) in FORMATS {
                kinds.push(Kind { delays, rows, digits, stamps });
            }
        }
    }
    kinds
}

#[test]
fn clean_tables_have_findings_in_less_than_1_percent() {
    let (mut audited, mut alarms) = (0_u64, Vec::new());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for kind in kinds() {
        // Long tables are slow to write, and few suffice.
        let count = if kind.rows >= 1_000 { tables().div_ceil(6) } else { tables() };
        for _ in 0..count {
            let text = table(kind, &mut rng);
            let report = audit(&text);
            audited += 1;
            if let Some(finding) = report.findings.first() {
                alarms.push(format!("{kind:?}: {}: {}", finding.code, finding.message));
            }
            assert_eq!(report.serious, 0, "seed {SEED}, {kind:?}: {:?}\n{text}", report.findings);
        }
    }
    let share = alarms.len() as f64 / audited as f64;
    println!("seed {SEED}: {} of {audited} clean tables have a finding", alarms.len());
    alarms.iter().for_each(|alarm| println!("  {alarm}"));
    assert!(share < MAX_FALSE_ALARMS, "{share}");
}
