//! One direction of an emulated link: rate, delay, jitter, loss, duplication and reordering of
//! Ethernet frames, in virtual time.
//!
//! The stages, in order: a frame that finds the queue full is dropped (*overflow*); every other
//! frame is held for its transmission time behind those before it; then it may be lost or
//! duplicated; then it is delayed by `delay` plus or minus `jitter`. Jitter alone never reorders
//! frames. A *reordered* frame skips delay and jitter (as in netem) and so overtakes delayed
//! frames.
//!
//! The random decisions for the n-th frame depend on the seed and on n alone, not on its arrival
//! time, so that a run can be repeated. Frames to group addresses are counted separately and use a
//! random generator of their own, because kernels send some unprompted. Buffers are allocated at
//! the start; nothing is allocated later.

use std::collections::VecDeque;

use dwell_units::{BitRate, Bytes, Instant, Monotonic, Nanos, Ratio};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use thiserror::Error;

/// Parameters of a link. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkParameters {
    /// Bit rate, counted over the Ethernet frame without preamble and frame check sequence, as tbf
    /// and netem count.
    pub rate: Option<BitRate>,
    /// Propagation delay, after transmission.
    pub delay: Nanos,
    /// The delay is uniformly distributed between `delay - jitter` and `delay + jitter`.
    pub jitter: Nanos,
    /// Share of frames that are lost.
    pub loss: Ratio,
    /// Share of frames that are delivered twice.
    pub duplicate: Ratio,
    /// Share of frames that skip the delay.
    pub reorder: Ratio,
}

/// Error in link parameters. The message names the parameter and its valid range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// The rate is 0.
    #[error("rate is 0; it must be at least 1bit/s")]
    NoRate,
    /// Delay or jitter is out of range.
    #[error("{name} is {value}; it must be between 0s and {limit}")]
    OutOfRange {
        /// Name of the parameter.
        name: &'static str,
        /// Given value.
        value: Nanos,
        /// Maximum value.
        limit: Nanos,
    },
    /// The jitter exceeds the delay.
    #[error("jitter is {jitter}, delay is {delay}; jitter must be at most the delay")]
    Jitter {
        /// Given value.
        jitter: Nanos,
        /// Delay.
        delay: Nanos,
    },
    /// Reordering without a delay to skip.
    #[error("reorder needs a delay, because reordered frames skip it")]
    ReorderWithoutDelay,
}

impl LinkParameters {
    /// Maximum delay. It bounds the number of frames in flight.
    pub const MAX_DELAY: Nanos = Nanos::from_secs(60);

    /// Whether the link changes nothing.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether only a rate is set.
    pub fn is_rate_only(&self) -> bool {
        self.rate.is_some() && Self { rate: None, ..*self }.is_plain()
    }

    /// Whether any parameter needs random numbers.
    pub fn is_random(&self) -> bool {
        let shares = [self.loss, self.duplicate, self.reorder];
        self.jitter != Nanos::ZERO || shares.iter().any(|share| *share != Ratio::ZERO)
    }

    /// Checks that the parameters are valid.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.rate == Some(BitRate(0)) {
            return Err(LinkError::NoRate);
        }
        for (name, value) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !(Nanos::ZERO..=Self::MAX_DELAY).contains(&value) {
                return Err(LinkError::OutOfRange { name, value, limit: Self::MAX_DELAY });
            }
        }
        if self.jitter > self.delay {
            return Err(LinkError::Jitter { jitter: self.jitter, delay: self.delay });
        }
        if self.reorder != Ratio::ZERO && self.delay == Nanos::ZERO {
            return Err(LinkError::ReorderWithoutDelay);
        }
        Ok(())
    }

    /// Maximum number of frames in flight, besides those that wait for transmission. With a rate,
    /// as many of the shortest frames as fit into the delay, limited to 65,536.
    pub fn max_frames_in_flight(&self) -> usize {
        const MIN_FRAME_LEN: Bytes = Bytes(60);
        const UNLIMITED_RATE_FRAMES: usize = 16_384;
        const MAX_FRAMES: i64 = 65_536;
        let Some(each) = self.rate.and_then(|rate| rate.transmission_time(MIN_FRAME_LEN)) else {
            return UNLIMITED_RATE_FRAMES;
        };
        ((self.delay + self.jitter).0 / each.0.max(1)).clamp(64, MAX_FRAMES) as usize
    }
}

/// Outcome of a frame's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// The frame will be delivered.
    Carried {
        /// The frame will be delivered twice.
        duplicated: bool,
        /// The frame skips the delay.
        reordered: bool,
    },
    /// The frame was lost.
    Lost,
    /// The queue was full, or the frame too long.
    Overflow,
}

