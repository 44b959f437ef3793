//! Choice of the best engine that works here, by measuring all of them with short trains of the
//! pattern to the same peer. Engines take turns, so that a disturbance hits all of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use dwell_engine::departures::{Departures, Pattern};
use dwell_io::clock::monotonic;
use dwell_io::cpu;
use dwell_io::train::TrainSender;
use dwell_protocol::{PaceEngine, PaceJob};
use dwell_sample::DepartureStamps;
use dwell_stats::departures::{TrainDepartures, TrainFigures};
use dwell_stats::median;
use dwell_units::Nanos;

use super::MAX_REALTIME_TRAIN_TIME;
use super::drive::{Driver, FIRST_UNCOUNTED_ID, Train, first_id};
use super::engines;
use super::far_end::{Arrivals, FarEnd};
use super::recorder::Source;
use super::setup::{PaceSetup, longest, train_time};
use crate::{Failure, placement};

/// Minimum number of common turns for a comparison: one of three engines easily wins three turns by
/// chance.
const MIN_COMMON_TURNS: usize = 4;

/// Minimum turns per engine; more up to [`MAX_ROUNDS`] while all turns stay below [`TIME_BUDGET`].
const MIN_ROUNDS: usize = 4;
const MAX_ROUNDS: usize = 15;

/// Time budget of all turns.
const TIME_BUDGET: Nanos = Nanos::from_millis(1_500);

/// Packets in a train of one turn, enough for a 95th percentile of its gaps. Slow patterns use
/// fewer, as many as fit into [`MAX_TURN_TIME`] but at least [`MIN_PACKETS`].
const MAX_PACKETS: usize = 22;
const MIN_PACKETS: usize = 4;
const MAX_TURN_TIME: Nanos = Nanos::from_millis(50);

/// Pairs per turn, and the maximum interval between them.
const PAIRS_PER_TURN: u32 = 8;
const MAX_PAIR_GAP: Nanos = Nanos::from_millis(10);

/// Spinning is preferred for trains up to this length: a CPU that slept has lost the caches of the
/// send path, which short trains do not always show.
const MAX_SPIN_TRAIN_TIME: Nanos = Nanos::from_secs(1);

/// An engine is better than another in a turn if its figure is smaller by more than the share
/// [`MIN_ADVANTAGE`] and [`MIN_ADVANTAGE_NS`]. It beats the other if it is better by the median or
/// by the 95th percentile in more than [`MIN_WIN_SHARE`] of their common turns, and the other is
/// not better by the other figure. Smaller differences may be chance, as turns have few packets.
/// The percentile of a short train is its second largest error, which other load on the machine may
/// dominate.
const MIN_ADVANTAGE: f64 = 0.1;
const MIN_ADVANTAGE_NS: f64 = 50.0;
const MIN_WIN_SHARE: f64 = 0.75;

/// A usable engine.
pub(super) struct Opened {
    /// `auto` if stopped before an engine was chosen.
    pub(super) engine: PaceEngine,
    /// Reason for an automatic choice.
    pub(super) why: Option<String>,
    /// Of the engine that `sender` belongs to.
    pub(super) departure_stamps: DepartureStamps,
    pub(super) sender: TrainSender,
}

type Senders = Vec<TrainSender>;

/// Result of one engine's turn.
struct Turn {
    /// Index of the engine.
    engine: usize,
    /// Number of the first packet.
    first: u64,
    train: Train,
}

