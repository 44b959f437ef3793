//! Messages to the log. Each is printed once, and again after an hour if its cause persists.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Minimum interval between equal messages.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of messages that are remembered.
const MAX_REMEMBERED: usize = 64;

/// Maximum length of a message in bytes.
const MAX_MESSAGE_LEN: usize = 1_000;

/// Messages that were printed.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    printed: HashMap<String, Instant>,
}

impl Notices {
    /// Prints a message, unless it was printed less than an hour ago.
    pub(crate) fn print(&mut self, message: impl Into<String>) {
        // Parts of it may come from a server.
        let mut message = message.into().replace(char::is_control, " ");
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_LEN));
        if self.is_due(&message, Instant::now()) {
            eprintln!("dwell-uplink: {message}");
        }
    }

    fn is_due(&mut self, message: &str, now: Instant) -> bool {
        self.printed.retain(|_, at| now.duration_since(*at) < REPEAT_INTERVAL);
        if self.printed.contains_key(message) {
            return false;
        }
        if self.printed.len() >= MAX_REMEMBERED
            && let Some(oldest) = self.printed.iter().min_by_key(|(_, at)| **at)
        {
            let oldest = oldest.0.clone();
            self.printed.remove(&oldest);
        }
        self.printed.insert(message.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_are_printed_hourly() {
        let mut notices = Notices::default();
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        assert!(notices.is_due("a", at(0)));
        assert!(notices.is_due("b", at(1)));
        assert!(!notices.is_due("a", at(3_599)));
        assert!(notices.is_due("a", at(3_600)));
        assert!(!notices.is_due("b", at(3_600)));
    }

    #[test]
    fn remembered_messages_are_bounded() {
        let mut notices = Notices::default();
        let start = Instant::now();
        for n in 0..1_000 {
            assert!(notices.is_due(&n.to_string(), start + Duration::from_millis(n)));
        }
        assert_eq!(notices.printed.len(), MAX_REMEMBERED);
    }
}
