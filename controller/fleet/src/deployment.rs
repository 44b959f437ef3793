//! Copies the node program to a device and starts it there, over one ssh connection.
//!
//! `bootstrap.sh` runs on the device. It names the machine and the folder of the program, stores the
//! program under its hash if it is missing, and is replaced by the program. Nothing else is installed,
//! and nothing runs on when the connection ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use dwell_protocol::{Event, Frame, FrameError, Lease, VERSION, read_frame};

use crate::node_binaries::{NodeBinaries, NodeBinary, arch_of_machine};
use crate::node_process::NodeProcess;
use crate::ssh::{command, remedy, typed};
use crate::{Device, FleetError};

/// The script that runs on the device.
const BOOTSTRAP: &str = include_str!("bootstrap.sh");

/// First line that the script prints. A login shell may print other lines before it.
const GREETING: &str = "dwell-bootstrap 1";

/// Maximum number of lines before the greeting.
const MAX_EARLIER_LINES: usize = 200;

/// Time to connect, to authenticate and to run the script.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Length of the pieces in which the program is copied, in bytes; that of `bootstrap.sh`. ssh buffers
/// several, so each is acknowledged before the next is sent.
const PIECE_LEN: u64 = 256 << 10;

/// Time for a piece of the program to arrive.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the device to store the program after it has arrived.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the files of dwell to be removed.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the program to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without a request after which a node ends: its connection is lost.
const SILENCE_TIMEOUT: &str = "30s";

/// A device as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    /// Machine type (`uname -m`).
    pub(crate) machine: String,
    /// Kernel release.
    pub(crate) kernel: String,
    pub(crate) uid: u32,
    /// The device's end of the ssh connection.
    pub(crate) address: Option<IpAddr>,
    /// Folder of the node program; empty if no folder is usable.
    dir: String,
    /// Why folders are unusable.
    refused: String,
    /// Whether the program is there already.
    have: bool,
}

impl DeviceFacts {
    /// Reads the lines of the script.
    fn read(mut line: impl FnMut() -> io::Result<String>) -> io::Result<Self> {
        let mut earlier = 0;
        while line()? != GREETING {
            earlier += 1;
            if earlier > MAX_EARLIER_LINES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "its login shell prints text",
                ));
            }
        }
        let mut facts = Self::default();
        loop {
            let line = line()?;
            let (name, value) = line.split_once('=').unwrap_or((&line, ""));
            let value = value.to_owned();
            match name {
                "machine" => facts.machine = value,
                "kernel" => facts.kernel = value,
                "uid" => {
                    facts.uid = value.parse().map_err(|_| {
                        let message = format!("its user id '{value}' is not a number");
                        io::Error::new(io::ErrorKind::InvalidData, message)
                    })?;
                }
                "address" => facts.address = value.parse().ok(),
                "dir" => facts.dir = value,
                "refused" => facts.refused = value.trim_end_matches([';', ' ']).to_owned(),
                "have" => facts.have = value == "yes",
                "end" => return Ok(facts),
                _ => {}
            }
        }
    }
}

/// A device whose script waits for a command.
pub(crate) struct Deployment<'a> {
    device: &'a Device,
    process: NodeProcess,
    pub(crate) facts: DeviceFacts,
    /// Time until the script had answered.
    pub(crate) connect: Duration,
}

/// A device with the node program in place.
pub(crate) struct Deployed<'a> {
    deployment: Deployment<'a>,
    pub(crate) binary: &'a NodeBinary,
    /// Length of the program if it was copied; 0 if it was there.
    pub(crate) uploaded_bytes: u64,
}

/// A device whose node waits for requests.
pub(crate) struct StartedNode {
    pub(crate) process: NodeProcess,
    pub(crate) facts: DeviceFacts,
    pub(crate) program_sha256: String,
    /// The node's first event.
    pub(crate) hello: Event,
}

