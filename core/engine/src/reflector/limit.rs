//! The rate limit per source address and port.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, SocketAddr};

use dwell_units::{Instant, Monotonic, Nanos, PacketRate};

use super::table::{Key, Lookup, Table};

/// Maximum number of sources with a budget of their own.
const MAX_SOURCES: usize = 8_192;

/// Maximum number of address prefixes with a shared budget.
const MAX_PREFIXES: usize = 1_024;

/// Budget of a prefix, in multiples of a source's: a /24 has 256 addresses, a /56 has 256 networks.
const PREFIX_SHARE: i64 = 256;

/// Minimum time for which a source without a table entry is remembered. A source that asks at least
/// once in this time keeps its budget.
const MIN_MEMORY_DURATION: Nanos = Nanos::from_millis(1_500);

/// The same in packets at the limit, so that a source at a tenth of any limit is remembered.
const MEMORY_PACKETS: i64 = 15;

/// Bits of each of the two filters of recent sources.
const FILTER_BITS: usize = 1 << 20;

/// Budget of one source: the generic cell rate algorithm.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    gap: Nanos,
    burst: Nanos,
}

impl Bucket {
    /// `rate` on average, and bursts of a tenth of a second; `None` at rate 0.
    fn new(rate: PacketRate) -> Option<Self> {
        let gap = rate.gap()?.max(Nanos(1));
        Some(Self { gap, burst: Nanos::from_millis(100).max(gap) })
    }

    /// Spends one packet of a budget that is full again at `full`, if the budget suffices.
    fn spend(&self, full: &mut Instant<Monotonic>, now: Instant<Monotonic>) -> bool {
        let next = (*full).max(now) + self.gap;
        let allowed = next - now <= self.burst;
        if allowed {
            *full = next;
        }
        allowed
    }
}

/// Maximum replies per second to a source, by its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// For sources with loopback, private (RFC 1918), unique local (RFC 4193) and link-local
    /// addresses.
    pub local: PacketRate,
    /// For all others.
    pub global: PacketRate,
}

impl RateLimits {
    /// One rate for every source.
    pub const fn same(rate: PacketRate) -> Self {
        Self { local: rate, global: rate }
    }

    /// The rate of a source.
    pub fn of(&self, source: IpAddr) -> PacketRate {
        if is_local(source) { self.local } else { self.global }
    }
}

impl fmt::Display for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, global } = self;
        write!(f, "{local}")?;
        if local != global {
            write!(f, " for local sources, {global} for others")?;
        }
        Ok(())
    }
}

fn is_local(source: IpAddr) -> bool {
    match source.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// Budget of a single source, such as a connection.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    bucket: Bucket,
    full: Instant<Monotonic>,
}

impl Budget {
    /// Allows `rate`, and bursts of a tenth of a second; `None` at rate 0.
    pub fn new(rate: PacketRate) -> Option<Self> {
        Some(Self { bucket: Bucket::new(rate)?, full: Instant::from_nanos(0) })
    }

    /// Whether a request may be answered now; spends one reply of the budget if so.
    pub fn allows(&mut self, now: Instant<Monotonic>) -> bool {
        self.bucket.spend(&mut self.full, now)
    }
}

/// Each source has its own budget while it has a table entry. An entry is evicted only for a new
/// source, and the entry with the most budget left goes first. An evicted source that asks again
/// within 1.5 s, or within 15 packets at the limit, is recognised and starts with a full budget.
#[derive(Debug)]
pub struct Limiter {
    local: Buckets,
    global: Buckets,
    memory: Nanos,
    hashes: RandomState,
    /// When the budget of a source is full again.
    sources: Table<Instant<Monotonic>>,
    /// When the budget of a prefix is full again.
    prefixes: Table<Instant<Monotonic>>,
    recent: Recent,
}

/// Budget of a source, and the budget that new sources of its prefix share.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    source: Bucket,
    prefix: Bucket,
}

impl Buckets {
    fn new(rate: PacketRate) -> Option<Self> {
        let source = Bucket::new(rate)?;
        let gap = Nanos(source.gap.0 / PREFIX_SHARE).max(Nanos(1));
        Some(Self { source, prefix: Bucket { gap, burst: source.burst } })
    }
}

