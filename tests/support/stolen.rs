//! Whether the host of a virtual machine lets anything happen on time.

use std::fs;

/// The processors' time since the machine began, in ticks: what was wanted, and what of it the host gave to
/// others.
pub(crate) struct Host {
    wanted: u64,
    stolen: u64,
}

impl Host {
    /// Where more than this part was taken, how punctual anything was is not judged.
    const MOST: f64 = 0.15;

    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        // user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
        let ticks: Vec<u64> =
            stat.split_whitespace().skip(1).map_while(|number| number.parse().ok()).collect();
        let busy = ticks[..3].iter().chain(&ticks[5..7]).sum::<u64>();
        Self { wanted: busy + ticks[7], stolen: ticks[7] }
    }

    /// Why nothing is judged that happened since then, if the host took too much.
    pub(crate) fn took_too_much(&self) -> Option<String> {
        let now = Self::now();
        let share = (now.stolen - self.stolen) as f64 / (now.wanted - self.wanted).max(1) as f64;
        let text = format!("the host took {:.0} % of the processors' time", share * 100.0);
        (share > Self::MOST).then_some(text)
    }
}
