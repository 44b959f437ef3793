//! Claims about round trips: idle states as the cause of S0.26, stable ping (S1.8), and TCP and UDP to a
//! microcontroller (S3), and loads (S4).

#[expect(dead_code, reason = "other test programs use the rest")]
#[path = "../../report/tests/synthetic/mod.rs"]
mod synthetic;

use dwell_documents::judge_claims;
use dwell_record::{CpuIdle, Kind, Scalar, Summary};
use dwell_report::model::{Claim, ClaimVerdict, MachineData, RunData};
use serde_json::json;
use synthetic::{Shape, axis, run, trial};

const BODY: Shape = Shape {
    median_ns: 20e3,
    sigma: 0.05,
    tail_share: 0.0,
    tail_factor: 1.0,
    loss: 0.0,
    samples: 200,
};

fn verdicts(run: &RunData, document: &str) -> Vec<(String, ClaimVerdict)> {
    let claims = judge_claims(run, document).unwrap().claims;
    claims.into_iter().map(|claim| (claim.id, claim.verdict)).collect()
}

fn claim(run: &RunData, document: &str, id: &str) -> Claim {
    let claims = judge_claims(run, document).unwrap().claims;
    claims.into_iter().find(|claim| claim.id == id).unwrap()
}

/// Run over rates, with `delay` as the median for each rate and for sleep or none.
fn idle_run(repetitions: u32, idle_off: bool, delay: impl Fn(f64, bool) -> f64) -> RunData {
    let rates = [1.0, 100.0, 5_000.0];
    let names = rates.map(|rate| format!("{rate}pps"));
    let labels: Vec<&str> = names.iter().map(String::as_str).collect();
    let axes = vec![
        axis("rate", &labels, Some((rates.to_vec(), "pps"))),
        axis("busy_poll", &["false", "true"], None),
        axis("no_idle", &["false", "true"], None),
    ];
    let mut made = run("20261125-1", "idle-effect", None, axes);
    for repetition in 1..=repetitions {
        for (rate, label) in rates.into_iter().zip(&labels) {
            for awake in [false, true] {
                let flag = if awake { "true" } else { "false" };
                let values = [("rate", *label), ("busy_poll", flag), ("no_idle", flag)];
                let shape = Shape { median_ns: delay(rate, awake), ..BODY };
                let mut trial = trial(&made, repetition, &values, shape, 5);
                let summary = trial.summary.as_mut().unwrap();
                summary.parameters.insert("interval_ns".to_owned(), json!((1e9 / rate) as i64));
                for name in ["busy_poll", "no_idle"] {
                    summary.parameters.insert(name.to_owned(), json!(awake));
                }
                summary.environment.cpu_idle = Some(CpuIdle {
                    driver: idle_off.then(|| "intel_idle".to_owned()),
                    no_idle_held: awake,
                    ..CpuIdle::default()
                });
                made.trials.push(trial);
            }
        }
    }
    made
}

/// Delays that fall with the rate, for programs that sleep.
fn sleepy(rate: f64, awake: bool) -> f64 {
    if awake { 20e3 } else { 20e3 * (1.0 + 2.0 / rate.sqrt()) }
}

#[test]
fn effect_of_sleep_is_confirmed() {
    use ClaimVerdict::Pass;
    let run = idle_run(4, true, sleepy);
    let ids = ["S0.26-sleep", "S0.26-awake", "S0.26-cause"].map(str::to_owned);
    assert_eq!(verdicts(&run, "miya-2020-idle"), ids.map(|id| (id, Pass)));
    let sleep = claim(&run, "miya-2020-idle", "S0.26-sleep");
    assert!((sleep.value.unwrap() / 2.92 - 1.0).abs() < 0.05, "{sleep:?}");
    let (low, high) = sleep.interval.unwrap();
    assert!(low < 2.92 && 2.92 < high && high / low < 1.2, "{sleep:?}");
    assert!(
        sleep.found.contains("at 1pps against") && sleep.found.contains("at 5000pps"),
        "{sleep:?}"
    );
}

#[test]
fn effect_that_remains_without_sleep_is_not_caused_by_it() {
    use ClaimVerdict::{Fail, Pass};
    let found = verdicts(&idle_run(4, true, |rate, _| sleepy(rate, false)), "miya-2020-idle");
    assert_eq!(found[0].1, Pass);
    assert_eq!(found[1].1, Fail);
    let none = verdicts(&idle_run(6, true, |_, _| 20e3), "miya-2020-idle");
    assert_eq!((none[0].1, none[1].1, none[2].1), (Fail, Pass, Fail), "no effect at all");
}

#[test]
fn few_repetitions_decide_no_effect_of_sleep() {
    let found = verdicts(&idle_run(1, true, sleepy), "miya-2020-idle");
    assert!(found.iter().all(|(_, verdict)| *verdict == ClaimVerdict::CannotTell), "{found:?}");
}

