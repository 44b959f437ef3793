//! Verdicts of `dwell run` behind links that tbf limits to a known rate, and without a limit. A
//! correct verdict is at the limit or at most one step of the rates of Mok 2015 below it, never
//! above.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::lab::sibling;
use crate::{Interrupt, finish};

/// Rates of tbf in Mbit/s; `None`: no limit.
const LIMITS: [Option<u32>; 4] = [Some(10), Some(50), Some(100), None];
/// Bytes of the IP packet.
const SIZES: [u32; 3] = [200, 576, 1_500];
/// Rates of Mok 2015 in Mbit/s, the steps of verdicts.
const STEPS: [u32; 6] = [1, 5, 10, 50, 100, 1_000];
/// Minimum verdict without a limit, exclusive, in Mbit/s.
const MIN_UNLIMITED_MBITS: u32 = 100;
const MBIT: u64 = 1_000_000;

/// Plan behind limits, with the most accurate engine that passes the queueing discipline: a sender
/// that sleeps between trains sends their first packets late.
///
/// Rates are the limit and one step to either side. Trains at slow rates are as short as a 95th
/// percentile that tolerates one delayed packet (two wrong gaps) allows; trains at fast rates are
/// many, as they are short. Five blocks keep a disturbance of half a second, the duration of all
/// trains of a cell, from deciding a verdict.
const LIMITED_PLAN: &str = r#"
version = 1
name = "behind-limits"

[topology]
lab = "line:2"
link = { rate = "10Mbit/s", mechanism = "tbf" }

[pace]
from = "n1"
to = "n2"
engine = "spin"
count = 50
repeat = 20
pause = "2ms"

[trials]
repetitions = 5

[matrix]
"topology.link.rate" = ["10Mbit/s", "50Mbit/s", "100Mbit/s"]
size = ["200B", "576B", "1500B"]
rate = ["5Mbit/s", "10Mbit/s", "50Mbit/s"]

[[constraint]]
when = { "topology.link.rate" = "50Mbit/s" }
matrix = { rate = ["10Mbit/s", "50Mbit/s", "100Mbit/s"] }

[[constraint]]
when = { "topology.link.rate" = "100Mbit/s" }
matrix = { rate = ["50Mbit/s", "100Mbit/s", "1Gbit/s"] }

[[constraint]]
when = { rate = "10Mbit/s" }
matrix = { count = [41], repeat = [12] }

[[constraint]]
when = { "topology.link.rate" = "10Mbit/s" }
matrix = { count = [41], repeat = [12] }
"#;

/// Plan without a limit. Mok 2015 has no rate between 100 and 1000 Mbit/s, and at the latter the
/// gap of 200 B, 1.6 us, is the duration of one send.
const UNLIMITED_PLAN: &str = r#"
version = 1
name = "without-a-limit"

[topology]
lab = "line:2"

[pace]
from = "n1"
to = "n2"
engine = "spin"
count = 50
repeat = 80
pause = "2ms"

[trials]
repetitions = 5

[matrix]
size = ["200B", "576B", "1500B"]
rate = ["100Mbit/s", "110Mbit/s", "125Mbit/s", "1Gbit/s"]
"#;

/// A verdict of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LimitVerdict {
    /// Rate of tbf in Mbit/s; `None`: no limit.
    pub(super) limit_mbits: Option<u32>,
    pub(super) ip_size: u32,
    /// As in `dwell show --json`: 0 if not even the smallest rate is kept, `None` if undecided.
    pub(super) largest_rate_bps: Option<u64>,
    /// Reason why it is not larger.
    pub(super) reason: Option<String>,
}

/// Position of a verdict relative to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerdictPosition {
    Right,
    /// More than a step below the limit, or no verdict.
    TooLow,
    TooHigh,
}

impl LimitVerdict {
    pub(super) fn place(&self) -> VerdictPosition {
        let Some(limit) = self.limit_mbits else {
            let above = self.largest_rate_bps > Some(u64::from(MIN_UNLIMITED_MBITS) * MBIT);
            return if above { VerdictPosition::Right } else { VerdictPosition::TooLow };
        };
        let below = STEPS.iter().rev().find(|step| **step < limit).copied().unwrap_or(0);
        let [limit, below] = [limit, below].map(|mbits| Some(u64::from(mbits) * MBIT));
        if self.largest_rate_bps > limit {
            VerdictPosition::TooHigh
        } else if self.largest_rate_bps < below {
            VerdictPosition::TooLow
        } else {
            VerdictPosition::Right
        }
    }

