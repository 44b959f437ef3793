//! Opens the engines that send trains, with the payloads and options of a job.

use dwell_io::port::{SocketOptions, StampRequest};
use dwell_io::train::{Numbers, Payloads, TrainSender, TrainSenderConfig, Unavailable};
use dwell_protocol::{PaceEngine, PaceJob, Stamps};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::setup::PaceSetup;

/// Seed of the payload, the same in every run.
const PAYLOAD_SEED: u64 = 1;

/// Opens an engine for the flow of this number and for trains of up to `longest` packets, lead-in
/// included.
pub(super) fn open(
    engine: PaceEngine,
    job: &PaceJob,
    setup: &PaceSetup,
    flow: u32,
    longest: usize,
) -> Result<TrainSender, Unavailable> {
    let mut fill = vec![0; setup.size.payload().0 as usize];
    Xoshiro256PlusPlus::seed_from_u64(PAYLOAD_SEED).fill_bytes(&mut fill);
    let mut payloads = Payloads::new(flow, fill.len(), fill);
    // Building a train allocates nothing later.
    payloads.prepare(Numbers::new(0, longest));
    let stamps = match job.parameters.stamps {
        Stamps::User => StampRequest::User,
        Stamps::Auto | Stamps::Kernel => StampRequest::Kernel,
    };
    let config = TrainSenderConfig {
        target: setup.peer,
        options: &SocketOptions { stamps, ..SocketOptions::default() },
        payloads,
        max_packets: longest,
        bypass_qdisc: job.parameters.bypass,
    };
    TrainSender::open(engine, config)
}