#[test]
fn idle_states_without_a_driver_cannot_be_switched_off() {
    let run = idle_run(4, false, sleepy);
    let found = verdicts(&run, "miya-2020-idle");
    assert_eq!(found[0].1, ClaimVerdict::Pass);
    assert_eq!(found[1].1, ClaimVerdict::CannotTell);
    assert_eq!(found[2].1, ClaimVerdict::CannotTell);
    let awake = claim(&run, "miya-2020-idle", "S0.26-awake");
    assert!(awake.found.contains("could not be switched off"), "{awake:?}");
}

#[test]
fn other_runs_have_no_effect_of_sleep_to_judge() {
    let found = verdicts(&synthetic::loads(), "miya-2020-idle");
    assert!(found.iter().all(|(_, verdict)| *verdict == ClaimVerdict::NotRun), "{found:?}");
}

/// Delays of a set-up: program and driver.
struct Delays {
    program: Shape,
    driver: Shape,
}

/// Run over the three set-ups and two hosts. `delays` gets driver timestamps, reflector in the
/// driver, and weak host.
fn stable_run(repetitions: u32, delays: impl Fn(bool, bool, bool) -> Delays) -> RunData {
    let axes = vec![
        axis("stamps", &["auto", "driver"], None),
        axis("reflect.engine", &["socket", "auto"], None),
        axis("load", &["none", "weak"], None),
    ];
    let mut made = run("20261125-2", "stable-ping", None, axes);
    for repetition in 1..=repetitions {
        for (stamps, engine) in [("auto", "socket"), ("driver", "socket"), ("driver", "auto")] {
            for load in ["none", "weak"] {
                let [stamped, in_driver] = [stamps == "driver", engine == "auto"];
                let Delays { program, driver } = delays(stamped, in_driver, load == "weak");
                let values = [("stamps", stamps), ("reflect.engine", engine), ("load", load)];
                let mut one = trial(&made, repetition, &values, program, 11);
                let summary = one.summary.as_mut().unwrap();
                summary.parameters.insert("stamps".to_owned(), json!(stamps));
                if stamped {
                    let seen = trial(&made, repetition, &values, driver, 77).summary.unwrap();
                    summary.metrics.insert("rtt_driver_ns".to_owned(), seen.metrics["rtt_ns"]);
                }
                if in_driver {
                    let summary = Summary::new(Kind::Reflect, "icmp://0.0.0.0", "xdp generic");
                    one.machines.push(MachineData { node: "n2".to_owned(), summary });
                }
                made.trials.push(one);
            }
        }
    }
    made
}

/// Hosts like those of Ramstetter: each step removes delay and spread, most on the weak host.
fn wireless(stamped: bool, in_driver: bool, weak: bool) -> Delays {
    let steps = f64::from(u8::from(stamped)) + f64::from(u8::from(in_driver));
    let answer = if weak { 900e3 / (1.0 + 2.0 * steps) } else { 200e3 / (1.0 + steps) };
    let program = Shape { median_ns: 1e6 + answer, sigma: 0.06 / (1.0 + 2.0 * steps), ..BODY };
    Delays { program, driver: Shape { median_ns: program.median_ns - 60e3, ..program } }
}

#[test]
fn stable_ping_like_ramstetter_confirms_the_claims() {
    let found = verdicts(&stable_run(5, wireless), "ramstetter");
    assert_eq!(found.len(), 9);
    for (id, verdict) in found {
        // The spread falls by the same factor on both hosts.
        let wanted = match id.as_str() {
            "S1.8-weak-variance" => continue,
            _ => ClaimVerdict::Pass,
        };
        assert_eq!(
            verdict,
            wanted,
            "{id}: {:?}",
            claim(&stable_run(5, wireless), "ramstetter", &id)
        );
    }
}

#[test]
fn set_ups_without_difference_fail_or_are_undecided() {
    use ClaimVerdict::{Fail, Pass};
    let equal = |_: bool, _: bool, _: bool| Delays { program: BODY, driver: BODY };
    let run = stable_run(8, equal);
    let found = verdicts(&run, "ramstetter");
    for (id, verdict) in &found {
        let wanted = if id == "S1.8-log" { Pass } else { Fail };
        // The variance of a trial is less exact than its mean.
        let undecided = id.contains("variance") && *verdict == ClaimVerdict::CannotTell;
        assert!(*verdict == wanted || undecided, "{id} {verdict:?}");
    }
    let few = verdicts(&stable_run(1, wireless), "ramstetter");
    assert!(few.iter().all(|(_, it)| *it == ClaimVerdict::CannotTell), "{few:?}");
}

