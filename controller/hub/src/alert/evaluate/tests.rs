//! Sequences of evaluations.

use dwell_rollup::Stream;
use proptest::prelude::*;

use super::*;
use crate::alert::ScheduledStream;
use crate::period::SECOND_NS;

const MINUTE: i64 = 60 * SECOND_NS;

const START: i64 = 20_000 * crate::period::DAY_NS;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Rules about one stream from `a` to `b` and a site of three nodes, evaluated every 30 s.
struct Bench {
    rules: AlertRules,
    watches: Vec<Watch>,
    states: AlertStates,
    now_ns: i64,
    nodes: BTreeMap<Name, NodeFigures>,
}

impl Bench {
    fn new(rules: &str) -> Self {
        let rules = AlertRules::parse(&format!("version = 1\n{rules}")).unwrap();
        let stream = ScheduledStream {
            sender: name("a"),
            stream: Stream { reflector: name("b"), protocol: name("stamp"), entry: name("mesh+b") },
            interval_ns: SECOND_NS,
            windows: Vec::new(),
        };
        let nodes = ["a", "b", "c"].map(name);
        let subjects = |rule: &Rule| match rule.when {
            Condition::Above { .. } => Subjects::Streams(vec![stream.clone()]),
            Condition::Silent(_) => Subjects::Sites(vec![Site {
                subject: Subject::Site("hall".to_owned()),
                nodes: nodes.clone().into(),
            }]),
        };
        let watch = |rule: &Rule| {
            let subjects = Some(subjects(rule));
            let (unsupported, problems) = (Vec::new(), Vec::new());
            Watch { rule: rule.clone(), subjects, unsupported, problems }
        };
        let watches = rules.alert.iter().map(watch).collect();
        let heard = NodeFigures { heard_ns: Some(START), ..NodeFigures::default() };
        let nodes = nodes.map(|node| (node, heard)).into();
        Self { rules, watches, states: AlertStates::new(), now_ns: START, nodes }
    }

    /// Evaluates with a p99 in milliseconds of a time that ends a minute ago.
    fn evaluate(&mut self, p99_ms: Option<f64>, is_complete: bool) -> Vec<String> {
        let value = p99_ms.map(|ms| Value { low: ms * 1e6, high: ms * 1.001e6, n: 300 });
        let measured = Measured { value, is_complete };
        let end_ns = self.now_ns - MINUTE;
        let of = StreamFigures { end_ns, when: measured, clear: measured };
        let streams = self.watches.iter().filter_map(|watch| match &watch.subjects {
            Some(Subjects::Streams(streams)) => {
                Some((alert_key(&watch.rule.name, &streams[0].subject()), of))
            }
            _ => None,
        });
        let figures = Figures {
            streams: streams.collect(),
            nodes: self.nodes.clone(),
            since_ns: START,
            applied_ns: None,
        };
        let (states, transitions) =
            evaluate(&self.rules, &self.watches, &self.states, &figures, self.now_ns);
        self.states = states;
        transitions
            .iter()
            .map(|it| {
                let nodes: Vec<_> = it.alert.nodes.iter().map(Name::as_str).collect();
                format!("{} {} {}", it.rule, it.kind.name(), nodes.join(",")).trim_end().to_owned()
            })
            .collect()
    }

    /// Lets time pass, in which these nodes are heard.
    fn pass(&mut self, ns: i64, heard: &[&str]) {
        self.now_ns += ns;
        for node in heard {
            self.node(node).heard_ns = Some(self.now_ns);
        }
    }

    fn node(&mut self, node: &str) -> &mut NodeFigures {
        self.nodes.get_mut(&name(node)).unwrap()
    }

    /// Evaluates a p99 in milliseconds 30 s later, with all nodes heard.
    fn next(&mut self, p99_ms: f64) -> Vec<String> {
        self.pass(30 * SECOND_NS, &["a", "b", "c"]);
        self.evaluate(Some(p99_ms), true)
    }
}

const SLOW: &str = "[[alert]]\nname = \"slow\"\nwhen = \"p99 > 20ms for 5m\"\n";

