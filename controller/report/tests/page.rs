//! The page is complete, makes no requests, and escapes hostile text.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;
#[path = "synthetic/paced.rs"]
mod trains;

use dwell_record::{NicDropped, Scalar, Summary, TrustWarning};
use dwell_report::model::{MachineData, RunData, RunPlan};
use dwell_report::{comparison_page, figures, findings, page};

/// The page without its runtime, whose licence comments contain URLs.
fn without_runtime(html: &str) -> String {
    html.replace(include_str!("../assets/vega.js"), "")
}

#[test]
fn page_makes_no_requests() {
    let run = synthetic::sweep();
    for html in
        [page(&run), comparison_page(&[run.clone(), run.clone()], "rtt_ns", &findings(&run))]
    {
        assert!(html.contains("default-src 'none'"));
        let own = without_runtime(&html);
        for fetch in
            ["src=", "url(", "@import", "<link", "<iframe", "<img", "fetch(", "href=\"http"]
        {
            assert!(!own.contains(fetch), "{fetch}");
        }
        let schema = "https://vega.github.io/schema/vega-lite/v6.json";
        assert!(!own.replace(schema, "").contains("://"));
        assert!(html.len() < 6_000_000, "{} bytes", html.len());
    }
}

#[test]
fn page_sections_are_complete_and_ordered() {
    let html = without_runtime(&page(&synthetic::loads()));
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    let order = [
        "id=\"key\"",
        "id=\"main-figure\"",
        "id=\"summary\"",
        "id=\"figures\"",
        "id=\"measured\"",
        "id=\"trust\"",
        "id=\"trials\"",
        "id=\"loads\"",
        "id=\"notes\"",
        "id=\"reading\"",
    ];
    assert!(order.map(at).is_sorted());
    for fact in [
        "Schedule error",
        "p99 4.1 us",
        "kernel-sw",
        "arch_sys_counter",
        "ondemand",
        "36,000 planned",
        "open loop",
        "SCHED_FIFO",
        "180 probes discarded",
    ] {
        assert!(html.contains(fact), "{fact}");
    }
    assert!(html.contains("banner good") && !html.contains("banner warn\""));
    assert!(page(&synthetic::sweep()).contains("banner warn\""));
    assert!(page(&synthetic::sweep()).contains("node relay vanished after 1.2 s"));
}

#[test]
fn key_figure_is_the_largest_effect_with_its_figure() {
    let html = without_runtime(&page(&synthetic::loads()));
    let section = |id: &str| {
        let after = html.split(&format!("<section id=\"{id}\"")).nth(1).unwrap_or_default();
        after.split("</section>").next().unwrap_or_default()
    };
    let key = section("key");
    assert!(key.contains("<dt>round-trip delay, load none -&gt; load cpu</dt>"), "{key}");
    assert!(key.contains("<b>p99 314 us -&gt; 1.76 ms</b><span>5.6x, 95 % CI "), "{key}");
    assert!(key.contains("<b>median 279 us -&gt; 247 us</b><span>-11 %, 95 % CI "), "{key}");
    assert!(key.contains("95 % for all 4 comparisons of the run together"), "{key}");
    assert!(key.contains("<a class=\"badge good\" href=\"#trust\">"), "{key}");
    assert!(section("main-figure").contains("id=\"figure-boxes-load\""));
    assert_eq!(html.matches("id=\"figure-boxes-load\"").count(), 1);
    assert!(page(&synthetic::sweep()).contains("badge warn"));
}

#[test]
fn undecided_and_excess_findings_are_folded() {
    let mut run = synthetic::loads();
    run.trials.retain(|trial| trial.repetition == 1);
    let html = without_runtime(&page(&run));
    let summary = html.split("<section id=\"summary\"").nth(1).unwrap();
    let (list, folded) = summary.split_once("</ul>").unwrap();
    assert!(!list.contains("annot tell"), "{list}");
    assert!(folded.contains("Cannot tell whether load changes the round-trip delay"), "{folded}");
}

