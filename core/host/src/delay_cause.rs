//! Divides the window of one round trip into parts by cause, from events of the kernel.
//!
//! The window begins when the measuring thread reads the clock before its send call and ends when
//! it reads it after its receive call, so the thread runs at both ends. Kernel timestamps divide
//! the window into three phases: sending, in flight, and receiving. In flight the packet does not
//! need the measuring thread, so no event of its processor counts. Without kernel timestamps the
//! time that the thread sleeps or runs counts as in flight.

use std::fmt;

use dwell_units::{Instant, Monotonic, Nanos};
use serde::{Deserialize, Serialize};

use crate::kernel_event::{KernelAction, KernelEvent, KernelName, Left, softirq_name};

dwell_units::named! {
    /// Kind of a cause.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CauseKind {
        /// The measuring thread runs, including its system calls.
        Own = "own",
        /// The thread is runnable, but another one has the processor.
        Waiting = "waiting",
        /// An interrupt handler runs on its processor.
        Interrupt = "interrupt",
        /// A softirq runs on its processor.
        Softirq = "softirq",
        /// The thread is runnable, and its processor is still idle.
        IdleExit = "idle_exit",
        /// The thread runs just after a frequency change.
        Frequency = "frequency",
        /// The packet is in a queueing discipline.
        Qdisc = "qdisc",
        /// The thread waits for a page.
        PageFault = "page_fault",
        /// The thread sleeps inside its send call.
        Blocked = "blocked",
        /// The packet has arrived, and the thread is not yet woken.
        Receive = "receive",
        /// On the network, or in the far end's kernel.
        InFlight = "in_flight",
        /// At the far end, between its two timestamps.
        FarEnd = "far_end",
        /// The thread had the processor, and no event says why it took longer than usual.
        Unexplained = "unexplained",
    }
}

/// A cause: its kind, and which thread, interrupt, softirq or idle state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cause {
    /// Kind.
    #[serde(rename = "cause")]
    pub kind: CauseKind,
    /// Name of the thread, interrupt or the like.
    pub by: Option<String>,
    /// Id of the thread.
    pub pid: Option<u32>,
}

impl Cause {
    /// A cause without a name.
    pub const fn of(kind: CauseKind) -> Self {
        Self { kind, by: None, pid: None }
    }

    fn by(kind: CauseKind, by: impl fmt::Display) -> Self {
        Self { kind, by: Some(by.to_string()), pid: None }
    }
}

impl CauseKind {
    /// Words for tables and figures.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Own => "own work",
            Self::Waiting => "waiting behind",
            Self::Interrupt => "interrupt",
            Self::Softirq => "softirq",
            Self::IdleExit => "idle exit",
            Self::Frequency => "frequency change",
            Self::Qdisc => "queueing discipline",
            Self::PageFault => "page fault",
            Self::Blocked => "blocked in send",
            Self::Receive => "receive path",
            Self::InFlight => "in flight",
            Self::FarEnd => "far end",
            Self::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.words())?;
        match (&self.by, self.pid) {
            (Some(by), Some(pid)) => write!(f, " {by} (pid {pid})"),
            (Some(by), None) if self.kind == CauseKind::Unexplained => write!(f, " ({by})"),
            (Some(by), None) => write!(f, " {by}"),
            (None, _) if self.kind == CauseKind::Waiting => f.write_str(" an unknown thread"),
            (None, _) => Ok(()),
        }
    }
}

/// Time that one cause took of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Cause.
    pub cause: Cause,
    /// Time; above 0.
    pub time: Nanos,
}

/// One round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayWindow {
    /// `tx_app`
    pub start: Instant<Monotonic>,
    /// `tx_kernel`, if delivered.
    pub sent: Option<Instant<Monotonic>>,
    /// `rx_kernel`, if delivered.
    pub arrived: Option<Instant<Monotonic>>,
    /// `rx_app`
    pub end: Instant<Monotonic>,
}

