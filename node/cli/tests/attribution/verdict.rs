//! Whether a part rose as it should have.

use std::fmt;

/// Rises of the median of one part, one of each cycle, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rise {
    expected: i64,
    seen: Vec<i64>,
}

/// See [`Rise::judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Right,
    Wrong,
    CannotTell,
}

impl Rise {
    pub(crate) fn expected(expected: i64) -> Self {
        Self { expected, seen: Vec::new() }
    }

    pub(crate) fn note(&mut self, rise: i64) {
        self.seen.push(rise);
        self.seen.sort_unstable();
    }

    /// Within 2 us or 5 % where it was held; elsewhere by less than 2 us.
    fn limit(&self) -> i64 {
        (self.expected / 20).max(2_000)
    }

    fn median(&self) -> i64 {
        self.seen[self.seen.len() / 2]
    }

    /// Where the median of all possible cycles lies with at least 93 %: between two order
    /// statistics (the sign test's interval), here the outermost up to seven cycles.
    fn interval(&self) -> (i64, i64) {
        let n = self.seen.len();
        let cut = match n {
            0..=7 => 0,
            8..=10 => 1,
            11..=12 => 2,
            _ => 3,
        };
        (self.seen[cut], self.seen[n - 1 - cut])
    }

    /// Right where the whole interval is within the limit, wrong where none of it is.
    pub(crate) fn judge(&self) -> Judged {
        let (low, high) = self.interval();
        match (self.is_within(low) && self.is_within(high), self.median_is_within()) {
            (true, _) => Judged::Right,
            (false, true) => Judged::CannotTell,
            (false, false) if self.reaches_in(low, high) => Judged::CannotTell,
            (false, false) => Judged::Wrong,
        }
    }

    /// Whether the median of all cycles is within the limit.
    pub(crate) fn median_is_within(&self) -> bool {
        self.is_within(self.median())
    }

    fn is_within(&self, rise: i64) -> bool {
        (rise - self.expected).abs() < self.limit()
    }

    fn reaches_in(&self, low: i64, high: i64) -> bool {
        low < self.expected + self.limit() && high > self.expected - self.limit()
    }
}

impl fmt::Display for Rise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: i64| nanos as f64 / 1e3;
        let (low, high) = self.interval();
        write!(
            f,
            "{:+.2} [{:+.2} {:+.2}] us {:?}",
            micros(self.median()),
            micros(low),
            micros(high),
            self.judge()
        )
    }
}

#[test]
fn a_rise_is_right_only_where_it_could_have_been_found_wrong() {
    let of = |expected, seen: &[i64]| {
        let mut rise = Rise::expected(expected);
        seen.iter().for_each(|seen| rise.note(*seen));
        rise.judge()
    };
    assert_eq!(of(0, &[100, -300, 200, 900, -800]), Judged::Right);
    assert_eq!(of(0, &[100, -300, 200, 9_000, -800]), Judged::CannotTell);
    assert_eq!(of(0, &[3_000, 9_000, 2_500, 2_700, 2_600]), Judged::Wrong);
    assert_eq!(of(200_000, &[209_000, 201_000, 200_000, 202_000, 203_000]), Judged::Right);
    assert_eq!(of(20_000, &[23_000, 24_000, 22_500, 23_000, 25_000]), Judged::Wrong);
}
