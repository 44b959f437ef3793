//! Results of the experiment: table for the terminal, JSON object for programs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::case::Case;
use super::product::{Run, Warning};
use super::published::Published;
use crate::{Machine, RoundTrips, Table};

/// All results, with the machine.
#[derive(Debug)]
pub(super) struct Report {
    /// Machine that hosts both nodes.
    pub(super) machine: Machine,
    /// Name of the run.
    pub(super) run: String,
    /// How the run ended, as text.
    pub(super) end: String,
    /// Rate of the measured link.
    pub(super) link_rate: Option<String>,
    /// Emulation of the link.
    pub(super) link_mechanism: Option<String>,
    /// Whether the lab was created without root.
    pub(super) rootless: bool,
    /// Requested round trips per case.
    pub(super) cycles: Option<u64>,
    /// Cases that were measured.
    pub(super) cases: Vec<Measured>,
    /// Requested cases that were not measured, with the reason.
    pub(super) missing: Vec<(Case, String)>,
    /// Findings of `dwell show`.
    pub(super) findings: Vec<String>,
    /// Output files; `None` if nothing was measured.
    pub(super) written: Option<Written>,
}

/// Output files of an experiment.
#[derive(Debug)]
pub(super) struct Written {
    /// HTML report.
    pub(super) report: PathBuf,
    /// CSV of every cycle.
    pub(super) csv: PathBuf,
    /// JSON object of [`Report`].
    pub(super) json: PathBuf,
}

/// Results of one case.
#[derive(Debug)]
pub(super) struct Measured {
    /// The case.
    pub(super) case: Case,
    /// Round trips without a reply in time.
    pub(super) missing: u64,
    /// Warnings about the figures.
    pub(super) warnings: Vec<String>,
    /// Distribution of round trips.
    pub(super) round_trips: RoundTrips,
    /// Summaries of the loads.
    pub(super) load: Vec<Value>,
}

impl Measured {
    /// Returns the results of a case; `None` if it was not measured.
    pub(super) fn of(case: Case, run: &Run) -> Option<Self> {
        let trials: Vec<_> = run.trials(case).filter(|trial| trial.state == "finished").collect();
        let metrics = trials.iter().filter_map(|trial| trial.metrics.as_ref()?.get("rtt_ns"));
        let packets = trials.iter().filter_map(|trial| trial.packets.as_ref());
        let trusts = trials.iter().filter_map(|trial| trial.trust.as_ref());
        let warnings = repeated(trusts.flat_map(|trust| &trust.warnings), trials.len());
        Some(Self {
            case,
            missing: packets.map(|all| all.sent.saturating_sub(all.received)).sum(),
            warnings,
            round_trips: together(&metrics.collect::<Vec<_>>())?,
            load: trials.iter().flat_map(|trial| trial.loads.clone()).collect(),
        })
    }
}

/// Merges warnings of one code about one machine; each is printed once, with the number of trials.
fn repeated<'a>(warnings: impl Iterator<Item = &'a Warning>, trials: usize) -> Vec<String> {
    let mut merged: Vec<(&Warning, usize)> = Vec::new();
    for warning in warnings {
        let is_same = |known: &Warning| (&known.code, &known.on) == (&warning.code, &warning.on);
        match merged.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, times)) => *times += 1,
            None => merged.push((warning, 1)),
        }
    }
    let text = |(first, times): (&Warning, usize)| match times {
        1 => first.text.clone(),
        times => format!("{} (in {times} of {trials} trials, numbers vary)", first.text),
    };
    merged.into_iter().map(text).collect()
}

