//! What the fuzz target of plans does with its bytes: read, expand, and look at some cells. Shared
//! by the libFuzzer target and the smoke test of `core/plan`.

use dwell_plan::{Estimate, PlanError, Source, expand};

/// More cells are no error, and take their time.
const FEW: usize = 10_000;

pub(crate) fn plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut source = match Source::parse(text) {
        Ok(source) => source,
        Err(error) => return judge(text, &error),
    };
    // Of whatever the text may ask for, keep only what can be looked at in no time.
    if source.set("trials.repetitions=2").is_err() {
        return;
    }
    let expansion = match expand(&source, 7) {
        Ok(expansion) => expansion,
        Err(error) => return judge(text, &error),
    };
    assert_eq!(expansion.trials().len(), 2 * expansion.cells().len());
    let mut numbers: Vec<_> = expansion.trials().iter().map(|trial| trial.number).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u32), "every trial once");
    let again = expand(&source, 7).expect("it was expanded before");
    assert_eq!(again.trials(), expansion.trials(), "the seed decides");
    if expansion.cells().len() > FEW {
        return;
    }
    for cell in (0..expansion.cells().len() as u32).take(20) {
        let _ = expansion.parameters(cell);
        if let Err(error) = expansion.plan_of(cell) {
            judge(text, &error);
        }
    }
    let _ = Estimate::of_all(&expansion);
}

/// An error says something, and where it points there is something.
fn judge(text: &str, error: &PlanError) {
    assert!(!error.message.is_empty());
    let _ = error.to_string();
    if let Some(at) = &error.at {
        assert!((1..=text.lines().count().max(1) + 1).contains(&at.line), "{error}");
        assert!(at.column >= 1);
    }
}
