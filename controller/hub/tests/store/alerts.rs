//! Alerts on stored records.

use std::collections::BTreeMap;

use dwell_hub::alert::{
    AlertEvaluator, AlertRound, AppliedRules, EventKind, Maintenance, announce, apply_rules, claim,
    complete, deliveries, end, events, recover, test_receiver,
};
use dwell_hub::schedule::{Schedule, expand};
use dwell_hub::store::{HubStore, TextKind};
use dwell_hub::{Query, Resolution, query};
use dwell_rollup::{Body, Level, Name, Pause, ProbeCounts, Record, RollupMetric, Status};

use crate::agent::{Agent, HOUR, NOW, SECOND, deliver_at, message, name};
use crate::state::{Create, rows};

pub(crate) const MINUTE: i64 = 60 * SECOND;

pub(crate) const SLOW: &str = "version = 1\n[[alert]]\nname = \"slow\"\nwhen = \"p99 > 20ms for 5m\"\n\
                    pairs = [\"a:b\"]\nnotify = [\"ops\"]\n\
                    [notify.ops]\nwebhook = \"http://127.0.0.1:9/hook\"\n";

pub(crate) const GONE: &str = "version = 1\n[[alert]]\nname = \"gone\"\nwhen = \"silent for 15m\"\n\
                    notify = [\"ops\"]\n[sites]\nhall = [\"a\", \"b\", \"c\"]\n\
                    [notify.ops]\nwebhook = \"http://127.0.0.1:9/hook\"\n";

/// A schedule in which `a` and `c` send a probe per second to `b`.
pub(crate) const SCHEDULE: &str = "version = 1\n[nodes.a]\naddress = \"192.0.2.1\"\n\
                        [nodes.b]\naddress = \"192.0.2.2\"\n[nodes.c]\naddress = \"192.0.2.3\"\n\
                        [[measure]]\nname = \"mesh\"\npairs = [\"a:b\", \"c:b\"]\n";

/// Applies [`SCHEDULE`] and these rules.
pub(crate) fn prepare(store: &mut dyn HubStore, rules: &str) {
    apply_schedule(store, NOW - HOUR, SCHEDULE);
    let applied = AppliedRules { applied_ns: NOW, author: "me".to_owned(), text: rules.to_owned() };
    apply_rules(store, &applied).unwrap();
}

pub(crate) fn apply_schedule(store: &mut dyn HubStore, at_ns: i64, text: &str) {
    let expansion = expand(&Schedule::parse(text).unwrap(), &BTreeMap::new()).unwrap();
    let parts = |version: u64| {
        let part = |node: &Name| (node.clone(), expansion.part(version, node).unwrap().to_json());
        expansion.nodes.keys().map(part).collect()
    };
    let mut transaction = store.begin().unwrap();
    transaction.add_schedule(at_ns, "me", text, &parts).unwrap();
    transaction.commit().unwrap();
}

/// Five minutes of a stream in which nine of ten probes return after this time.
pub(crate) fn five_minutes(agent: &mut Agent, ms: i64) -> Vec<Record> {
    (0..30).map(|_| agent.rollup(Level::TenSeconds, &[ms; 9])).collect()
}

/// Evaluates; returns what receivers are notified of.
fn round(evaluator: &mut AlertEvaluator, store: &mut dyn HubStore, now_ns: i64) -> Vec<String> {
    let round = evaluator.round(store, &|| now_ns).unwrap();
    let AlertRound::Evaluated { transitions, problems } = round else { panic!("{round:?}") };
    assert_eq!(problems, []);
    let text = |it: &dwell_hub::alert::Transition| {
        format!("{} {} {}", it.rule, it.kind.name(), it.alert.subject)
    };
    transitions.iter().map(text).collect()
}

fn evaluator() -> AlertEvaluator {
    AlertEvaluator::new("hub 1".to_owned())
}