/// Merges the trials of a case: count, extremes and mean over all cycles, percentiles as medians
/// over trials. `None` without trials.
fn together(trials: &[&RoundTrips]) -> Option<RoundTrips> {
    let all = |of: fn(&RoundTrips) -> Option<f64>| -> Option<Vec<f64>> {
        let mut values: Vec<f64> = trials.iter().map(|trial| of(trial)).collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(values)
    };
    let median = |of| all(of).map(|values| values[(values.len() - 1) / 2]);
    let count: u64 = trials.iter().map(|trial| trial.count).sum();
    let total =
        trials.iter().map(|trial| Some(trial.mean? * trial.count as f64)).sum::<Option<f64>>();
    (!trials.is_empty()).then(|| RoundTrips {
        count,
        min: all(|r| r.min).map(|values| values[0]),
        mean: total.filter(|_| count > 0).map(|total| total / count as f64),
        p50: median(|r| r.p50),
        p99: median(|r| r.p99),
        p99_9: median(|r| r.p99_9),
        max: all(|r| r.max).and_then(|values| values.last().copied()),
    })
}

/// Returns the case and why it is incomplete; `None` if it is complete.
pub(super) fn missing(case: Case, run: &Run) -> Option<(Case, String)> {
    let mut failed = run.trials(case).filter(|trial| trial.state != "finished").peekable();
    let all = run.trials(case).count();
    let first = failed.peek().copied();
    if first.is_none() && Measured::of(case, run).is_some() {
        return None;
    }
    let reason = first.and_then(|trial| trial.reason.clone());
    let reason = reason.unwrap_or_else(|| "the run ended early".to_owned());
    Some(match failed.count() {
        missing if missing < all => {
            (case, format!("{missing} of {all} trials were not measured: {reason}"))
        }
        _ => (case, format!("was not measured: {reason}")),
    })
}

impl Report {
    /// Writes the JSON object.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = format!("{:#}\n", self.to_json());
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn to_json(&self) -> Value {
        let cases = self.cases.iter().map(|m| {
            let published = self.published(m.case);
            json!({
                "case": m.case,
                "rtt_ns": m.round_trips,
                "missing": m.missing,
                "warnings": m.warnings,
                "load": m.load,
                "published_us": {
                    "min": published.min,
                    "mean": published.mean,
                    "true_mean": published.true_mean,
                    "max": published.max,
                },
            })
        });
        json!({
            "schema": "dwell.roundtrip/2",
            "run": self.run,
            "end": self.end,
            "partial": !self.missing.is_empty(),
            "machine": self.machine,
            "link": { "rate": self.link_rate, "mechanism": self.link_mechanism },
            "rootless": self.rootless,
            "closed_loop": true,
            "cycles": self.cycles,
            "cases": cases.collect::<Vec<_>>(),
            "notes": self.notes(),
            "finding": self.finding(),
            "findings": self.findings,
            "report": self.written.as_ref().map(|written| &written.report),
            "csv": self.written.as_ref().map(|written| &written.csv),
        })
    }

    fn published(&self, case: Case) -> Published {
        Published::of(case, self.cycles.unwrap_or(0))
    }

