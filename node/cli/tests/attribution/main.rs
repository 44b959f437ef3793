//! Tests of attribution: packets are held for a known time at a known place, and only the delay
//! component of that place may rise, by that time.
//!
//! Needs root and two processors. Here a test fails only if noise cannot explain the result, and
//! one hold time is tried. `make accuracy` tries three, requires the medians themselves to be within the
//! limits and prints every component, to check the machine at hand (docs/anatomy.md).

#[path = "../lab/fixture.rs"]
#[expect(dead_code, reason = "tests of labs use the rest")]
mod fixture;
mod joined;
mod noise;
mod rig;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dwell_stats::{DelayComponent, Leg, LinkEndpoints, PathComponent};

use fixture::{as_root, has, skip};
use rig::{Forwarding, Hold, Labs, Place};
use verdict::{Rise, RiseVerdict};

/// Hold times in microseconds.
const SHORT_HOLD_TIMES_US: &[i64] = &[200];
/// The same for strict tests.
const STRICT_HOLD_TIMES_US: &[i64] = &[20, 200, 2_000];

/// Minimum number of cycles. In a cycle, every hold has one round, next to rounds without a hold.
const MIN_CYCLES: usize = 5;

/// Maximum number of cycles; with this many, eight outliers do not hide a wrong component.
const MAX_CYCLES: usize = 49;

/// The same for strict tests: the median of the wires, the noisiest component, then stays within
/// 0.5 us.
const MAX_STRICT_CYCLES: usize = 149;

/// Time in which all holds that are not settled get further cycles. After it, only holds that seem
/// wrong do. `make accuracy` has no such limit.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(7);

/// Time limit once there are [`DECISIVE_CYCLES`] cycles.
const SUSPECT_TIMEOUT: Duration = Duration::from_secs(150);

/// Number of cycles that suffices to call a component wrong if all of them say so
/// (`verdict::VERDICT_TAIL`).
const DECISIVE_CYCLES: usize = 17;

/// One test at a time: this process has real-time priority, and so have its computations.
static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the component in which a hold at `place` must show.
fn matching(place: Place, forwarding: Forwarding) -> PathComponent {
    match (place, forwarding) {
        (Place::Program, _) => PathComponent::Component(DelayComponent::Processing),
        (Place::Socket, _) => PathComponent::Component(DelayComponent::QueueingIn),
        // Netfilter's last hook is before the queueing discipline.
        (Place::Qdisc, Forwarding::Route) => PathComponent::Leg(Leg::LinkOut),
        (Place::Qdisc, _) => PathComponent::Component(DelayComponent::Qdisc),
        (Place::Wire, _) => PathComponent::Leg(Leg::LinkIn),
    }
}