impl DelayWindow {
    /// Length of the window; 0 if it ends before it starts.
    pub fn length(&self) -> Nanos {
        (self.end - self.start).max(Nanos::ZERO)
    }

    /// Both boundaries of the flight, if both are known and in order.
    fn flight(&self) -> Option<(Instant<Monotonic>, Instant<Monotonic>)> {
        let (sent, arrived) = self.sent.zip(self.arrived)?;
        (self.start <= sent && sent <= arrived && arrived <= self.end).then_some((sent, arrived))
    }
}

/// The parts of a window. They sum to its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayParts {
    /// Parts in the order in which their causes became known.
    pub parts: Vec<Part>,
    /// Number of page faults of the thread.
    pub page_faults: u32,
}

impl DelayParts {
    /// Divides a window. `events` are those between its ends, in order of time; `thread` is the id
    /// of the measuring thread.
    pub fn divide(window: &DelayWindow, thread: u32, events: &[KernelEvent]) -> Self {
        let mut divider = Divider::new(window, thread);
        for event in events {
            divider.pass(event.at);
            divider.apply(event);
        }
        divider.pass(window.end);
        divider.settle(Cause::of(CauseKind::Waiting));
        divider.result
    }

    /// Sum of the parts: the length of the window.
    pub fn sum(&self) -> Nanos {
        self.parts.iter().fold(Nanos::ZERO, |sum, part| sum.saturating_add(part.time))
    }

    /// Time of all parts of a kind.
    pub fn time_of(&self, kind: CauseKind) -> Nanos {
        let of_kind = self.parts.iter().filter(|part| part.cause.kind == kind);
        of_kind.fold(Nanos::ZERO, |sum, part| sum.saturating_add(part.time))
    }

    /// Moves at most `time` from parts of kind `from` to the cause `to`. Returns the time moved.
    pub fn transfer(&mut self, from: CauseKind, to: Cause, time: Nanos) -> Nanos {
        let mut left = time.max(Nanos::ZERO);
        for part in self.parts.iter_mut().filter(|part| part.cause.kind == from) {
            let taken = part.time.min(left);
            part.time -= taken;
            left -= taken;
        }
        let moved = time.max(Nanos::ZERO) - left;
        self.parts.retain(|part| part.time > Nanos::ZERO);
        self.add(to, moved);
        moved
    }

    fn add(&mut self, cause: Cause, time: Nanos) {
        if time <= Nanos::ZERO {
            return;
        }
        match self.parts.iter_mut().find(|part| part.cause == cause) {
            Some(part) => part.time = part.time.saturating_add(time),
            None => self.parts.push(Part { cause, time }),
        }
    }
}

/// State of the measuring thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Running,
    Runnable,
    /// Sleeps until an event.
    Blocked,
    /// Sleeps until a page is there.
    Faulting,
}

/// Part of the way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Sending,
    InFlight,
    Receiving,
    /// The flight's boundaries are unknown.
    Unknown,
}

/// Follows the events of a window.
struct Divider {
    thread: u32,
    /// Boundaries of the flight.
    flight: Option<(Instant<Monotonic>, Instant<Monotonic>)>,
    end: Instant<Monotonic>,
    /// Everything before is divided.
    now: Instant<Monotonic>,
    state: ThreadState,
    /// Processor of the last event of a processor.
    processor: Option<u32>,
    /// Thread on the processor while the measuring thread is off the processor; 0 is the idle task.
    /// `None` after a migration, until the new processor switches threads.
    current: Option<(u32, KernelName)>,
    /// Time for which the thread has waited behind a thread that is not known yet.
    pending: Nanos,
    interrupts: Vec<String>,
    /// The running softirq.
    softirq: Option<u32>,
    idle_state: Option<u32>,
    /// The last event was a frequency change.
    frequency: Option<u32>,
    /// The thread's last event was a page fault.
    faulted: bool,
    /// The thread's packet is in a queueing discipline.
    queued: Option<u32>,
    result: DelayParts,
}