    /// Returns notes on how to read the table.
    fn notes(&self) -> Vec<String> {
        let unknown = || "unknown".to_owned();
        let mut notes: Vec<String> = Vec::new();
        for (case, reason) in &self.missing {
            notes.push(format!("partial: {} {reason}", case.title()));
        }
        notes.extend([
            format!("{}; both ends on this machine", self.machine),
            format!(
                "link: {} by {}; closed loop: a cycle starts when the last one ended, so a stall \
                 counts once",
                self.link_rate.clone().unwrap_or_else(unknown),
                self.link_mechanism.clone().unwrap_or_else(unknown)
            ),
            "percentiles: nearest rank, median over the trials of a case; warm-up cycles are not \
             counted; '-': too few cycles"
                .to_owned(),
            "published: Raspberry Pi 4 to Pi 3, as printed; its means are those of the distinct \
             values, 'true' is the mean over all cycles of the same data"
                .to_owned(),
        ]);
        for measured in &self.cases {
            notes.extend(measured.case.note().map(str::to_owned));
            let title = measured.case.title();
            for load in &measured.load {
                let warnings = load["trust"]["warnings"].as_array().into_iter().flatten();
                let said = warnings.filter_map(|warning| warning["text"].as_str());
                let said = said.map(|warning| format!("{title}: of the load: {warning}"));
                for note in reached(title, load).into_iter().chain(said) {
                    // Trials may repeat a note.
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
            notes.extend(measured.warnings.iter().map(|warning| format!("{title}: {warning}")));
        }
        notes
    }

    /// Returns one sentence on the case whose mean hides the longest tail.
    fn finding(&self) -> Option<String> {
        self.cases
            .iter()
            .filter_map(HiddenTail::by_the_mean_of)
            .max_by(|a, b| {
                let (a, b) = (a.tail / a.mean, b.tail / b.mean);
                a.total_cmp(&b)
            })
            .map(|hidden| hidden.to_string())
    }
}

/// A mean and the tail that it hides, in nanoseconds.
#[derive(Debug)]
struct HiddenTail {
    case: Case,
    mean: f64,
    tail: f64,
    one_in: u32,
}

impl HiddenTail {
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

impl fmt::Display for HiddenTail {
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
            let published = self.published(measured.case);
            let r = &measured.round_trips;
            table.row([
                format!("{}, here", measured.case.title()),
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
        if !self.findings.is_empty() {
            writeln!(f, "\nFindings of run {} (dwell show {0}):", self.run)?;
        }
        for finding in &self.findings {
            writeln!(f, "- {finding}")?;
        }
        let Some(Written { report, csv, json }) = &self.written else {
            return writeln!(f, "\nrun {}: {}; nothing was measured", self.run, self.end);
        };
        writeln!(f, "\nevery cycle: {}\nthe table: {}", csv.display(), json.display())?;
        writeln!(f, "the report: {}", report.display())
    }
}

/// Describes the load that was reached.
fn reached(title: &str, load: &Value) -> Option<String> {
    let number = |of: &str, name: &str| load[of][name].as_f64();
    let (asked, got) = (number("parameters", "rate_bps"), number("values", "rate_bps"));
    if let Some((asked, got)) = asked.zip(got) {
        let target = load["target"].as_str().unwrap_or_default();
        return Some(format!(
            "{title}: traffic to {target} reached {:.1} of {:.1} Mbit/s",
            got / 1e6,
            asked / 1e6
        ));
    }
    let (asked, got) = (number("values", "asked_ratio")?, number("values", "burnt_ratio")?);
    let cpus = load["parameters"]["cpus"].as_array().map_or(0, Vec::len);
    Some(format!(
        "{title}: {cpus} burners, one per core, burnt {:.1} of {:.1} % of their cores",
        got * 100.0,
        asked * 100.0
    ))
}

/// Formats nanoseconds as microseconds with one decimal.
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
        Measured { case, missing: 0, warnings: vec![], round_trips, load: vec![] }
    }

    fn report(cases: Vec<Measured>) -> Report {
        Report {
            machine: Machine {
                date: "2026-11-21".into(),
                kernel: "6.18".into(),
                cpu: "Fast 9".into(),
                cores: 2,
            },
            run: "20261121-1".into(),
            end: "complete".into(),
            link_rate: Some("100Mbit/s".into()),
            link_mechanism: Some("tbf".into()),
            rootless: false,
            cycles: Some(50_000),
            cases,
            missing: vec![],
            findings: vec!["It took long.".into()],
            written: Some(Written {
                report: "r.html".into(),
                csv: "r.csv".into(),
                json: "r.json".into(),
            }),
        }
    }

    #[test]
    fn warnings_of_one_code_are_merged() {
        let warnings = [
            ("run-queue-wait", "waited 48 ms"),
            ("run-queue-wait", "waited 7 ms"),
            ("clock-stepped", "a clock was stepped"),
        ]
        .map(|(code, text)| Warning { code: code.into(), text: text.into(), on: None });
        let merged = repeated(warnings.iter(), 3);
        let expected = ["waited 48 ms (in 2 of 3 trials, numbers vary)", "a clock was stepped"];
        assert_eq!(merged, expected);
    }

    #[test]
    fn finding_picks_case_with_longest_hidden_tail() {
        let cases =
            vec![measured(Case::Idle, 70e3, Some(140e3)), measured(Case::Cpu, 90e3, Some(4_500e3))];
        assert_eq!(
            report(cases).finding().unwrap(),
            "With CPU load, one cycle in 1000 took longer than 4500.0 us, 50.0 times the mean of \
             90.0 us"
        );
    }

    #[test]
    fn published_and_true_means_are_shown() {
        let text = report(vec![measured(Case::Cpu, 90e3, None)]).to_string();
        let published = text.lines().find(|line| line.contains("published")).unwrap();
        let cells: Vec<&str> = published.split_whitespace().collect();
        assert_eq!(cells, ["published", "-", "-", "160", "12267", "414", "288.4", "-", "-", "-"]);
    }

    #[test]
    fn reached_load_is_noted() {
        let mut loaded = measured(Case::Network, 90e3, None);
        loaded.load = vec![
            json!({"target": "udp://n2:5001", "parameters": {"rate_bps": 80e6},
                   "values": {"rate_bps": 79.96e6}}),
            json!({"parameters": {"cpus": [0, 1]},
                   "values": {"asked_ratio": 0.5, "burnt_ratio": 0.494},
                   "trust": {"warnings": [{"code": "cpu-level-missed",
                                          "text": "others used these CPUs"}]}}),
        ];
        let text = report(vec![loaded]).to_string();
        assert!(text.contains("traffic to udp://n2:5001 reached 80.0 of 80.0 Mbit/s"), "{text}");
        assert!(text.contains("2 burners, one per core, burnt 49.4 of 50.0 %"), "{text}");
        assert!(text.contains("of the load: others used these CPUs"), "{text}");
    }

    #[test]
    fn unmeasured_case_makes_report_partial() {
        let mut cut = report(vec![measured(Case::Idle, 70e3, None)]);
        assert_eq!(cut.to_json()["partial"], json!(false));
        cut.missing = vec![(Case::Cpu, "was not measured: interrupted".into())];
        assert_eq!(cut.to_json()["partial"], json!(true));
        let text = cut.to_string();
        assert!(text.contains("partial: CPU load was not measured: interrupted"), "{text}");
    }

    #[test]
    fn trials_of_a_case_merge_into_one_row() {
        let trial = |count, mean, p50, p99_9| RoundTrips {
            count,
            min: Some(mean / 2.0),
            mean: Some(mean),
            p50: Some(p50),
            p99: Some(p50),
            p99_9,
            max: Some(mean * 9.0),
        };
        let (a, b) = (trial(100, 10.0, 9.0, Some(50.0)), trial(300, 20.0, 8.0, None));
        let c = trial(100, 30.0, 70.0, Some(60.0));
        let whole = together(&[&a, &b, &c]).unwrap();
        assert_eq!((whole.count, whole.min, whole.max), (500, Some(5.0), Some(270.0)));
        assert_eq!((whole.mean, whole.p50, whole.p99_9), (Some(20.0), Some(9.0), None));
        assert!(together(&[]).is_none());
    }

    #[test]
    fn report_ends_with_findings_and_path() {
        let text = report(vec![measured(Case::Idle, 70e3, None)]).to_string();
        assert!(text.contains("- It took long.\n"), "{text}");
        assert!(text.ends_with("the report: r.html\n"), "{text}");
    }

    #[test]
    fn no_measurement_has_no_finding_and_no_file() {
        let mut nothing = report(vec![]);
        nothing.written = None;
        assert_eq!(nothing.finding(), None);
        assert_eq!(
            (&nothing.to_json()["cases"], &nothing.to_json()["csv"]),
            (&json!([]), &Value::Null)
        );
        assert!(nothing.to_string().ends_with("nothing was measured\n"));
    }
}
