//! Alerts with several hubs, wrong clocks, changed schedules and rules, and samples that alerts want.

use std::cell::{Cell, RefCell};

use dwell_hub::alert::{
    AlertEvaluator, AlertRound, AppliedRules, Event, Transition, apply_rules, claim, complete,
    deliveries, events, test_receiver,
};
use dwell_hub::store::{HubStore, TextKind};
use dwell_hub::{Collection, HubError, SampleRequest, requests};

use crate::agent::{Agent, DAY, HOUR, NOW, SECOND, deliver_at, message, name};
use crate::alerts::{GONE, MINUTE, SCHEDULE, SLOW, apply_schedule, five_minutes, prepare};
use crate::state::Create;

fn evaluator(hub: &str) -> AlertEvaluator {
    AlertEvaluator::new(hub.to_owned())
}

/// Evaluates; returns what receivers are notified of, and the number of problems.
fn round(
    evaluator: &mut AlertEvaluator,
    store: &mut dyn HubStore,
    now_ns: i64,
) -> (Vec<String>, usize) {
    let round = evaluator.round(store, &|| now_ns).unwrap();
    let AlertRound::Evaluated { transitions, problems } = round else { panic!("{round:?}") };
    let text = |it: &Transition| format!("{} {} {}", it.rule, it.kind.name(), it.alert.subject);
    (transitions.iter().map(text).collect(), problems.len())
}

/// Delivers five minutes of probes that return after this time. Returns when they are evaluated.
fn measure(agent: &mut Agent, store: &mut dyn HubStore, ms: i64) -> i64 {
    let records = five_minutes(agent, ms);
    deliver_at(store, &agent.node, &message(&records), agent.wall_ns() + 20 * SECOND).unwrap();
    agent.wall_ns() + 70 * SECOND
}

fn fired(text: &str) -> (Vec<String>, usize) {
    (vec![text.to_owned()], 0)
}

fn kept_events(store: &mut dyn HubStore) -> Vec<Event> {
    events(&mut *store.begin_to_read().unwrap()).unwrap()
}

pub(crate) fn clock_ahead_stops_no_alerts(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, GONE);
    let mut ahead = evaluator("hub 1");
    assert_eq!(round(&mut ahead, &mut *store, NOW), (Vec::new(), 0));
    let error = ahead.round(&mut *store, &|| NOW + 900 * DAY).unwrap_err();
    assert!(matches!(error, HubError::Clock { .. }), "{error:?}");
    // A clock that is ahead by a day is accepted, and corrected later. The hub starts again.
    let mut agent = Agent::new("a", 1, 1, NOW);
    let (first, second) = (agent.status(), agent.status());
    deliver_at(&mut *store, &agent.node, &message([&first]), NOW + DAY).unwrap();
    assert_eq!(round(&mut ahead, &mut *store, NOW + DAY), (Vec::new(), 0));
    let mut corrected = evaluator("hub 2");
    assert_eq!(
        round(&mut corrected, &mut *store, NOW),
        (Vec::new(), 0),
        "the lease is not in force"
    );
    // Records arrive, so the node is not silent.
    deliver_at(&mut *store, &agent.node, &message([&second]), NOW + MINUTE).unwrap();
    let heard = |store: &mut dyn HubStore| {
        store.begin_to_read().unwrap().nodes().unwrap()[0].last_arrival_ns
    };
    assert_eq!(heard(&mut *store), Some(NOW + MINUTE));
    deliver_at(&mut *store, &agent.node, &message([&second]), NOW - MINUTE).unwrap();
    assert_eq!(heard(&mut *store), Some(NOW + MINUTE), "clocks of hubs differ a little");
    // A message waits for a time that comes, not for one of a wrong clock.
    test_receiver(&mut *store, "ops", NOW + DAY).unwrap();
    let claimed = claim(&mut *store, None, NOW + DAY).unwrap().unwrap();
    complete(&mut *store, &claimed, Err("refused".to_owned()), NOW + DAY).unwrap();
    let again = claim(&mut *store, None, NOW + MINUTE).unwrap().unwrap();
    complete(&mut *store, &again, Err("refused".to_owned()), NOW + MINUTE).unwrap();
    assert_eq!(claim(&mut *store, None, NOW + MINUTE).unwrap(), None);
    let waiting = deliveries(&mut *store.begin_to_read().unwrap()).unwrap();
    assert_eq!(waiting[0].at_ns, NOW + MINUTE, "it is given up a day later");
}

