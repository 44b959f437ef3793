//! A plan whose load is bulk TCP traffic: a bufferbloat test.

use dwell_stats::glossary::{TermKind, term};

use crate::fixture::{Sandbox, as_root, stderr};
use crate::schema::assert_matches_schema;

#[test]
fn plan_with_a_tcp_load_shows_bufferbloat() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write(
        "bloat.toml",
        "version = 1\nname = \"bloat\"\n\
         [topology]\nlab = \"line:2\"\nlink = { rate = \"10M\" }\n\
         [ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"udp\"\nrate = \"100pps\"\n\
         duration = \"3s\"\ntimeout = \"2s\"\n\
         [loads.bulk]\n\
         traffic = [{ from = \"n1\", to = \"n2\", protocol = \"tcp\", flows = 4 }]\n\
         [matrix]\nload = [\"none\", \"bulk\"]\n[trials]\norder = \"as-written\"\n",
    );
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let [idle, loaded] = shown["trials"].as_array().unwrap().as_slice() else {
        panic!("{shown:#}")
    };
    for trial in [idle, loaded] {
        for (kind, part) in [(TermKind::Metric, "metrics"), (TermKind::Value, "values")] {
            for name in trial[part].as_object().unwrap().keys() {
                assert!(term(kind, name).is_some(), "'{name}' is not in the glossary");
            }
        }
    }
    let median = |trial: &serde_json::Value| trial["metrics"]["rtt_ns"]["p50"].as_f64().unwrap();
    let (idle, loaded) = (median(idle) / 1e6, median(loaded) / 1e6);
    println!("median {idle:.2} ms without load, {loaded:.2} ms with bulk traffic");
    assert!(idle < 5.0 && loaded > 10.0, "{idle} and {loaded} ms");
}