impl<'a> Deployment<'a> {
    /// Connects to a device. `stop` ends every wait.
    ///
    /// # Errors
    /// The device is unreachable, or does not run the script.
    pub(crate) fn connect(
        device: &'a Device,
        binaries: &NodeBinaries,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, FleetError> {
        let started = Instant::now();
        let command = command(device, &remote_command(device, binaries));
        let program = command.get_program().to_string_lossy().into_owned();
        let mut process = NodeProcess::start(command, Arc::clone(stop))
            .map_err(|source| FleetError::Start { program, source })?;
        process.limit(CONNECT_TIMEOUT);
        let facts = match DeviceFacts::read(|| process.line()) {
            Ok(facts) => facts,
            Err(error) => {
                let limit = CONNECT_TIMEOUT.as_secs();
                let late = format!("no answer within {limit} s from `ssh {}`", typed(device));
                return Err(failure(device, process, &late, &error));
            }
        };
        Ok(Self { device, process, facts, connect: started.elapsed() })
    }

    /// Copies the program to the device unless it is there.
    ///
    /// # Errors
    /// There is no program for the device's architecture, or it cannot be stored there.
    pub(crate) fn deploy(mut self, binaries: &'a NodeBinaries) -> Result<Deployed<'a>, FleetError> {
        let machine = &self.facts.machine;
        let Some(binary) = binaries.of_machine(machine) else {
            return Err(refusal(self.device, missing_program(machine)));
        };
        if self.facts.dir.is_empty() {
            let message = format!(
                "no folder there can hold and run the node program: {}; make one writable and mount \
                 its file system without noexec",
                self.facts.refused
            );
            return Err(refusal(self.device, message));
        }
        let mut uploaded_bytes = 0;
        if !self.facts.have {
            self = self.upload(binary)?;
            uploaded_bytes = binary.len;
        }
        Ok(Deployed { deployment: self, binary, uploaded_bytes })
    }

    fn upload(mut self, binary: &NodeBinary) -> Result<Self, FleetError> {
        let device = self.device;
        let mut file = File::open(&binary.path).map_err(|error| {
            refusal(device, format!("cannot read {}: {error}", binary.path.display()))
        })?;
        // A connection that ended shows in the answer.
        let _ = self.process.say(&format!("put {}", binary.len));
        let mut late =
            format!("the copy of the node program stopped for {} s", TRANSFER_TIMEOUT.as_secs());
        let mut expected = "ready";
        let mut left = binary.len;
        let stored = loop {
            self.process.limit(TRANSFER_TIMEOUT);
            match self.process.line() {
                Ok(answer) if answer == expected => {}
                answer => break answer,
            }
            if left == 0 {
                late =
                    format!("the node program was not stored within {} s", STORE_TIMEOUT.as_secs());
                self.process.limit(STORE_TIMEOUT);
                break self.process.line();
            }
            let piece = left.min(PIECE_LEN);
            if let Err(error) = self.process.copy(&mut (&mut file).take(piece), TRANSFER_TIMEOUT) {
                break Err(error);
            }
            left -= piece;
            expected = "got";
        };
        match stored {
            Ok(answer) if answer == "stored" => Ok(self),
            Ok(answer) => {
                if let Some(leased) = leased(device, &answer) {
                    return Err(leased);
                }
                let why = answer.strip_prefix("failed ").unwrap_or(&answer);
                let message = format!(
                    "cannot store the node program ({} kB) in {}: {why}; free space there",
                    binary.len.div_ceil(1_000),
                    self.facts.dir
                );
                Err(refusal(device, message))
            }
            Err(error) => Err(failure(device, self.process, &late, &error)),
        }
    }

    /// Removes everything that dwell stored on the device.
    ///
    /// # Errors
    /// A node runs there, or a file cannot be removed.
    pub(crate) fn remove(mut self) -> Result<(), FleetError> {
        let _ = self.process.say("clean");
        self.process.limit(REMOVE_TIMEOUT);
        let late = format!("its files were not removed within {} s", REMOVE_TIMEOUT.as_secs());
        match self.process.line() {
            Ok(answer) if answer == "removed" => Ok(()),
            Ok(answer) => {
                if let Some(leased) = leased(self.device, &answer) {
                    return Err(leased);
                }
                let why = answer.strip_prefix("failed ").unwrap_or(&answer);
                Err(refusal(self.device, format!("cannot remove the files of dwell: {why}")))
            }
            Err(error) => Err(failure(self.device, self.process, &late, &error)),
        }
    }
}

impl<'a> Deployed<'a> {
    /// Returns the folder of the program.
    pub(crate) fn dir(&self) -> &str {
        &self.deployment.facts.dir
    }

    /// Returns the path of the program.
    pub(crate) fn program(&self) -> String {
        format!("{}/dwell-node-{}", self.dir(), self.binary.sha256)
    }

    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.deployment.facts
    }

    pub(crate) fn connect(&self) -> Duration {
        self.deployment.connect
    }

    /// Starts the node, which takes the lease of the device.
    ///
    /// # Errors
    /// The device is leased to another run ([`FleetError::Leased`]), or the node does not start.
    pub(crate) fn start(self, lease: &Lease) -> Result<StartedNode, FleetError> {
        let lease = argument(lease);
        self.start_worker(&format!("--silence-timeout {SILENCE_TIMEOUT} --lease {lease}"))
    }

    /// Starts the node without a lease, beside runs that use the device. It ends after `silence` without
    /// a request.
    ///
    /// # Errors
    /// The node does not start.
    pub(crate) fn start_unleased(self, silence: &str) -> Result<StartedNode, FleetError> {
        self.start_worker(&format!("--silence-timeout {silence}"))
    }

    fn start_worker(self, options: &str) -> Result<StartedNode, FleetError> {
        let binary = self.binary;
        let Deployment { device, mut process, facts, .. } =
            self.run(&format!("worker {options}"))?;
        let late = format!("the node program did not start within {} s", START_TIMEOUT.as_secs());
        process.limit(START_TIMEOUT);
        let hello = match read_frame::<Event>(&mut process.output) {
            Ok(Some(Frame::Message(event))) => event,
            Ok(Some(Frame::Data(..))) => {
                return Err(refusal(device, "its node sent samples first".into()));
            }
            Ok(None) => {
                let ended = io::ErrorKind::UnexpectedEof.into();
                return Err(failure(device, process, &late, &ended));
            }
            Err(FrameError::Io(error)) => return Err(failure(device, process, &late, &error)),
            Err(error) => return Err(refusal(device, error.to_string())),
        };
        process.unlimited();
        match &hello {
            Event::Hello { version, dwell, .. } => {
                if *version != VERSION || !binary.is_build(dwell) {
                    let message = format!(
                        "the node there is {dwell} with node protocol version {version}, not {} with \
                         version {VERSION}; delete {}/dwell-node-{} there",
                        binary.path.display(),
                        facts.dir,
                        binary.sha256
                    );
                    return Err(refusal(device, message));
                }
                let program_sha256 = binary.sha256.clone();
                Ok(StartedNode { process, facts, program_sha256, hello })
            }
            Event::Leased { lease } => {
                Err(FleetError::Leased { device: device.name.clone(), lease: lease.clone() })
            }
            event => Err(refusal(device, format!("its node sent {event:?} first"))),
        }
    }

    /// Runs the program to its end and returns its standard output of at most `max_len` bytes.
    ///
    /// # Errors
    /// The device is leased to a run ([`FleetError::Leased`]), the program fails, or takes longer than
    /// `limit`.
    pub(crate) fn output(
        self,
        arguments: &str,
        limit: Duration,
        max_len: u64,
    ) -> Result<Vec<u8>, FleetError> {
        let Deployment { device, mut process, .. } = self.run(arguments)?;
        process.limit(limit);
        let mut output = Vec::new();
        if let Err(error) = (&mut process.output).take(max_len).read_to_end(&mut output) {
            let late = format!("`dwell-node {arguments}` took longer than {} s", limit.as_secs());
            return Err(failure(device, process, &late, &error));
        }
        if output.is_empty() {
            let ended = io::ErrorKind::UnexpectedEof.into();
            return Err(failure(device, process, "", &ended));
        }
        Ok(output)
    }

    /// Replaces the script by the program.
    fn run(self, arguments: &str) -> Result<Deployment<'a>, FleetError> {
        let Deployment { device, mut process, facts, connect } = self.deployment;
        let _ = process.say(&format!("run {arguments}"));
        process.limit(START_TIMEOUT);
        let late = format!("the node program did not start within {} s", START_TIMEOUT.as_secs());
        match process.line() {
            Ok(answer) if answer == "running" => Ok(Deployment { device, process, facts, connect }),
            Ok(answer) => {
                if let Some(leased) = leased(device, &answer) {
                    return Err(leased);
                }
                let why = answer.strip_prefix("refused ").unwrap_or(&answer);
                let message = format!(
                    "cannot run the node program by sudo: {why}; allow it there by a sudoers rule such \
                     as `USER ALL=(root) NOPASSWD: {}/dwell-node-*`, or run without sudo",
                    facts.dir
                );
                Err(refusal(device, message))
            }
            Err(error) => Err(failure(device, process, &late, &error)),
        }
    }
}

