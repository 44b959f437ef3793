//! CPU time taken by the hypervisor (steal time). Measurements with much of it describe the host's
//! other guests.

use std::{fmt, fs};

use anyhow::{Context, Result};
use dwell_host::{CpuTimes, stat};
use serde::Serialize;

/// Maximum share of CPU time that the host may take during a measurement.
const MAX_STEAL_SHARE: f64 = 0.05;

/// Counts measurements repeated because of steal time, and limits their number.
#[derive(Debug, Default, Serialize)]
pub struct StealBudget {
    #[serde(skip)]
    left: u64,
    /// Measurements discarded.
    aside: u64,
    /// Measurements kept despite steal time, because the limit was reached.
    kept: u64,
}

impl StealBudget {
    /// Allows this number of repetitions.
    pub fn new(most: u64) -> Self {
        Self { left: most, ..Self::default() }
    }

    /// Repeats a measurement until its steal time is low or the limit is reached.
    pub fn measure<T>(&mut self, mut measure: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let before = processors()?;
            let measured = measure()?;
            if self.counts(stolen(&before, &processors()?)) {
                return Ok(measured);
            }
        }
    }

    /// Whether a measurement with this share of steal time counts.
    fn counts(&mut self, stolen: f64) -> bool {
        if stolen <= MAX_STEAL_SHARE {
            return true;
        }
        let at_its_end = self.left == 0;
        self.left = self.left.saturating_sub(1);
        *(if at_its_end { &mut self.kept } else { &mut self.aside }) += 1;
        at_its_end
    }
}

impl fmt::Display for StealBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aside, kept, .. } = self;
        let most = MAX_STEAL_SHARE * 100.0;
        write!(
            f,
            "repeated because the host took more than {most} % of the processors: {aside}; kept \
             nevertheless: {kept}"
        )
    }
}

fn processors() -> Result<Vec<CpuTimes>> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    Ok(stat(&text).cpus)
}

/// Returns the share of CPU time that the host took.
fn stolen(before: &[CpuTimes], after: &[CpuTimes]) -> f64 {
    let sum = |cpus: &[CpuTimes], of: fn(&CpuTimes) -> u64| cpus.iter().map(of).sum::<u64>();
    let grew = |of| sum(after, of).saturating_sub(sum(before, of));
    let stolen = grew(|cpu| cpu.stolen);
    let all = stolen + grew(|cpu| cpu.busy) + grew(|cpu| cpu.idle);
    stolen as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_share_covers_all_processors() {
        let cpu = |busy, idle, stolen| CpuTimes { cpu: 0, busy, programs: busy, idle, stolen };
        let before = [cpu(100, 100, 100), cpu(5, 5, 5)];
        assert_eq!(stolen(&before, &before), 0.0);
        assert_eq!(stolen(&before, &[cpu(130, 160, 110), cpu(105, 5, 5)]), 0.05);
    }

    #[test]
    fn disturbed_runs_repeat_until_budget_is_spent() {
        let mut budget = StealBudget::new(2);
        let counts = [0.0, 0.06, 0.05, 1.0, 0.06, 0.0].map(|stolen| budget.counts(stolen));
        assert_eq!(counts, [true, false, true, false, true, true]);
        assert_eq!((budget.aside, budget.kept), (2, 1));
    }

    #[test]
    fn failed_measurement_is_not_repeated() {
        let mut budget = StealBudget::new(1);
        let mut times = 0;
        let failed: Result<()> = budget.measure(|| {
            times += 1;
            anyhow::bail!("no")
        });
        assert!(failed.is_err());
        assert_eq!((times, budget.aside, budget.kept), (1, 0, 0));
    }
}
