//! `--no-idle`: the processors stay out of idle states during a measurement.

use std::io;

use dwell_io::cpu_idle::IdleLimit;
use dwell_record::{Summary, Warning};

/// The limit on idle states, if requested.
pub(super) struct NoIdle(Option<io::Result<IdleLimit>>);

impl NoIdle {
    /// Sets the limit if `is_requested`. A measurement without the limit is still valid.
    pub(super) fn hold(is_requested: bool) -> Self {
        Self(is_requested.then(IdleLimit::hold))
    }

    /// Notes in the summary whether the limit was held, and warns if it had no effect. Ends the
    /// limit.
    pub(super) fn end(self, summary: &mut Summary) {
        let (Some(held), Some(idle)) = (self.0, &mut summary.environment.cpu_idle) else { return };
        idle.no_idle_held = held.is_ok();
        let reason = match held {
            Err(error) => format!("cannot set /dev/cpu_dma_latency: {error}"),
            Ok(_) if !idle.is_off() => "the kernel has no driver of idle states".to_owned(),
            Ok(_) => return,
        };
        summary.trust.warn(Warning::IdleNotHeld(reason));
    }
}
