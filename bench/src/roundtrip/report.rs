//! What the experiment found: the table for people, the object for programs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::case::Case;
use super::published::Published;
use crate::{Machine, RoundTrips, Table};

/// All that was measured, and on what.
#[derive(Debug)]
pub(super) struct Report {
    /// The machine both nodes stand on.
    pub(super) machine: Machine,
    /// Rate of the measured link.
    pub(super) link_rate: &'static str,
    /// What emulates it.
    pub(super) link_mechanism: String,
    /// Whether the lab needed no root.
    pub(super) rootless: bool,
    /// Round trips asked for, per case.
    pub(super) cycles: u64,
    /// The cases that were measured, whole or in part.
    pub(super) cases: Vec<Measured>,
}

/// One case.
#[derive(Debug)]
pub(super) struct Measured {
    /// Which.
    pub(super) case: Case,
    /// Whether it was interrupted before all cycles were measured.
    pub(super) partial: bool,
    /// Round trips that did not come back in time.
    pub(super) missing: u64,
    /// Reasons to trust the figures less.
    pub(super) warnings: Vec<String>,
    /// The round trips.
    pub(super) round_trips: RoundTrips,
    /// What the loads say they did.
    pub(super) load: Vec<Value>,
    /// Where every cycle is written.
    pub(super) csv: PathBuf,
    /// Where the summary is written.
    pub(super) json: PathBuf,
}

impl Report {
    /// Writes the combined object to `roundtrip.json`.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join("roundtrip.json");
        let text = format!("{:#}\n", self.to_json());
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn to_json(&self) -> Value {
        let cases = self.cases.iter().map(|m| {
            let published = Published::of(m.case, self.cycles);
            json!({
                "case": m.case,
                "partial": m.partial,
                "rtt_ns": m.round_trips,
                "missing": m.missing,
                "warnings": m.warnings,
                "load": m.load,
                "csv": m.csv,
                "json": m.json,
                "published_us": {
                    "min": published.min,
                    "mean": published.mean,
                    "true_mean": published.true_mean,
                    "max": published.max,
                },
            })
        });
        json!({
            "schema": "dwell.roundtrip/1",
            "machine": self.machine,
            "link": { "rate": self.link_rate, "mechanism": self.link_mechanism },
            "rootless": self.rootless,
            "closed_loop": true,
            "cycles": self.cycles,
            "cases": cases.collect::<Vec<_>>(),
            "notes": self.notes(),
            "finding": self.finding(),
        })
    }

    /// What one has to know to read the table.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!("{}; both ends on this machine", self.machine),
            format!(
                "link: {} by {}; closed loop: a cycle starts when the last one ended, so a stall \
                 counts once",
                self.link_rate, self.link_mechanism
            ),
            "percentiles are nearest rank; cycles before the first counted one warm up; '-': the \
             count supports no such figure"
                .to_owned(),
            "published: Raspberry Pi 4 to Pi 3, as printed; its means are those of the distinct \
             values, 'true' is the mean over all cycles of the same data"
                .to_owned(),
        ];
        for measured in &self.cases {
            notes.extend(measured.case.note(self.machine.cores));
            let title = measured.case.title();
            if measured.partial {
                let cycles = measured.round_trips.count + measured.missing;
                notes.push(format!(
                    "{title}: partial, interrupted after {cycles} of {} cycles",
                    self.cycles
                ));
            }
            notes.extend(measured.warnings.iter().map(|warning| format!("{title}: {warning}")));
        }
        notes
    }

    /// What the mean hides, in one sentence: of the case where it hides most.
    fn finding(&self) -> Option<String> {
        self.cases
            .iter()
            .filter_map(Hidden::by_the_mean_of)
            .max_by(|a, b| {
                let (a, b) = (a.tail / a.mean, b.tail / b.mean);
                a.total_cmp(&b)
            })
            .map(|hidden| hidden.to_string())
    }
}

/// A mean beside the tail it stands for, in nanoseconds.
#[derive(Debug)]
struct Hidden {
    case: Case,
    mean: f64,
    tail: f64,
    one_in: u32,
}

