//! The thread that writes the spool, so that a slow medium delays no samples.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dwell_rollup::{Body, NodeClocks, Status};

use super::spool::Spool;

/// Maximum number of records that wait for the medium.
const QUEUE_LEN: usize = 256;

/// Interval between turns without records.
const TURN_INTERVAL: Duration = Duration::from_secs(1);

/// A record to write, with the times at which it was formed.
enum Entry {
    Record { body: Box<Body>, wall_ns: i64, boot_ns: i64 },
    Status { status: Box<Status>, wall_ns: i64, boot_ns: i64 },
}

/// The sending end of the thread.
pub(super) struct SpoolThread {
    entries: SyncSender<Entry>,
    thread: JoinHandle<()>,
    blocks_lost: u64,
}

impl SpoolThread {
    pub(super) fn start(spool: Spool) -> std::io::Result<Self> {
        let (entries, received) = mpsc::sync_channel(QUEUE_LEN);
        let thread =
            thread::Builder::new().name("spool".into()).spawn(move || write(spool, &received))?;
        Ok(Self { entries, thread, blocks_lost: 0 })
    }

    /// Appends a record. If the medium stalls, blocks of samples are lost first, and counted; other
    /// records wait.
    pub(super) fn append(&mut self, body: Body, clocks: &NodeClocks) {
        let is_samples = matches!(body, Body::Samples(_));
        let (wall_ns, boot_ns) = (clocks.wall_ns(), clocks.boot_ns());
        let entry = Entry::Record { body: Box::new(body), wall_ns, boot_ns };
        match self.entries.try_send(entry) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) if is_samples => self.blocks_lost += 1,
            Err(TrySendError::Full(entry)) => drop(self.entries.send(entry)),
        }
    }

    /// Appends a status.
    pub(super) fn append_status(&mut self, mut status: Status, clocks: &NodeClocks) {
        status.sample_blocks_lost = self.blocks_lost;
        let (wall_ns, boot_ns) = (clocks.wall_ns(), clocks.boot_ns());
        let _ = self.entries.send(Entry::Status { status: Box::new(status), wall_ns, boot_ns });
    }

    /// Writes what was appended to the medium and ends the thread.
    pub(super) fn end(self) {
        drop(self.entries);
        let _ = self.thread.join();
    }
}

fn write(mut spool: Spool, entries: &Receiver<Entry>) {
    loop {
        match entries.recv_timeout(TURN_INTERVAL) {
            Ok(Entry::Record { body, wall_ns, boot_ns }) => spool.append(*body, wall_ns, boot_ns),
            Ok(Entry::Status { status, wall_ns, boot_ns }) => {
                spool.append_status(*status, wall_ns, boot_ns);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return spool.sync(),
        }
        spool.tend();
    }
}