    /// Returns the name of the cell.
    pub(super) fn cell(&self) -> String {
        let limit = self.limit_mbits.map(|limit| format!("{limit} Mbit/s"));
        format!("{}, {} B", limit.as_deref().unwrap_or("no limit"), self.ip_size)
    }

    /// Formats the rate.
    pub(super) fn rate(&self) -> String {
        match self.largest_rate_bps {
            Some(0) => "none".to_owned(),
            Some(bps) => format!("{} Mbit/s", bps / MBIT),
            None => "cannot tell".to_owned(),
        }
    }
}

/// Returns the number of misplaced verdicts in all `runs` runs, and the cell with most of them.
/// `None` if a verdict is missing.
pub(super) fn misplaced(
    found: &[LimitVerdict],
    runs: u64,
    place: VerdictPosition,
    limited: bool,
) -> Option<(f64, Option<String>)> {
    let mut total = 0;
    let mut worst: Option<(usize, String)> = None;
    for limit in LIMITS.into_iter().filter(|limit| limit.is_some() == limited) {
        for size in SIZES {
            let here = || found.iter().filter(|f| f.limit_mbits == limit && f.ip_size == size);
            if runs == 0 || here().count() as u64 != runs {
                return None;
            }
            let misses = here().filter(|found| found.place() == place).count();
            total += misses;
            if misses > worst.as_ref().map_or(0, |(most, _)| *most) {
                worst = here().next().map(|found| (misses, found.cell()));
            }
        }
    }
    Some((total as f64, worst.map(|(_, cell)| cell)))
}

/// Plans and the directory of their runs.
pub(super) struct Experiment<'a> {
    home: TempDir,
    interrupt: &'a Interrupt,
}

impl<'a> Experiment<'a> {
    pub(super) fn new(interrupt: &'a Interrupt) -> Result<Self> {
        let home = tempfile::tempdir().context("cannot create a directory for the runs")?;
        Ok(Self { home, interrupt })
    }

    /// Runs both plans once.
    pub(super) fn verdicts(&self) -> Result<Vec<LimitVerdict>> {
        let mut found = self.run("behind.toml", LIMITED_PLAN)?;
        found.extend(self.run("without.toml", UNLIMITED_PLAN)?);
        Ok(found)
    }

    fn run(&self, name: &str, plan: &str) -> Result<Vec<LimitVerdict>> {
        let plan_file = self.home.path().join(name);
        fs::write(&plan_file, plan).context("cannot write the plan")?;
        let mut run = self.command("run")?;
        run.arg(&plan_file).arg("--quiet");
        self.said(run)?;
        let mut show = self.command("show")?;
        show.arg("last");
        parse(&self.said(show)?)
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(sibling("dwell")?);
        command.args([name, "--json", "--data"]).arg(self.home.path().join("data"));
        Ok(command)
    }

    fn said(&self, command: Command) -> Result<String> {
        let what = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
        let finished = finish(command, self.interrupt)?;
        ensure!(finished.status.success(), "dwell {what} failed: {}", finished.status);
        Ok(finished.stdout)
    }
}

