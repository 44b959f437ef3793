//! `dwell worker`: a node that a controller drives over a pipe.
//!
//! Requests arrive on standard input and events leave on standard output, in the frames of
//! `core/protocol`. Every job has its own thread; samples stay in a spool until they are pulled.
//! The end of standard input ends all jobs, so that nothing is left behind when the controller or
//! its connection dies. On a device, a worker also ends after a time without requests, and it holds
//! the device's lease, so that a device serves one run at a time. An agent on the device pauses as long
//! as the lease is held; `agent_spool` gives a hub access to the records of that agent.

mod agent_spool;
mod clock;
mod jobs;
mod lease;
mod silence;
mod spool;

use std::fs::File;
use std::io::{self, BufReader};

use dwell_protocol::{Event, Frame, Lease, Request, VERSION, read_frame};
use dwell_units::Nanos;

use crate::agent::spool_access;
use crate::{Exit, Failure};
use jobs::{EventWriter, Jobs};
use lease::{DeviceLease, Taken};
use silence::LastRequest;

/// Arguments of `worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End after this time without a request, such as 30s
    #[arg(long, value_name = "TIME")]
    silence_timeout: Option<Nanos>,

    /// Hold the lease of this device for this run; fail if another run holds it
    #[arg(long, value_name = "JSON", value_parser = lease::read)]
    lease: Option<Lease>,
}

/// Pauses the agent of this node, if it has one, until the returned file is dropped.
fn pause_agent(lease: &Lease) -> Option<File> {
    let dir = spool_access::default_dir();
    spool_access::hold_pause(&dir, &lease.to_string()).unwrap_or_else(|error| {
        crate::say(&format!("dwell: cannot pause the agent of {}: {error}", dir.display()));
        None
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // ^C on the controller's terminal also reaches this process, but the controller decides.
    crate::stop::ignore_interrupts()?;
    // So that a job's ports are free when it reports that it has finished.
    dwell_io::process::share_descriptors();
    let events = EventWriter::new(io::stdout());
    let _lease = match args.lease.as_ref().map(DeviceLease::take).transpose()? {
        Some(Taken::ByOther(lease)) => {
            events.say(&Event::Leased { lease });
            return Ok(Exit::Failed);
        }
        Some(Taken::Now(lease)) => Some(lease),
        None => None,
    };
    let _pause = args.lease.as_ref().and_then(pause_agent);
    events.say(&Event::Hello {
        version: VERSION,
        dwell: crate::build().to_owned(),
        node: dwell_io::machine::host_name().unwrap_or_default(),
        jobs: dwell_protocol::Job::NAMES.map(str::to_owned).to_vec(),
        boot_id: dwell_io::machine::boot_id_text(),
    });
    let last_request = LastRequest::now();
    let mut jobs = Jobs::new(events, last_request.clone());
    if let Some(timeout) = args.silence_timeout {
        silence::watch(last_request.clone(), timeout.to_std(), jobs.running());
    }
    let mut input = BufReader::new(io::stdin());
    let outcome = loop {
        match read_frame::<Request>(&mut input) {
            Ok(Some(Frame::Message(request))) => {
                last_request.renew();
                jobs.take(request);
            }
            Ok(Some(Frame::Data(..))) => {
                break Err(Failure::from(anyhow::anyhow!("a controller sends no data frames")));
            }
            Ok(None) => break Ok(Exit::Measured),
            Err(error) => break Err(Failure::from(error)),
        }
    };
    jobs.running().end();
    outcome
}
