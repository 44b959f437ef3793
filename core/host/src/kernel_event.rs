//! Events of the kernel on the processor of one thread: scheduling, interrupts, softirqs, idle
//! states, frequencies, page faults and queueing of the thread's packets.

use std::fmt;

use dwell_units::{Instant, Monotonic};

/// Name of a thread, an interrupt handler or an interface: at most 15 bytes, as in the kernel.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct KernelName([u8; 16]);

impl KernelName {
    /// Takes the bytes before the first zero.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Takes the first 15 bytes of a text.
    pub const fn of(text: &str) -> Self {
        let (text, mut bytes, mut at) = (text.as_bytes(), [0; 16], 0);
        while at < text.len() && at < 15 {
            bytes[at] = text[at];
            at += 1;
        }
        Self(bytes)
    }

    /// Whether the name is empty.
    pub const fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl fmt::Display for KernelName {
    /// Replaces invalid UTF-8 and control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(&self.0[..len]);
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        f.pad(&text.chars().map(shown).collect::<String>())
    }
}

impl fmt::Debug for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// An event, with its time and the processor that it occurred on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Time.
    pub at: Instant<Monotonic>,
    /// Processor.
    pub processor: u32,
    /// What happened.
    pub action: KernelAction,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// The processor switched threads.
    Switch {
        /// Id of the previous thread; 0 is the idle thread.
        from: u32,
        /// Id of the next thread.
        to: u32,
        /// Name of the next thread; if that is the watched one, of the previous thread.
        other: KernelName,
        /// How the previous thread left the processor.
        left: Left,
    },
    /// The watched thread is being woken up.
    Waking,
    /// The watched thread moves to this processor.
    Migrate(u32),
    /// An interrupt handler starts.
    InterruptEntry(Interrupt),
    /// The last interrupt handler that started has ended.
    InterruptExit,
    /// A softirq starts; its number.
    SoftirqEntry(u32),
    /// The softirq has ended.
    SoftirqExit,
    /// The processor enters this idle state; `None` when it leaves it.
    Idle(Option<u32>),
    /// The processor's frequency in kHz has changed.
    Frequency(u32),
    /// The watched thread accesses a page that is not mapped.
    PageFault,
    /// A queueing discipline takes a packet of the watched thread.
    Enqueue(u32),
    /// It passes the packet on.
    Dequeue(u32),
}

/// How a thread leaves a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It remains runnable.
    Preempted,
    /// It sleeps, and signals may wake it.
    Asleep,
    /// It sleeps, and only its event may wake it.
    Uninterruptible,
}

/// An interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Number in /proc/interrupts; `None` for interrupts between processors and local timers.
    pub number: Option<u32>,
    /// Name of its handler.
    pub name: KernelName,
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{number} {}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Name of a softirq (include/linux/interrupt.h).
pub(crate) fn softirq_name(number: u32) -> &'static str {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    NAMES.get(number as usize).copied().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_ends_at_zero_and_has_no_control_characters() {
        let name = KernelName::new(*b"a\x1b[31m\xff\0rest....");
        assert_eq!(name.to_string(), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(KernelName::of("a name of more than 15 bytes").to_string(), "a name of more ");
        assert!(KernelName::default().is_empty());
    }
}