/// Parses the output of `dwell show --json` (dwell.run/1), as far as needed here.
fn parse(shown: &str) -> Result<Vec<LimitVerdict>> {
    #[derive(Deserialize)]
    struct Run {
        verdicts: Vec<Verdict>,
    }
    #[derive(Deserialize)]
    struct Verdict {
        ip_size: u32,
        parameters: Parameters,
        largest_rate_bps: Option<u64>,
        reason: Option<String>,
    }
    #[derive(Deserialize)]
    struct Parameters {
        #[serde(rename = "topology.link.rate")]
        rate: Option<String>,
    }
    let run: Run = serde_json::from_str(shown).context("cannot read the output of dwell show")?;
    let found = |verdict: Verdict| {
        let limit = |rate: String| {
            let mbits = rate.strip_suffix("Mbit/s").and_then(|number| number.parse().ok());
            mbits.with_context(|| format!("unexpected limit {rate}"))
        };
        let Verdict { ip_size, parameters, largest_rate_bps, reason } = verdict;
        let limit_mbits = parameters.rate.map(limit).transpose()?;
        Ok(LimitVerdict { limit_mbits, ip_size, largest_rate_bps, reason })
    };
    run.verdicts.into_iter().map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit_mbits: Option<u32>, mbits: Option<u64>) -> LimitVerdict {
        let largest_rate_bps = mbits.map(|mbits| mbits * MBIT);
        LimitVerdict { limit_mbits, ip_size: 200, largest_rate_bps, reason: None }
    }

    /// Correct verdicts, one per limit and size.
    fn right() -> Vec<LimitVerdict> {
        let of = |limit: Option<u32>| {
            SIZES.map(|ip_size| LimitVerdict {
                ip_size,
                ..found(limit, Some(limit.map_or(1_000, u64::from)))
            })
        };
        LIMITS.into_iter().flat_map(of).collect()
    }

    #[test]
    fn verdict_is_right_at_limit_or_one_step_below() {
        let place = |limit, mbits| found(limit, mbits).place();
        for (limit, right) in [(10, [5, 10]), (50, [10, 50]), (100, [50, 100])] {
            for mbits in right {
                assert_eq!(
                    place(Some(limit), Some(mbits)),
                    VerdictPosition::Right,
                    "{limit} {mbits}"
                );
            }
        }
        assert_eq!(place(Some(10), Some(50)), VerdictPosition::TooHigh);
        assert_eq!(place(Some(50), Some(5)), VerdictPosition::TooLow);
        assert_eq!(place(Some(10), Some(0)), VerdictPosition::TooLow);
        assert_eq!(place(None, Some(100)), VerdictPosition::TooLow);
        assert_eq!(place(None, Some(125)), VerdictPosition::Right);
    }

    #[test]
    fn no_verdict_is_too_low_and_never_too_high() {
        for limit in LIMITS {
            assert_eq!(found(limit, None).place(), VerdictPosition::TooLow);
        }
    }

    #[test]
    fn worst_cell_is_named_per_limit_kind() {
        let mut all = right();
        assert_eq!(misplaced(&all, 1, VerdictPosition::TooHigh, true), Some((0.0, None)));
        all.extend(right());
        all[4].largest_rate_bps = Some(100 * MBIT);
        all[5].largest_rate_bps = Some(100 * MBIT);
        all[17].largest_rate_bps = Some(100 * MBIT);
        let above = misplaced(&all, 2, VerdictPosition::TooHigh, true);
        assert_eq!(above, Some((3.0, Some("50 Mbit/s, 1500 B".to_owned()))));
        assert_eq!(misplaced(&all, 2, VerdictPosition::TooLow, false), Some((0.0, None)));
        all[9].largest_rate_bps = None;
        let low = misplaced(&all, 2, VerdictPosition::TooLow, false);
        assert_eq!(low, Some((1.0, Some("no limit, 200 B".to_owned()))));
    }

    #[test]
    fn missing_verdict_gives_no_value() {
        let mut all = right();
        assert_eq!(misplaced(&all, 2, VerdictPosition::TooHigh, true), None);
        all.remove(0);
        assert_eq!(misplaced(&all, 1, VerdictPosition::TooHigh, true), None);
        assert_eq!(misplaced(&[], 0, VerdictPosition::TooHigh, true), None);
    }

    #[test]
    fn verdicts_are_parsed_with_their_limit() {
        let shown = r#"{"verdicts": [
            {"ip_size": 200, "parameters": {"topology.link.rate": "50Mbit/s"},
             "largest_rate_bps": 10000000, "reason": "50Mbit/s: inaccurate"},
            {"ip_size": 576, "parameters": {}, "largest_rate_bps": null, "reason": null}]}"#;
        let read = parse(shown).unwrap();
        let reason = Some("50Mbit/s: inaccurate".to_owned());
        assert_eq!(read[0], LimitVerdict { reason, ..found(Some(50), Some(10)) });
        assert_eq!(read[1], LimitVerdict { ip_size: 576, ..found(None, None) });
        assert!(
            parse(
                r#"{"verdicts": [{"ip_size": 1, "parameters":
            {"topology.link.rate": "fast"}}]}"#
            )
            .is_err()
        );
    }
}