pub(crate) fn alert_fires_and_clears_on_stored_records(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    let mut evaluator = evaluator();
    let mut agent = Agent::new("a", 1, 1, NOW);
    let mut deliver = |store: &mut dyn HubStore, ms: i64| {
        let records = five_minutes(&mut agent, ms);
        deliver_at(store, &agent.node, &message(&records), agent.wall_ns() + 20 * SECOND).unwrap();
        agent.wall_ns() + 70 * SECOND
    };
    let now = deliver(&mut *store, 50);
    assert_eq!(round(&mut evaluator, &mut *store, now - 80 * SECOND), [""; 0], "delay");
    assert_eq!(round(&mut evaluator, &mut *store, now), ["slow fired a:b mesh"]);
    assert_eq!(round(&mut evaluator, &mut *store, now + 10 * SECOND), [""; 0]);
    let now = deliver(&mut *store, 18);
    assert_eq!(round(&mut evaluator, &mut *store, now), [""; 0], "within the margin");
    let now = deliver(&mut *store, 5);
    assert_eq!(round(&mut evaluator, &mut *store, now), ["slow cleared a:b mesh"]);
    let stored = events(&mut *store.begin_to_read().unwrap()).unwrap();
    let kinds: Vec<_> = stored.iter().map(|event| (event.id, event.kind)).collect();
    assert_eq!(kinds, [(1, EventKind::Fired), (2, EventKind::Cleared)]);
    let message = stored[0].message();
    assert!(
        message.subject.starts_with("[dwell] fired: slow a:b mesh p99 50.")
            || message.subject.starts_with("[dwell] fired: slow a:b mesh p99 49."),
        "{message:?}"
    );
    let states = store.begin_to_read().unwrap().texts(TextKind::AlertState).unwrap();
    assert_eq!(states.len(), 1, "cleared, until it may fire again");
}

pub(crate) fn late_data_sends_no_message(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    let mut evaluator = evaluator();
    let mut agent = Agent::new("a", 1, 1, NOW);
    let late = five_minutes(&mut agent, 50);
    let now = NOW + 5 * MINUTE + 70 * SECOND;
    assert_eq!(round(&mut evaluator, &mut *store, now), [""; 0]);
    let arrival = NOW + 15 * MINUTE;
    deliver_at(&mut *store, &agent.node, &message(&late), arrival).unwrap();
    for minute in 0..10 {
        assert_eq!(round(&mut evaluator, &mut *store, arrival + minute * MINUTE), [""; 0]);
    }
    assert_eq!(events(&mut *store.begin_to_read().unwrap()).unwrap(), []);
    let question = Query {
        sender: name("a"),
        reflector: name("b"),
        measure: None,
        protocol: None,
        metric: RollupMetric::Rtt,
        from_ns: NOW,
        to_ns: NOW + 5 * MINUTE,
        step_ns: Some(10 * SECOND),
    };
    assert_eq!(rows(&mut *store, Resolution::TenSeconds).len(), 30, "the history has it");
    let answer = query(&mut *store.begin_to_read().unwrap(), &question, arrival).unwrap();
    assert!(answer[0].total.delays.as_ref().unwrap().max_ns >= 50_000_000);
}

pub(crate) fn paused_reflector_and_maintenance_suppress(create: Create<'_>) {
    for case in ["nothing", "pause", "maintenance"] {
        let mut store = create();
        prepare(&mut *store, &SLOW.replace("p99 > 20ms", "loss > 50%"));
        let mut evaluator = evaluator();
        let mut agent = Agent::new("a", 1, 1, NOW);
        let since = NOW + 30 * SECOND;
        if case == "maintenance" {
            let (reason, author) = ("move".to_owned(), "me".to_owned());
            let maintenance = Maintenance { from_ns: since, to_ns: NOW + HOUR, reason, author };
            announce(&mut *store, &name("b"), maintenance).unwrap();
        } else if case == "pause" {
            let mut reflector = Agent::new("b", 2, 2, since);
            let pause = Some(Pause { reason: "run 7".to_owned(), since_wall_ns: since });
            let status = Status { clock_synchronised: true, pause, ..Status::default() };
            let status = reflector.status_with(status);
            deliver_at(&mut *store, &reflector.node, &message([&status]), since).unwrap();
        }
        let mut records = five_minutes(&mut agent, 50);
        // Everything is lost while the reflector is paused.
        for mut record in five_minutes(&mut agent, 50) {
            if let Body::Rollup(rollup) = &mut record.body {
                rollup.counts = ProbeCounts { sent: 10, lost: 10, ..ProbeCounts::default() };
                rollup.delays.clear();
            }
            records.push(record);
        }
        let now = agent.wall_ns() + 20 * SECOND;
        deliver_at(&mut *store, &agent.node, &message(&records), now).unwrap();
        let rounds = (0..12).map(|minute| NOW + minute * MINUTE);
        let emitted: Vec<String> =
            rounds.flat_map(|now| round(&mut evaluator, &mut *store, now)).collect();
        let expected = if case == "nothing" { vec!["slow fired a:b mesh"] } else { Vec::new() };
        assert_eq!(emitted, expected, "{case}");
        let is_ended = end(&mut *store, &name("b"), NOW + 12 * MINUTE).unwrap();
        assert_eq!(is_ended, case == "maintenance");
    }
}