const GONE: &str = "[[alert]]\nname = \"gone\"\nwhen = \"silent for 15m\"\n";

#[test]
fn alert_fires_and_clears_once_with_hysteresis() {
    let mut bench = Bench::new(SLOW);
    assert_eq!(bench.next(10.0), [""; 0]);
    assert_eq!(bench.next(19.99), [""; 0], "the bin reaches beyond the limit, but begins below");
    assert_eq!(bench.next(25.0), ["slow fired"]);
    for p99_ms in [30.0, 25.0, 19.0, 16.0, 21.0, 17.0] {
        assert_eq!(bench.next(p99_ms), [""; 0], "{p99_ms}");
    }
    assert_eq!(bench.next(15.9), ["slow cleared"]);
    assert_eq!(bench.next(15.9), [""; 0]);
}

#[test]
fn times_of_a_clock_ahead_delay_no_message() {
    let mut bench = Bench::new(&format!("{SLOW}{GONE}"));
    let later_ns = START + 400 * crate::period::DAY_NS;
    assert_eq!(bench.next(25.0), ["slow fired"]);
    let state = bench.states.values_mut().next().unwrap();
    (state.fired_ns, state.notified_ns) = (Some(later_ns), Some(later_ns));
    assert_eq!(bench.next(25.0), [""; 0]);
    assert_eq!(bench.next(1.0), ["slow cleared"]);
    assert_eq!(bench.next(25.0), ["slow fired"]);
    // Contact since a later time begins anew.
    bench.pass(16 * MINUTE, &["a", "b"]);
    assert_eq!(bench.evaluate(None, false), ["gone fired c"]);
    let state = bench.states.get_mut("gone site hall").unwrap();
    state.nodes.insert(name("c"), Contact::Heard(later_ns));
    let emitted: Vec<String> = (0..14).flat_map(|_| bench.next(25.0)).collect();
    assert_eq!(emitted, ["gone cleared c"]);
}

#[test]
fn incomplete_time_neither_fires_nor_clears() {
    let mut bench = Bench::new(SLOW);
    bench.pass(MINUTE, &[]);
    assert_eq!(bench.evaluate(Some(25.0), false), [""; 0]);
    assert_eq!(bench.states.values().next().unwrap().phase, Phase::Pending);
    assert_eq!(bench.next(25.0), ["slow fired"]);
    assert_eq!(bench.evaluate(Some(1.0), false), [""; 0]);
    assert_eq!(bench.evaluate(None, true), [""; 0], "too few delays for the percentile");
    assert_eq!(bench.next(1.0), ["slow cleared"]);
}

#[test]
fn alert_that_returns_soon_waits_for_the_next_message() {
    let mut bench = Bench::new(&format!("notify_interval = \"15m\"\n{SLOW}"));
    assert_eq!(bench.next(25.0), ["slow fired"]);
    assert_eq!(bench.next(1.0), ["slow cleared"]);
    for _ in 0..28 {
        assert_eq!(bench.next(25.0), [""; 0]);
    }
    assert_eq!(bench.next(25.0), ["slow fired"], "15 min after the first message");
}

#[test]
fn reminder_comes_while_the_alert_fires() {
    let mut bench = Bench::new(&format!("reminder = \"1h\"\n{SLOW}"));
    assert_eq!(bench.next(25.0), ["slow fired"]);
    let mut reminders = 0;
    for _ in 0..240 {
        let emitted = bench.next(25.0);
        assert!(emitted.is_empty() || emitted == ["slow reminder"], "{emitted:?}");
        reminders += emitted.len();
    }
    assert_eq!(reminders, 2);
}

#[test]
fn paused_or_maintained_node_suppresses_its_streams() {
    type Set = fn(&mut NodeFigures, bool);
    let sets: [Set; 2] = [|node, is| node.in_maintenance = is, |node, is| node.is_paused = is];
    for set in sets {
        for node in ["a", "b"] {
            let mut bench = Bench::new(SLOW);
            set(bench.node(node), true);
            assert_eq!(bench.next(25.0), [""; 0]);
            set(bench.node(node), false);
            assert_eq!(bench.next(25.0), ["slow fired"]);
            set(bench.node(node), true);
            assert_eq!(bench.next(1.0), [""; 0], "neither a message that it clears");
            set(bench.node(node), false);
            assert_eq!(bench.next(1.0), ["slow cleared"]);
        }
    }
}

