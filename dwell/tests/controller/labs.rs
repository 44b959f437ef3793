//! Plans with a lab file.

use std::fs;

use dwell_io::process::{Handle, Signal};

use crate::fixture::{Sandbox, as_root, ended, printed, said, until};

const LAB: &str = "version = 1\nnodes = [\"robot\", \"base\"]\n\
    [[links]]\na = \"robot\"\nb = \"base\"\nrate = \"100Mbit/s\"\n";

fn plan(place: &Sandbox, to: &str) -> (String, String) {
    let lab = place.write("lab.toml", LAB);
    let text = format!(
        "version = 1\nname = \"own\"\ntopology = {{ lab = \"{lab}\" }}\n[ping]\nfrom = \"robot\"\n\
         to = \"{to}\"\nprotocol = \"udp\"\nduration = \"200ms\"\ninterval = \"2ms\"\n\
         [trials]\nrepetitions = 3\n"
    );
    (place.write("own.toml", &text), lab)
}

#[test]
fn missing_lab_file_or_node_is_a_plan_error() {
    let place = Sandbox::new();
    let (own, lab) = plan(&place, "moon");
    for more in [&[][..], &["--dry-run"]] {
        let output = place.dwell(&[&["run", &own], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = said(&output);
        assert!(said.contains("line 6") && said.contains("there are robot, base"), "{said}");
    }
    fs::remove_file(&lab).unwrap();
    let output = place.dwell(&["run", &own, "--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("line 3") && said(&output).contains(&lab), "{output:?}");
    assert!(!place.data().exists());
}

#[test]
fn run_is_not_resumed_on_a_changed_lab() {
    if !as_root() {
        return;
    }
    let place = Sandbox::new();
    let (own, lab) = plan(&place, "base");
    let mut runner = place.start(&mut place.command(&["run", &own, "--quiet"]));
    let measured = "SELECT number FROM trials WHERE state = 'finished'";
    until("a trial is finished", || {
        !place.query(measured).is_empty() || !place.serving().is_empty()
    });
    Handle::open(runner.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert_eq!(ended(&mut runner).code(), Some(130), "{}", place.said());
    let run = place.query("SELECT run FROM runs").remove(0);
    let kept = place.query("SELECT lab_files FROM runs").remove(0);
    assert!(kept.contains("100Mbit/s"), "{kept}");

    fs::write(&lab, LAB.replace("100Mbit/s", "1Mbit/s")).unwrap();
    let output = place.dwell(&["run", &own, "--resume", &run]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("another lab"), "{output:?}");
    let output = place.dwell(&["run", &own, "--resume", "last", "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        !printed(&output).contains(&format!("run {run}:")),
        "must start another run: {output:?}"
    );

    fs::write(&lab, LAB).unwrap();
    let output = place.dwell(&["run", &own, "--resume", "last", "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert!(printed(&output).contains(&format!("run {run}: complete; 3 of 3")), "{output:?}");
    place.assert_no_leftovers();
}
