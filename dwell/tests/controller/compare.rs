//! Two runs beside each other.

use std::path::{Path, PathBuf};

use crate::fixture::{Place, object, printed, repository, said, skip};

fn import(place: &Place, file: &Path) -> String {
    let imported = place.json(&["import", file.to_str().unwrap()]);
    imported["run"].as_str().unwrap().to_owned()
}

/// The published round trips of this name, where the machine has them.
fn published(name: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("DWELL_SHARED").map(PathBuf::from);
    let shared = beside.unwrap_or_else(|| repository("../shared"));
    let path = shared.join("data/roundtrip").join(name);
    path.exists().then_some(path)
}

#[test]
fn a_run_compared_with_itself_cannot_be_told_apart() {
    let place = Place::new();
    let file = repository("controller/import/tests/data/s4.csv");
    let (a, b) = (import(&place, &file), import(&place, &file));
    let output = place.dwell(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(printed(&output).contains("cannot tell"), "{output:?}");
    let compared = place.json(&["compare", &a, &b, "--fail-if", "p50 > 1%"]);
    for shift in compared["cells"][0]["shifts"].as_array().unwrap() {
        assert_eq!(shift["verdict"], "cannot-tell", "{shift}");
    }
}

#[test]
fn load_on_the_published_boards_is_found_and_a_condition_on_it_fails() {
    let names = ["no_load", "cpu_stress_both", "nw_stress"];
    let found: Option<Vec<_>> =
        names.iter().map(|name| published(&format!("pi4_to_pi3_{name}_50000.csv"))).collect();
    let Some(found) = found else {
        return skip("the published round trips are not there (DWELL_SHARED names their root)");
    };
    let place = Place::new();
    let runs: Vec<_> = found.iter().map(|file| import(&place, file)).collect();
    let [idle, stressed, network] = &runs[..] else { panic!("three runs") };
    let compare = |a: &str, b: &str, condition: &str| {
        place.dwell(&["compare", a, b, "--fail-if", condition, "--json"])
    };
    let beyond = compare(idle, stressed, "p99.9 > 10%");
    assert_eq!(beyond.status.code(), Some(3), "{beyond:?}");
    assert!(said(&beyond).contains("--fail-if: p99_9"), "{beyond:?}");
    let verdicts = |output| {
        let object = object(output);
        let shifts = object["cells"][0]["shifts"].as_array().unwrap().clone();
        shifts.iter().map(|shift| shift["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Without load the processors sleep: the usual round trip is slower, the slowest are not.
    let [p50, p90, _, p99_9] = &verdicts(&beyond)[..] else { panic!("four percentiles") };
    assert_eq!((&p50[..], &p90[..], &p99_9[..]), ("falls", "falls", "rises"));
    let swapped = compare(stressed, idle, "p99.9 > 10%");
    assert_eq!(swapped.status.code(), Some(0), "it falls: {swapped:?}");
    assert_eq!(verdicts(&swapped)[3], "falls");
    let far = compare(idle, stressed, "p99.9 > 1000000%");
    assert_eq!(far.status.code(), Some(0), "{far:?}");
    // Each of these drifts by more than they differ.
    let network = compare(idle, network, "p99 > 10%");
    assert_eq!(network.status.code(), Some(0), "{network:?}");
    assert_eq!(verdicts(&network), ["cannot-tell"; 4]);
}

#[test]
fn a_condition_that_makes_no_sense_is_a_usage_error() {
    let place = Place::new();
    let file = repository("controller/import/tests/data/s4.csv");
    let (a, b) = (import(&place, &file), import(&place, &file));
    for (condition, words) in
        [("p99", "p99 > 10%"), ("p42 > 1%", "p42"), ("p99 > fast", "fast"), ("p99 > 5", "unit")]
    {
        let output = place.dwell(&["compare", &a, &b, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(words), "{condition}: {output:?}");
    }
    let output = place.dwell(&["compare", &a, "20200101-9"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("20200101-9"), "{output:?}");
}