#[test]
fn silent_site_makes_one_message() {
    let mut bench = Bench::new(&format!("{GONE}{SLOW}"));
    bench.pass(MINUTE, &["a"]);
    bench.pass(2 * MINUTE, &["b", "c"]);
    let mut emitted = Vec::new();
    for _ in 0..60 {
        bench.pass(30 * SECOND_NS, &[]);
        // All probes of the stream are slow, or lost.
        emitted.extend(bench.evaluate(Some(500.0), true));
    }
    assert_eq!(emitted, ["gone fired a,b,c"], "node a was silent first");
    // A node that comes back for a moment ends nothing.
    bench.pass(MINUTE, &["a", "b", "c"]);
    assert_eq!(bench.evaluate(None, false), [""; 0]);
    let mut emitted = Vec::new();
    for _ in 0..12 {
        bench.pass(MINUTE, &["a", "b"]);
        emitted.extend(bench.evaluate(None, false));
    }
    assert_eq!(emitted, [""; 0], "node c is silent");
    for _ in 0..8 {
        bench.pass(MINUTE, &["a", "b", "c"]);
        emitted.extend(bench.evaluate(None, false));
    }
    assert_eq!(emitted, ["gone cleared a,b,c"]);
}

#[test]
fn loss_before_a_silence_is_no_alert_of_its_own() {
    let mut bench = Bench::new(&format!("{GONE}{SLOW}"));
    bench.pass(MINUTE, &["a", "b", "c"]);
    for minute in 0..12 {
        // Node b is down, so its stream is bad soon.
        bench.pass(MINUTE, &["a", "c"]);
        let p99_ms = if minute < 2 { 1.0 } else { 500.0 };
        assert_eq!(bench.evaluate(Some(p99_ms), true), [""; 0]);
    }
    // It was only slow to report.
    assert_eq!(bench.next(500.0), ["slow fired"]);
}

#[test]
fn node_that_fails_later_has_a_message_of_its_own() {
    let mut bench = Bench::new(GONE);
    let mut emitted = Vec::new();
    for _ in 0..30 {
        bench.pass(MINUTE, &["b", "c"]);
        emitted.extend(bench.evaluate(None, false));
    }
    for _ in 0..30 {
        bench.pass(MINUTE, &["c"]);
        emitted.extend(bench.evaluate(None, false));
    }
    assert_eq!(emitted, ["gone fired a", "gone fired b"]);
}

#[test]
fn node_that_fails_some_minutes_later_is_named() {
    let mut bench = Bench::new(&GONE.replace("15m", "7m"));
    let mut emitted = Vec::new();
    for minute in 0..30 {
        // Node a fails at once, node b 5 min later.
        bench.pass(MINUTE, if minute < 5 { &["b", "c"] } else { &["c"] });
        let messages = bench.evaluate(None, false).into_iter();
        emitted.extend(messages.map(|message| (minute, message)));
    }
    let expected = [(6, "gone fired a".to_owned()), (14, "gone fired b".to_owned())];
    assert_eq!(emitted, expected, "nodes that fail within minutes share the second message");
}

#[test]
fn node_that_fails_again_has_a_message() {
    let mut bench = Bench::new(&format!("notify_interval = \"1h\"\n{GONE}"));
    let mut emitted = Vec::new();
    for minute in 0..600 {
        // Node a stays down; node b fails for 20 min in each half hour, after the first.
        let is_down = minute >= 30 && minute % 30 < 20;
        bench.pass(MINUTE, if is_down { &["c"] } else { &["b", "c"] });
        let messages = bench.evaluate(None, false).into_iter();
        emitted.extend(messages.map(|message| (minute, message)));
    }
    let (first, again) = emitted.split_at(2);
    assert_eq!(first, [(14, "gone fired a".to_owned()), (44, "gone fired b".to_owned())]);
    let minutes: Vec<_> = again.iter().map(|(minute, _)| *minute).collect();
    assert_eq!(minutes, [104, 164, 224, 284, 344, 404, 464, 524, 584], "{again:?}");
    assert!(again.iter().all(|(_, message)| message == "gone reminder a,b"), "{again:?}");
}

