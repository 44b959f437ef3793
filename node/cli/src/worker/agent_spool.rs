//! Access of a controller to the spool of the agent on this node.

use std::io;
use std::path::Path;

use dwell_protocol::{Event, JobId, MAX_PAYLOAD_LEN, SpoolAnswer, SpoolRequest, write_data};
use dwell_rollup::{Level, Pause, SPOOL_LEVELS};

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
    let event = match perform(id, dir, what, events, last_request) {
        Ok(answer) => Event::Spool { id, answer },
        Err(error) => {
            Event::SpoolFailed { id, reason: format!("spool {}: {error}", dir.display()) }
        }
    };
    events.say(&event);
}

fn perform(
    id: u32,
    dir: &Path,
    what: SpoolRequest,
    events: &EventWriter,
    last_request: &LastRequest,
) -> io::Result<SpoolAnswer> {
    match what {
        SpoolRequest::Status => {
            let status = spool_access::read_status(dir)?;
            Ok(SpoolAnswer::Status { status: status.map(Box::new) })
        }
        SpoolRequest::Read { level, from } => {
            let level = Level::named(&level).filter(|level| SPOOL_LEVELS.contains(level));
            let level = level.ok_or_else(|| {
                let names = SPOOL_LEVELS.map(Level::name).join(", ");
                io::Error::new(io::ErrorKind::InvalidInput, format!("levels are {names}"))
            })?;
            let batch = spool_access::read_records(dir, level, from)?;
            for piece in batch.records.chunks(PIECE_LEN) {
                events.send(|to| write_data(to, JobId(id), piece))?;
                last_request.renew();
            }
            Ok(SpoolAnswer::Read {
                bytes: batch.records.len() as u64,
                crc32: crc32fast::hash(&batch.records),
                next: batch.next,
                has_more: batch.has_more,
            })
        }
        SpoolRequest::Receipts { receipts } => {
            for (incarnation, sequences) in &receipts {
                spool_access::write_receipts(dir, *incarnation, sequences)?;
            }
            Ok(SpoolAnswer::Done)
        }
        SpoolRequest::Schedule { schedule } => {
            schedule.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            spool_access::write_schedule(dir, &schedule)?;
            Ok(SpoolAnswer::Done)
        }
        SpoolRequest::Pause { reason } => {
            let since_wall_ns = dwell_io::clock::realtime().as_nanos();
            let pause = reason.map(|reason| Pause { reason, since_wall_ns });
            spool_access::write_pause(dir, pause.as_ref())?;
            Ok(SpoolAnswer::Done)
        }
    }
}