/// Returns the remote command: the script without its comment lines, and the known programs.
fn remote_command(device: &Device, binaries: &NodeBinaries) -> String {
    let lines = BOOTSTRAP.lines().filter(|line| !line.trim_start().starts_with('#'));
    let script: Vec<_> = lines.collect();
    let sudo = if device.sudo { "yes" } else { "no" };
    let known: Vec<_> = binaries
        .by_machine()
        .map(|(machine, binary)| format!(" {machine}:{}:{}", binary.sha256, binary.len))
        .collect();
    format!("exec sh -c '{}' dwell {sudo}{}", script.join("\n"), known.concat())
}

/// Returns the error of a device that a run uses; `None` if the script answered something else.
fn leased(device: &Device, answer: &str) -> Option<FleetError> {
    let lease = answer.strip_prefix("busy ")?;
    // The run may not have written its lease yet.
    let lease = serde_json::from_str(lease).unwrap_or_default();
    Some(FleetError::Leased { device: device.name.clone(), lease })
}

/// Returns the lease as one word of a shell that does not expand patterns.
fn argument(lease: &Lease) -> String {
    let text = serde_json::to_string(lease).unwrap_or_default();
    // Spaces occur only within the strings of compact JSON.
    text.replace(' ', "\\u0020")
}

/// Returns why no program runs on this machine type.
fn missing_program(machine: &str) -> String {
    let missing =
        format!("this dwell has no node program for its machine type {machine}; build one");
    match arch_of_machine(machine) {
        Some(arch) => format!(
            "{missing} with `make nodes NODES={arch}`, or name the folder of {arch}/dwell-node in \
             DWELL_NODES"
        ),
        None => format!(
            "{missing} for its Rust target with `cargo build --release -p dwell-node-cli \
             --no-default-features --target TARGET`, put it at {machine}/dwell-node in a folder, and name \
             that folder in DWELL_NODES"
        ),
    }
}

