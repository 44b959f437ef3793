//! A pseudo-terminal with a program on it, and what a terminal emulator shows of its output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

pub(crate) const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// Longer than any test step takes; a step that hangs fails.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Lines kept above the visible ones.
const SCROLLBACK_LEN: usize = 1_000;

/// A program that runs on a pseudo-terminal, killed with its test.
pub(crate) struct OnTerminal {
    child: Child,
    master: Option<File>,
    slave: Option<OwnedFd>,
    /// Terminal modes before the program began.
    modes: String,
    output: Arc<Mutex<Received>>,
    reader: Option<JoinHandle<()>>,
    /// Ends the reader while the terminal is still open.
    is_closing: Arc<AtomicBool>,
}

struct Received {
    bytes: Vec<u8>,
    emulator: vt100::Parser,
}

/// What was left on the terminal.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Everything that was written.
    pub(crate) text: String,
    /// Visible lines.
    pub(crate) screen: String,
    /// Line and column of the cursor.
    pub(crate) cursor: (u16, u16),
    /// Whether the terminal modes are those from before.
    pub(crate) has_same_modes: bool,
}

fn modes(termios: &Termios) -> String {
    format!("{termios:?}")
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Reads until no process has the terminal open (EIO), or until it is to be closed.
fn read(mut from: File, to: &Mutex<Received>, is_closing: &AtomicBool) {
    let timeout = Timespec::try_from(POLL_INTERVAL).unwrap();
    let mut buffer = [0; 4_096];
    while !is_closing.load(Ordering::Relaxed) {
        if poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&timeout)).unwrap() == 0 {
            continue;
        }
        let Ok(read @ 1..) = from.read(&mut buffer) else { return };
        let mut to = to.lock().unwrap();
        to.bytes.extend(&buffer[..read]);
        to.emulator.process(&buffer[..read]);
    }
}

impl OnTerminal {
    /// Starts `dwell` in a session of its own, whose controlling terminal has 24 lines of 80 columns.
    pub(crate) fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        tcsetwinsize(&master, winsize(80, 24)).unwrap();
        let modes = modes(&tcgetattr(&slave).unwrap());
        // setsid(1) makes its standard input the controlling terminal. The test's parent may ignore
        // signals, like nohup does.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "env", "--default-signal", DWELL]).args(arguments);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
        let child = command.stderr(slave.try_clone().unwrap()).spawn().unwrap();
        let emulator =
            vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), SCROLLBACK_LEN);
        let output = Arc::new(Mutex::new(Received { bytes: Vec::new(), emulator }));
        let master = File::from(master);
        let from = master.try_clone().unwrap();
        let to = Arc::clone(&output);
        let is_closing = Arc::new(AtomicBool::new(false));
        let closing = Arc::clone(&is_closing);
        let reader = thread::spawn(move || read(from, &to, &closing));
        let (master, slave, reader) = (Some(master), Some(slave), Some(reader));
        Self { child, master, slave, modes, output, reader, is_closing }
    }

    /// Visible lines.
    pub(crate) fn screen(&self) -> String {
        self.output.lock().unwrap().emulator.screen().contents()
    }

    /// Waits until the visible lines satisfy `is_reached`.
    pub(crate) fn wait_until(&mut self, what: &str, is_reached: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !is_reached(&self.screen()) {
            let status = self.child.try_wait().unwrap();
            let screen = self.screen();
            assert!(status.is_none() || is_reached(&screen), "{what}: {status:?}\n{screen}");
            assert!(Instant::now() < deadline, "{what}\n{screen}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Types text; ^C is `\x03`.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.master.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        Handle::open(self.child.id()).unwrap().signal(signal).unwrap();
    }

    /// Resizes the terminal and the emulator.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let mut output = self.output.lock().unwrap();
        let (new_rows, new_columns) = (rows.try_into().unwrap(), columns.try_into().unwrap());
        output.emulator.screen_mut().set_size(new_rows, new_columns);
        tcsetwinsize(self.master.as_ref().unwrap(), winsize(columns, rows)).unwrap();
    }

    /// Closes the terminal and waits for the end of the program.
    pub(crate) fn close(mut self) -> ExitStatus {
        self.is_closing.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        drop(self.master.take());
        self.wait()
    }

    /// Waits for the end of the program.
    pub(crate) fn end(mut self) -> Ended {
        let status = self.wait();
        let slave = self.slave.take().unwrap();
        let has_same_modes = modes(&tcgetattr(&slave).unwrap()) == self.modes;
        drop(slave);
        self.reader.take().unwrap().join().unwrap();
        let output = self.output.lock().unwrap();
        let screen = output.emulator.screen();
        Ended {
            status,
            text: String::from_utf8(output.bytes.clone()).unwrap(),
            screen: screen.contents(),
            cursor: screen.cursor_position(),
            has_same_modes,
        }
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end\n{}", self.screen());
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Asserts that the program left the terminal as it was: the same modes, no mode switched by an
    /// escape sequence, the cursor on an empty line, no colour left on.
    pub(crate) fn assert_restored(&self) {
        assert!(self.has_same_modes, "{}", self.text);
        assert!(!self.text.contains("\x1b[?"), "{:?}", self.text);
        assert_eq!(self.cursor.1, 0, "{}", self.screen);
        let last = self.text.rfind("\x1b[0").map(|at| &self.text[at..]).unwrap_or_default();
        assert!(last.is_empty() || last.starts_with("\x1b[0m"), "{last:?}");
    }
}
