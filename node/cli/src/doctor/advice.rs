//! Advice on the doctor's findings.

use dwell_host::CpuUse;

use super::Findings;

/// Advice: each finding with the command that fixes it.
pub(super) fn of(found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let lacks = |name| found.abilities.iter().any(|a| a.name == name && a.available == Some(false));
    if found.machine.governor.as_deref().is_some_and(|governor| governor != "performance") {
        advice.push(
            "the CPU frequency varies, so an idle machine answers later than a busy one: \
             cpupower frequency-set -g performance"
                .to_owned(),
        );
    }
    if found
        .clocks
        .source
        .as_deref()
        .is_some_and(|source| !matches!(source, "tsc" | "arch_sys_counter"))
    {
        advice.push(format!(
            "the clock source is not the CPU counter, so every timestamp takes {} ns: boot \
             with clocksource=tsc if the TSC is stable",
            found.clocks.read_ns
        ));
    }
    let busy = found.load.iter().flat_map(CpuUse::warnings);
    advice.extend(busy.map(|used| {
        format!(
            "{used}: the delays and timers found now include this; stop other programs and repeat"
        )
    }));
    if found.machine.cores < 2 {
        advice.push("only one CPU: --busy-poll would starve a far end on this machine".to_owned());
    }
    if lacks("ICMP ping socket") && lacks("ICMP raw socket") {
        advice.push(
            "icmp:// is unavailable: sysctl -w net.ipv4.ping_group_range='0 2147483647'".to_owned(),
        );
    }
    if lacks("ports below 1024") {
        advice.push(
            "the STAMP port 862 is unavailable: reflect on another port, like \
             stamp://[::]:8620, or sysctl -w net.ipv4.ip_unprivileged_port_start=862"
                .to_owned(),
        );
    }
    if found.stamps.iter().all(|seen| !seen.tx || !seen.rx) {
        advice.push(
            "no socket delivers kernel timestamps in both directions: delays include the program's \
             wake-up latency"
                .to_owned(),
        );
    }
    if found.clocks.utc_error_ns.is_none() {
        advice.push(
            "the clock is not synchronised to UTC: one-way delays between machines need it, round \
             trips do not (install chrony, or ptp4l with phc2sys)"
                .to_owned(),
        );
    }
    if lacks("real-time scheduling") {
        advice.push(
            "timing threads have no real-time priority, so a busy machine delays them: run as \
             root, or setcap cap_sys_nice+ep on the program"
                .to_owned(),
        );
    }
    if lacks("network namespaces (dwell lab)") {
        advice.push(
            "there can be no labs: run as root, or allow user namespaces (sysctl \
             kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, \
             whichever exist)"
                .to_owned(),
        );
    }
    if found.abilities.iter().any(|a| a.name.starts_with("netem") && a.available == Some(false)) {
        advice.push(
            "this kernel has no netem: dwell lab emulates links with tbf or its own TAP link"
                .to_owned(),
        );
    }
    for interface in found.interfaces.iter().filter(|found| found.up && found.name != "lo") {
        let name = &interface.name;
        if interface.tx_hardware_stamps == Some(true) && interface.rx_hardware_stamps == Some(true)
        {
            advice.push(format!(
                "the card of {name} supports hardware timestamps: enable them with hwstamp_ctl \
                 -i {name} -t 1 -r 1 (linuxptp), and dwell uses them"
            ));
        }
        let merges = |name: &String| name.contains("segmentation") || name.contains("gro");
        if interface.offloads.as_ref().is_some_and(|on| on.iter().any(merges)) {
            advice.push(format!(
                "{name} may merge consecutive packets into one with a single timestamp: while \
                 measuring trains, ethtool -K {name} gro off gso off tso off"
            ));
        }
    }
    advice
}
