//! One test suite for all databases of a hub.

mod agent;
mod alerts;
mod clocks;
mod collect;
mod order;
mod postgres;
mod postgres_server;
mod queries;
mod samples;
mod scale;
mod state;
mod suite;
mod windows;

use dwell_hub::{HubError, SqliteStore};

use state::TestStore;

/// Runs a test of the suite with each database.
macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::suite::$test(&super::sqlite_store);
            })+
        }

        mod on_postgres {
            $(#[test]
            fn $test() {
                let test = concat!("on_postgres::", stringify!($test));
                if let Some(server) = super::postgres::server_for(test) {
                    super::suite::$test(&|| super::postgres::store(server));
                }
            })+
        }
    };
}

suite!(
    alert_fires_and_clears_on_stored_records,
    batch_of_several_nodes_is_one_transaction,
    clock_at_1970_is_dated_by_a_later_status,
    clock_years_ahead_is_undated_until_a_pairing,
    computed_rows_equal_the_merge_of_their_records,
    corrupt_record_among_a_thousand_is_kept_raw,
    daily_window_completes_a_longer_condition,
    day_and_hour_are_recomputed_when_a_late_record_arrives,
    dropped_records_are_not_missing,
    duplicate_is_receipted_and_not_doubled,
    expired_record_is_receipted_and_counted,
    failed_transaction_changes_nothing,
    flood_of_incarnations_is_bounded,
    flood_of_small_bad_records_is_bounded,
    flood_of_streams_and_bad_bytes_is_bounded,
    flood_of_undated_records_is_bounded,
    forged_node_name_is_kept_raw_without_a_receipt,
    kept_record_without_a_place_stays_kept,
    second_kept_record_of_an_identity_stays_kept,
    late_data_sends_no_message,
    largest_sequence_number_has_a_receipt,
    mesh_has_missing_stale_and_paused_streams,
    late_record_of_14_days_is_stored_and_of_16_is_undated,
    message_is_given_up_after_a_day,
    message_is_kept_until_it_is_delivered,
    nearer_pairing_moves_a_dated_record,
    node_of_a_new_schedule_is_not_silent_at_once,
    paused_reflector_and_maintenance_suppress,
    query_has_counts_coverage_and_supported_percentiles,
    query_names_what_exists,
    resent_record_after_its_partition_is_gone_is_a_duplicate,
    schedule_versions_are_kept,
    second_hub_takes_over_when_the_lease_ends,
    silence_counts_from_the_end_of_maintenance,
    silent_site_makes_one_message,
    start_just_before_a_boundary_belongs_to_the_interval,
    stepped_clock_keeps_its_own_times,
    stream_without_rows_is_removed,
    texts_are_kept_by_kind_and_key,
    text_with_a_nul_character_is_kept,
    time_before_synchronisation_is_corrected,
    two_hubs_store_the_same_records_at_once,
    two_machines_of_one_name_are_both_kept,
    unknown_version_is_stored_after_the_upgrade,
    unrequested_samples_have_no_receipt,
    windows_are_the_merge_of_the_last_rows,
    wrong_clock_of_the_hub_changes_nothing,
);

/// A store in a directory of its own.
fn sqlite_store() -> TestStore {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    TestStore::new(move || Box::new(SqliteStore::open(&path).unwrap()), dir)
}

#[test]
fn full_disk_makes_no_record_bad() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(dir.path()).unwrap();
    let mut agent = agent::Agent::new("a", 1, 1, agent::NOW - agent::HOUR);
    store.limit_pages(60).unwrap();
    let mut delivered = Vec::new();
    let error = loop {
        let message = agent.messages_of_an_hour();
        match agent::deliver(&mut store, &agent.node, &message) {
            Ok(_) => delivered.push(message),
            Err(error) => {
                delivered.push(message);
                break error;
            }
        }
        assert!(delivered.len() < 1_000);
    };
    assert!(error.is_full(), "{error:?}");
    let bad = |store: &mut SqliteStore| {
        use dwell_hub::store::HubStore;
        store.begin_to_read().unwrap().bad(None, 1).unwrap().len()
    };
    assert_eq!(bad(&mut store), 0);
    store.limit_pages(u32::MAX).unwrap();
    let mut expected = sqlite_store();
    for message in &delivered {
        agent::deliver(&mut store, &agent.node, message).unwrap();
        agent::deliver(&mut *expected, &agent.node, message).unwrap();
    }
    assert_eq!(state::state(&mut store), state::state(&mut *expected));
    assert_eq!(bad(&mut store), 0);
}

#[test]
fn two_hubs_send_an_alert_once() {
    use dwell_hub::alert::{AlertEvaluator, claim, complete};
    let dir = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(dir.path()).unwrap();
    let rules = "version = 1\n[[alert]]\nname = \"slow\"\nwhen = \"p99 > 20ms for 5m\"\n\
                 pairs = [\"a:b\"]\nnotify = [\"ops\"]\n\
                 [notify.ops]\nwebhook = \"http://127.0.0.1:9/\"\n";
    alerts::prepare(&mut store, rules);
    let mut agent = agent::Agent::new("a", 1, 1, agent::NOW);
    let records = alerts::five_minutes(&mut agent, 50);
    let arrival = agent.wall_ns() + agent::SECOND;
    agent::deliver_at(&mut store, &agent.node, &agent::message(&records), arrival).unwrap();
    let hubs = ["hub 1", "hub 2"].map(|hub| {
        let mut store = SqliteStore::open(dir.path()).unwrap();
        let mut evaluator = AlertEvaluator::new(hub.to_owned());
        std::thread::spawn(move || {
            let mut sent = 0;
            for turn in 0..20 {
                let now = arrival + (70 + turn) * agent::SECOND;
                evaluator.round(&mut store, &Default::default(), now).unwrap();
                while let Some(claimed) = claim(&mut store, None, now).unwrap() {
                    complete(&mut store, &claimed, Ok(()), now).unwrap();
                    sent += 1;
                }
            }
            sent
        })
    });
    let sent: Vec<i32> = hubs.into_iter().map(|hub| hub.join().unwrap()).collect();
    assert_eq!(sent.iter().sum::<i32>(), 1, "{sent:?}");
}

#[test]
fn second_process_reads_while_the_hub_writes() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(SqliteStore::open_to_read(dir.path()), Err(HubError::Missing(_))));
    let mut hub = SqliteStore::open(dir.path()).unwrap();
    let mut reader = SqliteStore::open_to_read(dir.path()).unwrap();
    let mut agent = agent::Agent::new("a", 1, 1, agent::NOW - agent::HOUR);
    let message = agent.messages_of_an_hour();
    agent::deliver(&mut hub, &agent.node, &message).unwrap();
    assert_eq!(state::state(&mut reader), state::state(&mut hub));
}
