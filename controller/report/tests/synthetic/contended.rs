//! Runs with CPU contention from other programs.

use dwell_record::CpuUse;
use dwell_report::model::RunData;

/// Sets the share of CPU time used by other programs in every trial.
pub(crate) fn with_other_cpu_use(mut run: RunData, share: f64) -> RunData {
    for summary in run.trials.iter_mut().filter_map(|trial| trial.summary.as_mut()) {
        let used = CpuUse {
            elapsed_ns: 4_000_000_000,
            cpus: 2,
            busy_ratio: share + 0.05,
            others_ratio: Some(share),
            steal_ratio: 0.0,
            run_queue_wait_ns_per_s: Some(1e5),
        };
        summary.trust.note_host(Some(used));
    }
    run
}
