//! Checks `docs/plans.md` against the code: it documents every field and no others, and its plans,
//! like those shipped with dwell, can be run.

use std::collections::BTreeSet;
use std::path::Path;

use dwell_plan::{
    Accurate, Constraint, CpuLoad, CrossPlan, Expansion, FlowPlan, ForwardingMode, LinkPlan, Load,
    Measurement, NodeSettings, PacePlan, PingPlan, Plan, ReflectPlan, RelayPlan, Source, StopRules,
    Topology, TracePlan, TrafficLoad, Trials, expand,
};
use dwell_protocol::{
    FlowParameters, NodePreset, NodeSimParameters, PaceParameters, PingParameters, ProbeStamps,
    ReflectEngine, RelayParameters,
};
use serde::de::DeserializeOwned;

fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans.md");
    std::fs::read_to_string(path).unwrap()
}

/// The fields of a table, taken from serde's message about an unknown field.
fn fields<T: DeserializeOwned>(at: &str) -> Vec<String> {
    let Err(error) = toml::from_str::<T>("no_such_field = 1") else {
        panic!("{at} accepts any field");
    };
    let (_, known) = error.message().split_once("expected ").unwrap();
    let names = known.split('`').skip(1).step_by(2);
    names.map(|name| format!("{at}{name}")).collect()
}

/// The names in the first column of the field tables.
fn documented(text: &str) -> BTreeSet<String> {
    let (_, text) = text.split_once("\n## Fields\n").unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once("` |")).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn documentation_lists_exactly_the_plan_fields() {
    let tables: BTreeSet<String> = [
        "topology",
        "nodes",
        "ping",
        "flow",
        "relay",
        "trace",
        "pace",
        "cross",
        "accurate",
        "reflect",
        "node_sim",
        "loads",
        "matrix",
        "constraint",
        "trials",
        "stop",
    ]
    .map(str::to_owned)
    .into();
    let top: BTreeSet<String> = Plan::field_names().iter().map(|name| (*name).to_owned()).collect();
    assert!(tables.is_subset(&top), "{top:?}");
    assert_eq!(fields::<Load>(""), ["cpu", "traffic"]);
    let mut known: BTreeSet<String> = top.difference(&tables).cloned().collect();
    let in_tables = ["topology.link", "topology.quota"];
    let topology = fields::<Topology>("topology.").into_iter();
    known.extend(topology.filter(|name| !in_tables.contains(&name.as_str())));
    known.insert("topology.quota.NODE".to_owned());
    known.extend(fields::<LinkPlan>("topology.link."));
    known.extend(fields::<NodeSettings>("nodes.NAME."));
    known.extend(fields::<PingPlan>("ping."));
    known.extend(fields::<PingParameters>("ping."));
    known.extend(fields::<FlowPlan>("flow."));
    known.extend(fields::<FlowParameters>("flow."));
    known.extend(fields::<RelayPlan>("relay."));
    known.extend(fields::<RelayParameters>("relay."));
    known.extend(fields::<TracePlan>("trace."));
    known.extend(fields::<PacePlan>("pace."));
    known.extend(fields::<PaceParameters>("pace."));
    known.extend(fields::<CrossPlan>("cross."));
    known.extend(fields::<Accurate>("accurate."));
    known.extend(fields::<ReflectPlan>("reflect."));
    known.extend(fields::<CpuLoad>("loads.NAME.cpu[]."));
    known.extend(fields::<TrafficLoad>("loads.NAME.traffic[]."));
    known.extend(fields::<Constraint>("constraint[]."));
    known.extend(fields::<NodeSimParameters>("node_sim."));
    known.extend(fields::<Trials>("trials."));
    known.extend(fields::<StopRules>("stop."));
    let documented = documented(&documentation());
    let undocumented: Vec<_> = known.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&known).collect();
    assert!(undocumented.is_empty() && unknown.is_empty(), "{undocumented:?} {unknown:?}");
}

#[test]
fn documented_plans_have_the_stated_trial_counts() {
    let text = documentation();
    let plans = text.split("```toml plan\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let expanded: Vec<Expansion> =
        plans.map(|plan| expand(&Source::parse(plan).unwrap(), 1).unwrap()).collect();
    let counts: Vec<_> = expanded.iter().map(|expansion| expansion.trials().len()).collect();
    assert_eq!(counts, [84, 67_200]);
    assert!(text.contains("84 trials") && text.contains("67,200 trials"));
    // Every cell is valid, not only each single value.
    for expansion in &expanded {
        let cells = 0..expansion.cells().len() as u32;
        assert!(cells.into_iter().all(|cell| expansion.plan_of(cell).is_ok()));
    }
}

#[test]
fn shipped_plans_are_valid_in_every_cell() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let files: Vec<_> =
        std::fs::read_dir(plans).unwrap().map(|file| file.unwrap().path()).collect();
    // Folders hold files that plans name.
    let files: Vec<_> = files.into_iter().filter(|path| path.is_file()).collect();
    assert!(!files.is_empty());
    for file in files {
        let source = Source::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let expansion = expand(&source, 1).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for cell in 0..expansion.cells().len() as u32 {
            expansion.plan_of(cell).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    }
}

#[test]
fn idle_plan_couples_polling_to_idle_states_and_takes_minutes() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let text = std::fs::read_to_string(plans.join("idle-effect.toml")).unwrap();
    let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
    assert_eq!((expansion.cells().len(), expansion.trials().len()), (10, 50));
    for cell in 0..10 {
        let plan = expansion.plan_of(cell).unwrap();
        let ping = plan.measurement.ping().unwrap();
        assert_eq!(ping.busy_poll, ping.parameters.no_idle, "cell {cell}");
        assert_eq!(plan.reflect.busy_poll, ping.parameters.no_idle, "cell {cell}");
    }
    let time = dwell_plan::Estimate::of_all(&expansion).unwrap().time;
    let minutes = |n: i64| dwell_units::Nanos::from_secs(60 * n);
    assert!((minutes(2)..minutes(4)).contains(&time), "{time}");
}

