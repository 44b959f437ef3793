//! Ages of stored events.

use jiff::Timestamp;

/// Formats the age of a stored time, such as `5 min ago`. A time in the future, after the clock was
/// set back, and an unreadable one are printed themselves.
pub fn ago(at: &str, now: Timestamp) -> String {
    let Ok(then) = at.parse::<Timestamp>() else { return at.to_owned() };
    let seconds = now.as_second() - then.as_second();
    match seconds {
        ..0 => at.to_owned(),
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_one_unit() {
        let now = "2026-11-26T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-11-26T12:00:00Z", "0 s ago"),
            ("2026-11-26T11:58:01Z", "119 s ago"),
            ("2026-11-26T11:58:00Z", "2 min ago"),
            ("2026-11-26T10:00:00Z", "2 h ago"),
            ("2026-11-24T12:00:00Z", "2 days ago"),
            ("2026-11-26T12:00:01Z", "2026-11-26T12:00:01Z"),
            ("long ago", "long ago"),
        ] {
            assert_eq!(ago(at, now), text);
        }
    }
}
