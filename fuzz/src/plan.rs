//! Fuzz target for plans: read a plan, expand it, and check some cells. Shared by the libFuzzer
//! target and the smoke test of `core/plan`.

use dwell_plan::{Estimate, PlanError, Source, expand};

/// Maximum number of cells that are checked; more are valid but slow.
const MAX_CELLS: usize = 10_000;

pub(crate) fn plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut source = match Source::parse(text) {
        Ok(source) => source,
        Err(error) => return check_error(text, &error),
    };
    // Limits the number of trials.
    if source.set("trials.repetitions=2").is_err() {
        return;
    }
    let expansion = match expand(&source, 7) {
        Ok(expansion) => expansion,
        Err(error) => return check_error(text, &error),
    };
    assert_eq!(expansion.trials().len(), 2 * expansion.cells().len());
    let mut numbers: Vec<_> = expansion.trials().iter().map(|trial| trial.number).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u32), "every trial occurs once");
    let again = expand(&source, 7).expect("the plan was expanded before");
    assert_eq!(again.trials(), expansion.trials(), "the seed determines the order");
    if expansion.cells().len() > MAX_CELLS {
        return;
    }
    for cell in (0..expansion.cells().len() as u32).take(20) {
        let _ = expansion.parameters(cell);
        if let Err(error) = expansion.plan_of(cell) {
            check_error(text, &error);
        }
    }
    let _ = Estimate::of_all(&expansion);
}

/// Checks that an error has a message and a position inside the text.
fn check_error(text: &str, error: &PlanError) {
    assert!(!error.message.is_empty());
    let _ = error.to_string();
    if let Some(at) = &error.at {
        assert!((1..=text.lines().count().max(1) + 1).contains(&at.line), "{error}");
        assert!(at.column >= 1);
    }
}
