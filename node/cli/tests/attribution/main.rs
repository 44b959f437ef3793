//! Attribution is what is proven, not that parts sum: packets are held for a known time at a known
//! place, and the part of their delay that is said to lie there rises by that time, and no other.
//!
//! Needs root and two processors; `make attribution` runs it and prints what every part did, so that
//! anybody can check the machine at hand (docs/anatomy.md).

#[path = "../lab/fixture.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod fixture;
mod rig;
mod verdict;
mod ways;

use std::collections::BTreeMap;
use std::sync::Mutex;

use dwell_stats::{Leg, Part, Rungs, Slice};

use fixture::{as_root, has, skip};
use rig::{Hold, Labs, Manner, Place};
use verdict::{Judged, Rise};

/// For so long packets are held.
const TIMES: [i64; 3] = [20, 200, 2_000];

/// Cycles of rounds, in which every hold has its turn beside rounds without any.
const LEAST: usize = 5;
const MOST: usize = 10;

/// Only one of these tests measures at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// Where the time must show that was spent at `place`.
fn matching(place: Place, manner: Manner) -> Slice {
    match (place, manner) {
        (Place::Program, _) => Slice::Part(Part::Processing),
        (Place::Socket, _) => Slice::Part(Part::QueueingIn),
        // Netfilter's last hook is before the queueing discipline.
        (Place::Qdisc, Manner::Route) => Slice::Leg(Leg::LinkOut),
        (Place::Qdisc, _) => Slice::Part(Part::Qdisc),
        (Place::Wire, _) => Slice::Leg(Leg::LinkIn),
    }
}

fn proves(manner: Manner, places: &[Place]) {
    if !as_root() || ["tc", "taskset", "chrt"].into_iter().any(|program| !has(program)) {
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("needs two processors: one for the relay, one for the ends");
        return;
    }
    if !rig::go_first() {
        skip("needs real-time scheduling (SCHED_FIFO), which is not allowed here");
        return;
    }
    let _alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let labs = Labs::up(manner, &TIMES);
    let holds: Vec<Hold> = places
        .iter()
        .flat_map(|place| TIMES.map(|micros| Hold { place: *place, micros }))
        .collect();
    let mut rises: BTreeMap<(Hold, usize), Rise> = BTreeMap::new();
    let mut undecided = holds.clone();
    let mut slices = Vec::new();
    for cycle in 0..MOST {
        let mut bases = BTreeMap::new();
        for hold in &undecided {
            let base = bases.entry(hold.base()).or_insert_with(|| labs.round(hold.base()));
            let held = labs.round(*hold);
            slices = Rungs::of(&held.ways).sum();
            slices.push(Slice::Leg(Leg::EndToEnd));
            for (n, slice) in slices.iter().enumerate() {
                let rise = held.median(*slice) - base.median(*slice);
                let expected = if *slice == matching(hold.place, manner) || n + 1 == slices.len() {
                    1_000 * hold.micros
                } else {
                    0
                };
                rises.entry((*hold, n)).or_insert_with(|| Rise::expected(expected)).note(rise);
            }
        }
        if cycle + 1 >= LEAST {
            undecided.retain(|hold| {
                (0..slices.len() - 1).any(|n| rises[&(*hold, n)].judge() == Judged::CannotTell)
            });
        }
        if undecided.is_empty() {
            break;
        }
    }
    let mut wrong = Vec::new();
    for hold in &holds {
        let mut line = format!("{manner:?}, held {hold}:");
        for (n, slice) in slices.iter().enumerate() {
            let rise = &rises[&(*hold, n)];
            line += &format!(" {} {rise};", slice.name().trim_end_matches("_ns"));
            // That the whole rises too is no more than the sum of the others.
            if n + 1 < slices.len() && !rise.median_is_within() {
                wrong.push(format!("{manner:?}, held {hold}: {} {rise}", slice.name()));
            }
        }
        println!("{line}");
    }
    if !undecided.is_empty() {
        let undecided: Vec<_> = undecided.iter().map(Hold::to_string).collect();
        println!(
            "the medians stand, but their intervals reach beyond the limits: {}",
            undecided.join(", ")
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs a quiet machine and minutes: make attribution"]
fn time_that_a_translated_packet_is_held_shows_where_it_was_held_and_nowhere_else() {
    proves(Manner::Translate, &[Place::Program, Place::Socket, Place::Qdisc, Place::Wire]);
}

#[test]
#[ignore = "needs a quiet machine and minutes: make attribution"]
fn time_that_an_enciphered_packet_is_held_shows_where_it_was_held_and_nowhere_else() {
    proves(Manner::Encrypt, &[Place::Program, Place::Socket, Place::Qdisc, Place::Wire]);
}

#[test]
#[ignore = "needs a quiet machine and minutes: make attribution"]
fn time_that_a_routed_packet_is_held_shows_where_it_was_held_and_nowhere_else() {
    proves(Manner::Route, &[Place::Qdisc, Place::Wire]);
}
