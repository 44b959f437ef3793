//! Runs the fuzz target on its committed seeds and 5,000 mutations, on a stable toolchain.

#[path = "../../../fuzz/src/plan.rs"]
mod plan;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

#[test]
fn any_plan_text_is_expanded_or_refused_without_panic() {
    Smoke { corpus: "plan", seeds: 2, rounds: 5_000, alphabet: b"0123456789[]{}\"=.,-\nBmps" }
        .run(plan::plan);
}