/// Measures every engine whose departures are timestamped here or by the sink; the plain `sleep`
/// engine only serves comparison. `progress` gets the turns done and the total.
pub(super) fn best(
    job: &PaceJob,
    setup: &PaceSetup,
    flow: u32,
    far: Option<&mut FarEnd>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Opened, Failure> {
    let pattern = short(&setup.pattern);
    let lead_in = pattern.lead_in_len();
    let departures = pattern
        .departures()
        .map_err(|error| Failure::usage(format!("invalid pattern: {error}")))?;
    let mut engines = Vec::new();
    let mut senders = Vec::new();
    let mut left_out = Vec::new();
    // If any engine has only the sink's timestamps, all are compared by those.
    let mut sink = None;
    let is_short = train_time(&setup.departures) <= MAX_SPIN_TRAIN_TIME;
    let preference = PaceEngine::candidates(is_short);
    for &engine in &preference {
        let name = engine.name();
        // All engines are open at the same time, so they are opened for short trains.
        let longest = longest(&departures) + lead_in;
        let opened =
            engines::open(engine, job, setup, flow, longest).map_err(|why| why.to_string());
        let source = opened.and_then(|sender| {
            let timestamp_source = far.as_ref().map(|far| far.source);
            match super::source(job, engine.capabilities().departure_stamps, timestamp_source) {
                Ok(Source::User) | Err(_) => Err("its departures have no timestamps".to_owned()),
                Ok(source) => Ok((source, sender)),
            }
        });
        match source {
            Ok((source, sender)) => {
                sink = sink.or(matches!(source, Source::Sink(_)).then_some(source));
                engines.push((engine, source));
                senders.push(sender);
            }
            Err(why) => left_out.push(format!("{name}: {why}")),
        }
    }
    let (turns, mut senders) =
        take_turns(job, setup, senders, (&departures, lead_in), stop, progress)?;
    if stop.load(Ordering::Relaxed) && !senders.is_empty() {
        let why = Some("stopped while measuring engines: none was chosen".to_owned());
        let departure_stamps = engines[0].0.capabilities().departure_stamps;
        let sender = senders.swap_remove(0);
        return Ok(Opened { engine: PaceEngine::Auto, why, departure_stamps, sender });
    }
    let arrivals = match far.filter(|_| sink.is_some()) {
        Some(far) => Some(arrivals(far, &turns).map_err(Failure::from)?),
        None => None,
    };
    let mut figures = Vec::new();
    let mut descriptions = Vec::new();
    for (index, (engine, own)) in engines.iter().enumerate() {
        let name = engine.name();
        let turns = turns.iter().filter(|turn| turn.engine == index);
        let errors: Vec<_> = turns
            .map(|turn| turn.figure(setup, &departures, sink.unwrap_or(*own), arrivals.as_ref()))
            .collect();
        let known: Vec<Figure> = errors.iter().copied().flatten().collect();
        let figure =
            figure_of(&known, setup.is_pairs()).filter(|_| 2 * known.len() >= errors.len());
        match figure.map(|figure| [figure.middle, figure.tail].map(|ns| ns / 1e3)) {
            Some([middle, tail]) => {
                descriptions.push(match setup.is_pairs() {
                    true => format!("{name} {middle:.2} us"),
                    false => format!("{name} {middle:.2} and {tail:.2} us"),
                });
                figures.push((*engine, errors));
            }
            None => descriptions.push(format!("{name}: most of its packets had no timestamps")),
        }
    }
    descriptions.extend(left_out);
    let descriptions = descriptions.join(", ");
    // Engines may exclude each other, and the chosen one must be opened for whole trains.
    drop(senders);
    let open = |engine: PaceEngine, why: String| -> Result<Opened, Failure> {
        let sender = engines::open(engine, job, setup, flow, setup.longest())
            .map_err(|why| Failure::unsupported(format!("no engine works here: {why}")))?;
        let departure_stamps = engine.capabilities().departure_stamps;
        Ok(Opened { engine, why: Some(why), departure_stamps, sender })
    };
    let Some(engine) = chosen(&figures, &preference) else {
        // Without timestamps nothing can be compared.
        let why = format!("no engine has timestamps of departures: {descriptions}");
        return open(PaceEngine::FALLBACK, why);
    };
    let what = match setup.is_pairs() {
        true => "median gap",
        false => "lower quartiles of the trains' median and p95 gap errors",
    };
    let by = if sink.is_some() { ", by the sink's stamps" } else { "" };
    let why = format!(
        "the first in order of preference that no other engine beats by {:.0} % and {MIN_ADVANTAGE_NS} ns in more than \
         {:.0} % of their turns; {what}{by}: {descriptions}",
        MIN_ADVANTAGE * 100.0,
        MIN_WIN_SHARE * 100.0
    );
    open(engine, why)
}

/// Figures of a turn, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figure {
    /// The median of a train's |gap - scheduled gap|, or a pair's gap.
    middle: f64,
    /// Their 95th percentile (the maximum if there are too few), or a pair's gap.
    tail: f64,
}

/// Summarises the turns of an engine. Trains use lower quartiles: other load only adds to gap
/// errors, and on a busy machine it would spoil half of so few trains.
fn figure_of(turns: &[Figure], pairs: bool) -> Option<Figure> {
    let of = |field: fn(&Figure) -> f64| {
        let mut sorted: Vec<f64> = turns.iter().map(field).collect();
        if pairs {
            return median(&sorted);
        }
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().div_ceil(4).checked_sub(1)?).copied()
    };
    Some(Figure { middle: of(|turn| turn.middle)?, tail: of(|turn| turn.tail)? })
}

