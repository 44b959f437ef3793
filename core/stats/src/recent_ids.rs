//! Bounded map from recent probe ids to values.

/// Number of successive ids stored. A power of two.
pub(crate) const WINDOW_LEN: usize = 4_096;

/// Stores one `T` per id for the newest [`WINDOW_LEN`] ids.
#[derive(Clone, Debug)]
pub(crate) struct Recent<T> {
    // Empty until the first use, so that an unused metric allocates nothing.
    slots: Vec<Option<(u64, T)>>,
}

impl<T: Copy> Recent<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    pub(crate) fn get(&self, id: u64) -> Option<T> {
        let (held, value) = (*self.slots.get(slot(id))?)?;
        (held == id).then_some(value)
    }

    /// Stores `value` for `id`, unless a newer id already occupies its slot.
    pub(crate) fn put(&mut self, id: u64, value: T) {
        if self.slots.is_empty() {
            self.slots = vec![None; WINDOW_LEN];
        }
        let slot = &mut self.slots[slot(id)];
        if slot.is_none_or(|(held, _)| held <= id) {
            *slot = Some((id, value));
        }
    }

    /// Calls `each` for every stored id, in any order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, T)) {
        self.slots.iter().flatten().for_each(|&(id, value)| each(id, value));
    }
}

fn slot(id: u64) -> usize {
    id as usize % WINDOW_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_id_replaces_older_id_only() {
        let mut recent = Recent::new();
        assert_eq!(recent.get(5), None);
        recent.put(5, 'a');
        recent.put(6, 'b');
        recent.put(5 + WINDOW_LEN as u64, 'c');
        recent.put(5, 'd');
        assert_eq!(recent.get(5), None);
        assert_eq!(recent.get(6), Some('b'));
        assert_eq!(recent.get(5 + WINDOW_LEN as u64), Some('c'));
    }
}
