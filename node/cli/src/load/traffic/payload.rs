//! Payload of traffic: one pseudo-random series for all packets, as in Miya 2020, after the header
//! that identifies the packet.

use dwell_protocol::{TrafficHeader, TrafficJob};
use dwell_units::{Instant, Rate, Realtime};
use dwell_wire::iperf2::{Client, Datagram};
use dwell_wire::traffic::Mark;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::setup::TrafficSetup;

/// Payload of a run's packets.
pub(super) struct Payload {
    header: TrafficHeader,
    bytes: Vec<u8>,
}

impl Payload {
    pub(super) fn new(job: &TrafficJob, setup: &TrafficSetup) -> Self {
        let mut bytes = vec![0; setup.size];
        Xoshiro256PlusPlus::seed_from_u64(job.seed).fill_bytes(&mut bytes);
        if job.header() == TrafficHeader::Iperf {
            settings(job, setup).emit(&mut bytes);
        }
        Self { header: job.header(), bytes }
    }

    /// Builds packet `number` of `flow`, counted from 0 and sent at `now`; returns payload and id.
    pub(super) fn packet(
        &mut self,
        flow: u32,
        number: u64,
        now: Instant<Realtime>,
    ) -> (&[u8], u64) {
        let id = match self.header {
            TrafficHeader::Dwell => {
                Mark { flow, seq: number }.emit(&mut self.bytes);
                number
            }
            TrafficHeader::Iperf => {
                Datagram::new(number as i64 + 1, now).emit(&mut self.bytes);
                number + 1
            }
        };
        (&self.bytes, id)
    }

    /// Builds the FIN of an iperf flow after this number of packets.
    pub(super) fn fin(&mut self, packets: u64, now: Instant<Realtime>) -> &[u8] {
        Datagram::new(-(packets as i64 + 1), now).emit(&mut self.bytes);
        &self.bytes
    }
}

/// Returns the settings that an iperf client would announce.
fn settings(job: &TrafficJob, setup: &TrafficSetup) -> Client {
    let size = setup.size as u32;
    let amount = match (job.parameters.count, job.parameters.duration) {
        (Some(count), _) => i32::try_from(count.saturating_mul(size.into())).unwrap_or(i32::MAX),
        (None, Some(time)) => -i32::try_from(time.0 / 10_000_000).unwrap_or(i32::MAX),
        (None, None) => i32::MIN + 1,
    };
    let rate = match job.rate {
        Rate::Bits(rate) => rate.0 as f64 * setup.size as f64 / setup.ip_size as f64,
        Rate::Packets(rate) => rate.as_f64() * setup.size as f64 * 8.0,
    };
    let port = setup.peer.port().into();
    Client { threads: 1, port, size, amount, rate: (rate / f64::from(job.flows)) as u64 }
}