#[test]
fn stable_ping_plan_has_three_set_ups_by_two_hosts() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let text = std::fs::read_to_string(plans.join("stable-ping.toml")).unwrap();
    let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
    let cells = (0..expansion.cells().len() as u32).map(|cell| {
        let plan = expansion.plan_of(cell).unwrap();
        let ping = plan.measurement.ping().unwrap();
        assert_eq!(ping.parameters.count, Some(1_000), "as many as Ramstetter's");
        (ping.parameters.stamps, plan.reflect.engine, plan.load)
    });
    let cells: Vec<_> = cells.collect();
    assert_eq!(cells.len(), 6);
    for (stamps, engine) in [
        (ProbeStamps::Auto, ReflectEngine::Socket),
        (ProbeStamps::Driver, ReflectEngine::Socket),
        (ProbeStamps::Driver, ReflectEngine::Auto),
    ] {
        for load in ["none", "weak"] {
            assert!(
                cells.contains(&(stamps, engine, load.to_owned())),
                "{stamps:?} {engine:?} {load}"
            );
        }
    }
    let time = dwell_plan::Estimate::of_all(&expansion).unwrap().time;
    assert!(time < dwell_units::Nanos::from_secs(6 * 60), "{time}");
}

#[test]
fn microcontroller_plans_have_all_cases() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    for (file, sweep, minutes) in
        [("microcontroller.toml", 7, 60), ("microcontroller-short.toml", 3, 6)]
    {
        let text = std::fs::read_to_string(plans.join(file)).unwrap();
        let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
        let cells = (0..expansion.cells().len() as u32).map(|cell| {
            let plan = expansion.plan_of(cell).unwrap();
            let ping = plan.measurement.ping().unwrap();
            let like = plan.node_sim.unwrap().like;
            (ping.protocol.name(), like, plan.load, ping.parameters.clients())
        });
        let cells: Vec<_> = cells.collect();
        for protocol in ["text+udp", "text+tcp"] {
            let count = |like, load: &str, clients: u32| {
                let is = |cell: &&(_, _, String, u32)| {
                    cell.0 == protocol && cell.1 == like && cell.2 == load && cell.3 == clients
                };
                cells.iter().filter(is).count()
            };
            use NodePreset::{Chung2021Best, Chung2021Worst, Clean};
            let found = [
                count(Clean, "none", 1),
                count(Clean, "none", 64),
                count(Clean, "average", 4),
                count(Chung2021Best, "none", 1),
                count(Chung2021Worst, "none", 4),
            ];
            assert_eq!(found, [1; 5], "{file} {protocol}");
        }
        assert_eq!(cells.len(), 2 * (sweep + 3), "{file} has no other cells");
        let time = dwell_plan::Estimate::of_all(&expansion).unwrap().time;
        assert!(time < dwell_units::Nanos::from_secs(60 * minutes), "{file}: {time}");
    }
}

#[test]
fn short_relay_plan_keeps_axes_modes_and_loads() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let axes = |name: &str| {
        let text = std::fs::read_to_string(plans.join(name)).unwrap();
        let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
        let estimate = dwell_plan::Estimate::of_all(&expansion).unwrap();
        (expansion.axes(), estimate)
    };
    let (whole, days) = axes("relay-delay.toml");
    let (short, minutes) = axes("relay-delay-short.toml");
    let (minutes, days) = (minutes.time, days.sending);
    for axis in &whole {
        let thinned = short.iter().find(|other| other.name == axis.name);
        let thinned = thinned.unwrap_or_else(|| panic!("{} is missing", axis.name));
        assert!(thinned.values.len() > 1, "{}", axis.name);
        match (thinned.numbers(), axis.numbers()) {
            (Some((some, _)), Some((all, _))) => {
                assert!(some.iter().all(|value| all.contains(value)), "{}", axis.name);
            }
            _ => assert!(thinned.values.iter().all(|value| axis.values.contains(value))),
        }
        if ["relay", "load"].contains(&axis.name.as_str()) {
            assert_eq!(thinned.values, axis.values);
        }
    }
    assert_eq!(
        days,
        dwell_units::Nanos::from_secs(336_000),
        "Miya 2020 (S0.10): 3.9 days of sending"
    );
    assert!(minutes < dwell_units::Nanos::from_secs(9 * 60), "{minutes}");
    assert!(
        short.iter().any(|axis| axis.labels().contains(&"1000B".to_owned())),
        "Miya 2020, Fig 7"
    );
}

