//! The order of arrival does not matter, nor do repeated deliveries.

use dwell_rollup::{Level, Name, Record};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::agent::{Agent, DAY, NOW, deliver, message};
use crate::state::TestStore;
use crate::{postgres, sqlite_store, state};

/// An event in the life of a node.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A roll-up of 10 s or 5 min, with this round trip in milliseconds.
    Rollup {
        is_short: bool,
        ms: i64,
    },
    Status,
    /// The clock is set right, if it was wrong.
    SetClock,
    /// The clock is set back by some minutes.
    StepBack,
    /// The agent restarts, perhaps with the kernel; then its clock is wrong.
    Restart {
        with_kernel: bool,
    },
    /// Time passes.
    Wait {
        minutes: i64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (any::<bool>(), 1..500_i64).prop_map(|(is_short, ms)| Event::Rollup { is_short, ms }),
        2 => Just(Event::Status),
        1 => Just(Event::SetClock),
        1 => Just(Event::StepBack),
        1 => any::<bool>().prop_map(|with_kernel| Event::Restart { with_kernel }),
        1 => (1..600_i64).prop_map(|minutes| Event::Wait { minutes }),
    ]
}

/// Returns the records of a node, in the order in which it wrote them.
fn records(node: &str, events: &[Event]) -> Vec<Record> {
    let started = NOW - 14 * DAY;
    let (mut incarnation, mut boot) = (1, 1);
    let mut agent = Agent::new(node, incarnation, boot, started);
    let mut records = Vec::new();
    let mut true_ns = started;
    for event in events {
        let before = agent.boot_ns;
        match *event {
            Event::Rollup { is_short, ms } => {
                let level = if is_short { Level::TenSeconds } else { Level::FiveMinutes };
                records.push(agent.rollup(level, &[ms, 2 * ms]));
            }
            Event::Status => records.push(agent.status()),
            Event::SetClock => agent.step_clock(true_ns - agent.wall_ns()),
            Event::StepBack => agent.step_clock(-7 * 60_000_000_000),
            Event::Restart { with_kernel } => {
                incarnation += 1;
                let boot_ns = if with_kernel { 0 } else { agent.boot_ns };
                // A board without a clock of its own starts in 1970.
                let wall = if with_kernel { 0 } else { agent.wall_ns() - agent.boot_ns };
                boot += u8::from(with_kernel);
                agent = Agent::new(node, incarnation, boot, wall);
                agent.boot_ns = boot_ns;
                continue;
            }
            Event::Wait { minutes } => agent.wait(minutes * 60_000_000_000),
        }
        true_ns += agent.boot_ns - before;
    }
    records
}

type Lives = Vec<Vec<Event>>;

/// The seed of each record's place, and whether it is sent again.
type Seeds = Vec<(u64, bool)>;

/// Whether records in random order, some of them several times, give the same state.
fn any_order_gives_the_same_state(
    lives: &Lives,
    seeds: &Seeds,
    create: &dyn Fn() -> TestStore,
) -> Result<(), TestCaseError> {
    let nodes: Vec<String> = (0..lives.len()).map(|n| format!("n{n}")).collect();
    let records: Vec<(Name, Record)> = nodes
        .iter()
        .zip(lives)
        .flat_map(|(node, life)| records(node, life))
        .map(|record| (record.identity.node.clone(), record))
        .collect();
    let mut in_order = create();
    for life in records.chunk_by(|(a, _), (b, _)| a == b) {
        for part in life.chunks(5) {
            let of_part = part.iter().map(|(_, record)| record);
            deliver(&mut *in_order, &part[0].0, &message(of_part)).unwrap();
        }
    }
    // Records in random order, some of them several times, in messages of several records.
    let mut shuffled: Vec<(u64, &(Name, Record))> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let (seed, is_resent) = seeds[at % seeds.len()];
        shuffled.push((seed, record));
        shuffled.extend(is_resent.then(|| (seed.rotate_left(17), record)));
    }
    shuffled.sort_by_key(|(seed, _)| *seed);
    let mut any_order = create();
    let mut left = &shuffled[..];
    while let Some((seed, (node, _))) = left.first() {
        let of_node = left.iter().take_while(|(_, (other, _))| other == node).count();
        let (batch, rest) = left.split_at(of_node.min(1 + (*seed % 7) as usize));
        let batch = batch.iter().map(|(_, (_, record))| record);
        deliver(&mut *any_order, node, &message(batch)).unwrap();
        left = rest;
    }
    prop_assert_eq!(state::state(&mut *in_order), state::state(&mut *any_order));
    Ok(())
}

/// Runs cases with databases of this kind.
fn check(cases: u32, create: &dyn Fn() -> TestStore) {
    let lives = prop::collection::vec(prop::collection::vec(event(), 1..40), 1..3);
    let seeds = prop::collection::vec((any::<u64>(), any::<bool>()), 200);
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let outcome = runner.run(&(lives, seeds), |(lives, seeds)| {
        any_order_gives_the_same_state(&lives, &seeds, create)
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn shuffled_and_resent_records_give_the_same_state() {
    check(24, &sqlite_store);
}

#[test]
fn any_order_gives_the_same_state_on_postgres() {
    if let Some(server) = postgres::server_for("order::any_order_gives_the_same_state_on_postgres")
    {
        check(4, &|| postgres::store(server));
    }
}
