//! Salts seen by a receiver of sealed datagrams, so that it accepts no packet twice.
//!
//! The salts used last have a replay window each. For all others the highest packet counter is
//! remembered: later packets pass, earlier ones count as too old. The table is bounded and forgets
//! nothing; when it is full, packets with further salts are refused.

use std::collections::HashMap;

use crate::replay::{Place, Window};

/// Length of the replay window of a salt, in packets.
pub const WINDOW: u32 = 1_024;

/// Maximum number of salts with a window.
const MAX_WINDOWS: usize = 64;

/// Maximum number of salts remembered.
pub const MAX_SALTS: usize = 16_384;

/// Reason why a packet counter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The packet was accepted before.
    Replayed,
    /// The packet is older than the window, so whether it was accepted is unknown.
    TooOld,
    /// The salt is new, and the table is full.
    Full,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct SaltWindows {
    windows: Vec<SaltWindow>,
    /// Index of the window used last.
    last: usize,
    /// Sequence number of the latest use of a window.
    uses: u64,
    /// Highest counter of every salt, as of the last time the salt had no window.
    highest: HashMap<u64, u32>,
}

#[derive(Debug)]
struct SaltWindow {
    salt: u64,
    window: Window,
    bits: [u64; Window::words(WINDOW)],
    used: u64,
}

impl Default for SaltWindows {
    fn default() -> Self {
        Self {
            windows: Vec::with_capacity(MAX_WINDOWS),
            last: 0,
            uses: 0,
            highest: HashMap::with_capacity(MAX_SALTS),
        }
    }
}

impl SaltWindows {
    /// Checks a packet before its tag is verified. Changes nothing.
    ///
    /// # Errors
    /// The reason why the packet must not be accepted.
    pub fn check(&self, salt: u64, counter: u32) -> Result<(), Stale> {
        if let Some(n) = self.find(salt) {
            let SaltWindow { window, bits, .. } = &self.windows[n];
            // Counters of a salt never wrap, so one that is ahead only in serial arithmetic is old.
            let is_ahead = counter > window.highest();
            return match window.place(counter, bits) {
                Place::Ahead(_) if is_ahead => Ok(()),
                Place::Unmarked => Ok(()),
                Place::Marked => Err(Stale::Replayed),
                Place::Ahead(_) | Place::TooOld => Err(Stale::TooOld),
            };
        }
        match self.highest.get(&salt) {
            Some(highest) if counter > *highest => Ok(()),
            Some(_) => Err(Stale::TooOld),
            None if self.highest.len() >= MAX_SALTS => Err(Stale::Full),
            None => Ok(()),
        }
    }

    /// Marks a packet that passed [`SaltWindows::check`] and whose tag is valid.
    pub fn accept(&mut self, salt: u64, counter: u32) {
        self.uses += 1;
        if let Some(n) = self.find(salt) {
            let SaltWindow { window, bits, used, .. } = &mut self.windows[n];
            window.mark(counter, bits);
            (*used, self.last) = (self.uses, n);
            return;
        }
        let mut bits = [0; Window::words(WINDOW)];
        let window = match self.highest.get(&salt) {
            Some(highest) => {
                let mut window = Window::start_after(WINDOW, *highest, &mut bits);
                window.mark(counter, &mut bits);
                window
            }
            None => Window::start(WINDOW, counter, &mut bits),
        };
        self.highest.insert(salt, window.highest());
        let new = SaltWindow { salt, window, bits, used: self.uses };
        if self.windows.len() < MAX_WINDOWS {
            self.last = self.windows.len();
            self.windows.push(new);
            return;
        }
        let idle_longest = (0..MAX_WINDOWS).min_by_key(|n| self.windows[*n].used);
        self.last = idle_longest.unwrap_or(0);
        let old = std::mem::replace(&mut self.windows[self.last], new);
        self.highest.insert(old.salt, old.window.highest());
    }

    fn find(&self, salt: u64) -> Option<usize> {
        let has = |window: &SaltWindow| window.salt == salt;
        if self.windows.get(self.last).is_some_and(has) {
            return Some(self.last);
        }
        self.windows.iter().position(has)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn take(known: &mut SaltWindows, salt: u64, counter: u32) -> Result<(), Stale> {
        known.check(salt, counter)?;
        known.accept(salt, counter);
        Ok(())
    }

    proptest! {
        #[test]
        fn packet_is_accepted_at_most_once_whatever_the_order(
            packets in prop::collection::vec((0_u64..200, 0_u32..3_000), 1..2_000)
        ) {
            let (mut known, mut accepted) = (SaltWindows::default(), HashSet::new());
            for packet in packets {
                if take(&mut known, packet.0, packet.1).is_ok() {
                    prop_assert!(accepted.insert(packet), "{:?} twice", packet);
                }
            }
        }
    }

    #[test]
    fn counter_more_than_2_pow_31_back_is_too_old() {
        let mut known = SaltWindows::default();
        take(&mut known, 1, (1 << 31) + 5).unwrap();
        assert_eq!(take(&mut known, 1, 0), Err(Stale::TooOld));
        assert_eq!(take(&mut known, 1, 4), Err(Stale::TooOld));
        assert_eq!(take(&mut known, 1, (1 << 31) + 6), Ok(()));
    }

    #[test]
    fn salt_without_window_takes_later_packets_only() {
        let mut known = SaltWindows::default();
        take(&mut known, 1, 10).unwrap();
        take(&mut known, 1, 7).unwrap();
        for other in 2..2 + MAX_WINDOWS as u64 {
            take(&mut known, other, 0).unwrap();
        }
        for old in [7, 8, 10] {
            assert_eq!(take(&mut known, 1, old), Err(Stale::TooOld), "{old}");
        }
        assert_eq!(take(&mut known, 1, 20), Ok(()), "its sender continues");
        assert_eq!(take(&mut known, 1, 15), Ok(()), "reordered");
        assert_eq!(take(&mut known, 1, 15), Err(Stale::Replayed));
        assert_eq!(take(&mut known, 1, 10), Err(Stale::Replayed), "still in its window");
    }

    #[test]
    fn full_table_refuses_new_salts_and_forgets_none() {
        let mut known = SaltWindows::default();
        for salt in 0..MAX_SALTS as u64 {
            take(&mut known, salt, 5).unwrap();
        }
        assert_eq!(take(&mut known, MAX_SALTS as u64, 0), Err(Stale::Full));
        for salt in 0..MAX_SALTS as u64 {
            assert!(take(&mut known, salt, 5).is_err(), "{salt}");
            assert_eq!(take(&mut known, salt, 6), Ok(()), "{salt}");
        }
    }
}
