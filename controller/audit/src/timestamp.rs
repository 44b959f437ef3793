//! Printed times: ISO 8601, or hours, minutes and seconds.

/// Nanoseconds per day.
pub(crate) const DAY_NANOS: i64 = 86_400_000_000_000;

/// A printed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// Nanoseconds since the epoch, or since midnight without a date.
    pub nanos: i64,
    /// Number of digits after the point of the seconds.
    pub decimals: u8,
    /// Whether the text has a date.
    pub dated: bool,
}

/// A reason why a time is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampFault {
    /// The text is not a time at all.
    NotATime,
    /// A field is out of range; the name of the field.
    OutOfRange(&'static str),
    /// A field has an unusual number of digits; the name of the field.
    Digits(&'static str),
}

impl TimestampFault {
    /// Describes the fault.
    pub(crate) fn text(self) -> String {
        match self {
            Self::NotATime => "is not a time (ISO 8601 or HH:MM:SS.fff)".to_owned(),
            Self::OutOfRange(field) => format!("has an impossible {field}"),
            Self::Digits(field) => format!("has a {field} that is not two digits"),
        }
    }
}

/// Maximum number of digits after the point; nanoseconds have nine, more are ignored.
const MAX_DECIMALS: u8 = 18;

/// Parses `HH:MM:SS[.fff]` or `YYYY-MM-DD[T ]HH:MM:SS[.fff][Z|+HH[:MM]]`, also with `/` in the date
/// and with a comma as the point.
pub(crate) fn parse(text: &[u8]) -> Result<Timestamp, TimestampFault> {
    use TimestampFault::{NotATime, OutOfRange};
    let (days, clock) = match date(text)? {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let mut rest = clock;
    let hour = two(&mut rest, "hour")?;
    colon(&mut rest)?;
    let minute = two(&mut rest, "minute")?;
    colon(&mut rest)?;
    let second = two(&mut rest, "second")?;
    let mut nanos = 0_i64;
    let mut decimals = 0_u8;
    if let [b'.' | b',', fraction @ ..] = rest {
        rest = fraction;
        let mut scale = 100_000_000;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            nanos += i64::from(digit - b'0') * scale;
            scale /= 10;
            decimals += 1;
            rest = tail;
            if decimals > MAX_DECIMALS {
                return Err(NotATime);
            }
        }
        if decimals == 0 {
            return Err(NotATime);
        }
    }
    let zone = zone(rest, days.is_some())?;
    if hour > 23 {
        return Err(OutOfRange("hour"));
    }
    if minute > 59 {
        return Err(OutOfRange("minute"));
    }
    // A leap second is 60.
    if second > 60 {
        return Err(OutOfRange("second"));
    }
    let seconds = (hour * 60 + minute) * 60 + second - zone;
    let nanos = days.unwrap_or(0) * DAY_NANOS + seconds * 1_000_000_000 + nanos;
    Ok(Timestamp { nanos, decimals, dated: days.is_some() })
}

/// Whether text resembles a time, even a malformed one: digits with a colon between them.
pub(crate) fn resembles(text: &[u8]) -> bool {
    let is_time = |b: &u8| b.is_ascii_digit() || b":.,-/TZ+ ".contains(b);
    text.first().is_some_and(u8::is_ascii_digit)
        && text.iter().filter(|b| **b == b':').count() >= 1
        && text.iter().all(is_time)
}

/// Splits off a date. Returns days since the epoch and the time.
fn date(text: &[u8]) -> Result<Option<(i64, &[u8])>, TimestampFault> {
    use TimestampFault::{NotATime, OutOfRange};
    let is_date = text.len() > 10
        && text[..4].iter().all(u8::is_ascii_digit)
        && matches!(text[4], b'-' | b'/')
        && text[7] == text[4];
    if !is_date {
        return Ok(None);
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_i64, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
        })
    };
    let (Some(year), Some(month), Some(day)) =
        (number(&text[..4]), number(&text[5..7]), number(&text[8..10]))
    else {
        return Err(NotATime);
    };
    if !(1..=12).contains(&month) {
        return Err(OutOfRange("month"));
    }
    // Nanoseconds of later years do not fit 64 bits.
    if !(1700..=2250).contains(&year) {
        return Err(OutOfRange("year"));
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=length).contains(&day) {
        return Err(OutOfRange("day"));
    }
    match text[10] {
        b'T' | b't' | b' ' | b'_' => Ok(Some((days_since_epoch(year, month, day), &text[11..]))),
        _ => Err(NotATime),
    }
}

/// Days since 1970-01-01 in the Gregorian calendar, counted in years that start in March, which put
/// the leap day last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

/// Parses the offset from UTC, in seconds.
fn zone(text: &[u8], dated: bool) -> Result<i64, TimestampFault> {
    use TimestampFault::NotATime;
    match text {
        [] => Ok(0),
        [b'Z' | b'z'] => Ok(0),
        [sign @ (b'+' | b'-'), rest @ ..] if dated => {
            let mut rest = rest;
            let hours = two(&mut rest, "time zone")?;
            if let [b':', tail @ ..] = rest {
                rest = tail;
            }
            let minutes = if rest.is_empty() { 0 } else { two(&mut rest, "time zone")? };
            if !rest.is_empty() || hours > 18 || minutes > 59 {
                return Err(NotATime);
            }
            let seconds = (hours * 60 + minutes) * 60;
            Ok(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => Err(NotATime),
    }
}

fn colon(rest: &mut &[u8]) -> Result<(), TimestampFault> {
    match rest {
        [b':', tail @ ..] => {
            *rest = tail;
            Ok(())
        }
        _ => Err(TimestampFault::NotATime),
    }
}

/// Takes a field of exactly two digits.
fn two(rest: &mut &[u8], field: &'static str) -> Result<i64, TimestampFault> {
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    match digits {
        0 => Err(TimestampFault::NotATime),
        2 => {
            let value = i64::from(rest[0] - b'0') * 10 + i64::from(rest[1] - b'0');
            *rest = &rest[2..];
            Ok(value)
        }
        _ => Err(TimestampFault::Digits(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i64 {
        parse(text.as_bytes()).unwrap().nanos
    }

    #[test]
    fn times_of_day_and_dates_are_nanoseconds() {
        assert_eq!(nanos("18:23:04.173"), 66_184_173_000_000);
        assert_eq!(nanos("1970-01-01T00:00:01Z"), 1_000_000_000);
        assert_eq!(nanos("2021-11-15T12:00:00.5+01:00"), 1_636_974_000_500_000_000);
        assert_eq!(nanos("2000-03-01 00:00:00"), 951_868_800_000_000_000);
        assert_eq!(parse(b"20:58:04.7464").unwrap().decimals, 4);
        assert_eq!(nanos("18:23:04,173"), nanos("18:23:04.173"));
    }

    #[test]
    fn malformed_times_are_refused_with_a_reason() {
        use TimestampFault::{Digits, NotATime, OutOfRange};
        for (text, fault) in [
            ("18:61:04.173", OutOfRange("minute")),
            ("25:00:00", OutOfRange("hour")),
            ("18:23:4.173", Digits("second")),
            ("18:23.173", NotATime),
            ("18:23:04.", NotATime),
            ("18:23:04.1.2", NotATime),
            ("", NotATime),
            ("yesterday", NotATime),
            ("2021-13-01T00:00:00", OutOfRange("month")),
            ("2021-02-29T00:00:00", OutOfRange("day")),
            ("2021-02-28T00:00:00+1", Digits("time zone")),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(fault), "{text}");
        }
    }
}