/// An engine with the figures of its turns, in order.
type Figures = (PaceEngine, Vec<Option<Figure>>);

/// Returns the first engine by preference that no other beats; if all are beaten, the one with the
/// best single turn.
fn chosen(figures: &[Figures], preference: &[PaceEngine]) -> Option<PaceEngine> {
    let preferred =
        preference.iter().filter_map(|e| figures.iter().find(|(engine, _)| engine == e));
    let mut preferred = preferred.filter(|own| !figures.iter().any(|other| beats(other, own)));
    let best = |(_, turns): &&Figures| {
        let tails = turns.iter().flatten().map(|turn| turn.tail);
        tails.min_by(f64::total_cmp).unwrap_or(f64::INFINITY)
    };
    let unbeaten = preferred.next();
    let any = || figures.iter().min_by(|a, b| best(a).total_cmp(&best(b)));
    unbeaten.or_else(any).map(|(engine, _)| *engine)
}

/// Whether one engine beats another; see [`MIN_ADVANTAGE`].
fn beats(own: &Figures, other: &Figures) -> bool {
    let [middle, tail]: [fn(&Figure) -> f64; 2] = [|turn| turn.middle, |turn| turn.tail];
    let over = |field, against| is_better(own, other, field) && !is_better(other, own, against);
    over(middle, tail) || over(tail, middle)
}

/// Whether one engine was better in most of the turns for which both have a figure.
fn is_better((_, own): &Figures, (_, other): &Figures, field: fn(&Figure) -> f64) -> bool {
    let both: Vec<_> = own
        .iter()
        .zip(other)
        .filter_map(|(own, other)| Some((field(own.as_ref()?), field(other.as_ref()?))))
        .collect();
    let won = both
        .iter()
        .filter(|(own, other)| own * (1.0 + MIN_ADVANTAGE) + MIN_ADVANTAGE_NS < *other)
        .count();
    both.len() >= MIN_COMMON_TURNS && won as f64 > MIN_WIN_SHARE * both.len() as f64
}

/// Shortens the pattern to one train of fewer packets, or to fewer pairs.
fn short(pattern: &Pattern) -> Pattern {
    let fitting = |gap: f64| {
        let gaps = (MAX_TURN_TIME.0 as f64 / gap.max(1.0)) as usize;
        (gaps + 1).clamp(MIN_PACKETS, MAX_PACKETS) as u32
    };
    match pattern.clone() {
        Pattern::Pair { gap, .. } => {
            Pattern::Pair { pairs: PAIRS_PER_TURN, gap: gap.min(MAX_PAIR_GAP) }
        }
        Pattern::Train { count, gap, .. } => {
            Pattern::Train { count: count.min(fitting(gap)), repeat: 1, gap, pause: None }
        }
        Pattern::Poisson { count, mean, seed, .. } => {
            let count = count.min(fitting(mean));
            Pattern::Poisson { count, repeat: 1, mean, seed, pause: None }
        }
        Pattern::Replay { mut gaps, .. } => {
            let mut time = Nanos::ZERO;
            let fit = gaps.iter().take_while(|gap| {
                time += **gap;
                time <= MAX_TURN_TIME
            });
            let fit = fit.count();
            gaps.truncate(fit.clamp(MIN_PACKETS - 1, MAX_PACKETS - 1));
            Pattern::Replay { gaps, repeat: 1, pause: None }
        }
    }
}