#[test]
fn claims_name_the_delay_that_they_judge() {
    let run = stable_run(5, wireless);
    let all = judge_claims(&run, "ramstetter").unwrap().claims;
    assert!(
        all.iter()
            .filter(|it| it.id.contains("mean-") || it.id.contains("variance-"))
            .all(|it| it.claim.contains("timestamps"))
    );
    assert!(all.iter().all(|it| it.interval.is_some()));
    let program = claim(&run, "ramstetter", "S1.8-mean-program").value.unwrap();
    let expected = (1.0667e6 * 1.18e6 / (1.2e6 * 1.9e6_f64)).sqrt();
    assert!((program / expected - 1.0).abs() < 0.01, "{program} {expected}");
}

#[test]
fn variance_verdict_names_its_ratio_and_the_deviations() {
    let run = stable_run(5, wireless);
    let variance = claim(&run, "ramstetter", "S1.8-variance-program");
    let deviations = |text: &str| text.contains("variance; standard deviations ");
    assert!(deviations(&variance.found), "{}", variance.found);
    assert!(variance.found.contains(" us against "), "{}", variance.found);
    let mean = claim(&run, "ramstetter", "S1.8-mean-program");
    assert!(mean.found.contains("mean; ") && !deviations(&mean.found), "{}", mean.found);
}

#[test]
fn stamps_that_the_driver_did_not_take_decide_nothing() {
    let mut run = stable_run(5, wireless);
    for trial in &mut run.trials {
        trial.summary.as_mut().unwrap().metrics.remove("rtt_driver_ns");
    }
    let semi = claim(&run, "ramstetter", "S1.8-mean-semi");
    assert_eq!(semi.verdict, ClaimVerdict::CannotTell, "{semi:?}");
    assert!(semi.found.contains("no reply has a timestamp of the driver"), "{semi:?}");
    let program = claim(&run, "ramstetter", "S1.8-mean-program");
    assert_eq!(program.verdict, ClaimVerdict::Pass, "the program's delay needs none");
    run.trials.retain(|trial| trial.machines.is_empty());
    let stable = claim(&run, "ramstetter", "S1.8-mean-stable");
    assert_eq!(stable.verdict, ClaimVerdict::NotRun, "{stable:?}");
}

/// A run of the microcontroller plan: `delay` is the median by protocol, node, load and number of
/// clients.
fn node_run(delay: impl Fn(&str, &str, &str, u32) -> f64) -> RunData {
    let protocols = ["text+udp", "text+tcp"];
    let axes = vec![
        axis("protocol", &protocols, None),
        axis("clients", &["1", "4", "64"], Some((vec![1.0, 4.0, 64.0], ""))),
        axis("node_sim.like", &["clean", "chung-2021-best", "chung-2021-worst"], None),
        axis("load", &["none", "average"], None),
    ];
    let mut made = run("20261126-1", "microcontroller", None, axes);
    for repetition in 1..=5 {
        for protocol in protocols {
            for (like, load, clients) in [
                ("clean", "none", 1),
                ("clean", "none", 64),
                ("clean", "average", 4),
                ("chung-2021-best", "none", 1),
                ("chung-2021-worst", "none", 4),
            ] {
                let label = clients.to_string();
                let values = [
                    ("protocol", protocol),
                    ("clients", label.as_str()),
                    ("node_sim.like", like),
                    ("load", load),
                ];
                let shape = Shape { median_ns: delay(protocol, like, load, clients), ..BODY };
                let mut trial = trial(&made, repetition, &values, shape, 5);
                let summary = trial.summary.as_mut().unwrap();
                summary.parameters.insert("clients".to_owned(), json!(clients));
                let lag = Shape { median_ns: 10e3 * f64::from(clients), ..BODY };
                let lag = synthetic::trial(&made, repetition, &values, lag, 6).summary.unwrap();
                summary.metrics.insert("server_lag_ns".to_owned(), lag.metrics["rtt_ns"]);
                made.trials.push(trial);
            }
        }
    }
    made
}

