//! Runs of consecutive losses (loss periods of RFC 3357, by id).

use std::collections::BTreeMap;

/// Runs of lost probes, recorded in order of id. Memory grows with the number of different lengths,
/// which is below the square root of twice the number of probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossRuns {
    ended: BTreeMap<u64, u64>,
    open: u64,
}

impl LossRuns {
    /// Creates an empty record.
    pub const fn new() -> Self {
        Self { ended: BTreeMap::new(), open: 0 }
    }

    /// Records the next probe in order of id. The caller decides whether a late reply counts as
    /// lost.
    pub fn record(&mut self, lost: bool) {
        if lost {
            self.open += 1;
        } else if self.open > 0 {
            *self.ended.entry(self.open).or_default() += 1;
            self.open = 0;
        }
    }

    /// Number of runs, including one that lasts to the last probe.
    pub fn count(&self) -> u64 {
        self.lengths().map(|(_, runs)| runs).sum()
    }

    /// Number of lost probes.
    pub fn lost(&self) -> u64 {
        self.lengths().map(|(length, runs)| length * runs).sum()
    }

    /// Length of the longest run; `None` without loss.
    pub fn longest(&self) -> Option<u64> {
        self.lengths().map(|(length, _)| length).max()
    }

    /// Mean length of the runs; `None` without loss.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.lost() as f64 / count as f64)
    }

    /// Each length with its number of runs, shortest first.
    pub fn lengths(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut lengths = self.ended.clone();
        if self.open > 0 {
            *lengths.entry(self.open).or_default() += 1;
        }
        lengths.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(losses: &[bool]) -> LossRuns {
        let mut runs = LossRuns::new();
        losses.iter().for_each(|&lost| runs.record(lost));
        runs
    }

    #[test]
    fn open_run_is_counted_and_can_grow() {
        let mut runs = of(&[true, false, true]);
        assert_eq!((runs.count(), runs.longest(), runs.mean()), (2, Some(1), Some(1.0)));
        runs.record(true);
        assert_eq!((runs.count(), runs.longest(), runs.mean()), (2, Some(2), Some(1.5)));
        assert_eq!(runs.lengths().collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    }

    #[test]
    fn without_loss_there_is_no_longest_run() {
        let runs = of(&[false; 5]);
        assert_eq!((runs.count(), runs.lost(), runs.longest(), runs.mean()), (0, 0, None, None));
    }

    proptest! {
        #[test]
        fn runs_match_a_split_at_every_reply(
            losses in proptest::collection::vec(proptest::bool::weighted(0.6), 0..300),
        ) {
            let mut naive: Vec<u64> = losses
                .split(|lost| !lost)
                .map(|run| run.len() as u64)
                .filter(|&length| length > 0)
                .collect();
            naive.sort_unstable();
            let runs = of(&losses);
            let found: Vec<u64> =
                runs.lengths().flat_map(|(length, n)| (0..n).map(move |_| length)).collect();
            prop_assert_eq!(&found, &naive);
            prop_assert_eq!(runs.count(), naive.len() as u64);
            prop_assert_eq!(runs.longest(), naive.last().copied());
            prop_assert_eq!(runs.lost(), losses.iter().filter(|&&lost| lost).count() as u64);
        }
    }
}