/// Lets every engine send once per round, on a separate thread, with a warm-up before its first
/// turn. Turns completed before a stop are kept.
fn take_turns(
    job: &PaceJob,
    setup: &PaceSetup,
    senders: Senders,
    (departures, lead_in): (&Departures, usize),
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Vec<Turn>, Senders), Failure> {
    let real_time =
        placement::real_time(&setup.place, train_time(departures) <= MAX_REALTIME_TRAIN_TIME);
    let engines = senders.len();
    // One number is left out, so that the last packet of a turn and the first of the next are not
    // neighbours.
    let numbers = (departures.at().len() + departures.trains().len()) as u64;
    let (results, completed) = mpsc::channel();
    thread::scope(|scope| {
        let sending = scope.spawn(move || -> io::Result<_> {
            cpu::place_thread(job.place.cpu, real_time)?;
            let mut senders = senders;
            let (start, mut rounds, mut round) = (monotonic(), MIN_ROUNDS, 0);
            while round < rounds && !stop.load(Ordering::Relaxed) {
                for engine in 0..engines {
                    let turn = (round * engines + engine) as u64;
                    let first = (FIRST_UNCOUNTED_ID | FIRST_UNCOUNTED_ID >> 1) + turn * numbers;
                    let (sent_trains, trains) = mpsc::channel();
                    let sender = senders.remove(0);
                    let warm_up = u32::from(round == 0);
                    let driver =
                        Driver { sender, departures, lead_in, first, warm_up, stop, sent_trains };
                    senders.push(driver.run());
                    let trains = trains.into_iter().filter(|train| train.number.is_some());
                    let turns = trains.map(|train| Turn { engine, first, train }).collect();
                    // Sending fails only if the receiving thread has failed.
                    let _ = results.send((turns, rounds * engines));
                }
                if round == 0 {
                    let fit = TIME_BUDGET.0 / (monotonic() - start).0.max(1);
                    rounds = (fit as usize).clamp(MIN_ROUNDS, MAX_ROUNDS);
                }
                round += 1;
            }
            Ok(senders)
        });
        let mut all: Vec<Turn> = Vec::new();
        for (done, (turns, of)) in (1..).zip(completed) {
            let turns: Vec<Turn> = turns;
            all.extend(turns);
            progress(done, of);
        }
        let senders = sending.join().expect("the timing loop does not panic")?;
        Ok((all, senders))
    })
}

/// Returns the arrivals that the sink recorded for all turns.
fn arrivals(far: &mut FarEnd, turns: &[Turn]) -> anyhow::Result<Arrivals> {
    let sent = turns.iter().flat_map(|turn| &turn.train.left);
    let expected = sent.filter(|left| left.app.is_some()).count();
    far.arrivals(FIRST_UNCOUNTED_ID | FIRST_UNCOUNTED_ID >> 1..u64::MAX, expected)
        .context("--sink: the far end is gone")
}

