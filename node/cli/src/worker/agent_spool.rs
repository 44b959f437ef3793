//! Access of a controller to the spool of the agent on this node.

use std::io;
use std::path::Path;

use dwell_protocol::{
    Event, JobId, MAX_PAYLOAD_LEN, SpoolAnswer, SpoolRequest, write_data, write_message,
};
use dwell_rollup::{Level, NodeSchedule, Pause, SPOOL_LEVELS};
use serde_json::{Value, json};

use super::jobs::EventWriter;
use super::silence::LastRequest;
use crate::agent::spool_access;

/// Length of a piece of records.
const PIECE_LEN: usize = MAX_PAYLOAD_LEN / 4;

/// Answers a request for the spool in `dir`, or in the default directory.
pub(super) fn answer(
    id: u32,
    dir: Option<&Path>,
    what: SpoolRequest,
    events: &EventWriter,
    last_request: &LastRequest,
) {
    let default = spool_access::default_dir();
    let dir = dir.unwrap_or(&default);
    match perform(id, dir, what, events, last_request) {
        Ok(Answer::Typed(answer)) => events.say(&Event::Spool { id, answer }),
        Ok(Answer::Status(status)) => {
            // The JSON of `SpoolAnswer::Status`.
            let answer = json!({ "spool": "status", "status": status });
            let event = json!({ "event": "spool", "id": id, "answer": answer });
            // A closed connection shows at the end of standard input.
            let _ = events.send(|to| write_message(to, &event));
        }
        Err(error) => {
            let reason = format!("spool {}: {error}", dir.display());
            events.say(&Event::SpoolFailed { id, reason });
        }
    }
}

/// Answer to a request.
enum Answer {
    Typed(SpoolAnswer),
    /// The status as the agent wrote it, which may be another build than this.
    Status(Option<Value>),
}

fn perform(
    id: u32,
    dir: &Path,
    what: SpoolRequest,
    events: &EventWriter,
    last_request: &LastRequest,
) -> io::Result<Answer> {
    let answer = match what {
        SpoolRequest::Status => return Ok(Answer::Status(spool_access::read_status(dir)?)),
        SpoolRequest::Read { level, from, written } => {
            let level = Level::named(&level).filter(|level| SPOOL_LEVELS.contains(level));
            let level = level.ok_or_else(|| {
                let names = SPOOL_LEVELS.map(Level::name).join(", ");
                io::Error::new(io::ErrorKind::InvalidInput, format!("levels are {names}"))
            })?;
            let batch = spool_access::read_records(dir, level, from, written)?;
            for piece in batch.records.chunks(PIECE_LEN) {
                events.send(|to| write_data(to, JobId(id), piece))?;
                last_request.renew();
            }
            SpoolAnswer::Read {
                bytes: batch.records.len() as u64,
                crc32: crc32fast::hash(&batch.records),
                next: batch.next,
                has_more: batch.has_more,
            }
        }
        SpoolRequest::Receipts { receipts } => {
            for (incarnation, sequences) in &receipts {
                spool_access::write_receipts(dir, *incarnation, sequences)?;
            }
            SpoolAnswer::Done
        }
        SpoolRequest::Schedule { schedule } => {
            NodeSchedule::from_json(schedule.as_bytes())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            spool_access::write_schedule(dir, &schedule)?;
            SpoolAnswer::Done
        }
        SpoolRequest::Pause { reason } => {
            let since_wall_ns = dwell_io::clock::realtime().as_nanos();
            let pause = reason.map(|reason| Pause { reason, since_wall_ns });
            spool_access::write_pause(dir, pause.as_ref())?;
            SpoolAnswer::Done
        }
    };
    Ok(Answer::Typed(answer))
}
