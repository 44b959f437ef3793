//! Access to the spool of an agent on a device, over one ssh connection. It takes no lease: experiments
//! use the device at the same time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dwell_protocol::{
    Event, Frame, FrameError, Request, SpoolAnswer, SpoolRequest, read_frame, write_message,
};
use dwell_rollup::{
    Incarnation, Level, MAX_MESSAGE_LEN, NodeSchedule, RangeSet, SpoolCursor, StatusFile,
};

use crate::deployment::Deployment;
use crate::node_process::NodeProcess;
use crate::{Device, FleetError, NodeBinaries};

/// Time for an answer, or for the next piece of records before it. A slow flash memory needs seconds for
/// a synchronous write.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time without a request after which the node program ends.
const SILENCE_TIMEOUT: &str = "150s";

/// Maximum time between two requests.
pub const MAX_REQUEST_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum length of the receipts in one request in bytes; a message has at most 1 MiB. One incarnation
/// may have more.
const MAX_RECEIPTS_LEN: usize = 900_000;

/// Length of the rest of an incarnation's receipts in a request: its number and the punctuation.
const RECEIPTS_HEAD_LEN: usize = 24;

/// Records of one level from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolRecords {
    /// Whole records without those that have receipts.
    pub records: Vec<u8>,
    /// Position after them; `None` if there is no record yet.
    pub next: Option<SpoolCursor>,
    /// Whether more can be read now.
    pub has_more: bool,
}

/// A connection to the spool of a device.
#[derive(Debug)]
pub struct SpoolLink {
    device: String,
    process: NodeProcess,
    /// Number of the last request.
    id: u32,
}

