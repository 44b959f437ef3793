//! Mutated frames for the program of the reflector in the driver, against the socket engine.

use dwell_io::bpf::Verdict;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fixture::as_root;
use crate::xdp_frames::{Layout, Reference, SCHEMES};
use crate::xdp_reflector_program::{corpus, program, request};
use crate::xdp_refusals::refused;

const SEED: u64 = 0x7864_7072_6566_6c65;

/// Number of programs, and of frames for each. One program sees too few STAMP sessions to evict one
/// in use, so both sides number their replies alike.
const PROGRAMS: usize = 5;
const FRAMES: usize = 10_000;

/// Number of source ports in use at a time.
const PORTS: usize = 16;

/// Number of bytes at the start of a frame that hold all headers of any protocol.
const HEADERS_LEN: usize = 120;

fn mutate(frame: &mut Vec<u8>, rng: &mut impl Rng) {
    for _ in 0..rng.random_range(0..4) {
        let len = if rng.random() { frame.len() } else { frame.len().min(HEADERS_LEN) };
        let at = rng.random_range(0..len);
        match rng.random_range(0..4) {
            0 => frame[at] = rng.random(),
            1 => frame[at] ^= 1 << rng.random_range(0..8),
            2 => frame.truncate(at.max(14)),
            _ => frame.insert(at, rng.random()),
        }
    }
}

/// Adjusts the lengths of the IP and UDP headers to the frame.
fn fit_lengths(frame: &mut [u8]) {
    let is_tagged = frame.len() > 18 && matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
    let ip = if is_tagged { 18 } else { 14 };
    let is_ipv6 = frame[ip - 2..ip] == [0x86, 0xdd];
    let transport = ip + if is_ipv6 { 40 } else { 20 };
    if frame.len() < transport + 8 {
        return;
    }
    let udp = (frame.len() - transport) as u16;
    let (at, len, protocol_at) = match is_ipv6 {
        false => (ip + 2, udp + 20, ip + 9),
        true => (ip + 4, udp, ip + 6),
    };
    frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
    if frame[protocol_at] == 17 {
        frame[transport + 4..transport + 6].copy_from_slice(&udp.to_be_bytes());
    }
}

#[test]
fn replies_to_mutated_frames_equal_the_socket_engines() {
    if !as_root() {
        return;
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let refused = refused();
    let packets = SCHEMES.map(|scheme| {
        corpus().into_iter().filter(|packet| packet.scheme == scheme).collect::<Vec<_>>()
    });
    // Replies to frames that differ from their seed, by service.
    let mut mutated = [0; 4];
    for number in 0..PROGRAMS {
        let (mut program, mut reference) = (program(None), Reference::new());
        for round in 0..FRAMES {
            let seed = if rng.random_ratio(1, 3) {
                refused[rng.random_range(0..refused.len())].1.1.clone()
            } else {
                let of_scheme = &packets[rng.random_range(0..packets.len())];
                let mut packet = of_scheme[rng.random_range(0..of_scheme.len())].clone();
                // New sessions, since most soon stay at the socket.
                let block = 40_000 + (round / 500 * PORTS) as u16;
                packet.from.set_port(block + rng.random_range(0..PORTS) as u16);
                request(&packet)
            };
            let mut frame = seed.clone();
            mutate(&mut frame, &mut rng);
            // Half of all frames get valid checksums, half of these also fitting lengths.
            let repair = rng.random_range(0..4);
            if repair == 0 {
                fit_lengths(&mut frame);
            }
            if repair <= 1
                && let Some(layout) = Layout::of(&frame)
            {
                layout.set_sums(&mut frame);
            }
            let run = program.run(&frame, 1).unwrap();
            let shown = || format!("seed {SEED:#x}, program {number}, round {round}: {frame:02x?}");
            if run.verdict != Verdict::Reply {
                assert_eq!(run.frame, frame, "{}", shown());
                continue;
            }
            let expected = reference.reply_to_frame(&frame, &run.frame);
            assert_eq!(Some(&run.frame), expected.as_ref(), "{}", shown());
            let scheme = Layout::of(&frame).and_then(|layout| layout.scheme(&frame));
            let service = SCHEMES.iter().position(|of| Some(*of) == scheme).unwrap();
            mutated[service] += usize::from(frame != seed);
        }
    }
    assert!(mutated.iter().all(|replies| *replies > 300), "seed {SEED:#x}: {mutated:?}");
}
