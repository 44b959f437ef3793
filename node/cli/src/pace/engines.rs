//! The engines that send trains: each opened where it works here, and the reason where it does not.

use dwell_io::pacer::Manner;
use dwell_io::port::{PortOptions, StampRequest};
use dwell_io::train::{Payloads, SocketSender, TrainSender};
use dwell_io::udp::UdpPort;
use dwell_plan::{PaceEngine, PaceJob, Stamps};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::plan::Plan;

/// What fills payloads is the same series in every run.
const FILL: u64 = 1;

/// Opens an engine, whose packets are of the flow of this number; or says why it cannot be used.
pub(super) fn open(
    engine: PaceEngine,
    job: &PaceJob,
    plan: &Plan,
    flow: u32,
) -> Result<Box<dyn TrainSender>, String> {
    let mut fill = vec![0; plan.size.payload().0 as usize];
    Xoshiro256PlusPlus::seed_from_u64(FILL).fill_bytes(&mut fill);
    let mut payloads = Payloads::new(flow, fill.len(), fill);
    // So that building a train takes no memory later.
    payloads.prepare(0, plan.longest());
    let stamped = job.stamps != Stamps::User;
    let socket = |manner| -> Result<Box<dyn TrainSender>, String> {
        let stamps = if stamped { StampRequest::Kernel } else { StampRequest::User };
        let options = PortOptions { stamps, ..PortOptions::default() };
        let port = UdpPort::connect(plan.peer, &options).map_err(|error| error.to_string())?;
        Ok(Box::new(SocketSender::new(port, payloads, manner, stamped)))
    };
    match engine {
        PaceEngine::Sleep => socket(None),
        PaceEngine::Spin => socket(Some(Manner::Spin)),
        PaceEngine::Auto | PaceEngine::SleepSpin => socket(Some(Manner::SleepSpin)),
        PaceEngine::Sendmmsg
        | PaceEngine::Gso
        | PaceEngine::PacketRing
        | PaceEngine::Xsk
        | PaceEngine::Txtime
        | PaceEngine::Uring => Err("not built yet".to_owned()),
    }
}
