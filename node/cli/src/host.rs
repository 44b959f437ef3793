//! Host activity: a thread that samples it five times a second while samples are recorded, and a
//! pair of snapshots for the CPU use of other programs.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;

use dwell_host::{CpuUse, HostSample, Series, Snapshot};
use dwell_io::activity::{self, Host, Own};
use dwell_io::clock::monotonic;
use dwell_protocol::RUNNER_PID;
use dwell_units::Nanos;

/// The processes whose CPU time counts as the run's own: the runner and its descendants, and the
/// lab's processes, such as emulated links. Without a runner on this machine: this process and the
/// lab's.
pub(crate) fn own_of_run() -> Own {
    let runner = std::env::var(RUNNER_PID).ok();
    let mut roots = vec![runner_of(runner.as_deref()).unwrap_or(std::process::id())];
    roots.extend(dwell_lab::kept_processes());
    Own::Run(roots)
}

/// Parses the PID of the runner; `None` if it is not an ancestor of this process.
fn runner_of(text: Option<&str>) -> Option<u32> {
    text?.parse().ok().filter(|pid| activity::is_own_ancestor(*pid))
}

/// CPU use between two snapshots. Both are taken outside the timing loop.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    own: Own,
    start: Snapshot,
}

impl CpuWatch {
    /// Takes the first snapshot.
    pub(crate) fn start(own: Own) -> Self {
        let start = activity::snapshot(&own);
        Self { own, start }
    }

    /// Takes the second snapshot. `wait` is the run-queue wait of the timing thread.
    pub(crate) fn end(&self, wait: Option<RunQueueWait>) -> Option<CpuUse> {
        let used = CpuUse::between(&self.start, &activity::snapshot(&self.own))?;
        let wait = wait.map(|wait| wait.ns as f64 / wait.elapsed.as_secs_f64());
        let wait = wait.filter(|wait| wait.is_finite());
        Some(CpuUse { run_queue_wait_ns_per_s: wait, ..used })
    }
}

/// Time that a thread was runnable but not running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunQueueWait {
    ns: u64,
    elapsed: Nanos,
}

impl RunQueueWait {
    /// Runs `timed` on this thread and measures its run-queue wait.
    pub(crate) fn of<T>(timed: impl FnOnce() -> T) -> (T, Option<Self>) {
        let (start, before) = (monotonic(), activity::own_run_queue_wait());
        let done = timed();
        let waited = activity::own_run_queue_wait().zip(before);
        let ns = waited.and_then(|(after, before)| after.checked_sub(before));
        (done, ns.map(|ns| Self { ns, elapsed: monotonic() - start }))
    }
}

/// Interval between samples.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(200);

/// Capacity of the sample queue: more than a minute of samples while the recorder is stopped.
const QUEUE_LEN: usize = 512;

/// Samples host activity on a thread, which ends when this is dropped.
///
/// A recorder starts one and takes the samples before each flush of its segment:
///
/// ```ignore
/// let host = HostSampler::start();
/// host.taken().for_each(|sample| writer.push_host(&sample));
/// ```
pub(crate) struct HostSampler {
    /// Dropped to end the thread.
    stop: Option<SyncSender<()>>,
    samples: Receiver<HostSample>,
    thread: Option<JoinHandle<()>>,
}

impl HostSampler {
    /// Starts the thread. If that fails, there are no samples.
    pub(crate) fn start() -> Self {
        let (stop, stopped) = mpsc::sync_channel(0);
        let (samples, taken) = mpsc::sync_channel(QUEUE_LEN);
        let read = move || {
            let mut host = Host::find();
            let mut series = Series::default();
            loop {
                let sample = series.take(host.read());
                // The first sample is empty on a machine that has only counters. A sample that
                // finds the queue full is a gap in the time series.
                if !sample.values.is_empty() {
                    let _ = samples.try_send(sample);
                }
                match stopped.recv_timeout(SAMPLE_INTERVAL.to_std()) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        let thread = std::thread::Builder::new().name("host".to_owned()).spawn(read).ok();
        Self { stop: Some(stop), samples: taken, thread }
    }

    /// The samples since the last call.
    pub(crate) fn taken(&self) -> impl Iterator<Item = HostSample> + '_ {
        self.samples.try_iter()
    }
}

impl Drop for HostSampler {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runner_is_an_ancestor_or_none() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(runner_of(Some(&parent.to_string())), Some(parent));
        let own = std::process::id().to_string();
        for text in [None, Some(""), Some("-1"), Some("runner"), Some("99999999999"), Some(&own)] {
            assert_eq!(runner_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn host_sampler_stops_when_dropped() {
        let sampler = HostSampler::start();
        let first = sampler.samples.recv_timeout(Duration::from_secs(30)).unwrap();
        let second = sampler.samples.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(second.at_ns > first.at_ns);
        assert!(second.values.contains_key("interrupts_per_s"), "{second:?}");
        // Joins the thread.
        drop(sampler);
    }
}
