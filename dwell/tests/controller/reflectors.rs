//! Plans that choose the engine of their reflector.

use serde_json::Value;

use crate::fixture::{Sandbox, as_root};

const PLAN: &str = "version = 1\nname = \"engines\"\n[topology]\nlab = \"line:2\"\n\
    [ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"icmp\"\ncount = 40\ninterval = \"1ms\"\nwarm_up = 2\n\
    [matrix]\nprotocol = [\"icmp\", \"udp\"]\n\"reflect.engine\" = [\"socket\", \"auto\"]\n\
    [trials]\nrepetitions = 2\nseed = 3\n";

fn value<'a>(trial: &'a Value, parameter: &str) -> &'a str {
    trial["parameters"][parameter].as_str().unwrap()
}

#[test]
fn engine_of_the_reflector_is_an_axis() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("engines.toml", PLAN);
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let shown = sandbox.json(&["show", "last"]);
    let trials = shown["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 8);
    for trial in trials {
        assert_eq!(trial["state"], "finished", "{trial}");
        assert_eq!(trial["packets"]["received"], 40, "{trial}");
        let machines = trial["machines"].as_array().unwrap();
        if value(trial, "reflect.engine") == "socket" {
            assert!(machines.is_empty(), "{trial}");
            continue;
        }
        let reflector = &machines[0];
        assert_eq!(reflector["node"], "n2", "{trial}");
        let summary = &reflector["summary"];
        assert_eq!(summary["engine"], "xdp generic", "{trial}");
        // With the warm-up; the first packet may be the kernel's, for address resolution.
        let replies = format!("driver_{}_replies", value(trial, "protocol"));
        let replies = summary["values"][&replies].as_u64().unwrap();
        assert!((40..=42).contains(&replies), "{trial}");
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn report_draws_round_trips_by_the_driver() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let text = PLAN.split("[matrix]").next().unwrap();
    let plan = sandbox.write("driver.toml", &format!("{text}stamps = \"driver\"\n"));
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let page = sandbox.path("driver.html");
    let output = sandbox.dwell(&["report", "last", "-o", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    for figure in ["driver-histogram", "driver-timeline"] {
        assert!(page.contains(&format!("id=\"figure-{figure}\"")), "no figure {figure}");
    }
}
