//! Resolutions of stored rows, their partitions and their retention.

use std::fmt;

use dwell_rollup::Level;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// Nanoseconds of a day. Unix time has no leap seconds.
pub const DAY_NS: i64 = 86_400 * SECOND_NS;

dwell_units::named! {
    /// Resolution of stored rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Resolution {
        /// 10 s, written by nodes.
        TenSeconds = "10s",
        /// 5 min, written by nodes.
        FiveMinutes = "5m",
        /// 1 h, computed from the rows of 5 min.
        Hour = "1h",
        /// 1 day in UTC, computed from the rows of 5 min.
        Day = "1d",
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Resolution {
    /// The resolution of roll-ups of a level; `None` for samples.
    pub const fn of(level: Level) -> Option<Self> {
        match level {
            Level::Samples => None,
            Level::TenSeconds => Some(Self::TenSeconds),
            Level::FiveMinutes => Some(Self::FiveMinutes),
            Level::Hour => Some(Self::Hour),
            Level::Day => Some(Self::Day),
        }
    }

    /// Length of the interval of a row in nanoseconds.
    pub const fn length_ns(self) -> i64 {
        match self {
            Self::TenSeconds => 10 * SECOND_NS,
            Self::FiveMinutes => 300 * SECOND_NS,
            Self::Hour => 3_600 * SECOND_NS,
            Self::Day => DAY_NS,
        }
    }

    /// Returns the start of the interval that contains this time, both in nanoseconds since 1970.
    pub const fn floor(self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.length_ns()) * self.length_ns()
    }

    /// Returns the middle of the interval of a row that starts at this time. The clock mapping of a node
    /// moves starts by nanoseconds around a boundary, so the middle decides which step, hour, day and
    /// partition a row belongs to.
    pub const fn middle(self, start_ns: i64) -> i64 {
        start_ns.saturating_add(self.length_ns() / 2)
    }

    /// Returns the partition of a row that starts at this time.
    pub const fn partition_of_row(self, start_ns: i64) -> Partition {
        self.partition(self.middle(start_ns))
    }

    /// Length of a partition in days. It is a multiple of a day, so that all rows from which a row of
    /// an hour or a day is computed are in one partition.
    const fn partition_days(self) -> i64 {
        match self {
            Self::TenSeconds | Self::FiveMinutes => 1,
            Self::Hour => 30,
            Self::Day => 360,
        }
    }

    /// Returns the partition that contains this time, in nanoseconds since 1970.
    pub const fn partition(self, time_ns: i64) -> Partition {
        let length = self.partition_days() * DAY_NS;
        let start_ns = time_ns.div_euclid(length) * length;
        Partition { resolution: self, start_ns, end_ns: start_ns.saturating_add(length) }
    }
}

/// A part of the rows of one resolution, by measured time. Retention drops whole partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Resolution of the rows.
    pub resolution: Resolution,
    /// Start of the first row, in nanoseconds since 1970.
    pub start_ns: i64,
    /// End of the partition, in nanoseconds since 1970.
    pub end_ns: i64,
}

impl Partition {
    /// Returns the name of the table with its rows, `rows_RESOLUTION_YYYYMMDD`.
    pub(crate) fn table(self) -> String {
        let start = jiff::Timestamp::from_nanosecond(self.start_ns.into()).map_or_else(
            |_| self.start_ns.to_string(),
            |start| start.strftime("%Y%m%d").to_string(),
        );
        // A minus sign would need quotes.
        format!("rows_{}_{}", self.resolution.name(), start.replace('-', "m"))
    }
}

/// How long rows are kept, and the end of what was dropped already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Days by resolution, in the order of [`Resolution::ALL`].
    days: [u32; 4],
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: [3, 90, 800, 3_660] }
    }
}

/// Longest time for which rows are kept: a century.
const MAX_DAYS: u32 = 36_600;

impl Retention {
    /// Sets the days of a resolution.
    pub fn set(&mut self, resolution: Resolution, days: u32) {
        self.days[resolution as usize] = days;
    }

    /// Days that rows of a resolution are kept.
    pub const fn days(&self, resolution: Resolution) -> u32 {
        self.days[resolution as usize]
    }

    /// Checks that coarser rows are kept at least as long as those from which they are computed.
    ///
    /// # Errors
    /// A coarser resolution is kept for fewer days, or one is kept for less than a day or more than a century.
    pub fn check(&self) -> Result<(), String> {
        for pair in Resolution::ALL.windows(2) {
            let [fine, coarse] = [self.days(pair[0]), self.days(pair[1])];
            if fine > coarse {
                return Err(format!(
                    "{} rows are kept for {fine} days, but {} rows for {coarse}; coarser rows must be \
                     kept at least as long",
                    pair[0], pair[1]
                ));
            }
        }
        if self.days[0] == 0 {
            return Err("rows must be kept for at least 1 day".to_owned());
        }
        if self.days.iter().any(|days| *days > MAX_DAYS) {
            return Err(format!("rows can be kept for at most {MAX_DAYS} days"));
        }
        Ok(())
    }