fn assert_attribution(forwarding: Forwarding, places: &[Place]) {
    if !as_root() || ["tc", "taskset", "chrt", "renice"].into_iter().any(|program| !has(program)) {
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("needs two processors, one for the relay and one for the ends");
        return;
    }
    let _alone = alone();
    if !rig::set_realtime_priority() {
        skip("needs real-time scheduling (SCHED_FIFO), which is not permitted here");
        return;
    }
    let strict = std::env::var("DWELL_ATTRIBUTION").is_ok_and(|how| how == "strict");
    let times = if strict { STRICT_HOLD_TIMES_US } else { SHORT_HOLD_TIMES_US };
    let labs = Labs::up(forwarding, times);
    let mut proof = Proof::new(forwarding, places, times);
    let since = Instant::now();
    for cycle in 0..if strict { MAX_STRICT_CYCLES } else { MAX_CYCLES } {
        proof.cycle(&labs, cycle);
        if cycle + 1 >= MIN_CYCLES {
            let elapsed = since.elapsed();
            proof.undecided.retain(|hold| {
                judged(&proof.rises[hold]).any(|(_, rise)| match strict {
                    true => rise.judge() == RiseVerdict::CannotTell,
                    false if elapsed < SETTLE_TIMEOUT => !rise.is_settled(),
                    false => {
                        (cycle + 1 < DECISIVE_CYCLES || elapsed < SUSPECT_TIMEOUT)
                            && rise.may_be_wrong()
                    }
                })
            });
        }
        if proof.undecided.is_empty() {
            break;
        }
    }
    proof.print();
    let wrong = proof.wrong(strict);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Excludes the total delay: it is the sum of the others.
fn judged(rises: &[(PathComponent, Rise)]) -> impl Iterator<Item = &(PathComponent, Rise)> {
    rises.iter().filter(|(component, _)| *component != PathComponent::Leg(Leg::EndToEnd))
}

/// Results of every hold.
struct Proof {
    forwarding: Forwarding,
    rises: BTreeMap<Hold, Vec<(PathComponent, Rise)>>,
    undecided: BTreeSet<Hold>,
}

impl Proof {
    fn new(forwarding: Forwarding, places: &[Place], times: &[i64]) -> Self {
        let holds = places
            .iter()
            .flat_map(|place| times.iter().map(|micros| Hold { place: *place, micros: *micros }));
        let undecided: BTreeSet<Hold> = holds.collect();
        let rises = undecided.iter().map(|hold| (*hold, Vec::new())).collect();
        Self { forwarding, rises, undecided }
    }

    /// Runs a round of every undecided hold and of its base, in alternating order, so that drift
    /// affects differences in both directions.
    fn cycle(&mut self, labs: &Labs, cycle: usize) {
        let holds = self.undecided.iter().flat_map(|hold| [hold.base(), *hold]);
        let mut turns: Vec<Hold> = holds.collect::<BTreeSet<_>>().into_iter().collect();
        if cycle % 2 == 1 {
            turns.reverse();
        }
        let rounds: BTreeMap<Hold, _> =
            turns.into_iter().map(|hold| (hold, labs.round(hold))).collect();
        for hold in &self.undecided {
            let (held, base) = (&rounds[hold], &rounds[&hold.base()]);
            let mut components = LinkEndpoints::of(&held.ways).sum();
            components.push(PathComponent::Leg(Leg::EndToEnd));
            let rises = self.rises.entry(*hold).or_default();
            for (n, component) in components.into_iter().enumerate() {
                let holds =
                    [matching(hold.place, self.forwarding), PathComponent::Leg(Leg::EndToEnd)];
                let expected = if holds.contains(&component) { 1_000 * hold.micros } else { 0 };
                if rises.len() == n {
                    rises.push((component, Rise::expected(expected)));
                }
                assert_eq!(rises[n].0, component, "every round has the same components");
                rises[n].1.note(base.component_time(component), held.component_time(component));
            }
        }
    }

    fn print(&self) {
        for (hold, rises) in &self.rises {
            let components = rises.iter().map(|(component, rise)| {
                format!(" {} {rise};", component.name().trim_end_matches("_ns"))
            });
            println!("{:?}, held {hold}:{}", self.forwarding, components.collect::<String>());
        }
    }

    /// Returns the components that rose wrongly; if `strict`, also those whose median is beyond the
    /// limit.
    fn wrong(&self, strict: bool) -> Vec<String> {
        let all = self.rises.iter().flat_map(|(hold, rises)| judged(rises).map(move |r| (hold, r)));
        all.filter(|(_, (_, rise))| {
            rise.judge() == RiseVerdict::Wrong || strict && !rise.median_is_within()
        })
        .map(|(hold, (component, rise))| {
            format!("{:?}, held {hold}: {} {rise}", self.forwarding, component.name())
        })
        .collect()
    }
}

#[test]
fn translate_hold_shows_only_where_held() {
    assert_attribution(
        Forwarding::Translate,
        &[Place::Program, Place::Socket, Place::Qdisc, Place::Wire],
    );
}

#[test]
fn encrypt_hold_shows_only_where_held() {
    assert_attribution(
        Forwarding::Encrypt,
        &[Place::Program, Place::Socket, Place::Qdisc, Place::Wire],
    );
}

#[test]
fn decrypt_hold_shows_only_where_held() {
    assert_attribution(
        Forwarding::Decrypt,
        &[Place::Program, Place::Socket, Place::Qdisc, Place::Wire],
    );
}

#[test]
fn route_hold_shows_only_where_held() {
    assert_attribution(Forwarding::Route, &[Place::Qdisc, Place::Wire]);
}