#[test]
fn findings_have_at_most_160_characters() {
    let mut witnessed = synthetic::loads();
    synthetic::add_witness(&mut witnessed);
    let board = synthetic::PI_ZERO;
    let flat = synthetic::Relay { per_byte_ns: 0.0, ..board };
    let loaded = synthetic::Relay { stress: 3.0, ..board };
    for run in [
        witnessed,
        synthetic::sweep(),
        synthetic::with_machines("n2"),
        synthetic::relays(board),
        synthetic::relays(flat),
        synthetic::relays_repeated(loaded, 3),
        trains::paces(&[]),
        trains::paces(&["matrix.pattern=[\"pair\"]"]),
    ] {
        for finding in findings(&run) {
            let (lead, _) = finding.lead_and_details();
            assert!(lead.chars().count() <= 160, "{}: {lead}", finding.id);
            assert!(!lead.ends_with(" ..."), "{} is cut: {}", finding.id, finding.text);
        }
    }
}

#[test]
fn trust_panel_has_facts_and_folds_long_ones() {
    let mut run = synthetic::loads();
    run.plan = Some(RunPlan::read("name = 'x'\n".to_owned(), vec!["a=1".to_owned()]).into());
    let offloads = ["rx-gro", "tx-tcp-segmentation", "tx-checksum-ipv4", "rx-vlan-hw-parse"];
    for trial in &mut run.trials {
        let summary = trial.summary.as_mut().unwrap();
        summary.environment.offloads = Some(offloads.map(str::to_owned).to_vec());
        summary.packets.as_mut().unwrap().send_failed = 2;
    }
    let html = without_runtime(&page(&run));
    let fact = |name: &str| {
        let after = html.split(&format!("<dt>{name}</dt><dd>")).nth(1).unwrap_or_default();
        after.split("</dd>").next().unwrap_or_default().to_owned()
    };
    // SHA-256 of the text.
    assert_eq!(fact("Plan"), "quick, 6d4b2ecad21d, 1 value overridden");
    assert_eq!(fact("Dropped by the sender"), "18 at the socket");
    assert_eq!(fact("dwell"), "0.1.0");
    let said = fact("Offloads");
    assert!(said.starts_with("GRO and TSO on; 4 in all<details>"), "{said}");
    assert!(said.contains("rx-vlan-hw-parse"), "{said}");
}

#[test]
fn nic_drops_are_reported_by_machine() {
    let fact = |html: &str| {
        let after = html.split("<dt>Dropped by network cards</dt><dd>").nth(1).unwrap_or_default();
        after.split("</dd>").next().unwrap_or_default().to_owned()
    };
    let mut run = synthetic::loads();
    let html = without_runtime(&page(&run));
    assert_eq!(fact(&html), "unknown");
    let nic = |interface: &str, [rx_dropped, tx_dropped, rx_missed]: [u64; 3]| {
        let interface = interface.to_owned();
        Some(vec![NicDropped { interface, rx_dropped, tx_dropped, rx_missed }])
    };
    let mut reflector = run.trials[0].summary.clone().unwrap();
    reflector.trust.note_nics(nic("eth1", [0; 3]));
    run.trials[0].machines.push(MachineData { node: "pi3".to_owned(), summary: reflector });
    for trial in &mut run.trials {
        trial.summary.as_mut().unwrap().trust.note_nics(nic("eth0", [0; 3]));
    }
    let html = without_runtime(&page(&run));
    assert_eq!(fact(&html), "0 at eth0 and eth1 of node pi3");
    assert!(html.contains("banner good") && !html.contains("banner warn\""));

    run.trials[1].summary.as_mut().unwrap().trust.note_nics(nic("eth0", [2, 1, 0]));
    run.trials[2].summary.as_mut().unwrap().trust.note_nics(nic("eth0", [1, 0, 0]));
    run.trials[0].machines[0].summary.trust.note_nics(nic("eth1", [0, 0, 1_200]));
    run.trials[0].machines[0].summary.environment.dwell = "0.1.0+4f2a9c01b2d3".to_owned();
    let html = without_runtime(&page(&run));
    assert_eq!(
        fact(&html),
        "eth0: 3 rx dropped and 1 tx dropped / eth1 of node pi3: 1,200 rx missed"
    );
    let trials = run.trials.len();
    for (warning, n) in [("the network interface eth0", 2), ("pi3: the network interface eth1", 1)]
    {
        let text = format!(
            "{warning} dropped packets of dwell or other traffic during the measurement (in {n} \
             of {trials} trials)"
        );
        let text = text.replace('\'', "&#39;");
        assert!(html.contains(&text), "{text}");
    }
    assert!(html.contains("banner warn\""));
    assert!(html.contains("<dt>dwell</dt><dd>controller 0.1.0; nodes 0.1.0, 0.1.0+4f2a9c01b2d3"));
}