/// Depth of nested interrupts beyond which entries are ignored; the kernel does not nest them.
const MAX_NESTED: usize = 8;

impl Divider {
    fn new(window: &DelayWindow, thread: u32) -> Self {
        Self {
            thread,
            flight: window.flight(),
            end: window.end,
            now: window.start,
            state: ThreadState::Running,
            processor: None,
            current: None,
            pending: Nanos::ZERO,
            interrupts: Vec::new(),
            softirq: None,
            idle_state: None,
            frequency: None,
            faulted: false,
            queued: None,
            result: DelayParts::default(),
        }
    }

    /// Divides the time until `at`, which may lie outside the window or before earlier events.
    fn pass(&mut self, at: Instant<Monotonic>) {
        let at = at.min(self.end);
        if let Some((sent, arrived)) = self.flight {
            self.advance(at.min(sent), Phase::Sending);
            self.advance(at.min(arrived), Phase::InFlight);
            self.advance(at, Phase::Receiving);
        } else {
            self.advance(at, Phase::Unknown);
        }
    }

    /// Gives the time until `at` to the current cause.
    fn advance(&mut self, at: Instant<Monotonic>, phase: Phase) {
        if at > self.now {
            let time = at - self.now;
            match self.cause(phase) {
                Some(cause) => self.result.add(cause, time),
                None => self.pending = self.pending.saturating_add(time),
            }
            self.now = at;
        }
    }

    /// Gives the pending time to a cause.
    fn settle(&mut self, cause: Cause) {
        let time = std::mem::replace(&mut self.pending, Nanos::ZERO);
        self.result.add(cause, time);
    }

    /// The current cause. `None` while the thread waits behind a thread that is not known yet.
    fn cause(&self, phase: Phase) -> Option<Cause> {
        if phase == Phase::InFlight {
            return Some(Cause::of(CauseKind::InFlight));
        }
        if self.queued.is_some() && phase != Phase::Receiving {
            return Some(Cause::of(CauseKind::Qdisc));
        }
        if phase == Phase::Unknown && self.state == ThreadState::Blocked {
            return Some(Cause::of(CauseKind::InFlight));
        }
        if let Some(interrupt) = self.interrupts.last() {
            return Some(Cause::by(CauseKind::Interrupt, interrupt));
        }
        if let Some(number) = self.softirq {
            return Some(Cause::by(CauseKind::Softirq, softirq_name(number)));
        }
        Some(match (self.state, phase) {
            // Polling and working look the same.
            (ThreadState::Running, Phase::Unknown) => Cause::of(CauseKind::InFlight),
            (ThreadState::Running, _) => match self.frequency {
                Some(khz) => {
                    Cause::by(CauseKind::Frequency, format_args!("to {} MHz", khz / 1_000))
                }
                None => Cause::of(CauseKind::Own),
            },
            (ThreadState::Runnable, _) => {
                let (pid, name) = self.current?;
                self.behind(pid, name)
            }
            (ThreadState::Faulting, _) => Cause::of(CauseKind::PageFault),
            (ThreadState::Blocked, Phase::Receiving) => Cause::of(CauseKind::Receive),
            (ThreadState::Blocked, _) => Cause::of(CauseKind::Blocked),
        })
    }

    /// The cause of a wait while thread `pid` has the processor; an empty name is unknown.
    fn behind(&self, pid: u32, name: KernelName) -> Cause {
        if pid != 0 {
            let by = (!name.is_empty()).then(|| name.to_string());
            return Cause { kind: CauseKind::Waiting, by, pid: Some(pid) };
        }
        match self.idle_state {
            Some(state) => Cause::by(CauseKind::IdleExit, format_args!("from state {state}")),
            None => Cause::of(CauseKind::IdleExit),
        }
    }