/// Counters of a link. `arrived + duplicated = delivered + lost + overflow + in flight`, where `in
/// flight` counts every copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames that were delivered, copies included.
    pub delivered: u64,
    /// Bytes of the delivered frames.
    pub delivered_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that were duplicated.
    pub duplicated: u64,
    /// Frames that skipped the delay.
    pub reordered: u64,
    /// Frames that were dropped because the queue was full.
    pub overflow: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    parameters: LinkParameters,
    /// Random generators for unicast and for group frames.
    random: [Xoshiro256PlusPlus; 2],
    counters: LinkCounters,
    /// When the transmitter becomes free.
    transmitter_free_at: Instant<Monotonic>,
    /// Departure of the last frame in order; later ones in order do not depart before it.
    last_departure: Instant<Monotonic>,
    /// Ends of transmission in the future, of frames in either queue below and of lost ones.
    transmitting: VecDeque<Instant<Monotonic>>,
    /// Frames in order, sorted by departure.
    in_order: VecDeque<FrameInFlight>,
    /// Frames that skip the delay, sorted by departure.
    reordered_frames: VecDeque<FrameInFlight>,
    store: FramePool,
}

/// A frame in flight.
#[derive(Clone, Copy, Debug)]
struct FrameInFlight {
    departure: Instant<Monotonic>,
    slot: usize,
    len: usize,
    copies: u8,
}

impl Link {
    /// Maximum number of frames that wait for transmission.
    pub const QUEUE_LEN: usize = 100;
    /// Maximum frame length in bytes: Ethernet header, VLAN tag and 1,500 bytes of payload.
    pub const MAX_FRAME_LEN: usize = 1_518;

    /// Creates a link whose random generators start from `seed`.
    pub fn new(parameters: LinkParameters, seed: u64) -> Self {
        let frames = Self::QUEUE_LEN + parameters.max_frames_in_flight();
        let to_one = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut to_group = to_one.clone();
        to_group.jump();
        Self {
            parameters,
            random: [to_one, to_group],
            counters: LinkCounters::default(),
            transmitter_free_at: Instant::EPOCH,
            last_departure: Instant::EPOCH,
            transmitting: VecDeque::with_capacity(Self::QUEUE_LEN),
            in_order: VecDeque::with_capacity(frames),
            reordered_frames: VecDeque::with_capacity(frames),
            store: FramePool::new(frames),
        }
    }

    /// Takes a frame that arrives at `now` and returns its outcome. Frames longer than
    /// [`Self::MAX_FRAME_LEN`] overflow.
    pub fn arrive(&mut self, now: Instant<Monotonic>, frame: &[u8]) -> FrameOutcome {
        // Drawn for every frame, so that the random numbers of later frames do not depend on this
        // one. The lowest bit of the first octet marks a group address (IEEE 802, clause 8.2).
        let group = frame.first().is_some_and(|octet| octet & 1 == 1);
        let draw = RandomDraw::draw(&mut self.random[usize::from(group)], &self.parameters);
        self.counters.arrived += 1;
        while self.transmitting.front().is_some_and(|end| *end <= now) {
            self.transmitting.pop_front();
        }
        if self.transmitting.len() >= Self::QUEUE_LEN || self.store.is_full() {
            self.counters.overflow += 1;
            return FrameOutcome::Overflow;
        }
        if frame.len() > Self::MAX_FRAME_LEN {
            self.counters.overflow += 1;
            return FrameOutcome::Overflow;
        }
        let end = self.transmit(now, frame.len());
        if draw.lost {
            self.counters.lost += 1;
            return FrameOutcome::Lost;
        }
        self.counters.duplicated += u64::from(draw.duplicated);
        self.counters.reordered += u64::from(draw.reordered);
        let departure = if draw.reordered {
            end
        } else {
            self.last_departure = self.last_departure.max(end + draw.propagation);
            self.last_departure
        };
        let held = FrameInFlight {
            departure,
            slot: self.store.put(frame),
            len: frame.len(),
            copies: 1 + u8::from(draw.duplicated),
        };
        let queue = if draw.reordered { &mut self.reordered_frames } else { &mut self.in_order };
        queue.push_back(held);
        FrameOutcome::Carried { duplicated: draw.duplicated, reordered: draw.reordered }
    }

