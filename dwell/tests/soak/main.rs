//! A fleet whose processes are killed at random moments: nothing that a node freed is missing, and nothing
//! is doubled. `make soak-fleet` has more kills.

#[path = "../../../controller/hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod agent;
#[path = "../bus/bus.rs"]
#[expect(dead_code, reason = "shared with the tests of the bus")]
mod bus;
mod comparison;
mod database;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod fleet;
#[path = "../../../controller/bus/tests/queue/network.rs"]
#[expect(dead_code, reason = "shared with the tests of the queue")]
mod network;
mod observer;
#[path = "../../../controller/hub/tests/store/postgres_server.rs"]
mod postgres_server;
mod settings;

use std::process::Command;
use std::thread;
use std::time::Instant;

use dwell_rollup::Level;

use comparison::{Content, differences, sequences};
use fleet::{Fleet, NODES};
use observer::{Observer, Written, beyond};
use settings::{Kill, Settings, Victim};

/// Number of differences that are printed.
const MAX_PRINTED: usize = 20;

#[test]
fn killed_processes_lose_and_double_no_record() {
    let settings = Settings::read();
    let kills = settings.kills(NODES);
    let Some(mut fleet) = Fleet::start() else { return };
    let version = Command::new(network::server_program()).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout);
    println!("{}, {settings:?}", version.trim());
    let observer = Observer::start(&fleet.copies(), fleet.spools());
    fleet.wait_until_all_work();
    fleet.shorten_ack_wait();
    let started = Instant::now();
    for (number, Kill { victim, delay }) in kills.into_iter().enumerate() {
        fleet.change_schedule();
        thread::sleep(delay);
        let (at, killed) = (started.elapsed().as_secs_f64(), Instant::now());
        let deleted = fleet.kill(victim);
        fleet.wait_until_works(victim);
        let (number, time) = (number + 1, killed.elapsed().as_secs_f64());
        print!("kill {number} at {at:.3} s: {victim}; works after {time:.3} s");
        if matches!(victim, Victim::NatsStore { .. }) {
            print!("; {deleted} messages deleted");
            fleet.shorten_ack_wait();
        }
        println!();
        assert_only_committed_is_freed(&mut fleet);
    }
    fleet.stop_agents();
    let Written { entries, freed_files, freed_records } = observer.finish();
    let numbers = sequences(&entries);
    fleet.wait_until_drained(|receipts| beyond(&numbers, receipts).is_empty());
    let time = started.elapsed().as_secs_f64();
    assert_only_committed_is_freed(&mut fleet);
    let (stored, totals) = {
        let mut database = fleet.database();
        (database.stored(), database.totals())
    };
    let count = |is: fn(&Content) -> bool| entries.iter().filter(|it| is(&it.content)).count();
    println!(
        "{} records written in {time:.0} s ({} of 10 s, {} of 5 min, {} status), {freed_records} of them \
         in {freed_files} files freed; {} rows of 1 h and 1 day; {totals:?}",
        entries.len(),
        count(|content| is_of(content, Level::TenSeconds)),
        count(|content| is_of(content, Level::FiveMinutes)),
        count(|content| *content == Content::Status),
        stored.computed.len(),
    );
    let lines = differences(&entries, &stored);
    lines.iter().take(MAX_PRINTED).for_each(|line| println!("{line}"));
    assert!(lines.is_empty(), "{} differences, seed {}", lines.len(), settings.seed);
    assert_eq!((totals.stored, totals.others), (entries.len() as i64, 0), "{totals:?}");
    assert!(freed_files > 0 && !stored.computed.is_empty());
    println!("0 differences");
}

fn is_of(content: &Content, of: Level) -> bool {
    matches!(content, Content::Rollup { level, .. } if *level == of)
}

/// Asserts that every receipt in a spool is of a committed record: an agent frees no other.
fn assert_only_committed_is_freed(fleet: &mut Fleet) {
    let receipts = fleet.receipts();
    let committed = fleet.database().receipts();
    assert_eq!(beyond(&receipts, &committed), [""; 0], "receipts of records that no hub committed");
}