pub(crate) fn silent_site_makes_one_message(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, GONE);
    let mut evaluator = evaluator();
    let mut agents = ["a", "b", "c"].map(|node| Agent::new(node, 1, 1, NOW));
    let mut heard = |store: &mut dyn HubStore, at_ns: i64| {
        for agent in &mut agents {
            let status = agent.status();
            deliver_at(store, &agent.node, &message([&status]), at_ns).unwrap();
        }
    };
    heard(&mut *store, NOW);
    let mut emitted = Vec::new();
    for minute in 0..40 {
        emitted.extend(round(&mut evaluator, &mut *store, NOW + minute * MINUTE));
    }
    assert_eq!(emitted, ["gone fired site hall"]);
    for minute in 40..50 {
        heard(&mut *store, NOW + minute * MINUTE);
        emitted.extend(round(&mut evaluator, &mut *store, NOW + minute * MINUTE));
    }
    assert_eq!(emitted, ["gone fired site hall", "gone cleared site hall"]);
    let stored = events(&mut *store.begin_to_read().unwrap()).unwrap();
    assert_eq!(stored[0].alerts[0].nodes, ["a", "b", "c"].map(name));
    assert!(stored[0].message().subject.ends_with("gone site hall 3 nodes silent"));
}

pub(crate) fn node_of_a_new_schedule_is_not_silent_at_once(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, GONE);
    let mut evaluator = evaluator();
    let mut agents = ["a", "b", "c"].map(|node| Agent::new(node, 1, 1, NOW));
    let mut fired = Vec::new();
    for minute in 0..80 {
        let now = NOW + minute * MINUTE;
        for agent in &mut agents {
            let status = agent.status();
            deliver_at(&mut *store, &agent.node, &message([&status]), now).unwrap();
        }
        if minute == 60 {
            let node = "[nodes.d]\naddress = \"192.0.2.4\"\n[[measure]]";
            let with_d = SCHEDULE.replace("[[measure]]", node);
            apply_schedule(&mut *store, now, &with_d);
        }
        let emitted = round(&mut evaluator, &mut *store, now);
        fired.extend(emitted.into_iter().map(|text| (minute, text)));
    }
    assert_eq!(fired, [(75, "gone fired node d".to_owned())]);
}

pub(crate) fn silence_counts_from_the_end_of_maintenance(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, GONE);
    let mut evaluator = evaluator();
    for node in ["a", "b", "c"] {
        let mut agent = Agent::new(node, 1, 1, NOW);
        let status = agent.status();
        deliver_at(&mut *store, &agent.node, &message([&status]), NOW).unwrap();
        let (reason, author) = ("move".to_owned(), "me".to_owned());
        let (from_ns, to_ns) = (NOW + MINUTE, NOW + 60 * MINUTE);
        let maintenance = Maintenance { from_ns, to_ns, reason, author };
        announce(&mut *store, &agent.node, maintenance).unwrap();
    }
    let mut fired = Vec::new();
    for minute in 0..80 {
        let emitted = round(&mut evaluator, &mut *store, NOW + minute * MINUTE);
        fired.extend(emitted.into_iter().map(|text| (minute, text)));
    }
    assert_eq!(fired, [(75, "gone fired site hall".to_owned())]);
}

pub(crate) fn daily_window_completes_a_longer_condition(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, &SLOW.replace("p99 > 20ms for 5m", "loss > 50% for 2h"));
    let windows = format!("{SCHEDULE}window = \"12:00-13:00\"\n");
    apply_schedule(&mut *store, NOW - 30 * MINUTE, &windows);
    let mut evaluator = evaluator();
    let mut agent = Agent::new("a", 1, 1, NOW);
    let mut emitted = Vec::new();
    for _ in 0..12 {
        let mut record = agent.rollup(Level::FiveMinutes, &[]);
        if let Body::Rollup(rollup) = &mut record.body {
            rollup.counts = ProbeCounts { sent: 300, lost: 300, ..ProbeCounts::default() };
        }
        let now = agent.wall_ns() + 20 * SECOND;
        deliver_at(&mut *store, &agent.node, &message([&record]), now).unwrap();
        emitted.extend(round(&mut evaluator, &mut *store, now));
    }
    emitted.extend(round(&mut evaluator, &mut *store, agent.wall_ns() + 10 * MINUTE));
    assert_eq!(emitted, ["slow fired a:b mesh"]);
}

