//! A worker of the node, as a hub uses it over SSH.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dwell_protocol::{
    Event, Frame, JobId, Request, SpoolAnswer, SpoolRequest, read_frame, write_message,
};
use dwell_rollup::{
    Incarnation, NodeSchedule, Piece, RangeSet, Record, SpoolCursor, StatusFile, pieces,
};

use crate::support::DWELL;

pub(crate) struct Carrier {
    child: Child,
    requests: Option<ChildStdin>,
    events: BufReader<ChildStdout>,
    last: u32,
}

impl Carrier {
    /// Starts a worker whose default spool is `spool`.
    pub(crate) fn start(spool: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(DWELL);
        command.arg("worker").args(arguments).env("DWELL_AGENT_SPOOL", spool);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut carrier = Self { child, requests, events, last: 0 };
        let Frame::Message(Event::Hello { .. }) = carrier.next() else { panic!("expected hello") };
        carrier
    }

    fn next(&mut self) -> Frame<Event> {
        read_frame::<Event>(&mut self.events).unwrap().expect("the worker runs")
    }

    /// Sends a request; returns the answer and the pieces before it.
    pub(crate) fn ask(&mut self, what: SpoolRequest) -> Result<(SpoolAnswer, Vec<u8>), String> {
        self.last += 1;
        let id = self.last;
        let request = Request::Spool { id, dir: None, what };
        write_message(self.requests.as_mut().expect("not ended"), &request).unwrap();
        let mut data = Vec::new();
        loop {
            match self.next() {
                Frame::Data(JobId(of), piece) => {
                    assert_eq!(of, id);
                    data.extend_from_slice(&piece);
                }
                Frame::Message(Event::Spool { id: of, answer }) if of == id => {
                    return Ok((answer, data));
                }
                Frame::Message(Event::SpoolFailed { id: of, reason }) if of == id => {
                    return Err(reason);
                }
                Frame::Message(event) => panic!("{event:?}"),
            }
        }
    }

    pub(crate) fn done(&mut self, what: SpoolRequest) {
        assert_eq!(self.ask(what), Ok((SpoolAnswer::Done, Vec::new())));
    }

    pub(crate) fn status(&mut self) -> Option<Box<StatusFile>> {
        match self.ask(SpoolRequest::Status).unwrap().0 {
            SpoolAnswer::Status { status } => status,
            answer => panic!("{answer:?}"),
        }
    }

    /// All records of a level that have no receipts, in the order of the spool.
    pub(crate) fn records(&mut self, level: &str) -> Vec<Record> {
        self.records_written(level, None)
    }

    /// Those that were written in a span.
    pub(crate) fn records_written(
        &mut self,
        level: &str,
        written: Option<(i64, i64)>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        let mut from: Option<SpoolCursor> = None;
        loop {
            let (answer, data) =
                self.ask(SpoolRequest::Read { level: level.into(), from, written }).unwrap();
            let SpoolAnswer::Read { bytes, crc32, next, has_more } = answer else {
                panic!("{answer:?}")
            };
            assert_eq!((bytes, crc32), (data.len() as u64, crc32fast::hash(&data)));
            records.extend(pieces(&data).map(|piece| match piece {
                Piece::Record(record) => Record::decode(record).unwrap(),
                Piece::Damaged(bytes) => panic!("{} damaged bytes", bytes.len()),
            }));
            from = next;
            if !has_more {
                return records;
            }
        }
    }

    pub(crate) fn receipt(&mut self, incarnation: Incarnation, sequences: RangeSet) {
        let receipts = BTreeMap::from([(incarnation, sequences)]);
        self.done(SpoolRequest::Receipts { receipts });
    }

    pub(crate) fn schedule(&mut self, json: &str) {
        let schedule: NodeSchedule = serde_json::from_str(json).unwrap();
        self.done(SpoolRequest::Schedule { schedule: schedule.to_json() });
    }

    /// Ends the worker and waits for it.
    pub(crate) fn end(mut self) {
        self.requests = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