#[test]
fn short_pace_plan_keeps_axes_and_engines() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let read = |name: &str| {
        let text = std::fs::read_to_string(plans.join(name)).unwrap();
        expand(&Source::parse(&text).unwrap(), 1).unwrap()
    };
    let minutes = |expansion: &Expansion| {
        dwell_plan::Estimate::of_all(expansion).unwrap().time.0 as f64 / 60e9
    };
    let (whole, short) = (read("send-accuracy.toml"), read("send-accuracy-short.toml"));
    let labels = |of: &Expansion, name: &str| {
        of.axes().into_iter().find(|axis| axis.name == name).map(|axis| axis.labels())
    };
    for axis in whole.axes() {
        let thinned =
            labels(&short, &axis.name).unwrap_or_else(|| panic!("{} is missing", axis.name));
        assert!(thinned.iter().all(|value| axis.labels().contains(value)), "{}", axis.name);
        assert!(thinned.len() > 1 || axis.values.len() == 1, "{}", axis.name);
    }
    let all = dwell_protocol::PaceEngine::ALL.map(|engine| engine.name().to_owned());
    assert_eq!(labels(&whole, "engine").unwrap(), all);
    assert_eq!(labels(&short, "engine").unwrap(), all);
    // Parameters of Mok 2015 (S2.5), with IP packets of 1500 B under the paper's name.
    assert_eq!(labels(&whole, "size").unwrap(), ["200B", "576B", "frame:1514B"]);
    assert_eq!(labels(&whole, "flows").unwrap(), ["0", "5", "15", "25"]);
    let rates = ["1Mbit/s", "5Mbit/s", "10Mbit/s", "50Mbit/s", "100Mbit/s", "1Gbit/s"];
    assert_eq!(labels(&whole, "rate").unwrap()[..6], rates);
    assert!(minutes(&whole) < 10.0, "{}", minutes(&whole));
    assert!(minutes(&short) < 2.0, "{}", minutes(&short));
    for expansion in [&whole, &short] {
        for cell in 0..expansion.cells().len() as u32 {
            let plan = expansion.plan_of(cell).unwrap();
            let pace = &plan.measurement.pace().unwrap().parameters;
            assert!(pace.repeat >= 20 && pace.count > 20 && pace.pairs == 25);
        }
    }
}

#[test]
fn device_plan_has_the_matrix_of_mok_2015_and_takes_minutes() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let text = std::fs::read_to_string(plans.join("device-accuracy.toml")).unwrap();
    let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
    let labels = |name: &str| {
        let axes = expansion.axes().into_iter();
        axes.filter(|axis| axis.name == name).flat_map(|axis| axis.labels()).collect::<Vec<_>>()
    };
    assert_eq!(labels("size"), ["200B", "576B", "frame:1514B"]);
    let rates = ["1Mbit/s", "5Mbit/s", "10Mbit/s", "50Mbit/s", "100Mbit/s", "1Gbit/s"];
    assert_eq!(labels("rate"), rates);
    assert_eq!(labels("flows"), ["0", "25"]);
    let Topology::Devices(roles) = &expansion.plan().topology else { panic!("a lab") };
    assert_eq!(*roles, ["sender", "receiver"]);
    let time = dwell_plan::Estimate::of_all(&expansion).unwrap().time;
    assert!(time < dwell_units::Nanos::from_secs(3 * 60), "{time}");
}

#[test]
fn short_relay_plans_send_enough_to_decide_losses() {
    // To exclude losses above 0.1 % at the error probability of a claim of Miya 2020.
    const NEEDED: f64 = 8_607.0;
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    for file in ["relay-delay-short.toml", "relay-delay-board-short.toml"] {
        let text = std::fs::read_to_string(plans.join(file)).unwrap();
        let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
        let packets = expansion.trials().iter().map(|trial| {
            let plan = expansion.plan_of(trial.cell).unwrap();
            let Measurement::Flow(flow) = plan.measurement else { panic!("{file} has flows") };
            let is_encrypted = flow.relay.as_ref().unwrap().mode == ForwardingMode::Encrypt;
            let dwell_units::Rate::Packets(rate) = flow.rate else {
                panic!("{file} has rates in packets")
            };
            let seconds = flow.parameters.duration.unwrap().0 as f64 / 1e9;
            let counted = rate.as_f64() * seconds - f64::from(flow.warm_up);
            if is_encrypted && rate.as_f64() >= 200.0 { counted } else { 0.0 }
        });
        let packets: f64 = packets.sum();
        // A few trials are left out because their load misses its level.
        assert!(packets > 1.05 * NEEDED, "{file}: {packets}");
    }
}
