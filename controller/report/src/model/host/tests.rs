use super::*;

fn wanted(length_s: i64) -> HostWanted {
    HostWanted {
        trial: 1,
        metric: "rtt_ns".to_owned(),
        window_ns: 1_000_000_000,
        started_ns: 1_795_000_000_000_000_000,
        length_ns: length_s * 1_000_000_000,
    }
}

fn window(number: i64) -> TimeBin {
    TimeBin {
        from_ns: number * 1_000_000_000,
        to_ns: (number + 1) * 1_000_000_000,
        count: 200,
        lost: 0,
        min_ns: None,
        p1_ns: None,
        p50_ns: None,
        p99_ns: Some(300_000),
        max_ns: None,
    }
}

/// Time of a reading, at five readings per second.
fn at(reading: i64) -> i64 {
    1_795_000_000_000_000_000 + reading * 200_000_000
}

#[test]
fn long_trial_keeps_100_points_and_its_mean() {
    for length in [30, 600, 36_000] {
        let mut accumulator = HostAccumulator::new(wanted(length), Vec::new());
        for reading in 1..length * 5 {
            accumulator.take("n1", at(reading), "interrupts_per_s", (reading % 7) as f64);
        }
        let host = accumulator.finish().unwrap();
        let [series] = host.series.as_slice() else { panic!("{:?}", host.series) };
        assert_eq!(series.points.len(), MAX_POINTS, "{length} s");
        assert!(series.points.is_sorted_by_key(|(at, _)| *at));
        let mean = series.points.iter().map(|(_, value)| value).sum::<f64>() / MAX_POINTS as f64;
        assert!((mean - 3.0).abs() < 0.1, "{length} s: {mean}");
        assert_eq!((series.lowest, series.highest), (0.0, 6.0), "extremes are kept");
    }
}

#[test]
fn few_readings_are_kept_and_others_ignored() {
    let mut accumulator = HostAccumulator::new(wanted(2), Vec::new());
    for reading in -3..14 {
        accumulator.take("n1", at(reading), "thermal0_celsius", reading as f64);
        accumulator.take("n1", at(reading), "thermal1_celsius", -40.0);
        accumulator.take("n1", at(reading), "something_new", 5.0);
        accumulator.take("n1", at(reading), "interrupts_per_s", f64::NAN);
    }
    let host = accumulator.finish().unwrap();
    let [series] = host.series.as_slice() else { panic!("{:?}", host.series) };
    let expected: Vec<(i64, f64)> = (0..11).map(|n| (n * 200_000_000, n as f64)).collect();
    assert_eq!((series.quantity, &series.points), (Quantity::Temperature, &expected));
}

#[test]
fn cpus_are_combined_machines_are_not() {
    let mut accumulator = HostAccumulator::new(wanted(1), vec![window(0)]);
    for (node, busy) in [("n1", [0.2, 0.4]), ("n2", [0.9, 1.0])] {
        for reading in [1, 2] {
            accumulator.take(node, at(reading), "cpu0_busy_ratio", busy[0]);
            accumulator.take(node, at(reading), "cpu0_run_queue_wait_ns_per_s", 1e6);
            accumulator.take(node, at(reading), "cpu0_steal_ratio", 0.0);
            accumulator.take(node, at(reading), "cpu11_busy_ratio", busy[1]);
            accumulator.take(node, at(reading), "cpu11_run_queue_wait_ns_per_s", 2e6);
        }
    }
    let host = accumulator.finish().unwrap();
    let means: Vec<_> = host
        .series
        .iter()
        .map(|it| (it.quantity, it.node.as_str(), (it.points[0].1 * 100.0).round() / 100.0))
        .collect();
    let expected = [
        (Quantity::CpuUse, "n1", 0.3),
        (Quantity::CpuUse, "n2", 0.95),
        (Quantity::RunQueueWait, "n1", 3e6),
        (Quantity::RunQueueWait, "n2", 3e6),
    ];
    assert_eq!(means, expected, "zero steal is not shown");
    let mean = host.series[1].by_window[0].unwrap();
    assert!((mean - 0.95).abs() < 1e-9, "{mean}");
}

#[test]
fn ratio_belongs_to_window_of_its_midpoint() {
    let mut accumulator = HostAccumulator::new(wanted(2), vec![window(0), window(1)]);
    // The second reading, just behind the border, covers the time before it.
    for (ms, share) in [(850, 0.1), (1_050, 0.9), (1_250, 0.3)] {
        let at = 1_795_000_000_000_000_000 + ms * 1_000_000;
        accumulator.take("n1", at, "cpu0_busy_ratio", share);
        accumulator.take("n1", at, "cpu0_frequency_hz", share);
    }
    let host = accumulator.finish().unwrap();
    assert_eq!(host.series[0].by_window, [Some(0.5), Some(0.3)]);
    assert_eq!(
        host.series[1].by_window,
        [Some(0.1), Some(0.6)],
        "a frequency is an instantaneous value"
    );
}

#[test]
fn excess_machines_are_counted() {
    let mut accumulator = HostAccumulator::new(wanted(2), Vec::new());
    for node in 0..9 {
        for reading in 1..4 {
            accumulator.take(&format!("n{node}"), at(reading), "interrupts_per_s", 1.0);
        }
    }
    let host = accumulator.finish().unwrap();
    assert_eq!((host.series.len(), host.nodes_left_out), (MAX_NODES, 3));
    assert_eq!(HostAccumulator::new(wanted(2), Vec::new()).finish(), None);
}

#[test]
fn nodes_are_in_natural_order() {
    let mut accumulator = HostAccumulator::new(wanted(2), Vec::new());
    for node in ["n10", "n2", "gateway", "n1"] {
        for reading in 1..4 {
            accumulator.take(node, at(reading), "interrupts_per_s", 1.0);
            accumulator.take(node, at(reading), "process_run_queue_wait_ns_per_s", 1.0);
        }
    }
    let host = accumulator.finish().unwrap();
    let order = |host: &HostData| -> Vec<String> {
        let of = host.series.iter().filter(|it| it.quantity == Quantity::OwnRunQueueWait);
        of.map(|it| it.node.clone()).collect()
    };
    assert_eq!(order(&host), ["gateway", "n1", "n2", "n10"]);
    // Quantities of the shared machine occur once.
    let shared = host.shared();
    assert_eq!(shared.on_one_machine, ["gateway", "n1", "n2", "n10"]);
    let machine = shared.series.iter().filter(|it| it.quantity == Quantity::Interrupts);
    assert_eq!(machine.map(|it| it.node.as_str()).collect::<Vec<_>>(), [SHARED_MACHINE]);
}
