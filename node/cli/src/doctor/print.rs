//! The doctor's findings as text.

use std::io::{self, Write};

use super::Findings;

/// Prints all findings.
pub(super) fn findings(out: &mut impl Write, found: &Findings) -> io::Result<()> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mark = |ok: bool| if ok { "ok      " } else { "missing " };
    writeln!(out, "machine")?;
    writeln!(
        out,
        "  kernel {}, {} CPUs, {}",
        text(&found.machine.kernel),
        found.machine.cores,
        text(&found.machine.cpu)
    )?;
    writeln!(out, "  governor {}", text(&found.machine.governor))?;
    if let Some(load) = &found.load {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let wait = load.run_queue_wait_ns_per_s;
        writeln!(
            out,
            "  CPU time: {} busy, {} by other programs, {} steal; run-queue wait {}",
            percent(load.busy_ratio),
            load.others_ratio.map_or("unknown".to_owned(), percent),
            percent(load.steal_ratio),
            wait.map_or("unknown".to_owned(), |ns| format!("{:.2} ms per second", ns / 1e6))
        )?;
    }
    writeln!(out, "clocks")?;
    writeln!(
        out,
        "  source {}, a read takes {} ns, clocks paired within {} ns",
        text(&found.clocks.source),
        found.clocks.read_ns,
        found.clocks.pairing_width_ns
    )?;
    match found.clocks.utc_error_ns {
        Some(ns) => writeln!(out, "  synchronised to UTC within {:.3} ms", ns as f64 / 1e6)?,
        None => writeln!(out, "  not synchronised to UTC")?,
    }
    writeln!(
        out,
        "timers: lateness of an absolute 1 ms sleep, us{:>14}{:>10}{:>10}",
        "median", "p99", "max"
    )?;
    for timer in &found.timers {
        let us =
            |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e3));
        writeln!(
            out,
            "  {:42}{:>14}{:>10}{:>10}  n {}",
            timer.method,
            us(timer.p50_ns),
            us(timer.p99_ns),
            us(timer.max_ns),
            timer.count
        )?;
    }
    writeln!(out, "kernel timestamps: delivered in a test")?;
    for seen in &found.stamps {
        let (tx, rx) = (mark(seen.tx), mark(seen.rx));
        writeln!(
            out,
            "  {:4} {:15} sending {tx} receiving {rx}{}",
            seen.interface,
            seen.socket,
            seen.reason.as_deref().unwrap_or("")
        )?;
    }
    writeln!(out, "interfaces: timestamps as claimed by the driver, not tested")?;
    for interface in &found.interfaces {
        let mtu = interface.mtu.map_or("unknown".to_owned(), |mtu| format!("{mtu} B"));
        writeln!(
            out,
            "  {:16} {} driver {}, qdisc {}, MTU {mtu}",
            interface.name,
            if interface.up { "up  " } else { "down" },
            text(&interface.driver),
            text(&interface.qdisc),
        )?;
        let claims = [
            ("TX by the kernel", interface.tx_software_stamps),
            ("TX by the card", interface.tx_hardware_stamps),
            ("RX by the card", interface.rx_hardware_stamps),
        ];
        let able: Vec<_> =
            claims.iter().filter(|(_, able)| *able == Some(true)).map(|(name, _)| *name).collect();
        let able = if able.is_empty() { "none".to_owned() } else { able.join(", ") };
        writeln!(out, "                   timestamps claimed: {able}")?;
        if let Some(offloads) = &interface.offloads {
            writeln!(out, "                   offloads on: {}", offloads.join(" "))?;
        }
    }
    writeln!(out, "abilities")?;
    for ability in &found.abilities {
        let reason = ability.reason.as_deref().unwrap_or("");
        let mark = ability.available.map_or("untried ", mark);
        writeln!(out, "  {mark} {:34} {reason}", ability.name)?;
    }
    writeln!(out, "advice")?;
    for advice in &found.advice {
        writeln!(out, "  - {advice}")?;
    }
    if found.advice.is_empty() {
        writeln!(out, "  none")?;
    }
    Ok(())
}
