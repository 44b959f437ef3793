//! Time that dwell's XDP program takes for a malformed frame, by BPF_PROG_TEST_RUN.

use anyhow::{Result, ensure};
use dwell_io::bpf::{
    BpfError, DriverDestination, DriverLink, Verdict, XdpReflector, XdpReflectorSpec,
};
use serde::Serialize;

/// Runs whose mean is one time, and times of which the least counts.
const REPEAT: u32 = 20_000;
const TIMES: u32 = 30;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LEN: usize = 66;

/// Nanoseconds per frame in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    /// A round-trip message that is no request, dropped after the last check of its form.
    pub(super) malformed: f64,
    /// A frame of another type than IP, passed at the first check.
    pub(super) passed: f64,
}

/// The program, without an interface.
#[derive(Debug)]
pub(super) struct Program(XdpReflector);

impl Program {
    /// Loads the program with one service.
    pub(super) fn load() -> Result<Self, BpfError> {
        let mut program = XdpReflector::load(&XdpReflectorSpec {
            interface: 1,
            link: DriverLink { mtu: 1_500, mac: MAC },
            is_loopback: false,
            stateless: false,
            clock: None,
            unanswered_ports: Box::new([0; 1_024]),
            recognise_merged: true,
        })?;
        let to = ([192, 0, 2, 1], 7_024).into();
        let roundtrip = DriverDestination { to, kind: 3, service: 0, local_gap: 0, global_gap: 0 };
        program.set_destinations(&[roundtrip])?;
        Ok(Self(program))
    }

    /// Measures both frames, in turns.
    pub(super) fn measure(&mut self) -> Result<Times> {
        let mut times = Times { malformed: f64::INFINITY, passed: f64::INFINITY };
        for _ in 0..TIMES {
            times.malformed = times.malformed.min(self.time(&malformed(), Verdict::Drop)?);
            times.passed = times.passed.min(self.time(&of_another_type(), Verdict::Pass)?);
        }
        Ok(times)
    }

    fn time(&mut self, frame: &[u8], expected: Verdict) -> Result<f64> {
        let run = self.0.run(frame, REPEAT)?;
        ensure!(run.verdict == expected, "the XDP program decides {:?}", run.verdict);
        Ok(run.duration.as_nanos() as f64)
    }
}

/// A round-trip message between documentation addresses (RFC 5737) that ends with "ACK".
fn malformed() -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].copy_from_slice(&MAC);
    frame[6] = 2;
    frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 52, 0, 0, 0, 0, 64, 17, 0xf6, 0xb5]);
    frame[26..34].copy_from_slice(&[192, 0, 2, 2, 192, 0, 2, 1]);
    // Ports, length, no checksum.
    frame[34..42].copy_from_slice(&[0x9c, 0x40, 0x1b, 0x70, 0, 32, 0, 0]);
    frame[62..].copy_from_slice(b"ACK\0");
    frame
}

/// The same frame with the type of MACsec (IEEE 802.1AE).
fn of_another_type() -> [u8; LEN] {
    let mut frame = malformed();
    frame[12..14].copy_from_slice(&[0x88, 0xe5]);
    frame
}
