//! `dwell worker`: a node that a controller drives over a pipe.
//!
//! Requests arrive on standard input and events leave on standard output, in the frames of
//! `core/protocol`. Every job has its own thread; samples stay in a spool until they are pulled.
//! The end of standard input ends all jobs, so that nothing is left behind when the controller or
//! its connection dies.

mod jobs;
mod spool;

use std::io::{self, BufReader};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame};

use crate::{Exit, Failure};
use jobs::{EventWriter, Jobs};

/// Runs the command.
pub fn run() -> Result<Exit, Failure> {
    // ^C on the controller's terminal also reaches this process, but the controller decides.
    crate::stop::ignore_interrupts()?;
    // So that a job's ports are free when it reports that it has finished.
    dwell_io::process::share_descriptors();
    let events = EventWriter::new(io::stdout());
    events.say(&Event::Hello {
        version: VERSION,
        dwell: crate::build().to_owned(),
        node: dwell_io::machine::host_name().unwrap_or_default(),
        jobs: dwell_protocol::Job::NAMES.map(str::to_owned).to_vec(),
    });
    let mut jobs = Jobs::new(events);
    let mut input = BufReader::new(io::stdin());
    let outcome = loop {
        match read_frame::<Request>(&mut input) {
            Ok(Some(Frame::Message(request))) => jobs.take(request),
            Ok(Some(Frame::Data(..))) => {
                break Err(Failure::from(anyhow::anyhow!("a controller sends no data frames")));
            }
            Ok(None) => break Ok(Exit::Measured),
            Err(error) => break Err(Failure::from(error)),
        }
    };
    jobs.end();
    outcome
}
