//! A set-associative table of fixed size. A look-up examines one set, so its cost does not depend
//! on the number of entries. A new key replaces the lowest-ranked entry of its set.

use std::num::NonZeroU64;

/// Entries per set.
pub(super) const SET_ENTRIES: usize = 8;

/// A keyed 64-bit hash that identifies an entry. Sources with equal hashes are treated as one. The
/// hash key is random, so a sender cannot choose such sources.
pub(super) type Key = NonZeroU64;

/// One slot of the table.
pub(super) type Slot<V> = Option<(Key, V)>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Table<V> {
    sets: Box<[[Slot<V>; SET_ENTRIES]]>,
    /// Slots examined, to test the cost.
    #[cfg(test)]
    pub(super) examined: u64,
}

/// Result of a look-up.
#[derive(Debug)]
pub(super) enum Lookup<'a, V> {
    /// The key has an entry.
    Found(&'a mut V),
    /// The key has no entry; this slot is the one to use for it.
    Absent(&'a mut Slot<V>),
}

impl<V: Copy> Table<V> {
    /// An empty table of `capacity` entries, a power of two and at least [`SET_ENTRIES`].
    pub(super) fn new(capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two() && capacity >= SET_ENTRIES);
        Self {
            sets: vec![[None; SET_ENTRIES]; capacity / SET_ENTRIES].into_boxed_slice(),
            #[cfg(test)]
            examined: 0,
        }
    }

    /// Looks up `key`. Empty slots are used before others, then the entry of the lowest rank.
    pub(super) fn look_up<R: Ord>(&mut self, key: Key, rank: impl Fn(&V) -> R) -> Lookup<'_, V> {
        let index = key.get() as usize & (self.sets.len() - 1);
        let set = &mut self.sets[index];
        #[cfg(test)]
        {
            self.examined += SET_ENTRIES as u64;
        }
        let found = set.iter().position(|slot| slot.is_some_and(|(other, _)| other == key));
        match found {
            Some(at) => match &mut set[at] {
                Some((_, value)) => Lookup::Found(value),
                empty => Lookup::Absent(empty),
            },
            None => {
                let rank = |at: &usize| set[*at].as_ref().map(|(_, value)| rank(value));
                let at = (0..SET_ENTRIES).min_by_key(rank).unwrap_or(0);
                Lookup::Absent(&mut set[at])
            }
        }
    }

    /// The value of `key`, if it has an entry.
    pub(super) fn get(&mut self, key: Key) -> Option<V> {
        match self.look_up(key, |_| ()) {
            Lookup::Found(value) => Some(*value),
            Lookup::Absent(_) => None,
        }
    }
}
