//! What reports say of runs over modes of relaying: never one number for several modes.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_report::data::RunData;
use dwell_report::{figures, findings};
use synthetic::{PI_ZERO, Relay, relays, relays_repeated};

fn text(run: &RunData, id: &str) -> String {
    findings(run).into_iter().find(|finding| finding.id == id).map(|f| f.text).unwrap_or_default()
}

#[test]
fn effects_of_a_parameter_are_said_of_each_mode_by_itself() {
    // Stress lengthens what programs take and not what the kernel takes.
    let run = relays_repeated(Relay { stress: 3.0, ..PI_ZERO }, 3);
    let said = text(&run, "effect-load");
    let noun = "ode delay between netfilter's hooks of";
    assert!(said.contains(&format!("{noun} translate: the median rose")), "{said}");
    assert!(said.contains(&format!("{noun} encrypt: the median rose")), "{said}");
    assert!(said.contains(&format!("The median n{noun} route is about the same")), "{said}");
    // Enciphering takes longer the larger the packet.
    let said = text(&run, "effect-size");
    assert!(said.contains("of encrypt: the median rose") && !said.contains("route: the"), "{said}");
    // Modes are compared over what was measured of both.
    assert!(text(&run, "effect-relay").contains("rose from"), "{}", text(&run, "effect-relay"));
    assert_eq!(text(&run, "effect-topology.link.rate").matches("link rate").count(), 3);
}

#[test]
fn no_sentence_has_one_delay_of_several_modes_or_conditions() {
    let run = relays(PI_ZERO);
    assert!(text(&run, "delay").ends_with("packets arrived."), "{}", text(&run, "delay"));
    let held = "at link rate none, size 700B (S0: 1000 B), rate 200pps, load none";
    assert!(text(&run, "node-delay").contains(held), "{}", text(&run, "node-delay"));
    let said = text(&run, "processing");
    assert!(said.contains(held) && said.contains("at translate and"), "{said}");
    // Half a millisecond at 2.5 us for each of 700 bytes more.
    assert!(said.contains("at encrypt") && said.contains("2.2"), "{said}");
}

#[test]
fn losses_of_modes_are_counted_where_all_modes_were_measured() {
    let run = relays(PI_ZERO);
    let all = figures(&run);
    let figure = all.iter().find(|figure| figure.id == "loss-relay").unwrap();
    assert!(figure.finding.contains("every mode was measured"), "{}", figure.finding);
    assert!(figure.finding.contains("rate 200pps; load none and most."), "{}", figure.finding);
    // Of 18 combinations of a mode 12 are left: 200 packets/s, three sizes, two loads, two links.
    let sent: Vec<&str> = figure.table.rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(sent, ["3,600", "3,600", "3,672"], "{:?}", figure.table);
}
