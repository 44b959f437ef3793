//! Work on several devices at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Maximum number of devices that are connected at the same time. Devices that are down take the whole
/// time-out of ssh.
pub(crate) const MAX_PARALLEL: usize = 32;

/// Calls `work` for each device in threads, at most `limit` at a time. Calls `done` on this thread as
/// each result arrives, with the index of the device.
pub(crate) fn for_each_parallel<D: Sync, T: Send>(
    devices: &[D],
    limit: usize,
    work: impl Fn(&D) -> T + Sync,
    mut done: impl FnMut(usize, T),
) {
    let (sender, receiver) = mpsc::channel();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..limit.min(devices.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(device) = devices.get(index) else { return };
                    if sender.send((index, work(device))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            done(index, result);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn result_arrives_while_other_work_continues() {
        let (finish, finished) = mpsc::channel();
        let finished = std::sync::Mutex::new(finished);
        let work = |device: &&str| match *device {
            "slow" => finished.lock().unwrap().recv_timeout(Duration::from_secs(60)).is_ok(),
            _ => true,
        };
        let mut results = BTreeMap::new();
        for_each_parallel(&["slow", "fast"], MAX_PARALLEL, work, |index, result| {
            results.insert(index, result);
            // The slow device ends only after the result of the other one.
            let _ = finish.send(());
        });
        assert_eq!(results, [(0, true), (1, true)].into());
    }

    #[test]
    fn work_is_limited_to_several_devices_at_a_time() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |_: &u32| {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
        };
        let mut count = 0;
        for_each_parallel(&[0; 100], 3, work, |_, ()| count += 1);
        assert_eq!(count, 100);
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        for_each_parallel(&[], 3, work, |_, ()| panic!("no device"));
    }
}
