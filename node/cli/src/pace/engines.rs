//! Opens the engines that send trains, or returns why one is unavailable.

use dwell_io::pacer::WaitMode;
use dwell_io::port::{PortOptions, StampRequest};
use dwell_io::train::{
    Gso, Numbers, PacketRing, Payloads, Sendmmsg, SocketSender, TrainSender, Txtime, Unavailable,
    Uring, Xsk,
};
use dwell_protocol::{PaceEngine, PaceJob, Stamps};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::plan::PacePlan;

/// Seed of the payload, the same in every run.
const PAYLOAD_SEED: u64 = 1;

/// Opens an engine for the flow of this number and for trains of up to `longest` packets, lead-in
/// included.
pub(super) fn open(
    engine: PaceEngine,
    job: &PaceJob,
    plan: &PacePlan,
    flow: u32,
    longest: usize,
) -> Result<Box<dyn TrainSender>, Unavailable> {
    let mut fill = vec![0; plan.size.payload().0 as usize];
    Xoshiro256PlusPlus::seed_from_u64(PAYLOAD_SEED).fill_bytes(&mut fill);
    let mut payloads = Payloads::new(flow, fill.len(), fill);
    // Building a train allocates nothing later.
    payloads.prepare(Numbers::new(0, longest));
    let stamps = match job.stamps {
        Stamps::User => StampRequest::User,
        Stamps::Auto | Stamps::Kernel => StampRequest::Kernel,
    };
    let (peer, options) = (plan.peer, &PortOptions { stamps, ..PortOptions::default() });
    let socket = |payloads, wait_mode| SocketSender::new(peer, options, payloads, wait_mode);
    Ok(match engine {
        PaceEngine::Sleep => Box::new(socket(payloads, None)?),
        PaceEngine::Spin => Box::new(socket(payloads, Some(WaitMode::Spin))?),
        PaceEngine::Auto | PaceEngine::SleepSpin => {
            Box::new(socket(payloads, Some(WaitMode::SleepSpin))?)
        }
        PaceEngine::Sendmmsg => Box::new(Sendmmsg::new(peer, options, payloads)?),
        PaceEngine::Gso => Box::new(Gso::new(peer, options, payloads)?),
        PaceEngine::PacketRing => {
            Box::new(PacketRing::new(peer, options, payloads, longest, job.bypass)?)
        }
        PaceEngine::Xsk => Box::new(Xsk::new(peer, options, payloads, longest)?),
        PaceEngine::Txtime => Box::new(Txtime::new(peer, options, payloads)?),
        PaceEngine::Uring => Box::new(Uring::new(peer, options, payloads)?),
    })
}