#[test]
fn only_single_trials_show_percentile_intervals() {
    let mut run = synthetic::loads();
    let values = &mut run.trials[1].summary.as_mut().unwrap().values;
    values.retain(|name, _| !name.starts_with("rtt_p99"));
    let summary = run.trials[0].summary.as_ref().unwrap();
    let us = |ns: i64| format!("{:.3}", ns as f64 / 1e3);
    let end = |name: &str| match summary.values[name] {
        Some(Scalar::Real(ns)) => us(ns as i64),
        ref other => panic!("{name}: {other:?}"),
    };
    let p50 = us(summary.metrics["rtt_ns"].p50.unwrap());
    let cell = format!("{p50} ({} to {})", end("rtt_p50_low_ns"), end("rtt_p50_high_ns"));

    let html = without_runtime(&page(&run));
    let trials = html.split("<section id=\"trials\">").nth(1).unwrap();
    let trials = trials.split("</section>").next().unwrap();
    assert!(trials.contains("<th scope=\"col\" class=\"number\">p50 [us] (95 % interval)</th>"));
    assert!(trials.contains(&format!("<td class=\"number\">{cell}</td>")), "{cell}");
    let without = us(run.trials[1].summary.as_ref().unwrap().metrics["rtt_ns"].p99.unwrap());
    assert!(trials.contains(&format!("<td class=\"number\">{without}</td>")), "{without}");
    let delays = html.split("<section id=\"delays\">").nth(1).unwrap();
    let delays = delays.split("</section>").next().unwrap();
    assert!(!delays.contains("interval"), "merged repetitions have no interval");

    let table = |run: &RunData, id: &str| {
        figures(run).into_iter().find(|figure| figure.id == id).unwrap().table
    };
    assert!(table(&run, "timeline").rows.iter().flatten().any(|text| *text == cell));
    let heading = |run: &RunData| {
        table(run, "percentiles").columns.contains(&"p50 [us] (95 % interval)".to_owned())
    };
    assert!(!heading(&run));
    run.trials.retain(|trial| trial.repetition == 1);
    assert!(heading(&run));
    assert!(table(&run, "boxes-load").rows.iter().flatten().any(|text| *text == cell));
}

#[test]
fn extremes_are_observed_values() {
    let mut run = synthetic::loads();
    run.trials.retain(|trial| trial.repetition == 1);
    for trial in &mut run.trials {
        let figures = trial.summary.as_mut().unwrap().metrics.get_mut("rtt_ns").unwrap();
        figures.min = figures.min.map(|ns| ns + 9);
        figures.max = figures.max.map(|ns| ns - 808);
    }
    let idle = run.trials.iter().find(|trial| trial.parameters["load"] == "none").unwrap();
    let rtt = &idle.summary.as_ref().unwrap().metrics["rtt_ns"];
    let us = |ns: Option<i64>| format!("{:.3}", ns.unwrap() as f64 / 1e3);
    let (least, most) = (us(rtt.min), us(rtt.max));
    let has = |id: &str, text: &str| {
        let table = figures(&run).into_iter().find(|figure| figure.id == id).unwrap().table;
        table.rows.iter().flatten().any(|cell| cell == text)
    };
    assert!(has("ecdf", &least) && has("ccdf", &most), "{least} to {most}");
    assert!(has("timeline", &most), "{most}");
    let html = without_runtime(&page(&run));
    for section in ["trials", "delays"] {
        let section = html.split(&format!("<section id=\"{section}\">")).nth(1).unwrap();
        let section = section.split("</section>").next().unwrap();
        assert!(section.contains(&format!("<td class=\"number\">{most}</td>")), "{most}");
    }
}