pub(crate) fn time_of_other_hubs_is_no_contact_gap(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, GONE);
    let [mut first, mut second] = ["hub 1", "hub 2"].map(evaluator);
    let mut agent = Agent::new("a", 1, 1, NOW);
    let mut minute = 0;
    let mut pass = |hubs: &mut [&mut AlertEvaluator]| {
        minute += 1;
        let (now_ns, status) = (NOW + minute * MINUTE, agent.status());
        deliver_at(&mut *store, &agent.node, &message([&status]), now_ns).unwrap();
        for (at, hub) in hubs.iter_mut().enumerate() {
            let outcome = hub.round(&mut *store, &|| now_ns).unwrap();
            let has_evaluated = matches!(outcome, AlertRound::Evaluated { .. });
            assert_eq!(has_evaluated, at == 0, "{outcome:?}");
        }
    };
    pass(&mut [&mut first]);
    (0..20).for_each(|_| pass(&mut [&mut second, &mut first]));
    pass(&mut [&mut first]);
    // No hub evaluates for a time, as without the database.
    (0..20).for_each(|_| pass(&mut []));
    (0..2).for_each(|_| pass(&mut [&mut first]));
    let gaps = store.begin_to_read().unwrap().texts(TextKind::ContactGaps).unwrap();
    assert_eq!(gaps.len(), 0, "{gaps:?}");
}

pub(crate) fn long_evaluation_keeps_its_lease(create: Create<'_>) {
    let mut store = create();
    let rules = ["one", "two", "three", "four"]
        .map(|name| format!("[[alert]]\nname = \"{name}\"\nwhen = \"loss > 1% for 24h\"\n"));
    prepare(&mut *store, &format!("version = 1\n{}", rules.concat()));
    let other = RefCell::new((store.open(), evaluator("hub 2")));
    let (calls, outcomes) = (Cell::new(0), RefCell::new(Vec::new()));
    // Each batch takes 20 s, and then the other hub looks.
    let now = || {
        let now_ns = NOW + calls.get() * 20 * SECOND;
        if calls.get() > 0 {
            let (store, evaluator) = &mut *other.borrow_mut();
            outcomes.borrow_mut().push(evaluator.round(&mut **store, &|| now_ns).unwrap());
        }
        calls.set(calls.get() + 1);
        now_ns
    };
    let outcome = evaluator("hub 1").round(&mut *store, &now).unwrap();
    assert!(matches!(outcome, AlertRound::Evaluated { .. }), "{outcome:?}");
    let outcomes = outcomes.into_inner();
    assert!(outcomes.len() >= 4, "{outcomes:?}");
    let is_other = |outcome: &AlertRound| *outcome == AlertRound::OtherHub("hub 1".to_owned());
    assert!(outcomes.iter().all(is_other), "{outcomes:?}");
}

pub(crate) fn alert_of_a_removed_stream_ends(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    let (mut evaluator, mut agent) = (evaluator("hub 1"), Agent::new("a", 1, 1, NOW));
    let now = measure(&mut agent, &mut *store, 50);
    assert_eq!(round(&mut evaluator, &mut *store, now), fired("slow fired a:b mesh"));
    // With one probe per minute there is no p99 of 5 min: the alert stays as it is.
    let slower = format!("{SCHEDULE}interval = \"1min\"\n");
    apply_schedule(&mut *store, now, &slower);
    assert_eq!(round(&mut evaluator, &mut *store, now + 10 * SECOND), (Vec::new(), 1));
    let states = |store: &mut dyn HubStore| {
        store.begin_to_read().unwrap().texts(TextKind::AlertState).unwrap().len()
    };
    assert_eq!(states(&mut *store), 1);
    apply_schedule(&mut *store, now, &SCHEDULE.replace("\"a:b\", ", ""));
    let ended = (vec!["slow cleared a:b mesh".to_owned()], 1);
    assert_eq!(round(&mut evaluator, &mut *store, now + 20 * SECOND), ended);
    assert_eq!(states(&mut *store), 0);
}

pub(crate) fn end_of_a_removed_rule_is_sent(create: Create<'_>) {
    let mut store = create();
    prepare(&mut *store, SLOW);
    let (mut evaluator, mut agent) = (evaluator("hub 1"), Agent::new("a", 1, 1, NOW));
    let now = measure(&mut agent, &mut *store, 50);
    round(&mut evaluator, &mut *store, now);
    let text = "version = 1\n[notify.ops]\nwebhook = \"http://127.0.0.1:9/hook\"\n".to_owned();
    let applied = AppliedRules { applied_ns: now, author: "me".to_owned(), text };
    apply_rules(&mut *store, &applied).unwrap();
    let ended = fired("slow cleared a:b mesh");
    assert_eq!(round(&mut evaluator, &mut *store, now + 10 * SECOND), ended);
    let waiting = deliveries(&mut *store.begin_to_read().unwrap()).unwrap();
    let waiting: Vec<_> = waiting.iter().map(|it| (it.event, it.receiver.as_str())).collect();
    assert_eq!(waiting, [(1, "ops"), (2, "ops")]);
    let line = kept_events(&mut *store)[1].message().subject;
    assert_eq!(line, "[dwell] cleared: slow a:b mesh (no rule watches it any longer)");
}

