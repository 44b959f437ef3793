//! Checks that `docs/formats.md` lists the contents of the formats.

use std::path::Path;

use dwell_record::{Column, segment};
use dwell_sample::State;

#[test]
fn documentation_has_every_column_and_state_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = std::fs::read_to_string(path).unwrap();
    let words: Vec<&str> = text.split(|c: char| c == '`' || c.is_whitespace()).collect();
    for column in Column::ALL {
        assert!(words.contains(&column.name()), "{} is missing", column.name());
    }
    let states = State::ALL.map(|state| format!("{} {}", state.code(), state.name())).join(", ");
    assert_eq!(text.matches(&states).count(), 2, "'{states}' appears for segments and for samples");
    for word in [segment::SCHEMA, "DWELLSEG"] {
        assert!(text.contains(word), "{word} is missing");
    }
}
