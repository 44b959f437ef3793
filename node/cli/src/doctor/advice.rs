//! What to do about what the doctor found.

use dwell_host::CpuUse;

use super::Findings;

/// Plain words: the finding, and the command that mends it.
pub(super) fn of(found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let lacks = |name| found.abilities.iter().any(|a| a.name == name && a.available == Some(false));
    if found.machine.governor.as_deref().is_some_and(|governor| governor != "performance") {
        advice.push(
            "the CPU changes its frequency, so an idle machine answers later than a busy one: \
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
            "the clock source is not the processor's counter, so every stamp costs {} ns: boot \
             with clocksource=tsc if the processor's is stable",
            found.clocks.read_ns
        ));
    }
    let busy = found.load.iter().flat_map(CpuUse::warnings);
    advice.extend(busy.map(|used| {
        format!("{used}: delays and timers found now contain this; stop other programs, and examine again")
    }));
    if found.machine.cores < 2 {
        advice.push(
            "there is one CPU: --busy-poll would starve the far end if it runs here too".to_owned(),
        );
    }
    if lacks("ICMP ping socket") && lacks("ICMP raw socket") {
        advice.push(
            "icmp:// is not to be had: sysctl -w net.ipv4.ping_group_range='0 2147483647'"
                .to_owned(),
        );
    }
    if lacks("ports below 1024") {
        advice.push(
            "the STAMP port 862 is not to be had: reflect on another, like \
             stamp://[::]:8620, or sysctl -w net.ipv4.ip_unprivileged_port_start=862"
                .to_owned(),
        );
    }
    if found.stamps.iter().all(|seen| !seen.tx || !seen.rx) {
        advice.push(
            "no socket here delivers kernel stamps both ways: delays include the program's own \
             waking up"
                .to_owned(),
        );
    }
    if found.clocks.utc_error_ns.is_none() {
        advice.push(
            "the clock is not synchronised to UTC: round trips need no such thing, one-way delays \
             between machines do (install chrony, or ptp4l with phc2sys)"
                .to_owned(),
        );
    }
    if lacks("real-time scheduling") {
        advice.push(
            "timing threads run like every ordinary program, so a busy machine makes them late: \
             run as root, or setcap cap_sys_nice+ep on the program"
                .to_owned(),
        );
    }
    if lacks("network namespaces (dwell lab)") {
        advice.push(
            "there can be no labs: run as root, or allow user namespaces (sysctl \
             kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, as \
             far as these exist here)"
                .to_owned(),
        );
    }
    if found.abilities.iter().any(|a| a.name.starts_with("netem") && a.available == Some(false)) {
        advice.push(
            "this kernel has no netem: dwell lab emulates links with tbf and with its own TAP link"
                .to_owned(),
        );
    }
    for interface in found.interfaces.iter().filter(|found| found.up && found.name != "lo") {
        let name = &interface.name;
        if interface.tx_hardware_stamps == Some(true) && interface.rx_hardware_stamps == Some(true)
        {
            advice.push(format!(
                "the card of {name} can stamp packets itself: hwstamp_ctl -i {name} -t 1 -r 1 \
                 (linuxptp) switches it on, and dwell uses what comes"
            ));
        }
        let merges = |name: &String| name.contains("segmentation") || name.contains("gro");
        if interface.offloads.as_ref().is_some_and(|on| on.iter().any(merges)) {
            advice.push(format!(
                "{name} may merge packets that follow each other closely into one, with one stamp: \
                 ethtool -K {name} gro off gso off tso off, while trains are measured"
            ));
        }
    }
    advice
}