pub(crate) fn alert_requests_samples_once(create: Create<'_>) {
    let mut store = create();
    let rules = SLOW.replace("notify = ", "samples = true\nnotify = ");
    prepare(
        &mut *store,
        &rules.replacen("version = 1", "version = 1\nnotify_interval = \"0s\"", 1),
    );
    let [mut first, mut second] = ["hub 1", "hub 2"].map(evaluator);
    let mut agent = Agent::new("a", 1, 1, NOW);
    let stored = |store: &mut dyn HubStore| requests(&mut *store.begin_to_read().unwrap()).unwrap();
    let text = |store: &mut dyn HubStore| kept_events(store).pop().unwrap().message().text;
    let now = measure(&mut agent, &mut *store, 50);
    assert_eq!(round(&mut first, &mut *store, now), fired("slow fired a:b mesh"));
    assert_eq!(stored(&mut *store), []);
    let said = text(&mut *store);
    assert!(said.contains("  samples: not requested: no hub collects from a over SSH\n"), "{said}");
    let now = measure(&mut agent, &mut *store, 5);
    assert_eq!(round(&mut first, &mut *store, now), fired("slow cleared a:b mesh"));

    let collection = Collection { node: name("a"), hub: "h@m:/data".to_owned(), fault: None };
    let mut transaction = store.begin().unwrap();
    collection.store(&mut *transaction).unwrap();
    transaction.commit().unwrap();
    let now = measure(&mut agent, &mut *store, 50);
    assert_eq!(round(&mut first, &mut *store, now), fired("slow fired a:b mesh"));
    let [SampleRequest { number: 1, sender, reflector, from_ns, to_ns, author, .. }] =
        &stored(&mut *store)[..]
    else {
        panic!("{:?}", stored(&mut *store))
    };
    assert_eq!((sender, reflector, author.as_str()), (&name("a"), &name("b"), "alert slow"));
    let end_ns = NOW + 15 * MINUTE;
    assert_eq!((*from_ns, *to_ns), (end_ns - 5 * MINUTE, end_ns));
    let said = text(&mut *store);
    assert!(said.contains("  samples: request 1; see `dwell hub samples list`\n"), "{said}");
    let object = kept_events(&mut *store).pop().unwrap().object();
    let samples = &object["alerts"][0]["samples"];
    assert_eq!(samples, &serde_json::json!({ "request": 1, "reason": null }));
    // Neither another round nor another hub requests them again.
    assert_eq!(round(&mut first, &mut *store, now + 10 * SECOND).0, [""; 0]);
    assert_eq!(round(&mut second, &mut *store, now + MINUTE).0, [""; 0]);
    assert_eq!(stored(&mut *store).len(), 1);
    // The alert ends and fires again while the request is open.
    let now = measure(&mut agent, &mut *store, 5);
    assert_eq!(round(&mut second, &mut *store, now), fired("slow cleared a:b mesh"));
    let now = measure(&mut agent, &mut *store, 50);
    assert_eq!(round(&mut second, &mut *store, now), fired("slow fired a:b mesh"));
    assert_eq!(stored(&mut *store).len(), 1);
    let said = text(&mut *store);
    assert!(said.contains("request 1 of this rule for a is not complete"), "{said}");
    // The messages of one firing are those of its event.
    assert_eq!(kept_events(&mut *store).len(), 5);
    assert!(now < NOW + HOUR);
}

pub(crate) fn requests_at_once_have_different_numbers(create: Create<'_>) {
    let store = create();
    let threads = [(); 2].map(|()| {
        let mut store = store.open();
        std::thread::spawn(move || {
            (0..10)
                .map(|_| {
                    let mut transaction = store.begin().unwrap();
                    let request = crate::samples::request_of(NOW - HOUR, NOW);
                    let number = dwell_hub::add_request(&mut *transaction, request).unwrap();
                    transaction.commit().unwrap();
                    number
                })
                .collect::<Vec<_>>()
        })
    });
    let mut numbers: Vec<u64> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    let mut store = store.open();
    assert_eq!(requests(&mut *store.begin_to_read().unwrap()).unwrap().len(), 20);
}