impl SpoolLink {
    /// Connects to a device, copying the node program there if it is missing. `stop` ends every wait.
    ///
    /// # Errors
    /// The device is unreachable, or the program does not start.
    pub fn open(
        device: &Device,
        binaries: &NodeBinaries,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, FleetError> {
        let deployed = Deployment::connect(device, binaries, stop)?.deploy(binaries)?;
        let process = deployed.start_unleased(SILENCE_TIMEOUT)?.process;
        Ok(Self { device: device.name.clone(), process, id: 0 })
    }

    /// Returns the last status of the agent; `None` if no agent ever ran there.
    ///
    /// # Errors
    /// The connection ended, or the spool cannot be read.
    pub fn status(&mut self) -> Result<Option<StatusFile>, FleetError> {
        match self.ask(SpoolRequest::Status)? {
            (SpoolAnswer::Status { status }, _) => Ok(status.map(|status| *status)),
            (answer, _) => Err(self.unexpected(&answer)),
        }
    }

    /// Returns the next records of a level, at most [`MAX_MESSAGE_LEN`] bytes; only those `written` from
    /// the first to the second time on the node's CLOCK_REALTIME, if it is given.
    ///
    /// # Errors
    /// The connection ended, or the spool cannot be read.
    pub fn read(
        &mut self,
        level: Level,
        from: Option<SpoolCursor>,
        written: Option<(i64, i64)>,
    ) -> Result<SpoolRecords, FleetError> {
        let (answer, records) =
            self.ask(SpoolRequest::Read { level: level.name().to_owned(), from, written })?;
        let SpoolAnswer::Read { bytes, crc32, next, has_more } = answer else {
            return Err(self.unexpected(&answer));
        };
        // ssh protects the bytes on their way; this detects errors of either program.
        if bytes != records.len() as u64 || crc32 != crc32fast::hash(&records) {
            return Err(self.refusal("its records do not match their checksum".to_owned()));
        }
        Ok(SpoolRecords { records, next, has_more })
    }

    /// Leaves receipts: all committed sequence numbers of these incarnations.
    ///
    /// # Errors
    /// The connection ended, or the spool cannot be written.
    pub fn put_receipts(
        &mut self,
        receipts: BTreeMap<Incarnation, RangeSet>,
    ) -> Result<(), FleetError> {
        for receipts in parts(receipts) {
            self.request_done(SpoolRequest::Receipts { receipts })?;
        }
        Ok(())
    }

    /// Leaves a schedule.
    ///
    /// # Errors
    /// The connection ended, or the spool cannot be written.
    pub fn put_schedule(&mut self, schedule: NodeSchedule) -> Result<(), FleetError> {
        self.request_done(SpoolRequest::Schedule { schedule: schedule.to_json() })
    }

    fn request_done(&mut self, request: SpoolRequest) -> Result<(), FleetError> {
        match self.ask(request)? {
            (SpoolAnswer::Done, _) => Ok(()),
            (answer, _) => Err(self.unexpected(&answer)),
        }
    }

    /// Sends a request and returns the answer with the pieces before it.
    fn ask(&mut self, what: SpoolRequest) -> Result<(SpoolAnswer, Vec<u8>), FleetError> {
        self.id = self.id.wrapping_add(1);
        let id = self.id;
        let request = Request::Spool { id, dir: None, what };
        // A connection that ended shows in the answer. A request that is too long was not sent.
        if let Err(error) = write_message(&mut self.process.input, &request)
            && error.kind() == io::ErrorKind::InvalidInput
        {
            return Err(self.refusal(format!("cannot send a request: {error}")));
        }
        self.process.limit(ANSWER_TIMEOUT);
        let mut records = Vec::new();
        loop {
            match read_frame::<Event>(&mut self.process.output) {
                Ok(Some(Frame::Data(job, piece))) if job.0 == id => {
                    if records.len() + piece.len() > MAX_MESSAGE_LEN {
                        return Err(self.refusal("it sent too many records at once".to_owned()));
                    }
                    // A slow link needs more time for all records than for one piece.
                    if !piece.is_empty() {
                        self.process.limit(ANSWER_TIMEOUT);
                    }
                    records.extend_from_slice(&piece);
                }
                Ok(Some(Frame::Message(Event::Spool { id: of, answer }))) if of == id => {
                    return Ok((answer, records));
                }
                Ok(Some(Frame::Message(Event::SpoolFailed { id: of, reason }))) if of == id => {
                    return Err(self.refusal(format!("the spool of its agent: {reason}")));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.ended("its node program ended")),
                Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    let limit = ANSWER_TIMEOUT.as_secs();
                    return Err(self.ended(&format!("no answer within {limit} s")));
                }
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
    }

    fn unexpected(&self, answer: &SpoolAnswer) -> FleetError {
        self.refusal(format!("its node program sent an unexpected answer: {answer:?}"))
    }

    fn refusal(&self, message: String) -> FleetError {
        FleetError::Device { device: self.device.clone(), message }
    }

    /// Ends the connection and explains why.
    fn ended(&mut self, reason: &str) -> FleetError {
        self.process.group.kill();
        let said = self.process.errors.at_end();
        let details = if said.is_empty() { String::new() } else { format!(": {said}") };
        self.refusal(format!("{reason}{details}"))
    }
}

/// Divides receipts into those of several requests.
fn parts(receipts: BTreeMap<Incarnation, RangeSet>) -> Vec<BTreeMap<Incarnation, RangeSet>> {
    let mut parts = Vec::new();
    let mut part = BTreeMap::new();
    let mut part_len = 0;
    for (incarnation, sequences) in receipts {
        let len = RECEIPTS_HEAD_LEN + sequences.to_string().len();
        if part_len + len > MAX_RECEIPTS_LEN && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            part_len = 0;
        }
        part.insert(incarnation, sequences);
        part_len += len;
    }
    parts.extend((!part.is_empty()).then_some(part));
    parts
}

#[cfg(test)]
mod tests {
    use dwell_protocol::MAX_PAYLOAD_LEN;

    use super::*;

    #[test]
    fn receipts_are_divided_into_requests_that_fit() {
        let of = |incarnation: u64, ranges: u64| {
            let sequences = (1..=ranges).map(|n| (1 << 60) + 2 * n);
            (Incarnation(incarnation), sequences.collect::<RangeSet>())
        };
        let receipts: BTreeMap<Incarnation, RangeSet> =
            [of(1, 20_000), of(2, 20_000), of(3, 20_000), of(4, 1), of(5, 1)].into();
        let parts = parts(receipts.clone());
        assert_eq!(parts.len(), 2, "two of 400 kB fit into one request");
        for receipts in parts.clone() {
            let what = SpoolRequest::Receipts { receipts };
            let request = Request::Spool { id: u32::MAX, dir: None, what };
            let mut message = Vec::new();
            write_message(&mut message, &request).unwrap();
            assert!(message.len() <= MAX_PAYLOAD_LEN);
        }
        assert_eq!(parts.into_iter().flatten().collect::<BTreeMap<_, _>>(), receipts);
        assert_eq!(super::parts(BTreeMap::new()), []);
    }
}
