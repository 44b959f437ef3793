//! Micro-bench of a parser that runs once per packet. docs/performance.md states what it measures.

use divan::{Bencher, black_box};
use dwell_wire::stamp::{Mode, Reply};

fn main() {
    divan::main();
}

/// Parses a STAMP reply without TLVs.
#[divan::bench(args = [Mode::Unauthenticated, Mode::Authenticated])]
fn stamp_parse(bencher: Bencher, mode: Mode) {
    let reply = Reply {
        seq: 1,
        t3: 3 << 32,
        error: 0x8001,
        ssid: 7,
        t2: 2 << 32,
        sender_seq: 1,
        sender_timestamp: 1 << 32,
        sender_error: 0x8001,
        ttl: 64,
    };
    let mut packet = [0; 112];
    reply.emit(&mut packet, mode);
    bencher.bench_local(|| Reply::parse(black_box(&packet[..mode.base()]), mode));
}
