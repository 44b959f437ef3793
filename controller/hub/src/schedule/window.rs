//! Daily windows of time in UTC.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds of a day. Unix time has no leap seconds.
pub(crate) const DAY_SECONDS: u32 = 86_400;

/// A daily window in UTC, from a time of day to another one; `22:00-06:00` includes midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// First second of the day.
    pub start_s: u32,
    /// The second of the day after the last one.
    pub end_s: u32,
}

impl Window {
    /// Whether the window contains this second of the day.
    pub const fn contains(self, second: u32) -> bool {
        if self.start_s < self.end_s {
            self.start_s <= second && second < self.end_s
        } else {
            self.start_s <= second || second < self.end_s
        }
    }

    /// Length in seconds.
    pub const fn seconds(self) -> u32 {
        let seconds = (self.end_s + DAY_SECONDS - self.start_s) % DAY_SECONDS;
        if seconds == 0 { DAY_SECONDS } else { seconds }
    }

    /// Returns the parts of [from, to) in the window, in ascending order. All are in UTC, in nanoseconds
    /// since 1970.
    pub fn spans(self, from_ns: i64, to_ns: i64) -> Vec<(i64, i64)> {
        const SECOND: i64 = 1_000_000_000;
        const DAY: i64 = DAY_SECONDS as i64 * SECOND;
        let length = i64::from(self.seconds()) * SECOND;
        let mut spans = Vec::new();
        // The window of the previous day may reach into the first day.
        let mut day = from_ns.div_euclid(DAY) * DAY - DAY;
        while day < to_ns {
            let start = day + i64::from(self.start_s) * SECOND;
            let span = (from_ns.max(start), to_ns.min(start + length));
            spans.extend((span.0 < span.1).then_some(span));
            day += DAY;
        }
        spans
    }
}

impl FromStr for Window {
    type Err = String;

    /// Parses `08:00-18:00`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no daily window; write it like 08:00-18:00 (UTC)");
        let second = |time: &str| {
            let (hour, minute) = time.split_once(':')?;
            let is_number =
                |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            if !is_number(hour) || !is_number(minute) {
                return None;
            }
            let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60 || (hour, minute) == (24, 0))
                .then_some((hour * 60 + minute) * 60)
        };
        let (start, end) = text.split_once('-').ok_or_else(wrong)?;
        let start_s = second(start).filter(|start| *start < DAY_SECONDS).ok_or_else(wrong)?;
        let end_s = second(end).ok_or_else(wrong)?;
        if start_s == end_s {
            return Err(format!("'{text}' is empty; leave the window out to measure all day"));
        }
        Ok(Self { start_s, end_s })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: u32| format!("{:02}:{:02}", seconds / 3_600, seconds / 60 % 60);
        write!(f, "{}-{}", time(self.start_s), time(self.end_s))
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_parsed_and_printed() {
        let day: Window = "08:00-18:30".parse().unwrap();
        assert_eq!((day.start_s, day.end_s, day.seconds()), (28_800, 66_600, 37_800));
        assert_eq!(day.to_string(), "08:00-18:30");
        let night: Window = "22:00-06:00".parse().unwrap();
        assert_eq!(night.seconds(), 8 * 3_600);
        assert!(night.contains(23 * 3_600) && night.contains(0) && !night.contains(12 * 3_600));
        assert_eq!("00:00-24:00".parse::<Window>().unwrap().seconds(), DAY_SECONDS);
        for text in ["", "8-18", "08:00", "08:00-08:00", "24:00-08:00", "08:60-09:00", "8:00-9:00"]
        {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    #[test]
    fn window_has_a_span_every_day() {
        const HOUR: i64 = 3_600_000_000_000;
        let hours = |window: &str, from: i64, to: i64| {
            let window: Window = window.parse().unwrap();
            let spans = window.spans(from * HOUR, to * HOUR).into_iter();
            spans.map(|(from, to)| (from / HOUR, to / HOUR)).collect::<Vec<_>>()
        };
        assert_eq!(hours("22:00-06:00", 0, 24), [(0, 6), (22, 24)]);
        assert_eq!(hours("22:00-06:00", 5, 49), [(5, 6), (22, 30), (46, 49)]);
        assert_eq!(hours("22:00-06:00", 7, 21), []);
        assert_eq!(hours("22:00-06:00", -2, 1), [(-2, 1)], "before 1970");
        assert_eq!(hours("00:00-24:00", 5, 7), [(5, 7)]);
    }
}
