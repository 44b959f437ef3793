//! Packets dropped by the reflector's socket during a measurement.

/// Sums the increments of the reflector's drop counter, which replies carry and which wraps.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoteDrops {
    last: Option<u32>,
    total: u64,
}

impl RemoteDrops {
    /// Starts counting at `counter`, taken from a reply to a warm-up probe.
    pub fn start_at(&mut self, counter: u32) {
        *self = Self { last: Some(counter), total: 0 };
    }

    /// Adds the increment up to `counter`, taken from a reply. A counter below the last one comes
    /// from a reordered reply and is ignored.
    pub fn note(&mut self, counter: u32) {
        let since = counter.wrapping_sub(*self.last.get_or_insert(counter));
        if since <= i32::MAX as u32 {
            self.total += u64::from(since);
            self.last = Some(counter);
        }
    }

    /// Packets dropped between the first and the last counter; `None` if no reply carried a
    /// counter.
    pub fn total(&self) -> Option<u64> {
        self.last.map(|_| self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_drops_survive_wraps_and_reordering() {
        let mut drops = RemoteDrops::default();
        assert_eq!(drops.total(), None);
        drops.start_at(7);
        drops.start_at(u32::MAX - 1);
        assert_eq!(drops.total(), Some(0));
        for counter in [u32::MAX, 4, 1, 3, 4, 6] {
            drops.note(counter);
        }
        assert_eq!(drops.total(), Some(8));
    }

    #[test]
    fn remote_drops_count_from_the_first_reply() {
        let mut drops = RemoteDrops::default();
        drops.note(100);
        assert_eq!(drops.total(), Some(0));
        drops.note(130);
        assert_eq!(drops.total(), Some(30));
    }
}