impl Limiter {
    /// Allows these rates per source, and bursts of a tenth of a second; `None` if one is 0.
    pub fn new(limits: RateLimits) -> Option<Self> {
        let (local, global) = (Buckets::new(limits.local)?, Buckets::new(limits.global)?);
        let gap = local.source.gap.max(global.source.gap);
        let memory = MIN_MEMORY_DURATION.max(gap.saturating_mul(MEMORY_PACKETS));
        Some(Self {
            local,
            global,
            memory,
            hashes: RandomState::new(),
            sources: Table::new(MAX_SOURCES),
            prefixes: Table::new(MAX_PREFIXES),
            recent: Recent::new(memory),
        })
    }

    /// Whether `from` may be answered now; spends one reply of its budget if so.
    pub fn allows(&mut self, from: SocketAddr, now: Instant<Monotonic>) -> bool {
        let Buckets { source, prefix } = if is_local(from.ip()) { self.local } else { self.global };
        let key = key(&self.hashes, (from.ip(), from.port()));
        let slot = match self.sources.look_up(key, |full| *full) {
            Lookup::Found(full) => return source.spend(full, now),
            Lookup::Absent(slot) => slot,
        };
        let evicted = slot.filter(|(_, full)| now - *full < self.memory);
        if let Some((other, _)) = evicted {
            let known = self.recent.contains(key, now);
            if !known && !spend_prefix(&prefix, &mut self.prefixes, &self.hashes, from, now) {
                self.recent.insert(key);
                return false;
            }
            self.recent.insert(other);
        }
        *slot = Some((key, now + source.gap));
        true
    }
}

/// Spends one packet of the budget that new sources of a prefix share. A new prefix replaces the
/// one with the most budget left, so a flooded prefix keeps its entry.
fn spend_prefix(
    budget: &Bucket,
    prefixes: &mut Table<Instant<Monotonic>>,
    hashes: &RandomState,
    from: SocketAddr,
    now: Instant<Monotonic>,
) -> bool {
    let prefix = match from.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
        IpAddr::V6(v6) => (v6.to_bits() >> 72) as u64,
    };
    let key = key(hashes, (from.is_ipv4(), prefix));
    match prefixes.look_up(key, |full| *full) {
        Lookup::Found(full) => budget.spend(full, now),
        Lookup::Absent(slot) => {
            *slot = Some((key, now + budget.gap));
            true
        }
    }
}

/// The key of an entry: a hash under a random key, never 0.
pub(super) fn key(hashes: &RandomState, of: impl Hash) -> Key {
    Key::new(hashes.hash_one(of)).unwrap_or(Key::MIN)
}

/// Keys seen within one to two generations: two Bloom filters. The older is cleared when the newer
/// has been used for one generation.
#[derive(Debug)]
struct Recent {
    generation: Nanos,
    since: Instant<Monotonic>,
    current: Box<[u64]>,
    previous: Box<[u64]>,
}

impl Recent {
    fn new(generation: Nanos) -> Self {
        let filter = || vec![0; FILTER_BITS / 64].into_boxed_slice();
        let since = Instant::from_nanos(0);
        Self { generation, since, current: filter(), previous: filter() }
    }

    /// Whether `key` was inserted within the last generation; keys that were not may be found too.
    fn contains(&mut self, key: Key, now: Instant<Monotonic>) -> bool {
        self.rotate(now);
        let is_set = |filter: &[u64]| {
            bit_positions(key).iter().all(|(word, mask)| filter[*word] & mask != 0)
        };
        is_set(&self.current) || is_set(&self.previous)
    }

    /// Inserts `key`, after a [`Self::contains`] of this instant.
    fn insert(&mut self, key: Key) {
        for (word, mask) in bit_positions(key) {
            self.current[word] |= mask;
        }
    }

