//! Advice on the doctor's findings.

use dwell_record::Warning;

use super::Findings;

/// Advice: each finding with the command that fixes it.
pub(super) fn of(found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let mut note = |applies: bool, text: &str| advice.extend(applies.then(|| text.to_owned()));
    let lacks = |name| found.abilities.iter().any(|a| a.name == name && a.available == Some(false));
    let (machine, clocks) = (&found.machine, &found.clocks);
    note(
        machine.governor.as_deref().is_some_and(|governor| governor != "performance"),
        "the CPU frequency varies, so an idle machine answers later than a busy one: cpupower \
         frequency-set -g performance",
    );
    let is_counter = |source| matches!(source, "tsc" | "arch_sys_counter");
    note(
        clocks.source.as_deref().is_some_and(|source| !is_counter(source)),
        &format!(
            "the clock source is not the CPU counter, so every timestamp takes {} ns: boot with \
             clocksource=tsc if the TSC is stable",
            clocks.read_ns
        ),
    );
    for used in found.load.iter().flat_map(Warning::of_cpu_use) {
        let text = "the delays and timers found now include this; stop other programs and repeat";
        note(true, &format!("{used}: {text}"));
    }
    note(machine.cores < 2, "only one CPU: --busy-poll would starve a far end on this machine");
    note(
        lacks("ICMP ping socket") && lacks("ICMP raw socket"),
        "icmp:// is unavailable: sysctl -w net.ipv4.ping_group_range='0 2147483647'",
    );
    note(
        lacks("ports below 1024"),
        "the STAMP port 862 is unavailable: reflect on another port, like stamp://[::]:8620, or \
         sysctl -w net.ipv4.ip_unprivileged_port_start=862",
    );
    note(
        found.stamps.iter().all(|seen| !seen.tx || !seen.rx),
        "no socket delivers kernel timestamps in both directions: delays include the program's \
         wake-up latency",
    );
    note(
        clocks.utc_error_ns.is_none(),
        "the clock is not synchronised to UTC: one-way delays between machines need it, round \
         trips do not (install chrony, or ptp4l with phc2sys)",
    );
    note(
        lacks("real-time scheduling"),
        "timing threads have no real-time priority, so a busy machine delays them: run as root, or \
         setcap cap_sys_nice+ep on the program",
    );
    note(
        lacks("network namespaces (dwell lab)"),
        "there can be no labs: run as root, or allow user namespaces (sysctl \
         kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, \
         whichever exist)",
    );
    note(
        found.abilities.iter().any(|a| a.name.starts_with("netem") && a.available == Some(false)),
        "this kernel has no netem: dwell lab emulates links with tbf or its own TAP link",
    );
    for interface in found.interfaces.iter().filter(|found| found.up && found.name != "lo") {
        let name = &interface.name;
        note(
            interface.tx_hardware_stamps == Some(true)
                && interface.rx_hardware_stamps == Some(true),
            &format!(
                "the card of {name} supports hardware timestamps: enable them with hwstamp_ctl -i \
                 {name} -t 1 -r 1 (linuxptp), and dwell uses them"
            ),
        );
        let merges = |name: &String| name.contains("segmentation") || name.contains("gro");
        note(
            interface.offloads.as_ref().is_some_and(|on| on.iter().any(merges)),
            &format!(
                "{name} may merge consecutive packets into one with a single timestamp: while \
                 measuring trains, ethtool -K {name} gro off gso off tso off"
            ),
        );
    }
    advice
}
