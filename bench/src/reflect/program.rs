//! Time that dwell's XDP program takes for frames that get no reply, by BPF_PROG_TEST_RUN.

use anyhow::{Result, ensure};
use dwell_io::bpf::{
    BpfError, DriverDestination, DriverLink, Verdict, XdpReflector, XdpReflectorSpec,
};
use dwell_wire::icmp::checksum;
use serde::Serialize;

/// Runs whose mean is one time, and times of which the least counts.
const REPEAT: u32 = 20_000;
const TIMES: u32 = 30;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Ports of the services.
const ROUNDTRIP: u16 = 7_024;
const ECHO: u16 = 7_000;

/// Longest UDP payload of a packet of 1,500 bytes.
const MAX_PAYLOAD_LEN: usize = 1_472;

/// Nanoseconds per frame in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    /// A round-trip message that is no request, dropped after the last check of its form.
    pub(super) malformed: f64,
    /// A frame of another type than IP, passed at the first check.
    pub(super) passed: f64,
    /// An echo request of 64 bytes with a wrong checksum, dropped after all of it was read.
    pub(super) bad_checksum: f64,
    /// The same of the longest packet.
    pub(super) bad_checksum_longest: f64,
}

/// The program, without an interface.
#[derive(Debug)]
pub(super) struct Program(XdpReflector);

impl Program {
    /// Loads the program with two services.
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
        let destination = |port: u16, kind, service| DriverDestination {
            to: ([192, 0, 2, 1], port).into(),
            kind,
            service,
            local_gap: 0,
            global_gap: 0,
        };
        program.set_destinations(&[destination(ROUNDTRIP, 3, 0), destination(ECHO, 2, 1)])?;
        Ok(Self(program))
    }

    /// Measures all frames, in turns.
    pub(super) fn measure(&mut self) -> Result<Times> {
        let frames = [
            (malformed(), Verdict::Drop),
            (of_another_type(), Verdict::Pass),
            (with_bad_checksum(64), Verdict::Drop),
            (with_bad_checksum(MAX_PAYLOAD_LEN), Verdict::Drop),
        ];
        let mut times = [f64::INFINITY; 4];
        for _ in 0..TIMES {
            for (time, (frame, verdict)) in times.iter_mut().zip(&frames) {
                *time = time.min(self.time(frame, *verdict)?);
            }
        }
        let [malformed, passed, bad_checksum, bad_checksum_longest] = times;
        Ok(Times { malformed, passed, bad_checksum, bad_checksum_longest })
    }

    fn time(&mut self, frame: &[u8], expected: Verdict) -> Result<f64> {
        let run = self.0.run(frame, REPEAT)?;
        ensure!(run.verdict == expected, "the XDP program decides {:?}", run.verdict);
        Ok(run.duration.as_nanos() as f64)
    }
}

/// A UDP datagram between documentation addresses (RFC 5737), with this payload and UDP checksum.
fn datagram(port: u16, payload: &[u8], sum: u16) -> Vec<u8> {
    let udp_len = 8 + payload.len() as u16;
    let mut frame = vec![0; 34];
    frame[..6].copy_from_slice(&MAC);
    frame[6] = 2;
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[192, 0, 2, 2, 192, 0, 2, 1]);
    let header_sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&header_sum.to_be_bytes());
    frame.extend([40_000, port, udp_len, sum].iter().flat_map(|word| word.to_be_bytes()));
    frame.extend(payload);
    frame
}

/// A round-trip message that ends with "ACK", without a checksum.
fn malformed() -> Vec<u8> {
    datagram(ROUNDTRIP, &[&[0; 20][..], b"ACK\0"].concat(), 0)
}

/// An echo request of zeros, whose checksum is not 1.
fn with_bad_checksum(len: usize) -> Vec<u8> {
    datagram(ECHO, &vec![0; len], 1)
}

/// The malformed frame with the type of MACsec (IEEE 802.1AE).
fn of_another_type() -> Vec<u8> {
    let mut frame = malformed();
    frame[12..14].copy_from_slice(&[0x88, 0xe5]);
    frame
}