impl Hidden {
    fn by_the_mean_of(measured: &Measured) -> Option<Self> {
        let r = &measured.round_trips;
        let (tail, one_in) = match (r.p99_9, r.p99) {
            (Some(tail), _) => (tail, 1000),
            (None, Some(tail)) => (tail, 100),
            (None, None) => return None,
        };
        let mean = r.mean.filter(|mean| *mean > 0.0)?;
        Some(Self { case: measured.case, mean, tail, one_in })
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, mean, tail, one_in } = self;
        write!(
            f,
            "With {}, one cycle in {one_in} took longer than {} us, {:.1} times the mean of {} us",
            case.title(),
            micros(Some(*tail)),
            tail / mean,
            micros(Some(*mean)),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "round trip in us",
            "cycles",
            "missing",
            "min",
            "max",
            "mean",
            "true mean",
            "median",
            "p99",
            "p99.9",
        ]);
        for measured in &self.cases {
            let published = Published::of(measured.case, self.cycles);
            let r = &measured.round_trips;
            let partial = if measured.partial { " (partial)" } else { "" };
            table.row([
                format!("{}, here{partial}", measured.case.title()),
                r.count.to_string(),
                measured.missing.to_string(),
                micros(r.min),
                micros(r.max),
                micros(r.mean),
                micros(r.mean),
                micros(r.p50),
                micros(r.p99),
                micros(r.p99_9),
            ]);
            let absent = || "-".to_owned();
            table.row([
                "  published".to_owned(),
                absent(),
                absent(),
                format!("{:.0}", published.min),
                format!("{:.0}", published.max),
                format!("{:.0}", published.mean),
                published.true_mean.map_or_else(absent, |mean| format!("{mean:.1}")),
                absent(),
                absent(),
                absent(),
            ]);
        }
        writeln!(f, "\n{table}")?;
        if let Some(finding) = self.finding() {
            writeln!(f, "{finding}.\n")?;
        }
        for note in self.notes() {
            writeln!(f, "- {note}")?;
        }
        for measured in &self.cases {
            writeln!(f, "- written: {}, {}", measured.csv.display(), measured.json.display())?;
        }
        Ok(())
    }
}

/// Nanoseconds as microseconds with one decimal.
fn micros(nanos: Option<f64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{:.1}", nanos / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(case: Case, mean: f64, p99_9: Option<f64>) -> Measured {
        let round_trips = RoundTrips {
            count: 50_000,
            min: Some(1e3),
            mean: Some(mean),
            p50: Some(mean),
            p99: Some(mean),
            p99_9,
            max: Some(9e6),
        };
        let (csv, json) = (PathBuf::from("r.csv"), PathBuf::from("r.json"));
        let (partial, missing, warnings, load) = (false, 0, vec![], vec![]);
        Measured { case, partial, missing, warnings, round_trips, load, csv, json }
    }

    fn report(cases: Vec<Measured>) -> Report {
        let machine = Machine {
            date: "2026-11-21".into(),
            kernel: "6.18".into(),
            cpu: "Fast 9".into(),
            cores: 2,
        };
        let link_mechanism = "tbf".to_owned();
        let cycles = 50_000;
        Report { machine, link_rate: "100Mbit/s", link_mechanism, rootless: false, cycles, cases }
    }

    #[test]
    fn the_finding_is_about_the_case_whose_mean_hides_most() {
        let cases =
            vec![measured(Case::Idle, 70e3, Some(140e3)), measured(Case::Cpu, 90e3, Some(4_500e3))];
        assert_eq!(
            report(cases).finding().unwrap(),
            "With CPU load, one cycle in 1000 took longer than 4500.0 us, 50.0 times the mean of \
             90.0 us"
        );
    }

    #[test]
    fn the_published_means_stand_beside_the_true_ones() {
        let text = report(vec![measured(Case::Cpu, 90e3, None)]).to_string();
        let published = text.lines().find(|line| line.contains("published")).unwrap();
        let cells: Vec<&str> = published.split_whitespace().collect();
        assert_eq!(cells, ["published", "-", "-", "160", "12267", "414", "288.4", "-", "-", "-"]);
    }

    #[test]
    fn a_case_that_was_cut_short_is_called_partial_in_table_notes_and_object() {
        let mut cut = measured(Case::Cpu, 90e3, None);
        cut.partial = true;
        cut.round_trips.count = 41_110;
        cut.missing = 5;
        let report = report(vec![measured(Case::Idle, 70e3, None), cut]);
        let text = report.to_string();
        assert!(text.contains("CPU load, here (partial)"), "{text}");
        assert!(text.contains("interrupted after 41115 of 50000 cycles"), "{text}");
        assert!(!text.contains("no load, here (partial)"), "{text}");
        let cases = &report.to_json()["cases"];
        assert_eq!((&cases[0]["partial"], &cases[1]["partial"]), (&json!(false), &json!(true)));
    }

    #[test]
    fn nothing_measured_is_an_empty_table_and_no_finding() {
        let report = report(vec![]);
        assert_eq!(report.finding(), None);
        assert_eq!(report.to_json()["cases"], json!([]));
    }
}