    /// Whether the event is a switch of the processor that the thread has just left, logged late.
    fn is_left_behind(&self, event: &KernelEvent) -> bool {
        let KernelAction::Switch { from, to, .. } = event.action else { return false };
        self.current.is_none()
            && self.processor.is_some_and(|processor| processor != event.processor)
            && from != self.thread
            && to != self.thread
    }

    fn apply(&mut self, event: &KernelEvent) {
        if self.is_left_behind(event) {
            return;
        }
        self.frequency = None;
        // A waking may be logged on another processor: the one that received the packet.
        let is_elsewhere = matches!(
            event.action,
            KernelAction::Waking
                | KernelAction::Frequency(_)
                | KernelAction::Enqueue(_)
                | KernelAction::Dequeue(_)
                | KernelAction::Migrate(_)
        );
        if !is_elsewhere && self.processor.replace(event.processor) != Some(event.processor) {
            self.interrupts.clear();
            self.softirq = None;
        }
        match event.action {
            KernelAction::Switch { from, to, other, left } => {
                // The previous thread had the processor until now.
                if self.pending > Nanos::ZERO {
                    let name = if to == self.thread { other } else { KernelName::default() };
                    self.settle(self.behind(from, name));
                }
                if to == self.thread {
                    self.state = ThreadState::Running;
                    self.faulted = false;
                } else {
                    if from == self.thread {
                        self.state = match left {
                            Left::Preempted => ThreadState::Runnable,
                            Left::Uninterruptible if self.faulted => ThreadState::Faulting,
                            Left::Uninterruptible | Left::Asleep => ThreadState::Blocked,
                        };
                    }
                    self.current = Some((to, other));
                }
            }
            KernelAction::Waking => {
                if self.state != ThreadState::Running {
                    self.state = ThreadState::Runnable;
                }
            }
            KernelAction::Migrate(to) => {
                // The state of the new processor is unknown.
                self.settle(Cause::of(CauseKind::Waiting));
                self.processor = Some(to);
                self.current = None;
                self.interrupts.clear();
                self.softirq = None;
                self.idle_state = None;
            }
            KernelAction::InterruptEntry(interrupt) => {
                if self.interrupts.len() < MAX_NESTED {
                    self.interrupts.push(interrupt.to_string());
                }
            }
            KernelAction::InterruptExit => {
                self.interrupts.pop();
            }
            KernelAction::SoftirqEntry(number) => self.softirq = Some(number),
            KernelAction::SoftirqExit => self.softirq = None,
            KernelAction::Idle(state) => {
                // Kept on exit: the way out of this state is the cause.
                self.idle_state = state.or(self.idle_state);
            }
            KernelAction::Frequency(khz) => self.frequency = Some(khz),
            KernelAction::PageFault => {
                self.result.page_faults = self.result.page_faults.saturating_add(1);
                self.faulted = true;
            }
            KernelAction::Enqueue(packet) => {
                self.queued.get_or_insert(packet);
            }
            KernelAction::Dequeue(packet) => {
                if self.queued == Some(packet) {
                    self.queued = None;
                }
            }
        }
    }
}

/// Mean time of each kind of cause in ordinary round trips, with which outliers are compared.
#[derive(Clone, Debug, Default)]
pub struct UsualDelay {
    windows: u64,
    sums: [i64; CauseKind::ALL.len()],
}

impl UsualDelay {
    /// Adds an ordinary round trip.
    pub fn add(&mut self, parts: &DelayParts) {
        self.windows += 1;
        for part in &parts.parts {
            let sum = &mut self.sums[part.cause.kind as usize];
            *sum = sum.saturating_add(part.time.0);
        }
    }

    /// Mean time of a kind; 0 without ordinary round trips.
    pub fn mean(&self, kind: CauseKind) -> Nanos {
        let windows = i64::try_from(self.windows.max(1)).unwrap_or(i64::MAX);
        Nanos(self.sums[kind as usize] / windows)
    }

