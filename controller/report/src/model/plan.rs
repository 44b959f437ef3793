//! Plan of a run.

use dwell_plan::Plan;

/// Plan of a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Text of the plan.
    pub text: String,
    /// Overrides from the command line, as `PATH=VALUE`, in order.
    pub settings: Vec<String>,
    /// The plan; `None` if it cannot be parsed, such as one of a later version.
    pub parsed: Option<Plan>,
}

impl RunPlan {
    /// Parses the text with its overrides.
    pub fn read(text: String, settings: Vec<String>) -> Self {
        let parsed = Plan::parse(&text, &settings).ok();
        Self { text, settings, parsed }
    }
}