#[test]
fn nodes_are_not_silent_because_no_hub_ran() {
    let mut bench = Bench::new(GONE);
    for node in ["a", "b", "c"] {
        bench.node(node).heard_ns = Some(START - 10 * 3_600 * SECOND_NS);
    }
    bench.node("c").heard_ns = None;
    bench.pass(14 * MINUTE, &[]);
    assert_eq!(bench.evaluate(None, false), [""; 0]);
    bench.pass(MINUTE, &[]);
    assert_eq!(bench.evaluate(None, false), ["gone fired a,b,c"]);
}

#[test]
fn alert_without_its_rule_ends() {
    let mut bench = Bench::new(&format!("{SLOW}{GONE}"));
    assert_eq!(bench.next(25.0), ["slow fired"]);
    bench.watches[0].subjects = None;
    assert_eq!(bench.next(25.0), [""; 0], "the rule has a problem");
    bench.watches.remove(0);
    assert_eq!(bench.next(25.0), ["slow cleared"]);
    assert_eq!(bench.states, AlertStates::new());
}

proptest! {
    /// Fire and clear alternate, no message is sent in maintenance, and messages that an alert fires
    /// have their minimum distance.
    #[test]
    fn messages_alternate_and_none_is_in_maintenance(
        steps in prop::collection::vec(
            (0..4_u8, any::<bool>(), prop::option::of(5.0..40.0_f64), any::<bool>(), 0..8_u8),
            1..200,
        )
    ) {
        let mut bench = Bench::new(&format!("notify_interval = \"5m\"\n{SLOW}{GONE}"));
        let mut open: BTreeMap<String, bool> = BTreeMap::new();
        let mut last_fired: BTreeMap<String, i64> = BTreeMap::new();
        for (minutes, in_maintenance, p99_ms, is_complete, heard) in steps {
            let all = ["a", "b", "c"];
            let heard: Vec<&str> =
                (0..3).filter(|bit| heard & (1 << bit) != 0).map(|bit| all[bit]).collect();
            bench.pass(i64::from(minutes) * 2 * MINUTE + MINUTE, &heard);
            let is_all = in_maintenance && minutes > 1;
            for node in all {
                bench.node(node).in_maintenance = is_all || in_maintenance && node == "a";
            }
            for emitted in bench.evaluate(p99_ms, is_complete) {
                let mut words = emitted.split(' ');
                let (rule, kind) = (words.next().unwrap(), words.next().unwrap());
                let nodes = words.next().unwrap_or_default();
                prop_assert!(!is_all, "{}", emitted);
                prop_assert!(!(in_maintenance && rule == "slow"), "{}", emitted);
                // A site has one clear for all its nodes.
                let subjects: Vec<String> = match nodes {
                    "" => vec![rule.to_owned()],
                    nodes => nodes.split(',').map(|node| format!("{rule} {node}")).collect(),
                };
                for subject in subjects {
                    if kind == "fired" {
                        prop_assert!(!(in_maintenance && subject == "gone a"), "{}", emitted);
                        prop_assert!(!open.get(&subject).copied().unwrap_or(false), "{}", emitted);
                        open.insert(subject.clone(), true);
                        if rule == "slow" {
                            let before = last_fired.insert(subject, bench.now_ns);
                            let is_apart = before.is_none_or(|at| bench.now_ns - at >= 5 * MINUTE);
                            prop_assert!(is_apart, "{}", emitted);
                        }
                    } else if kind == "cleared" {
                        if rule == "slow" {
                            prop_assert_eq!(open.get(&subject), Some(&true));
                        }
                        open.insert(subject, false);
                    }
                }
            }
        }
    }
}
