//! `docs/results.md` lists every code with its severity.

use std::fs;

use dwell_import::ImportWarning;

#[test]
fn documented_codes_are_those_of_the_enum() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("### Warnings of imported files\n").unwrap();
    let (section, _) = section.split_once("\n#").unwrap();
    let documented: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    for (at, (code, severity)) in ImportWarning::CODES.iter().enumerate() {
        let row = format!("| `{code}` | {} | ", severity.name());
        let found = documented.get(at).copied().unwrap_or("nothing");
        assert!(found.starts_with(&row), "row {at} is '{found}', not '{row}...'");
    }
    assert_eq!(documented.len(), ImportWarning::CODES.len());
}
