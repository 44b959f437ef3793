//! `docs/pace.md` and `docs/plans.md` describe every engine, and the order of preference.

use std::path::Path;

use dwell_sample::PaceEngine;

/// Returns a page of the documentation, with every line break and indent as one space.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lists names as the pages do.
fn listed(engines: &[PaceEngine]) -> String {
    let names: Vec<_> = engines.iter().map(|engine| format!("`{}`", engine.name())).collect();
    names.join(", ")
}

#[test]
fn pace_page_describes_every_engine() {
    let page = page("pace.md");
    for engine in PaceEngine::ALL {
        assert!(page.contains(&format!("| `{}` | ", engine.name())), "{engine:?}");
    }
}

#[test]
fn pace_page_states_order_of_preference() {
    let expected = format!("it takes the first of {}.", listed(&PaceEngine::candidates(true)));
    assert!(page("pace.md").contains(&expected), "{expected}");
}

#[test]
fn plans_page_lists_every_engine() {
    let expected = format!("sending engine: {}, or `auto`", listed(&PaceEngine::ALL));
    assert!(page("plans.md").contains(&expected), "{expected}");
}
