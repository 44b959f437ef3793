//! Who relays, and how.

/// A way from one node to another through a third.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contestant {
    /// Unique; rows of goals and the JSON object use it.
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) wait: Wait,
    pub(super) cipher: Cipher,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Program {
    /// There is no relay: the receiver is where relays would be.
    None,
    /// The kernel routes.
    Kernel,
    Dwell {
        engine: &'static str,
        merge: bool,
    },
    Socat,
    /// One receive call and one send call for each packet, and nothing else.
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

/// No relay at all: what all delays are compared to.
pub(super) const DIRECT: Contestant = contestant("direct", Program::None, Wait::Blocking);

/// No program at all.
pub(super) const FORWARDING: Contestant =
    contestant("kernel forwarding", Program::Kernel, Wait::Blocking);

/// Whose delay is measured with S0's medium packets.
pub(super) const DELAYED: [Contestant; 7] = [
    FORWARDING,
    contestant("dwell xdp", XDP, Wait::Blocking),
    contestant("dwell blocking", SOCKET, Wait::Blocking),
    contestant("socat", Program::Socat, Wait::Blocking),
    contestant("C blocking", Program::C, Wait::Blocking),
    contestant("dwell busy", SOCKET, Wait::Busy),
    contestant("C busy", Program::C, Wait::Busy),
];

/// Those of them that differ by little: of two both wait for the same processor to wake, and two add a
/// microsecond to a round trip that differs by more from turn to turn.
pub(super) const NARROW: [&str; 4] = ["dwell blocking", "socat", "dwell xdp", "kernel forwarding"];

/// Whose delay is measured with S0's largest packets: what enciphering costs.
pub(super) const ENCIPHERED: [Contestant; 4] = [
    contestant("dwell busy, 1400 B", SOCKET, Wait::Busy),
    aes("dwell busy encrypt, 1400 B", SOCKET, Wait::Busy),
    contestant("C busy, 1400 B", Program::C, Wait::Busy),
    aes("C busy encrypt, 1400 B", Program::C, Wait::Busy),
];

/// Who is flooded while tracing looks on.
pub(super) const TRACED: Contestant = contestant("dwell batch --no-merge", SINGLE, Wait::Blocking);

/// Who is flooded.
pub(super) const FLOODED: [Contestant; 7] = [
    contestant("dwell batch", BATCH, Wait::Blocking),
    TRACED,
    contestant("socat", Program::Socat, Wait::Blocking),
    contestant("C", Program::C, Wait::Blocking),
    aes("dwell batch encrypt", BATCH, Wait::Blocking),
    aes("dwell batch encrypt --no-merge", SINGLE, Wait::Blocking),
    aes("C encrypt", Program::C, Wait::Blocking),
];

/// Whose capacity without loss is searched for.
pub(super) const RATED: [Contestant; 3] = [
    contestant("dwell batch", BATCH, Wait::Blocking),
    TRACED,
    contestant("C", Program::C, Wait::Blocking),
];