    /// Starts a new generation when it is time. Clearing writes 128 KiB, once per generation.
    fn rotate(&mut self, now: Instant<Monotonic>) {
        let age = now - self.since;
        if age < self.generation {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.fill(0);
        if age >= self.generation.saturating_mul(2) {
            self.previous.fill(0);
        }
        self.since = now;
    }
}

/// The two bits of a key: word and mask. They do not use the bits that choose the set of the table,
/// so that the keys of one set are spread over the filter.
fn bit_positions(key: Key) -> [(usize, u64); 2] {
    [24, 44].map(|shift| {
        let bit = (key.get() >> shift) as usize & (FILTER_BITS - 1);
        (bit / 64, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::table::SET_ENTRIES;
    use super::*;

    const SEED: u64 = 0x6c69_6d69_7472_6174;

    fn source(port: u16) -> SocketAddr {
        SocketAddr::new("192.0.2.1".parse().unwrap(), port)
    }

    fn limiter(rate: &str) -> Limiter {
        Limiter::new(RateLimits::same(rate.parse().unwrap())).unwrap()
    }

    #[test]
    fn flood_is_cut_to_the_rate_and_spends_no_other_budget() {
        let mut limiter = limiter("1000pps");
        // 10,000 packets in one second.
        let at = |i: i64| Instant::from_nanos(i * 100_000);
        let allowed = (0..10_000).filter(|i| limiter.allows(source(1), at(*i))).count();
        assert!((1_000..=1_101).contains(&allowed), "{allowed}");
        assert!(limiter.allows(source(2), at(10_000)), "another port has its own budget");
    }

    #[test]
    fn local_and_global_sources_have_their_own_rates() {
        let limits =
            RateLimits { local: "2000pps".parse().unwrap(), global: "1000pps".parse().unwrap() };
        let mut limiter = Limiter::new(limits).unwrap();
        let local = [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:192.168.1.1",
        ];
        let global = ["192.0.2.1", "100.64.0.1", "2001:db8::1", "::ffff:192.0.2.1"];
        for (sources, expected) in [(&local[..], 2_000..=2_201), (&global[..], 1_000..=1_101)] {
            for ip in sources {
                let from = SocketAddr::new(ip.parse().unwrap(), 1);
                // 10,000 packets in one second.
                let at = |i: i64| Instant::from_nanos(i * 100_000);
                let allowed = (0..10_000).filter(|i| limiter.allows(from, at(*i))).count();
                assert!(expected.contains(&allowed), "{ip}: {allowed}");
            }
        }
        assert_eq!(limits.to_string(), "2kpps for local sources, 1kpps for others");
        assert_eq!(RateLimits::same(limits.local).to_string(), "2kpps");
    }

    #[test]
    fn single_budget_is_cut_to_the_rate() {
        let mut budget = Budget::new("1000pps".parse().unwrap()).unwrap();
        let at = |i: i64| Instant::from_nanos(i * 100_000);
        let allowed = (0..10_000).filter(|i| budget.allows(at(*i))).count();
        assert!((1_000..=1_101).contains(&allowed), "{allowed}");
    }

    /// Origin of spoofed sources.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Spoofed {
        /// All of IPv4.
        Anywhere,
        /// The prober's own /24.
        Neighbours,
        /// The prober's own /56.
        NeighboursV6,
    }

    impl Spoofed {
        fn prober(self) -> SocketAddr {
            match self {
                Self::NeighboursV6 => "[2001:db8:0:7700::1]:40000".parse().unwrap(),
                _ => "192.0.2.1:40000".parse().unwrap(),
            }
        }

        fn source(self, rng: &mut Xoshiro256PlusPlus) -> SocketAddr {
            let ip = match self {
                Self::Anywhere => IpAddr::V4(rng.random::<u32>().into()),
                Self::Neighbours => [192, 0, 2, rng.random()].into(),
                Self::NeighboursV6 => {
                    let prefix = 0x2001_0db8_0000_7700_u128 << 64;
                    IpAddr::V6((prefix | rng.random::<u128>() >> 56).into())
                }
            };
            SocketAddr::new(ip, rng.random_range(1..40_000))
        }
    }

    /// Result of a flood of 100,000 packets/s from spoofed sources, beside two probers at a tenth
    /// of the limit.
    #[derive(Debug, Default)]
    struct Outcome {
        /// Probes and refused probes: of the prober that starts 2 s before the flood, and of the
        /// one that starts 0.5 s after its beginning.
        early: (u32, u32),
        late: (u32, u32),
        flood_answered: u32,
        /// Most table slots examined for one packet.
        most_examined: u64,
    }

    fn simulate(spoofed: Spoofed, packets: i64) -> Outcome {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut limiter = limiter("10pps");
        let mut outcome = Outcome::default();
        let start = Instant::from_nanos(2_000_000_000);
        let mut early_due = Instant::from_nanos(0);
        let mut late_due = start + Nanos::from_millis(500);
        let early = spoofed.prober();
        let late = SocketAddr::new(early.ip(), early.port() + 1);
        let probe =
            |limiter: &mut Limiter, from, due: &mut Instant<Monotonic>, counts: &mut (u32, u32)| {
                counts.0 += 1;
                counts.1 += u32::from(!limiter.allows(from, *due));
                *due = *due + Nanos::from_secs(1);
            };
        for packet in 0..packets {
            let now = start + Nanos::from_micros(10 * packet);
            while early_due <= now {
                probe(&mut limiter, early, &mut early_due, &mut outcome.early);
            }
            while late_due <= now {
                probe(&mut limiter, late, &mut late_due, &mut outcome.late);
            }
            let before = limiter.sources.examined + limiter.prefixes.examined;
            let answered = limiter.allows(spoofed.source(&mut rng), now);
            let examined = limiter.sources.examined + limiter.prefixes.examined - before;
            outcome.flood_answered += u32::from(answered);
            outcome.most_examined = outcome.most_examined.max(examined);
        }
        outcome
    }

    #[test]
    fn million_spoofed_sources_cost_probers_one_packet_at_most() {
        for spoofed in [Spoofed::Anywhere, Spoofed::Neighbours, Spoofed::NeighboursV6] {
            let outcome = simulate(spoofed, 1_000_000);
            let shown = format!("seed {SEED:#x}, {spoofed:?}: {outcome:?}");
            assert_eq!(outcome.early, (12, 0), "{shown}");
            let bound = u32::from(spoofed != Spoofed::Anywhere);
            assert!(outcome.late.0 == 10 && outcome.late.1 <= bound, "{shown}");
        }
    }

    #[test]
    fn flooded_prefix_shares_a_budget() {
        let outcome = simulate(Spoofed::Neighbours, 200_000);
        // 2 s: 5,120 of the prefix, what the table holds, and false positives of the filters.
        let answered = outcome.flood_answered;
        assert!((5_120..50_000).contains(&answered), "seed {SEED:#x}: {outcome:?}");
    }

    #[test]
    fn work_per_packet_does_not_grow_with_the_table() {
        let outcome = simulate(Spoofed::Anywhere, 100_000);
        let bound = 2 * SET_ENTRIES as u64;
        assert!((1..=bound).contains(&outcome.most_examined), "{outcome:?}");
    }

    #[test]
    fn heavy_source_stays_limited_during_a_flood() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut limiter = limiter("10pps");
        let mut answered = 0;
        // 10 s: 1,000 packets/s of one source and 50,000/s of others.
        for step in 0..10_000 {
            let now = Instant::from_nanos(step * 1_000_000);
            answered += u32::from(limiter.allows(source(40_000), now));
            for _ in 0..50 {
                limiter.allows(Spoofed::Anywhere.source(&mut rng), now);
            }
        }
        assert!((90..=150).contains(&answered), "seed {SEED:#x}: {answered}");
    }

    #[test]
    fn idle_sources_are_forgotten_without_loss() {
        let mut limiter = limiter("10pps");
        let all = |limiter: &mut Limiter, at: i64| {
            let now = Instant::from_nanos(at);
            (0..=u16::MAX).filter(|port| limiter.allows(source(*port), now)).count()
        };
        // All sources share one prefix: the table, the budget of the prefix, and some false
        // positives.
        let first = all(&mut limiter, 0);
        assert!((MAX_SOURCES / 2..MAX_SOURCES + 256 + 6_000).contains(&first), "{first}");
        let again = all(&mut limiter, 1_000_000_000);
        assert_eq!(again, usize::from(u16::MAX) + 1, "all sources return within their limit");
    }
}