impl Turn {
    /// Returns the figures of the turn; `None` without enough timestamps.
    fn figure(
        &self,
        setup: &PaceSetup,
        departures: &Departures,
        source: Source,
        arrivals: Option<&Arrivals>,
    ) -> Option<Figure> {
        let first = self.first + first_id(departures, self.train.number?);
        let on_schedule = self.train.on_schedule(departures, |index, departure| {
            let id = first + index as u64;
            source.of(
                departure,
                arrivals.and_then(|arrivals| arrivals.of(id)).map(|arrival| arrival.at),
            )
        })?;
        let sent = on_schedule.sent();
        let ids = first..first + sent.due.len() as u64;
        let sent = TrainDepartures {
            stepped: sent.stepped || source.stepped_during(ids, arrivals),
            ..sent
        };
        if setup.is_pairs() {
            return match sent.left[..] {
                [Some(first), Some(second)] if second > first && !sent.stepped => {
                    let gap = (second - first).0 as f64;
                    Some(Figure { middle: gap, tail: gap })
                }
                _ => None,
            };
        }
        let figures = TrainFigures::of(&sent, &setup.request(false))?.gap_error;
        let [middle, tail] = [figures.p50.or(figures.max)?, figures.p95.or(figures.max)?];
        Some(Figure { middle: middle.0 as f64, tail: tail.0 as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn with equal median and percentile.
    fn both(error: f64) -> Option<Figure> {
        Some(Figure { middle: error, tail: error })
    }

    #[test]
    fn better_median_beats_lucky_tail() {
        use PaceEngine::{SleepSpin, Spin};
        let of = |engine, middle, tails: [f64; 4]| {
            (engine, tails.map(|tail| Some(Figure { middle, tail })).to_vec())
        };
        let spin = of(Spin, 100.0, [5_000.0, 400.0, 5_000.0, 600.0]);
        let sleeping = of(SleepSpin, 300.0, [500.0, 5_000.0, 700.0, 5_000.0]);
        assert_eq!(chosen(&[sleeping, spin.clone()], &PaceEngine::candidates(false)), Some(Spin));
        let sleeping = of(SleepSpin, 300.0, [300.0; 4]);
        assert_eq!(
            chosen(&[sleeping, spin.clone()], &PaceEngine::candidates(false)),
            Some(SleepSpin),
            "each is better by one figure"
        );
        let same = of(SleepSpin, 100.0, [500.0; 4]);
        assert_eq!(chosen(&[same, spin], &PaceEngine::candidates(true)), Some(Spin));
    }

    #[test]
    fn unbeaten_engines_are_chosen_by_preference() {
        use PaceEngine::{Gso, PacketRing, Sendmmsg, SleepSpin, Spin};
        let of = |figures: &[(PaceEngine, [f64; 4])]| {
            let some = |(engine, turns): &(_, [f64; 4])| (*engine, turns.map(both).to_vec());
            chosen(&figures.iter().map(some).collect::<Vec<_>>(), &PaceEngine::candidates(false))
        };
        // Better in three of four turns, and in all turns but by too little.
        let by_chance = (Spin, [300.0, 300.0, 300.0, 900.0]);
        let by_little = (PacketRing, [410.0, 410.0, 410.0, 410.0]);
        let first = (SleepSpin, [500.0, 500.0, 500.0, 500.0]);
        assert_eq!(of(&[by_little, by_chance, first]), Some(SleepSpin));
        let better = (Sendmmsg, [409.0, 400.0, 400.0, 400.0]);
        assert_eq!(of(&[better, (SleepSpin, [501.0; 4]), (Spin, [495.0; 4])]), Some(Spin));
        assert_eq!(of(&[(Spin, [900.0; 4]), (Gso, [90.0; 4]), (Sendmmsg, [400.0; 4])]), Some(Gso));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn cyclic_wins_are_decided_by_best_turn() {
        use PaceEngine::{Gso, Sendmmsg, Spin};
        let of = |engine, middles: [f64; 8], tails: [f64; 8]| {
            let turns = middles.into_iter().zip(tails);
            (engine, turns.map(|(middle, tail)| Some(Figure { middle, tail })).collect::<Vec<_>>())
        };
        let [few, many] = [900.0, 9_000.0];
        let spin = of(Spin, [2_000.0; 8], [few, many, few, many, few, many, few, many]);
        let mut middles = [4_000.0; 8];
        middles[0] = 1_000.0;
        let mmsg = of(Sendmmsg, middles, [few, few, few, few, 800.0, few, few, few]);
        let mut middles = [500.0; 8];
        (middles[0], middles[1]) = (1_000.0, 4_000.0);
        let gso = of(Gso, middles, [many; 8]);
        assert!(beats(&spin, &mmsg) && beats(&mmsg, &gso) && beats(&gso, &spin));
        assert_eq!(chosen(&[spin, mmsg, gso], &PaceEngine::candidates(false)), Some(Sendmmsg));
    }

    #[test]
    fn turns_without_a_figure_are_not_compared() {
        let spin = [Some(500.0), None, Some(500.0), Some(500.0), Some(500.0), Some(500.0)];
        let ring = [Some(100.0), Some(1.0), None, Some(100.0), Some(100.0), Some(100.0)];
        let of = |engine, turns: &[Option<f64>]| {
            (engine, turns.iter().map(|turn| turn.and_then(both)).collect::<Vec<_>>())
        };
        let both = [of(PaceEngine::Spin, &spin), of(PaceEngine::PacketRing, &ring)];
        assert_eq!(chosen(&both, &PaceEngine::candidates(false)), Some(PaceEngine::PacketRing));
        let few = [of(PaceEngine::Spin, &spin[..3]), of(PaceEngine::PacketRing, &ring[..3])];
        assert_eq!(
            chosen(&few, &PaceEngine::candidates(false)),
            Some(PaceEngine::Spin),
            "one turn is too few"
        );
    }

    #[test]
    fn disturbed_trains_do_not_lower_engine_figure() {
        let of = |turns: &[f64], pairs| {
            figure_of(&turns.iter().copied().filter_map(both).collect::<Vec<_>>(), pairs)
        };
        assert_eq!(of(&[9.0, 80.0, 3.0, 4.0, 70.0, 2.0, 60.0, 50.0, 5.0], false), both(4.0));
        assert_eq!(of(&[9.0, 1.0, 3.0], true), both(3.0));
        assert_eq!(figure_of(&[], false), None);
    }

    #[test]
    fn turn_is_short_for_every_pattern() {
        let millis = |n| Nanos::from_millis(n);
        let of = |pattern| short(&pattern).departures().unwrap();
        let train = |gap| Pattern::Train { count: 50, repeat: 20, gap, pause: None };
        for (gap, packets) in [(12_000.0, 22), (1e7, 6), (1e9, 4)] {
            assert_eq!(of(train(gap)).at().len(), packets, "{gap}");
        }
        let gaps = [1, 2, 30, 1, 90].map(millis).to_vec();
        let replay = of(Pattern::Replay { gaps, repeat: 9, pause: None });
        assert_eq!(replay.at().len(), 5);
        let pairs = of(Pattern::Pair { pairs: 1_000, gap: millis(60_000) });
        assert_eq!((pairs.trains().len(), pairs.at()[2]), (8, millis(10)));
    }
}