    /// Returns the time before which partitions of a resolution are dropped.
    pub const fn horizon_ns(&self, resolution: Resolution, now_ns: i64) -> i64 {
        now_ns.saturating_sub((self.days(resolution) as i64).saturating_mul(DAY_NS))
    }
}

/// The time up to which rows of each resolution were dropped, or no longer accepted. It never moves
/// back, so a partition that was dropped is never filled again, and an hour is never computed from a
/// part of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizons {
    /// Nanoseconds since 1970, in the order of [`Resolution::ALL`].
    ns: [i64; 4],
}

impl Default for Horizons {
    fn default() -> Self {
        Self { ns: [i64::MIN; 4] }
    }
}

impl Horizons {
    /// Sets the horizon of a resolution unless it is there or later already.
    pub fn raise(&mut self, resolution: Resolution, to_ns: i64) {
        let horizon = &mut self.ns[resolution as usize];
        *horizon = to_ns.max(*horizon);
    }

    /// The horizon of a resolution.
    pub const fn of(&self, resolution: Resolution) -> i64 {
        self.ns[resolution as usize]
    }

    /// Returns the start of the oldest partition of a resolution that is not dropped.
    pub const fn kept_from(&self, resolution: Resolution) -> i64 {
        match self.of(resolution) {
            i64::MIN => i64::MIN,
            horizon_ns => resolution.partition(horizon_ns).start_ns,
        }
    }

    /// Raises all horizons to those of this retention.
    pub fn raise_all(&mut self, retention: &Retention, now_ns: i64) {
        for resolution in Resolution::ALL {
            self.raise(resolution, retention.horizon_ns(resolution, now_ns));
        }
    }

    /// Whether a partition is dropped. Only whole partitions are.
    pub const fn is_expired(&self, partition: Partition) -> bool {
        partition.end_ns <= self.of(partition.resolution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_contains_whole_days() {
        for resolution in Resolution::ALL {
            let partition = resolution.partition(20_000 * DAY_NS + 5);
            assert_eq!((partition.start_ns % DAY_NS, partition.end_ns % DAY_NS), (0, 0));
            assert!(partition.start_ns <= 20_000 * DAY_NS && 20_001 * DAY_NS <= partition.end_ns);
            assert_eq!(resolution.partition(partition.end_ns - 1), partition);
            assert_ne!(resolution.partition(partition.end_ns), partition);
        }
        let early = 20_000 * DAY_NS - 10;
        for resolution in Resolution::ALL {
            let exact = resolution.partition(20_000 * DAY_NS);
            assert_eq!(resolution.partition_of_row(early), exact, "{resolution}");
        }
        let before = Resolution::Hour.partition(-1);
        assert_eq!(before.end_ns, 0);
        assert_eq!(Resolution::Hour.floor(-1), -3_600 * SECOND_NS);
    }

    #[test]
    fn partition_expires_as_a_whole_and_for_ever() {
        let retention = Retention::default();
        let mut horizons = Horizons::default();
        let now = 20_000 * DAY_NS;
        horizons.raise_all(&retention, now + DAY_NS / 2);
        let day = |before: i64| Resolution::TenSeconds.partition(now - before * DAY_NS);
        assert!(horizons.is_expired(day(4)));
        assert!(!horizons.is_expired(day(3)), "half of it is young enough");
        assert_eq!(horizons.kept_from(Resolution::TenSeconds), day(3).start_ns);
        assert_eq!(Horizons::default().kept_from(Resolution::Day), i64::MIN);
        horizons.raise_all(&retention, now - 100 * DAY_NS);
        assert!(horizons.is_expired(day(4)), "the clock was set back");
    }

    #[test]
    fn retention_grows_with_the_interval() {
        let mut retention = Retention::default();
        assert_eq!(retention.check(), Ok(()));
        retention.set(Resolution::FiveMinutes, 900);
        assert!(retention.check().unwrap_err().contains("5m rows are kept for 900 days"));
        let none = Retention { days: [0, 1, 1, 1] };
        assert!(none.check().unwrap_err().contains("1 day"));
        let endless = Retention { days: [1, 1, 1, u32::MAX] };
        assert!(endless.check().unwrap_err().contains("at most 36600 days"));
        assert!(endless.horizon_ns(Resolution::Day, DAY_NS) < 0, "nothing has expired");
    }
}