#[test]
fn factors_of_chung_2021_are_judged_for_both_nodes() {
    use ClaimVerdict::{Fail, NotRun, Pass};
    let run = node_run(|protocol, like, load, clients| {
        let is_tcp = protocol == "text+tcp";
        match (like, load) {
            ("chung-2021-best", _) => 1e6 * if is_tcp { 1303.5 } else { 491.0 },
            ("chung-2021-worst", _) => 1e6 * if is_tcp { 1730.3 } else { 712.5 },
            (_, "average") => 150e3 * if is_tcp { 2.5 } else { 1.0 },
            _ => 50e3 * f64::from(clients) * if is_tcp { 1.3 } else { 1.0 },
        }
    });
    for (id, verdict) in [
        ("S3.5-faster", Pass),
        ("S3.5-best", Fail),
        ("S3.5-worst", Fail),
        ("S3.5-average", Pass),
        ("S3.4-clients-tcp", Pass),
        ("S3.4-clients-udp", Pass),
        ("S3.4-server-lag", Pass),
        ("S3.4-low", Pass),
        ("S3.5-faster-arduino", Pass),
        ("S3.5-best-arduino", Pass),
        ("S3.5-worst-arduino", Pass),
        ("S3.5-average-arduino", NotRun),
        ("S3.4-clients-tcp-arduino", Pass),
        ("S3.4-clients-udp-arduino", Pass),
        ("S3.4-server-lag-arduino", Pass),
        ("S3.4-low-arduino", Fail),
    ] {
        let claim = claim(&run, "chung-2021", id);
        assert_eq!(claim.verdict, verdict, "{claim:?}");
    }
    let average = claim(&run, "chung-2021", "S3.5-average");
    assert_eq!(average.published, Some(2.5));
    let (low, high) = average.interval.unwrap();
    assert!(low < 2.5 && 2.5 < high && high / low < 1.2, "{average:?}");
    let none = verdicts(&synthetic::loads(), "chung-2021");
    assert!(none.iter().all(|(id, verdict)| *verdict != Pass || id == "S3.4-low"), "{none:?}");
}

/// Run of Roedlach/Vock's loads; `shape` is of a load. The idle load also has ten times the cycles.
fn loaded_run(repetitions: u32, shape: impl Fn(&str) -> Shape) -> RunData {
    let axes = vec![
        axis("count", &["2000", "20000"], None),
        axis("load", &["none", "network", "cpu"], None),
    ];
    let mut made = run("20261126-1", "round-trip-short", None, axes);
    for repetition in 1..=repetitions {
        for (count, name) in
            [("2000", "none"), ("20000", "none"), ("2000", "network"), ("2000", "cpu")]
        {
            let shape = Shape { samples: count.parse().unwrap(), ..shape(name) };
            let mut one = trial(&made, repetition, &[("count", count), ("load", name)], shape, 21);
            if name != "none" {
                let mut load = synthetic::load(name);
                if name == "cpu" {
                    for value in ["asked_ratio", "burnt_ratio"] {
                        // The prober takes the rest.
                        let ratio = if value == "asked_ratio" { 1.0 } else { 0.9 };
                        load.values.insert(value.to_owned(), Some(Scalar::Real(ratio)));
                    }
                }
                one.loads.push(load);
            }
            made.trials.push(one);
        }
    }
    made
}

/// Round trips like those of Roedlach/Vock: CPU load lowers the median and lengthens the tail.
fn pi4_to_pi3(load: &str) -> Shape {
    let idle = Shape { median_ns: 282e3, sigma: 0.05, tail_share: 0.005, tail_factor: 2.0, ..BODY };
    match load {
        "cpu" => Shape { median_ns: 248e3, tail_share: 0.05, tail_factor: 12.0, ..idle },
        _ => idle,
    }
}

#[test]
fn loads_like_those_of_roedlach_vock_confirm_the_claims() {
    let run = loaded_run(8, pi4_to_pi3);
    let found = verdicts(&run, "roedlach-vock");
    assert_eq!(found.len(), 7);
    for (id, verdict) in found {
        // The extremes of a trial vary.
        let varies = ["S4.4-min", "S4.4-cpu-max"].contains(&id.as_str());
        assert!(
            verdict == ClaimVerdict::Pass || varies && verdict == ClaimVerdict::CannotTell,
            "{:?}",
            claim(&run, "roedlach-vock", &id)
        );
    }
    let median = claim(&run, "roedlach-vock", "S4.4-cpu-median");
    assert!((median.value.unwrap() / 0.88 - 1.0).abs() < 0.02, "{median:?}");
}

#[test]
fn loads_without_effect_fail_the_claims_of_an_effect() {
    let run = loaded_run(8, |_| pi4_to_pi3("none"));
    for id in ["S4.4-cpu-mean", "S4.4-cpu-median"] {
        let claim = claim(&run, "roedlach-vock", id);
        assert_eq!(claim.verdict, ClaimVerdict::Fail, "{claim:?}");
    }
    for id in ["S4.4-network", "S4.4-long"] {
        let claim = claim(&run, "roedlach-vock", id);
        assert_eq!(claim.verdict, ClaimVerdict::Pass, "{claim:?}");
    }
}

#[test]
fn run_without_loads_judges_no_load() {
    let mut run = loaded_run(3, pi4_to_pi3);
    run.trials.retain(|trial| trial.parameters["load"] == "none");
    for (id, verdict) in verdicts(&run, "roedlach-vock") {
        if id != "S4.4-long" {
            assert_eq!(verdict, ClaimVerdict::NotRun, "{id}");
        }
    }
}