pub(crate) fn message_is_kept_until_it_is_delivered(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    assert_eq!(test_receiver(&mut *store, "other", NOW).unwrap(), None);
    assert_eq!(test_receiver(&mut *store, "ops", NOW).unwrap(), Some(1));
    assert_eq!(claim(&mut *store, Some(2), NOW).unwrap(), None);
    let first = claim(&mut *store, None, NOW).unwrap().unwrap();
    assert_eq!(first.message.subject, "[dwell] test: ops");
    assert_eq!(claim(&mut *store, None, NOW + MINUTE).unwrap(), None, "claimed by a hub");
    // That hub was killed while it sent the message.
    let again = claim(&mut *store, None, NOW + 4 * MINUTE).unwrap().unwrap();
    assert_eq!(again.message, first.message);
    recover(&mut *store, NOW + 4 * MINUTE).unwrap();
    let again = claim(&mut *store, None, NOW + 4 * MINUTE).unwrap().unwrap();
    let failed = Err("refused".to_owned());
    complete(&mut *store, &again, failed, NOW + 4 * MINUTE).unwrap();
    let waiting = deliveries(&mut *store.begin_to_read().unwrap()).unwrap();
    assert_eq!((waiting[0].attempts, waiting[0].error.as_deref()), (1, Some("refused")));
    assert_eq!(claim(&mut *store, None, NOW + 4 * MINUTE + 9 * SECOND).unwrap(), None);
    let third = claim(&mut *store, None, NOW + 4 * MINUTE + 10 * SECOND).unwrap().unwrap();
    complete(&mut *store, &third, Ok(()), NOW + 5 * MINUTE).unwrap();
    let mut transaction = store.begin_to_read().unwrap();
    assert_eq!(deliveries(&mut *transaction).unwrap(), []);
    let outcome = events(&mut *transaction).unwrap().remove(0).outcomes.remove(0);
    assert_eq!((outcome.attempts, outcome.error), (2, None));
}

pub(crate) fn message_is_given_up_after_a_day(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    test_receiver(&mut *store, "ops", NOW).unwrap();
    let (mut now, mut attempts) = (NOW, 0);
    while now < NOW + 30 * HOUR {
        if let Some(claimed) = claim(&mut *store, None, now).unwrap() {
            complete(&mut *store, &claimed, Err("refused".to_owned()), now).unwrap();
            attempts += 1;
        }
        now += 5 * MINUTE;
    }
    assert!((90..110).contains(&attempts), "{attempts}");
    let outcome =
        events(&mut *store.begin_to_read().unwrap()).unwrap().remove(0).outcomes.remove(0);
    assert_eq!(outcome.error.as_deref(), Some("refused"));
}

pub(crate) fn second_hub_takes_over_when_the_lease_ends(create: Create<'_>) {
    let mut store = create();
    let (mut first, mut second) = (evaluator(), AlertEvaluator::new("hub 2".to_owned()));
    let turn = |of: &mut AlertEvaluator, store: &mut dyn HubStore, now: i64| {
        of.round(store, &|| now).unwrap()
    };
    assert_eq!(turn(&mut first, &mut *store, NOW), AlertRound::NoRules);
    prepare(&mut *store, SLOW);
    assert!(matches!(turn(&mut first, &mut *store, NOW), AlertRound::Evaluated { .. }));
    let other = AlertRound::OtherHub("hub 1".to_owned());
    assert_eq!(turn(&mut second, &mut *store, NOW + 30 * SECOND), other);
    assert!(matches!(
        turn(&mut second, &mut *store, NOW + 50 * SECOND),
        AlertRound::Evaluated { .. }
    ));
    let other = AlertRound::OtherHub("hub 2".to_owned());
    assert_eq!(turn(&mut first, &mut *store, NOW + 60 * SECOND), other);
}
