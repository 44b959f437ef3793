//! `docs/protocols.md` agrees with the table of protocols.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use dwell_engine::protocol::{PayloadLimits, ProtocolSpec, Reflection, Scheme, StreamReply};

const INTRODUCTION: &str = "\
# Protocols

Protocols of `dwell ping`, of `dwell reflect` and of `ping.protocol` in plans. This page is rendered from
`core/engine/src/protocol/spec.rs` and compared by `cargo test -p dwell-engine --test protocols_page`.

A reply of a kernel or of a foreign echo server is measured like one of `dwell reflect`. Only replies with timestamps
of the reflector (T2 and T3) give one-way delays, residence time and the direction of a loss.

Column `driver`: `dwell reflect --engine xdp` replies in the network driver ([reflect.md](reflect.md)).

| URL | messages | payload in bytes | warm-up | loop | reply | driver | T2 and T3 | delays of relays |
|---|---|---|---|---|---|---|---|---|
";

fn url(scheme: Scheme) -> String {
    let spec = scheme.spec();
    match (spec.transport.has_ports(), spec.default_port) {
        (false, _) => format!("`{scheme}://HOST`"),
        (true, Some(port)) => format!("`{scheme}://HOST:PORT`, default {port}"),
        (true, None) => format!("`{scheme}://HOST:PORT`"),
    }
}

fn limits(limits: &PayloadLimits) -> String {
    let PayloadLimits { min, default, fixed, min_extra } = *limits;
    match (fixed, min_extra) {
        (true, 0) => format!("{default}"),
        (true, extra) => format!("{default}, or {} with the times of a device", min + extra),
        (false, 0) => format!("{min} and more, default {default}"),
        (false, extra) => format!("{min}, or {} and more, default {default}", min + extra),
    }
}

fn payload(spec: &ProtocolSpec) -> String {
    let open = limits(&spec.payload);
    match &spec.authentication {
        Some(mode) => format!("{open}; with a key {}", limits(&mode.payload)),
        None => open,
    }
}

fn pace(spec: &ProtocolSpec) -> String {
    match spec.defaults.closed_loop {
        true => format!("closed, {} after each reply", spec.defaults.pause),
        false => "open, or closed with `--closed-loop`".into(),
    }
}

fn reply(spec: &ProtocolSpec) -> String {
    match spec.reflection {
        Reflection::Kernel => "by the kernel".into(),
        Reflection::Datagram { decrements_ttl: true, .. } => "with the arriving TTL - 1".into(),
        Reflection::Datagram { max_extra_bytes: extra @ 1.., .. } => {
            format!("up to {extra} bytes longer")
        }
        Reflection::Datagram { .. } => "not longer than the request".into(),
        Reflection::Stream(StreamReply::Echo) => "the same bytes".into(),
        Reflection::Stream(StreamReply::Acknowledge) => "`acknowledge`".into(),
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mark = |is: bool| if is { "yes" } else { "" };
    for scheme in Scheme::ALL {
        let spec = scheme.spec();
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            url(*scheme),
            spec.description,
            payload(spec),
            spec.defaults.warm_up,
            pace(spec),
            reply(spec),
            mark(spec.driver_reply.is_some()),
            mark(spec.remote_timestamps),
            mark(spec.telemetry),
        )
        .expect("a string takes all text");
    }
    page
}

#[test]
fn committed_page_agrees_with_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let committed = fs::read_to_string(root.join("docs/protocols.md")).unwrap_or_default();
    let fresh = page();
    if committed != fresh {
        let expected = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protocols.md");
        fs::write(&expected, fresh).expect("the target directory is writable");
        panic!("out of date; copy {} to docs/protocols.md", expected.display());
    }
}
