//! Relays in the comparison.

/// A path from one node to another through a third.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contestant {
    /// Unique; used in goals and in the JSON object.
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) wait: Wait,
    pub(super) cipher: Cipher,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Program {
    /// No relay: the receiver is in the relay's place.
    None,
    /// Routing by the kernel.
    Kernel,
    Dwell {
        engine: &'static str,
        merge: bool,
    },
    Socat,
    /// One receive and one send call per packet, and nothing else.
    C,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    Busy,
    Blocking,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cipher {
    None,
    Aes,
}

const fn contestant(name: &'static str, program: Program, wait: Wait) -> Contestant {
    Contestant { name, program, wait, cipher: Cipher::None }
}

const fn aes(name: &'static str, program: Program, wait: Wait) -> Contestant {
    Contestant { name, program, wait, cipher: Cipher::Aes }
}

pub(super) const SOCKET: Program = Program::Dwell { engine: "socket", merge: true };
const BATCH: Program = Program::Dwell { engine: "batch", merge: true };
const SINGLE: Program = Program::Dwell { engine: "batch", merge: false };
const XDP: Program = Program::Dwell { engine: "xdp", merge: true };

/// No relay: the base of all delays.
pub(super) const DIRECT: Contestant = contestant("direct", Program::None, Wait::Blocking);

/// No program.
pub(super) const FORWARDING: Contestant =
    contestant("kernel forwarding", Program::Kernel, Wait::Blocking);

/// Contestants whose delay is measured with the medium packets of Miya 2020.
pub(super) const DELAYED: [Contestant; 7] = [
    FORWARDING,
    contestant("dwell xdp", XDP, Wait::Blocking),
    contestant("dwell blocking", SOCKET, Wait::Blocking),
    contestant("socat", Program::Socat, Wait::Blocking),
    contestant("C blocking", Program::C, Wait::Blocking),
    contestant("dwell busy", SOCKET, Wait::Busy),
    contestant("C busy", Program::C, Wait::Busy),
];

/// Closely compared contestants: the first two wait for the same processor to wake, the other two
/// add a microsecond to a round trip that varies more between turns.
pub(super) const CLOSELY_COMPARED: [&str; 4] =
    ["dwell blocking", "socat", "dwell xdp", "kernel forwarding"];

/// Contestants whose delay is measured with the largest packets of Miya 2020, to show the cost of
/// encryption.
pub(super) const ENCIPHERED: [Contestant; 4] = [
    contestant("dwell busy, 1400 B", SOCKET, Wait::Busy),
    aes("dwell busy encrypt, 1400 B", SOCKET, Wait::Busy),
    contestant("C busy, 1400 B", Program::C, Wait::Busy),
    aes("C busy encrypt, 1400 B", Program::C, Wait::Busy),
];

/// Contestant flooded while being traced.
pub(super) const TRACED: Contestant = contestant("dwell batch --no-merge", SINGLE, Wait::Blocking);

/// Contestants that are flooded.
pub(super) const FLOODED: [Contestant; 7] = [
    contestant("dwell batch", BATCH, Wait::Blocking),
    TRACED,
    contestant("socat", Program::Socat, Wait::Blocking),
    contestant("C", Program::C, Wait::Blocking),
    aes("dwell batch encrypt", BATCH, Wait::Blocking),
    aes("dwell batch encrypt --no-merge", SINGLE, Wait::Blocking),
    aes("C encrypt", Program::C, Wait::Blocking),
];

/// Contestants whose loss-free capacity is searched.
pub(super) const RATED: [Contestant; 3] = [
    contestant("dwell batch", BATCH, Wait::Blocking),
    TRACED,
    contestant("C", Program::C, Wait::Blocking),
];
