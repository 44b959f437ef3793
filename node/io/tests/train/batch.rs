//! Batches of a relay through a queue that drops packets: every timestamp belongs to its packet.

use std::collections::HashMap;

use dwell_io::batch::{Batch, Parcel};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::datagram::DatagramSocket;
use dwell_io::pacer::sleep_until;
use dwell_io::port::{Notice, SocketOptions, StampRequest};
use dwell_sample::TxStamp;
use dwell_units::{Instant, Nanos, Realtime};

use crate::fixture::{Ends, PORT};

/// Packets per call.
const BATCH_LEN: usize = 16;

/// Longer than the time for which timestamps are awaited.
const SETTLE_TIME: Nanos = Nanos::from_millis(1_100);

/// Interval between packets at which each finds room.
const SEND_INTERVAL: Nanos = Nanos::from_millis(20);

type Sent = HashMap<u32, Instant<Realtime>>;

/// Sends `packets` packets in one call. Adds the keys and times of those with a key to `sent`;
/// returns the number of those without.
fn send(batch: &mut Batch, end: &mut DatagramSocket, packets: usize, sent: &mut Sent) -> usize {
    let parcels: Vec<_> = (0..packets).map(|n| Parcel { n, at: 0..200, to: None }).collect();
    let mut unkeyed = 0;
    batch.send(end, &parcels, &mut |_, outcome, when| match outcome {
        Ok(Some(key)) => drop(sent.insert(key, when.before)),
        Ok(None) => unkeyed += 1,
        Err(_) => {}
    });
    unkeyed
}

/// Adds the driver's timestamps that have arrived, by key.
fn stamps(end: &mut DatagramSocket, came: &mut HashMap<u32, Instant<Realtime>>) {
    end.notices(1_000, &mut |notice| {
        if let Notice::TxStamp { key, stamp: TxStamp::Kernel(at) } = notice {
            came.insert(key, at);
        }
    });
}

#[test]
fn batch_timestamps_stay_matched_after_full_queue() {
    let Some(ends) = Ends::up() else { return };
    // Room for some ten packets, which take 2 ms each.
    ends.qdisc(&["tbf", "rate", "1mbit", "burst", "1600", "limit", "3000"]).unwrap();
    ends.near(|| {
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::relay() };
        let mut end = DatagramSocket::connect(([198, 19, 7, 2], PORT).into(), &options).unwrap();
        let mut batch = Batch::new(BATCH_LEN, 0);
        // Until the kernel timestamps packets. The queue is empty again.
        sleep_until(monotonic() + Nanos::from_millis(100));
        let mut sent = Sent::new();
        for _ in 0..5 {
            send(&mut batch, &mut end, BATCH_LEN, &mut sent);
        }
        assert!(
            (1..5 * BATCH_LEN).contains(&sent.len()),
            "some packets are dropped: {}",
            sent.len()
        );
        // There is room again, but timestamps with earlier keys may still arrive.
        sleep_until(monotonic() + Nanos::from_millis(100));
        assert_eq!(send(&mut batch, &mut end, 1, &mut sent), 1, "the next packet has no key");
        sleep_until(monotonic() + SETTLE_TIME);
        stamps(&mut end, &mut HashMap::new());
        for round in 0..5 {
            let (mut sent, mut came) = (Sent::new(), HashMap::new());
            assert_eq!(send(&mut batch, &mut end, 1, &mut sent), 0, "round {round}");
            sleep_until(monotonic() + SEND_INTERVAL);
            let until = realtime();
            stamps(&mut end, &mut came);
            let (key, before) = sent.into_iter().next().expect("the packet is not dropped");
            let at = came.get(&key).copied().expect("its timestamp has its key");
            assert!(before <= at && at <= until, "round {round}: {before:?} {at:?}");
            assert_eq!(came.len(), 1, "round {round}: {came:?}");
        }
    });
}