/// Returns the error of a device that refused a step.
fn refusal(device: &Device, message: String) -> FleetError {
    FleetError::Device { device: device.name.clone(), message }
}

/// Ends the connection and returns why a step failed. `late` describes a step that took too long.
fn failure(device: &Device, mut process: NodeProcess, late: &str, error: &io::Error) -> FleetError {
    process.group.kill();
    let said = process.errors.at_end();
    let message = match error.kind() {
        io::ErrorKind::TimedOut if said.is_empty() => late.to_owned(),
        io::ErrorKind::TimedOut => format!("{late}: {said}"),
        io::ErrorKind::UnexpectedEof if said.is_empty() => {
            format!("`ssh {}` ended without an answer", typed(device))
        }
        io::ErrorKind::UnexpectedEof => format!("{said}{}", remedy(device, &said)),
        _ => format!("{error}"),
    };
    refusal(device, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(text: &str) -> io::Result<DeviceFacts> {
        let mut lines = text.lines().map(str::to_owned);
        DeviceFacts::read(|| lines.next().ok_or(io::ErrorKind::UnexpectedEof.into()))
    }

    #[test]
    fn facts_follow_the_text_of_a_login_shell() {
        let facts = facts_of(
            "Welcome!\n\ndwell-bootstrap 1\nmachine=armv7l\nkernel=6.1.0\nuid=1000\n\
             address=192.0.2.7\ndir=/home/a b/.cache/dwell\nrefused=\nhave=yes\nlater=1\nend\n",
        )
        .unwrap();
        assert_eq!((facts.machine.as_str(), facts.uid, facts.have), ("armv7l", 1_000, true));
        assert_eq!(facts.dir, "/home/a b/.cache/dwell");
        assert_eq!(facts.address, Some("192.0.2.7".parse().unwrap()));
        let ended = facts_of("dwell-bootstrap 1\nmachine=x\n").unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        for uid in ["", "root", "-1", "4294967296"] {
            let unknown = facts_of(&format!("dwell-bootstrap 1\nuid={uid}\nend\n")).unwrap_err();
            assert_eq!(unknown.kind(), io::ErrorKind::InvalidData);
        }
        let endless = facts_of(&"y\n".repeat(1_000)).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn script_and_lease_survive_quoting() {
        assert!(!BOOTSTRAP.contains('\''));
        let lease = Lease { owner: "a b@c".into(), run: "20260101-1".into(), since: "x".into() };
        let argument = argument(&lease);
        assert!(!argument.contains(char::is_whitespace));
        assert_eq!(serde_json::from_str::<Lease>(&argument).unwrap(), lease);
    }

    #[test]
    fn missing_program_names_the_build_command() {
        assert!(missing_program("armv7l").contains("`make nodes NODES=armv7`"));
        let other = missing_program("riscv64");
        assert!(
            other.contains("--target TARGET") && other.contains("riscv64/dwell-node"),
            "{other}"
        );
        assert!(!other.contains("make nodes"), "it builds none: {other}");
    }
}
