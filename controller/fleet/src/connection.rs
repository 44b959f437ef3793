//! A node process and its pipes.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, Request, VERSION, read_frame, write_message};

use crate::FromNode;

/// Lines of a node's talk that are kept for a reason.
const KEPT_LINES: usize = 4;

/// A node that is asked to end, by the end of its input, does so within a second.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// What a connection tells, and which connection it is: one that was let go of may still talk.
pub(crate) type Told = (u64, FromNode);

/// A connection to a node.
#[derive(Debug)]
pub(crate) struct Connection {
    child: Child,
    /// `None` when it was told to end.
    input: Option<ChildStdin>,
    pub(crate) number: u64,
}

impl Connection {
    /// Starts the process. What it says goes to `told`, from a thread of its own.
    pub(crate) fn open(mut command: Command, number: u64, told: Sender<Told>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output), Some(talk)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("a child without pipes"));
        };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let listening = thread::spawn(move || {
            for line in BufReader::new(talk).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(line);
                if kept.len() > KEPT_LINES {
                    kept.remove(0);
                }
            }
        });
        thread::spawn(move || {
            let why = hear(&mut BufReader::new(output), number, &told);
            // Its last words may come after its last event.
            let _ = listening.join();
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
            let said = if lines.is_empty() { String::new() } else { format!(": {lines}") };
            let _ = told.send((number, FromNode::Gone(format!("{why}{said}"))));
        });
        Ok(Self { child, input: Some(input), number })
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        write_message(input, request)
    }
}

/// Passes on what comes until nothing comes any more; returns why.
fn hear(from: &mut impl io::Read, number: u64, told: &Sender<Told>) -> String {
    loop {
        let what = match read_frame::<Event>(from) {
            Ok(Some(Frame::Message(Event::Hello { version, dwell, .. }))) if version != VERSION => {
                return format!(
                    "dwell {dwell} there speaks version {version} of the node protocol, and this \
                     one version {VERSION}"
                );
            }
            Ok(Some(Frame::Message(event))) => FromNode::Event(event),
            Ok(Some(Frame::Data(job, bytes))) => FromNode::Data(job, bytes),
            Ok(None) => return "its process ended".into(),
            Err(error) => return format!("it cannot be understood: {error}"),
        };
        if told.send((number, what)).is_err() {
            return "nobody listens".into();
        }
    }
}

impl Drop for Connection {
    /// The end of its input ends a node, and all that it does.
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
