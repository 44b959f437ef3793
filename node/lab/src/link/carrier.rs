//! The thread that carries frames from one TAP interface to the other when the engine says so. It
//! sleeps until shortly before a departure and then spins; it does not allocate, lock or write to
//! files.

use std::sync::Arc;

use dwell_engine::link::{FrameOutcome, Link};
use dwell_io::tap::{self, Tap};
use dwell_io::{clock, cpu};
use dwell_units::{Instant, Monotonic, Nanos};
use rtrb::Producer;

use super::counter_files::Shared;
use super::event::{Action, Event};

/// Time before a departure at which sleeping ends: a sleep may be late by this much. Not used
/// without a CPU to spare.
const SPIN_LEAD: Nanos = Nanos::from_micros(100);

/// Maximum number of frames taken from one side before the other side and the departures have their
/// turn.
const RECEIVE_BATCH: usize = 16;

/// Both directions of a link.
pub(super) struct Carrier {
    taps: [Tap; 2],
    /// Line 0 leads from tap 0 to tap 1, line 1 back.
    lines: [Link; 2],
    events: Producer<Event>,
    shared: Arc<Shared>,
    spins: bool,
    refused: [u64; 2],
    lateness: [Nanos; 2],
    events_lost: u64,
}

impl Carrier {
    pub(super) fn new(
        taps: [Tap; 2],
        lines: [Link; 2],
        events: Producer<Event>,
        shared: Arc<Shared>,
        spins: bool,
    ) -> Self {
        let (refused, lateness) = ([0; 2], [Nanos::ZERO; 2]);
        Self { taps, lines, events, shared, spins, refused, lateness, events_lost: 0 }
    }

    /// Carries frames until an interface is gone.
    pub(super) fn run(mut self) {
        cpu::set_timer_slack();
        if self.spins {
            // Refused in some containers; punctuality then depends on the machine's load.
            let _ = cpu::set_real_time();
        }
        let mut buffer = [0; Link::MAX_FRAME_LEN + 1];
        loop {
            let mut busy = false;
            for direction in 0..2 {
                busy |= self.depart(direction);
            }
            for direction in 0..2 {
                match self.arrive(direction, &mut buffer) {
                    Ok(arrived) => busy |= arrived,
                    Err(_) => return self.shared.set_gone(),
                }
            }
            if busy {
                self.publish();
            } else {
                self.sleep();
            }
        }
    }

    /// Delivers the frames that are due; returns whether there were any.
    fn depart(&mut self, direction: usize) -> bool {
        let (line, far) = (&mut self.lines[direction], &self.taps[1 - direction]);
        let mut any = false;
        while let Some(due) = line.next_departure() {
            let now = clock::monotonic();
            let refused = &mut self.refused[direction];
            let departed = line.depart(now, |frame| {
                // The far interface is down, so the frame is lost.
                *refused += u64::from(far.send(frame).is_err());
            });
            if !departed {
                break;
            }
            self.lateness[direction] = self.lateness[direction].max(now - due);
            any = true;
        }
        any
    }

    /// Takes the frames that arrived; returns whether there were any.
    fn arrive(&mut self, direction: usize, buffer: &mut [u8]) -> std::io::Result<bool> {
        for taken in 0..RECEIVE_BATCH {
            let Some(len) = self.taps[direction].receive(buffer)? else { return Ok(taken > 0) };
            let frame = &buffer[..len];
            let number = self.lines[direction].counters().arrived;
            let outcome = self.lines[direction].arrive(clock::monotonic(), frame);
            let mut log = |action| {
                let event = Event::new(clock::realtime(), direction, number, action, frame);
                self.events_lost += u64::from(self.events.push(event).is_err());
            };
            match outcome {
                FrameOutcome::Lost => log(Action::Drop),
                FrameOutcome::Overflow => log(Action::Overflow),
                FrameOutcome::Carried { duplicated, reordered } => {
                    if duplicated {
                        log(Action::Duplicate);
                    }
                    if reordered {
                        log(Action::Reorder);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Publishes the counters, after the events they count: a reader that sees a count finds the
    /// event.
    fn publish(&self) {
        for direction in 0..2 {
            self.shared.put(
                direction,
                self.lines[direction].counters(),
                self.refused[direction],
                self.lateness[direction],
            );
        }
        self.shared.put_events_lost(self.events_lost);
    }

    /// Sleeps until a frame arrives or the next departure is near.
    fn sleep(&self) {
        let next = self.lines.iter().filter_map(Link::next_departure).min();
        let spin = if self.spins { SPIN_LEAD } else { Nanos::ZERO };
        let until: Option<Instant<Monotonic>> = next.map(|next| next - spin);
        if until.is_none_or(|until| until > clock::monotonic()) {
            tap::wait([&self.taps[0], &self.taps[1]], until);
        }
    }
}
