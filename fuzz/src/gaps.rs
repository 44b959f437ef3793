//! Fuzz target for gap traces: read a trace and replay it. Shared by the libFuzzer target and the
//! smoke test of `core/engine`.

use dwell_engine::departures::{Pattern, read_gaps};

pub(crate) fn gaps(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let gaps = match read_gaps(text) {
        Ok(gaps) => gaps,
        Err(error) => return assert!(error.to_string().len() < 400, "{error}"),
    };
    let again: String = gaps.iter().map(|gap| format!("{gap}\n")).collect();
    assert_eq!(read_gaps(&again).as_ref(), Ok(&gaps));
    let packets = gaps.len() + 1;
    if let Ok(departures) = (Pattern::Replay { gaps, repeat: 2, pause: None }).departures() {
        assert_eq!(departures.at().len(), 2 * packets);
        assert!(departures.at().is_sorted());
    }
}