#[test]
fn page_shows_witness_captures() {
    let mut run = synthetic::loads();
    assert!(!page(&run).contains("Witness captures"));
    synthetic::add_witness(&mut run);
    let html = without_runtime(&page(&run));
    for text in ["Witness captures", "tap.pcapng", "round trip, by the witness", "3,990"] {
        assert!(html.contains(text), "{text}");
    }
    let said = findings(&run).into_iter().find(|finding| finding.id == "witness").unwrap();
    assert!(
        said.text.starts_with("A witness (tap.pcapng) saw 3,990 of 4,000 probes."),
        "{}",
        said.text
    );
    assert!(said.text.contains("12 us longer than the witness's"), "{}", said.text);
}

#[test]
fn witness_counts_captures_and_probes_once() {
    let mut run = synthetic::loads();
    synthetic::add_witness(&mut run);
    let one = run.trials[0].witnesses[0].clone();
    run.trials[1].witnesses.push(one.clone());
    let said = |run: &RunData| {
        findings(run).into_iter().find(|finding| finding.id == "witness").unwrap().text
    };
    let text = said(&run);
    assert!(text.starts_with("A witness (tap.pcapng) saw 7,980 of 8,000 probes."), "{text}");
    run.trials[0].witnesses.push(Summary { target: "other.pcap".to_owned(), ..one });
    let text = said(&run);
    let words = "A witness (tap.pcapng and 1 more) saw 7,980 of 8,000 probes.";
    assert!(text.starts_with(words), "{text}");
}

#[test]
fn glossary_explains_the_method() {
    let html = without_runtime(&page(&synthetic::loads()));
    assert!(!html.contains("binomial"), "verdicts rest on trials, not on samples");
    assert!(html.contains("A trial is one observation") && html.contains("triangle down"));
}

#[test]
fn hostile_text_is_escaped() {
    const HOSTILE_TEXT: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    let mut run = synthetic::loads();
    run.name = HOSTILE_TEXT.to_owned();
    run.title = Some(HOSTILE_TEXT.to_owned());
    run.notes = vec![HOSTILE_TEXT.to_owned()];
    run.axes[0].name = HOSTILE_TEXT.to_owned();
    run.axes[0].values[0] = HOSTILE_TEXT.to_owned();
    for trial in &mut run.trials {
        let load = trial.parameters.remove("load").unwrap();
        trial.parameters.insert(
            HOSTILE_TEXT.to_owned(),
            if load == "none" { HOSTILE_TEXT.to_owned() } else { load },
        );
        trial.reason = Some(HOSTILE_TEXT.to_owned());
        let summary = trial.summary.as_mut().unwrap();
        summary.trust.warn(TrustWarning {
            code: HOSTILE_TEXT.into(),
            text: HOSTILE_TEXT.to_owned(),
            on: Some(HOSTILE_TEXT.to_owned()),
        });
        summary.environment.kernel = Some(HOSTILE_TEXT.to_owned());
        let series = trial.series.remove("residence_ns").unwrap();
        trial.series.insert(HOSTILE_TEXT.to_owned(), series);
    }
    run.trials[2].state = dwell_report::model::TrialState::Failed;
    for html in
        [page(&run), comparison_page(&[run.clone(), run.clone()], "rtt_ns", &findings(&run))]
    {
        let html = without_runtime(&html);
        assert!(!html.contains("<script>alert") && !html.contains("<img"));
        let scripts = html.matches("</script>").count();
        assert_eq!(scripts, 4, "two data and two program elements");
        assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
}

#[test]
fn figures_of_a_comparison_stand_below_their_question() {
    let run = synthetic::loads();
    let html = comparison_page(&[run.clone(), run.clone()], "rtt_ns", &findings(&run));
    assert!(html.contains("<h3 class=\"question\">Delay distributions</h3>"));
}

#[test]
fn empty_run_gives_a_page() {
    let html = page(&synthetic::run("1", "nothing", None, Vec::new()));
    assert!(
        html.contains("This run has no trials.") && html.contains("There are no samples to draw.")
    );
    assert!(html.ends_with("</html>\n"));
    assert!(comparison_page(&[], "rtt_ns", &[]).contains("There are no samples to draw."));
}