    /// Departure time of the next frame; `None` if none is in flight.
    pub fn next_departure(&self) -> Option<Instant<Monotonic>> {
        let front = |queue: &VecDeque<FrameInFlight>| queue.front().map(|held| held.departure);
        match (front(&self.in_order), front(&self.reordered_frames)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Passes the next frame that is due by `now` to `deliver`, once per copy. Returns `false` if
    /// none is due.
    pub fn depart(&mut self, now: Instant<Monotonic>, mut deliver: impl FnMut(&[u8])) -> bool {
        let Some(departure) = self.next_departure().filter(|departure| *departure <= now) else {
            return false;
        };
        let first = |queue: &VecDeque<FrameInFlight>| {
            queue.front().is_some_and(|h| h.departure == departure)
        };
        let queue =
            if first(&self.in_order) { &mut self.in_order } else { &mut self.reordered_frames };
        let Some(held) = queue.pop_front() else { return false };
        for _ in 0..held.copies {
            deliver(self.store.frame(held.slot, held.len));
            self.counters.delivered += 1;
            self.counters.delivered_bytes += held.len as u64;
        }
        self.store.release(held.slot);
        true
    }

    /// Counters so far.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Queues a frame for transmission and returns the end of its transmission.
    fn transmit(&mut self, now: Instant<Monotonic>, len: usize) -> Instant<Monotonic> {
        let Some(rate) = self.parameters.rate else { return now };
        let time = rate.transmission_time(Bytes(len as u64)).unwrap_or(Nanos::MAX);
        self.transmitter_free_at = self.transmitter_free_at.max(now).saturating_add(time);
        self.transmitting.push_back(self.transmitter_free_at);
        self.transmitter_free_at
    }
}

/// Random decisions for one frame.
struct RandomDraw {
    lost: bool,
    duplicated: bool,
    reordered: bool,
    propagation: Nanos,
}

impl RandomDraw {
    fn draw(random: &mut Xoshiro256PlusPlus, parameters: &LinkParameters) -> Self {
        let mut below = |limit: u64| {
            // Multiply and shift: the bias is below 2^-32 for the limits here.
            ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
        };
        let mut hit = |share: Ratio| below(1_000_000) < u64::from(share.ppm());
        let (lost, duplicated, reordered) =
            (hit(parameters.loss), hit(parameters.duplicate), hit(parameters.reorder));
        let spread = below(2 * parameters.jitter.0.unsigned_abs() + 1);
        let propagation = parameters.delay - parameters.jitter + Nanos(spread as i64);
        Self { lost, duplicated, reordered, propagation }
    }
}

/// Frame buffers. The last one returned is reused first, while it is still in the cache.
#[derive(Debug)]
struct FramePool {
    bytes: Vec<u8>,
    free: Vec<usize>,
}

impl FramePool {
    fn new(frames: usize) -> Self {
        Self { bytes: vec![0; frames * Link::MAX_FRAME_LEN], free: (0..frames).rev().collect() }
    }

    fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Copies `frame` into a free slot and returns the slot. Panics if no slot is free or the frame
    /// is too long.
    fn put(&mut self, frame: &[u8]) -> usize {
        let slot = self.free.pop().expect("the caller checked that a slot is free");
        self.bytes[slot * Link::MAX_FRAME_LEN..][..frame.len()].copy_from_slice(frame);
        slot
    }

    fn frame(&self, slot: usize, len: usize) -> &[u8] {
        &self.bytes[slot * Link::MAX_FRAME_LEN..][..len]
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_IMPAIRMENT: LinkParameters = LinkParameters {
        rate: None,
        delay: Nanos::ZERO,
        jitter: Nanos::ZERO,
        loss: Ratio::ZERO,
        duplicate: Ratio::ZERO,
        reorder: Ratio::ZERO,
    };

    fn at(ns: i64) -> Instant<Monotonic> {
        Instant::from_nanos(ns)
    }

    fn percent(n: u32) -> Ratio {
        Ratio::from_ppm(n * 10_000).unwrap()
    }

    /// Delivers each frame exactly when it is due. Returns the time and the first four bytes of
    /// each.
    fn drain(link: &mut Link) -> Vec<(i64, u32)> {
        let mut out = Vec::new();
        while let Some(due) = link.next_departure() {
            assert!(!link.depart(due - Nanos(1), |_| ()), "no frame departs early");
            let mut number = 0;
            let departed = link.depart(due, |frame| {
                number = u32::from_be_bytes(frame[..4].try_into().unwrap());
                out.push((due.as_nanos(), number));
            });
            assert!(departed);
        }
        out
    }

    fn frame(number: u32, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..4].copy_from_slice(&number.to_be_bytes());
        frame
    }

    #[test]
    fn frame_is_held_for_its_transmission_time() {
        let ten_mbit = LinkParameters { rate: Some(BitRate(10_000_000)), ..NO_IMPAIRMENT };
        let mut link = Link::new(ten_mbit, 1);
        link.arrive(at(0), &frame(0, 1_400));
        assert_eq!(link.next_departure(), Some(at(1_120_000)), "a single frame waits too");
        link.arrive(at(0), &frame(1, 576));
        link.arrive(at(5_000_000), &frame(2, 1_400));
        let expected = vec![(1_120_000, 0), (1_120_000 + 460_800, 1), (6_120_000, 2)];
        assert_eq!(drain(&mut link), expected);
    }

    #[test]
    fn delay_comes_after_transmission() {
        let parameters = LinkParameters {
            rate: Some(BitRate(100_000_000)),
            delay: Nanos::from_millis(5),
            ..NO_IMPAIRMENT
        };
        let mut link = Link::new(parameters, 1);
        link.arrive(at(1_000), &frame(7, 1_000));
        assert_eq!(drain(&mut link), [(1_000 + 80_000 + 5_000_000, 7)]);
    }

    #[test]
    fn full_queue_drops_and_counts_the_tail() {
        let slow = LinkParameters { rate: Some(BitRate(1_000)), ..NO_IMPAIRMENT };
        let mut link = Link::new(slow, 1);
        let outcomes: Vec<_> =
            (0..Link::QUEUE_LEN as u32 + 3).map(|n| link.arrive(at(0), &frame(n, 100))).collect();
        let overflowed =
            outcomes.iter().filter(|outcome| **outcome == FrameOutcome::Overflow).count();
        assert_eq!(overflowed, 3);
        assert_eq!(
            outcomes[Link::QUEUE_LEN],
            FrameOutcome::Overflow,
            "the tail is dropped, not the head"
        );
        assert_eq!(link.counters().overflow, 3);
        assert_eq!(drain(&mut link).len(), Link::QUEUE_LEN);
        // The queue is free again once the frames have been transmitted.
        let later = at(1_000_000_000_000_000);
        assert_ne!(link.arrive(later, &frame(0, 100)), FrameOutcome::Overflow);
    }

    #[test]
    fn too_long_frame_is_dropped() {
        let mut link = Link::new(NO_IMPAIRMENT, 1);
        assert_eq!(link.arrive(at(0), &[0; Link::MAX_FRAME_LEN + 1]), FrameOutcome::Overflow);
        assert_eq!(link.next_departure(), None);
    }

    #[test]
    fn jitter_is_uniform_within_its_bounds() {
        let (delay, jitter) = (Nanos::from_millis(5), Nanos::from_millis(1));
        let mut link = Link::new(LinkParameters { delay, jitter, ..NO_IMPAIRMENT }, 3);
        let delay_of = |n: u32, link: &mut Link| {
            let now = i64::from(n) * 100_000_000;
            link.arrive(at(now), &frame(n, 60));
            drain(link)[0].0 - now
        };
        let delays: Vec<i64> = (0..1_000).map(|n| delay_of(n, &mut link)).collect();
        let (min, max) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!((4_000_000..4_100_000).contains(min), "{min}");
        assert!((5_900_000..=6_000_000).contains(max), "{max}");
        let below = delays.iter().filter(|t| **t < 5_000_000).count();
        assert!((400..600).contains(&below), "{below} of 1,000 below the middle");
    }

    #[test]
    fn jitter_alone_does_not_reorder() {
        let (delay, jitter) = (Nanos::from_millis(5), Nanos::from_millis(5));
        let mut link = Link::new(LinkParameters { delay, jitter, ..NO_IMPAIRMENT }, 3);
        for n in 0..1_000 {
            link.arrive(at(i64::from(n) * 10_000), &frame(n, 60));
        }
        let numbers: Vec<u32> = drain(&mut link).iter().map(|(_, n)| *n).collect();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn reordered_frame_skips_the_delay() {
        let parameters =
            LinkParameters { delay: Nanos::from_millis(5), reorder: percent(10), ..NO_IMPAIRMENT };
        let mut link = Link::new(parameters, 4);
        for n in 0..1_000_u32 {
            let now = i64::from(n) * 100_000;
            let outcome = link.arrive(at(now), &frame(n, 60));
            if outcome == (FrameOutcome::Carried { duplicated: false, reordered: true }) {
                assert!(link.next_departure() <= Some(at(now)));
            }
            while link.depart(at(now), |_| ()) {}
        }
        let reordered = link.counters().reordered;
        assert!((60..140).contains(&reordered), "{reordered} of 1,000 at 10 %");
    }

    #[test]
    fn loss_and_duplication_match_their_ratios() {
        let parameters =
            LinkParameters { loss: percent(10), duplicate: percent(5), ..NO_IMPAIRMENT };
        let mut link = Link::new(parameters, 5);
        for n in 0..20_000 {
            link.arrive(at(n), &frame(0, 60));
            while link.depart(at(n), |_| ()) {}
        }
        let counted = link.counters();
        assert!((1_800..2_200).contains(&counted.lost), "{counted:?}");
        // 5 % of the 90 % that were not lost.
        assert!((780..1_020).contains(&counted.duplicated), "{counted:?}");
        assert_eq!(counted.delivered, counted.arrived - counted.lost + counted.duplicated);
    }

    #[test]
    fn lost_frame_takes_transmission_time() {
        let all_lost =
            LinkParameters { rate: Some(BitRate(8_000)), loss: Ratio::ONE, ..NO_IMPAIRMENT };
        let mut link = Link::new(all_lost, 1);
        link.arrive(at(0), &frame(0, 1_000));
        link.parameters.loss = Ratio::ZERO;
        link.arrive(at(0), &frame(1, 1_000));
        assert_eq!(drain(&mut link), [(2_000_000_000, 1)]);
    }

    #[test]
    fn invalid_parameters_name_the_valid_range() {
        let text = |p: LinkParameters| p.check().unwrap_err().to_string();
        assert!(
            text(LinkParameters { rate: Some(BitRate(0)), ..NO_IMPAIRMENT }).contains("1bit/s")
        );
        assert!(
            text(LinkParameters { delay: Nanos(-1), ..NO_IMPAIRMENT })
                .contains("between 0s and 1min")
        );
        assert!(
            text(LinkParameters { jitter: Nanos(1), ..NO_IMPAIRMENT })
                .contains("at most the delay")
        );
        assert!(
            text(LinkParameters { reorder: Ratio::ONE, ..NO_IMPAIRMENT }).contains("needs a delay")
        );
    }

    prop_compose! {
        fn parameters()(
            rate in prop::option::of(1_000_000_u64..1_000_000_000), delay in 0..20_000_000_i64,
            jitter in 0..=100_i64, ppm in prop::array::uniform3(0..=1_000_000_u32),
        ) -> LinkParameters {
            LinkParameters {
                rate: rate.map(BitRate),
                delay: Nanos(delay),
                jitter: Nanos(delay * jitter / 100),
                loss: Ratio::from_ppm(ppm[0]).unwrap(),
                duplicate: Ratio::from_ppm(ppm[1]).unwrap(),
                reorder: if delay == 0 { Ratio::ZERO } else { Ratio::from_ppm(ppm[2]).unwrap() },
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counters_add_up_and_seeds_repeat(
            parameters in parameters(), seed: u64,
            arrivals in prop::collection::vec((0..200_000_i64, 60..1_519_usize), 1..400),
        ) {
            prop_assert_eq!(parameters.check(), Ok(()));
            let run = || {
                let mut link = Link::new(parameters, seed);
                let mut now = 0;
                let mut log = Vec::new();
                let mut outcomes = Vec::new();
                for (n, (gap, len)) in arrivals.iter().enumerate() {
                    now += gap;
                    while link.depart(at(now), |frame| log.push(frame.to_vec())) {}
                    outcomes.push(link.arrive(at(now), &frame(n as u32, *len)));
                }
                let c = link.counters();
                let held = |q: &VecDeque<FrameInFlight>| q.iter().map(|h| u64::from(h.copies)).sum::<u64>();
                let in_flight = held(&link.in_order) + held(&link.reordered_frames);
                assert_eq!(c.arrived + c.duplicated, c.delivered + c.lost + c.overflow + in_flight);
                let rest = drain(&mut link);
                (outcomes, log, rest)
            };
            prop_assert_eq!(run(), run());
        }

        #[test]
        fn random_draws_ignore_arrival_time_and_group_frames(
            seed: u64, gaps in prop::collection::vec(0..1_000_000_i64, 1..300),
        ) {
            let parameters = LinkParameters { loss: percent(30), ..NO_IMPAIRMENT };
            let outcomes = |disturbed: bool| {
                let mut link = Link::new(parameters, seed);
                let mut now = 0;
                gaps.iter().map(|gap| {
                    if disturbed {
                        now += *gap;
                        link.arrive(at(now), &[0xff; 60]);
                    }
                    link.arrive(at(now), &frame(0, 60))
                }).collect::<Vec<_>>()
            };
            prop_assert_eq!(outcomes(true), outcomes(false));
        }
    }
}