    /// Number of ordinary round trips.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Declares the thread's own time unexplained as far as it exceeds twice the usual. `by` names
    /// the suspected cause: steal if the hypervisor reports it.
    pub fn mark_unexplained(&self, parts: &mut DelayParts, by: &str) {
        if self.windows == 0 {
            return;
        }
        let usual = self.mean(CauseKind::Own);
        let excess = parts.time_of(CauseKind::Own) - usual - usual;
        let cause = Cause::by(CauseKind::Unexplained, by);
        parts.transfer(CauseKind::Own, cause, excess);
    }

    /// Returns the cause of an outlier: the part that exceeds its usual time most.
    pub fn main_cause<'p>(&self, parts: &'p DelayParts) -> Option<&'p Cause> {
        let excess = |part: &&Part| part.time - self.mean(part.cause.kind);
        parts.parts.iter().max_by_key(excess).map(|part| &part.cause)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel_event::Interrupt;

    const OWN: u32 = 100;

    fn at(ns: i64) -> Instant<Monotonic> {
        Instant::from_nanos(ns)
    }

    fn window(start: i64, flight: Option<(i64, i64)>, end: i64) -> DelayWindow {
        let (sent, arrived) = (flight.map(|ends| at(ends.0)), flight.map(|ends| at(ends.1)));
        DelayWindow { start: at(start), sent, arrived, end: at(end) }
    }

    fn event(ns: i64, action: KernelAction) -> KernelEvent {
        KernelEvent { at: at(ns), processor: 1, action }
    }

    fn switch(ns: i64, from: u32, to: u32, left: Left) -> KernelEvent {
        let other = KernelName::of(if to == 7 || from == 7 { "hog" } else { "" });
        event(ns, KernelAction::Switch { from, to, other, left })
    }

    /// The parts as text, in order.
    fn parts(window: &DelayWindow, events: &[KernelEvent]) -> Vec<String> {
        let parts = DelayParts::divide(window, OWN, events);
        assert_eq!(parts.sum(), window.length());
        parts.parts.iter().map(|part| format!("{} {}", part.time.0, part.cause)).collect()
    }

    #[test]
    fn reply_behind_a_task_names_the_task() {
        let events = [
            switch(30, OWN, 0, Left::Asleep),
            switch(50, 0, 7, Left::Asleep),
            event(80, KernelAction::Waking),
            switch(500, 7, OWN, Left::Asleep),
        ];
        let expected = ["20 own work", "60 in flight", "420 waiting behind hog (pid 7)"];
        let found = parts(&window(0, Some((10, 70)), 510), &events);
        assert_eq!(found, [expected[0], expected[1], "10 receive path", expected[2]]);
    }

    #[test]
    fn task_that_runs_in_flight_only_is_not_named() {
        let events = [
            switch(30, OWN, 0, Left::Asleep),
            switch(50, 0, 7, Left::Asleep),
            switch(300, 7, 0, Left::Asleep),
            event(480, KernelAction::Waking),
            switch(500, 0, OWN, Left::Asleep),
        ];
        let found = parts(&window(0, Some((10, 470)), 510), &events);
        assert_eq!(found, ["20 own work", "460 in flight", "10 receive path", "20 idle exit"]);
    }

    #[test]
    fn preemption_while_sending_is_waiting() {
        let events = [switch(5, OWN, 7, Left::Preempted), switch(400, 7, OWN, Left::Preempted)];
        let found = parts(&window(0, Some((420, 430)), 440), &events);
        assert_eq!(found, ["35 own work", "395 waiting behind hog (pid 7)", "10 in flight"]);
    }

    /// The parts of a reply whose wake-up moves the thread to processor 2, with these events there.
    fn parts_after_migration(events: &[KernelEvent]) -> Vec<String> {
        let there = events.iter().map(|event| KernelEvent { processor: 2, ..*event });
        let mut all = vec![
            switch(30, OWN, 0, Left::Asleep),
            event(40, KernelAction::Idle(Some(2))),
            // The wake-up runs in a softirq whose end on processor 1 is not recorded.
            event(75, KernelAction::SoftirqEntry(3)),
            event(80, KernelAction::Waking),
            event(80, KernelAction::Migrate(2)),
        ];
        all.extend(there);
        let found = parts(&window(0, Some((10, 70)), 510), &all);
        assert_eq!(found[1..4], ["60 in flight", "5 receive path", "5 softirq NET_RX"]);
        found[4..].to_vec()
    }

    #[test]
    fn wait_after_a_migration_names_the_task_switched_out() {
        let found = parts_after_migration(&[switch(500, 7, OWN, Left::Preempted)]);
        assert_eq!(found, ["420 waiting behind hog (pid 7)"]);
        // The first switch there has no name of the previous thread.
        let two = [switch(200, 8, 7, Left::Asleep), switch(500, 7, OWN, Left::Asleep)];
        let found = parts_after_migration(&two);
        let expected = ["120 waiting behind an unknown thread", "300 waiting behind hog (pid 7)"];
        assert_eq!(found, expected);
        assert_eq!(parts_after_migration(&[]), ["430 waiting behind an unknown thread"]);
    }

    #[test]
    fn late_switch_of_the_processor_left_takes_no_time() {
        let events = [
            switch(30, OWN, 0, Left::Asleep),
            event(80, KernelAction::Waking),
            event(80, KernelAction::Migrate(2)),
            // Logged on processor 1 after the migration.
            switch(82, 0, 9, Left::Asleep),
            KernelEvent { processor: 2, ..switch(500, 7, OWN, Left::Preempted) },
        ];
        let found = parts(&window(0, Some((10, 70)), 510), &events);
        assert!(found.contains(&"420 waiting behind hog (pid 7)".to_owned()), "{found:?}");
    }

    #[test]
    fn wait_after_a_migration_to_an_idle_processor_is_idle_exit() {
        let found = parts_after_migration(&[switch(500, 0, OWN, Left::Preempted)]);
        assert_eq!(found, ["420 idle exit"]);
        let two = [switch(200, 8, 0, Left::Asleep), switch(500, 0, OWN, Left::Asleep)];
        let found = parts_after_migration(&two);
        assert_eq!(found, ["120 waiting behind an unknown thread", "300 idle exit"]);
    }

    #[test]
    fn interrupt_within_softirq_is_counted_separately() {
        let irq = Interrupt { number: Some(36), name: KernelName::of("virtio1") };
        let events = [
            event(10, KernelAction::SoftirqEntry(3)),
            event(20, KernelAction::InterruptEntry(irq)),
            event(50, KernelAction::InterruptExit),
            event(90, KernelAction::SoftirqExit),
        ];
        let found = parts(&window(0, Some((100, 110)), 120), &events);
        let expected = ["30 own work", "50 softirq NET_RX", "30 interrupt 36 virtio1"];
        assert_eq!(found[..3], expected);
    }

    #[test]
    fn idle_exit_names_the_state_and_queue_the_discipline() {
        let events = [
            event(4, KernelAction::Enqueue(9)),
            switch(10, OWN, 0, Left::Asleep),
            event(12, KernelAction::Idle(Some(2))),
            event(40, KernelAction::Dequeue(9)),
            event(80, KernelAction::Waking),
            event(95, KernelAction::Idle(None)),
            switch(99, 0, OWN, Left::Asleep),
        ];
        let found = parts(&window(0, Some((41, 80)), 100), &events);
        let expected =
            ["5 own work", "36 queueing discipline", "1 blocked in send", "39 in flight"];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], ["19 idle exit from state 2"]);
    }

    #[test]
    fn uninterruptible_sleep_after_a_fault_is_a_page_fault() {
        let fault = event(10, KernelAction::PageFault);
        let events =
            [fault, switch(20, OWN, 0, Left::Uninterruptible), event(90, KernelAction::Waking)];
        let found = parts(&window(0, Some((110, 115)), 120), &events);
        assert_eq!(found[1], "70 page fault");
        let asleep = [fault, switch(20, OWN, 0, Left::Asleep), event(90, KernelAction::Waking)];
        assert_eq!(parts(&window(0, Some((110, 115)), 120), &asleep)[1], "70 blocked in send");
    }

    #[test]
    fn without_kernel_timestamps_sleep_is_flight() {
        let events = [
            switch(30, OWN, 0, Left::Asleep),
            event(80, KernelAction::Waking),
            switch(500, 0, OWN, Left::Asleep),
        ];
        let found = parts(&window(0, None, 510), &events);
        assert_eq!(found, ["90 in flight", "420 idle exit"]);
    }

    #[test]
    fn own_time_beyond_twice_the_usual_is_unexplained() {
        let mut usual = UsualDelay::default();
        let quick = DelayParts::divide(&window(0, Some((10, 80)), 90), OWN, &[]);
        usual.add(&quick);
        let mut slow = DelayParts::divide(&window(0, Some((500, 570)), 580), OWN, &[]);
        usual.mark_unexplained(&mut slow, "steal or firmware");
        assert_eq!(slow.sum(), Nanos(580));
        assert_eq!(slow.time_of(CauseKind::Unexplained), Nanos(470));
        assert_eq!(usual.main_cause(&slow).unwrap().kind, CauseKind::Unexplained);
        assert_eq!(usual.main_cause(&DelayParts::default()), None);
    }

    fn action() -> impl Strategy<Value = KernelAction> {
        let thread = prop_oneof![Just(0), Just(OWN), 1..9_u32];
        let left =
            prop_oneof![Just(Left::Preempted), Just(Left::Asleep), Just(Left::Uninterruptible)];
        let number = proptest::option::of(0..3_u32);
        prop_oneof![
            (thread.clone(), thread, left).prop_map(|(from, to, left)| {
                KernelAction::Switch { from, to, other: KernelName::of("task"), left }
            }),
            Just(KernelAction::Waking),
            (0..3_u32).prop_map(KernelAction::Migrate),
            number.clone().prop_map(|number| {
                KernelAction::InterruptEntry(Interrupt { number, name: KernelName::of("irq") })
            }),
            Just(KernelAction::InterruptExit),
            (0..12_u32).prop_map(KernelAction::SoftirqEntry),
            Just(KernelAction::SoftirqExit),
            number.prop_map(KernelAction::Idle),
            any::<u32>().prop_map(KernelAction::Frequency),
            Just(KernelAction::PageFault),
            (0..3_u32).prop_map(KernelAction::Enqueue),
            (0..3_u32).prop_map(KernelAction::Dequeue),
        ]
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_window_for_any_events(
            events in proptest::collection::vec((-50..1_500_i64, 0..3_u32, action()), 0..60),
            flight in proptest::option::of((-50..1_500_i64, -50..1_500_i64)),
            length in -10..1_000_i64,
            moved in any::<i64>(),
        ) {
            let window = window(0, flight, length);
            let events: Vec<_> = events
                .into_iter()
                .map(|(ns, processor, action)| KernelEvent { at: at(ns), processor, action })
                .collect();
            let mut parts = DelayParts::divide(&window, OWN, &events);
            prop_assert_eq!(parts.sum(), window.length());
            prop_assert!(parts.parts.iter().all(|part| part.time > Nanos::ZERO));
            let far = Cause::of(CauseKind::FarEnd);
            parts.transfer(CauseKind::InFlight, far, Nanos(moved));
            let mut usual = UsualDelay::default();
            usual.add(&parts);
            usual.mark_unexplained(&mut parts, "steal");
            prop_assert_eq!(parts.sum(), window.length());
        }
    }
}
