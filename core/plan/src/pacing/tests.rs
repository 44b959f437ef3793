use dwell_units::BitRate;

use super::*;
use crate::{Estimate, expand};

const PLAN: &str = r#"
version = 1
name = "paced"
topology = { lab = "line:2" }

[pace]
from = "n1"
to = "n2"
size = "576B"
rate = "10Mbit/s"
engine = "spin"
"#;

fn read(text: &str) -> Result<Plan, PlanError> {
    Plan::read(&Source::parse(text)?)
}

#[test]
fn pace_plan_fills_in_defaults() {
    let plan = read(PLAN).unwrap();
    let pace = plan.measurement.pace().unwrap();
    let given = PaceParameters {
        size: Some("576B".parse().unwrap()),
        rate: Some(BitRate(10_000_000)),
        engine: PaceEngine::Spin,
        ..PaceParameters::default()
    };
    assert_eq!((&pace.parameters, pace.sink), (&given, None));
    assert_eq!(pace.gap_ns(), Some(460_800.0));
    assert!(plan.traffic().is_empty());
}

#[test]
fn one_axis_accepts_sizes_of_several_layers() {
    let text = PLAN.replace("size = \"576B\"\n", "")
        + "[matrix]\nsize = [\"200B\", \"frame:1514B\", \"payload:172B\"]\n";
    let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
    let sizes: Vec<_> = (0..3)
        .map(|cell| {
            let plan = expansion.plan_of(cell).unwrap();
            let size = plan.measurement.pace().unwrap().packet_size().unwrap();
            (size.ip().0, size.as_given().0)
        })
        .collect();
    assert_eq!(sizes, [(200, 200), (1_500, 1_514), (200, 172)]);
    assert_eq!(expansion.parameters(1)["size"], "frame:1514B");
}

#[test]
fn pairs_have_no_rate_and_slow_rates_may_have_shorter_trains() {
    let text = format!(
        "{PLAN}[matrix]\npattern = [\"train\", \"pair\"]\nflows = [0, 5]\n\
         rate = [\"1Mbit/s\", \"1Gbit/s\"]\n\
         [[constraint]]\nwhen = {{ pattern = \"pair\" }}\nmatrix = {{ rate = [\"none\"] }}\n\
         [[constraint]]\nwhen = {{ rate = \"1Mbit/s\" }}\nmatrix = {{ count = [21] }}\n"
    );
    let expansion = expand(&Source::parse(&text).unwrap(), 1).unwrap();
    let cells: Vec<_> =
        (0..expansion.cells().len() as u32).map(|n| expansion.parameters(n)).collect();
    let of = |pattern: &'static str| cells.iter().filter(move |cell| cell["pattern"] == pattern);
    assert_eq!((of("train").count(), of("pair").count()), (4, 2));
    assert!(of("pair").all(|cell| cell["rate"] == "none" && !cell.contains_key("count")));
    let slow = |cell: &&std::collections::BTreeMap<String, String>| cell["rate"] == "1Mbit/s";
    assert!(cells.iter().filter(slow).all(|cell| cell["count"] == "21"));
    for cell in 0..cells.len() as u32 {
        let plan = expansion.plan_of(cell).unwrap();
        let flows: u32 = cells[cell as usize]["flows"].parse().unwrap();
        let traffic = plan.traffic();
        assert_eq!(traffic.len(), usize::from(flows > 0));
        for one in traffic {
            assert_eq!((one.flows, one.rate), (5, Some(Rate::Bits(BitRate(5_000_000)))));
            assert_eq!((one.from.as_str(), one.distribution.as_str()), ("n1", "pareto(1.5)"));
        }
    }
}

#[test]
fn estimate_includes_warm_up_trains() {
    let of = |text: &str| Estimate::of(&read(text).unwrap());
    let all = of(PLAN);
    // Gaps up to 20 ms have three lead-in packets.
    assert_eq!((all.probes, all.bytes), (Some(1_050), Some((1_050 + 21 * 3) * 576)));
    // 20 trains of 49 gaps of 460.8 us, each followed by 10 to 20 ms.
    assert_eq!(all.sending, Nanos(20 * (49 * 460_800 + 15_000_000)));
    assert_eq!(all.time, Nanos(21 * (49 * 460_800 + 15_000_000) + 70_000_000));
    let slow = of(&PLAN.replace("10Mbit/s", "800kbit/s"));
    // Three gaps of 5,760 us are longer than the pause.
    assert_eq!(slow.bytes, all.bytes);
    assert_eq!(slow.time, Nanos(21 * (49 * 5_760_000 + 3 * 5_760_000) + 70_000_000));
    let slower = of(&PLAN.replace("10Mbit/s", "100kbit/s"));
    assert_eq!((slower.probes, slower.bytes), (Some(1_050), Some(1_050 * 576)));
    let pairs = of(&PLAN.replace("rate =", "pattern = \"pair\"\nrate ="));
    assert_eq!((pairs.probes, pairs.sending), (Some(52), Nanos::from_millis(25)));
    let crossed = of(&format!("{PLAN}[cross]\nflows = 10\nrate = \"1kpps\"\nsize = \"472B\"\n"));
    let seconds = crossed.time.0 as f64 / 1e9;
    assert_eq!(crossed.load_packets, (10_000.0 * seconds).round() as u64);
    assert_eq!(crossed.load_bytes, crossed.load_packets * 500);
}

#[test]
fn pace_error_has_line_and_valid_form() {
    for (from, to, line, words) in [
        ("to = \"n2\"", "to = \"n9\"", 8, "n1 to n2"),
        ("to = \"n2\"", "to = \"n1\"", 8, "itself"),
        ("\"576B\"", "\"40B\"", 9, "at least 44B"),
        ("\"576B\"", "\"2000B\"", 9, "at most 1500B"),
        ("\"576B\"", "576", 9, "frame:1514B"),
        ("\"576B\"", "\"disk:5B\"", 9, "frame:1514B"),
        ("\"10Mbit/s\"", "\"0bit/s\"", 10, "above 0"),
        ("\"10Mbit/s\"", "\"200pps\"", 10, "200pps"),
        ("\"spin\"", "\"warp\"", 11, "sleep-spin"),
        ("engine = \"spin\"", "count = 1", 11, "2 or more"),
        ("engine = \"spin\"", "repeat = 0", 11, "1 or more"),
        ("engine = \"spin\"", "pause = \"-1ms\"", 11, "-1ms"),
        ("engine = \"spin\"", "trains = 5", 11, "unknown field 'trains'"),
        ("engine = \"spin\"", "[cross]\nflows = 2000", 12, "0 to 1000"),
        ("engine = \"spin\"", "[cross]\ndistribution = \"weibull\"", 12, "pareto"),
        ("engine = \"spin\"", "[cross]\ngenerator = \"itg\"\nsize = \"18B\"", 13, "20B to 65507B"),
        ("engine = \"spin\"", "[cross]\ngenerator = \"mgen\"", 12, "itg"),
        ("engine = \"spin\"", "[cross]\nto = \"n1\"", 12, "itself"),
        ("engine = \"spin\"", "[accurate]\nrate = \"0%\"", 12, "above 0%"),
        ("[pace]", "[ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 1\n[pace]", 10, "[ping] or [pace]"),
    ] {
        assert!(PLAN.contains(from));
        let error = read(&PLAN.replacen(from, to, 1)).unwrap_err();
        let at = error.at.clone().unwrap_or_else(|| panic!("{to}: {error}"));
        assert_eq!(at.line, line, "{to}: {error}");
        assert!(error.to_string().contains(words), "{to}: {error}");
    }
    let ping = "version = 1\nname = \"x\"\ntopology = { lab = \"line:2\" }\n\
                [ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 1\n[cross]\nflows = 5\n";
    assert!(read(ping).unwrap_err().to_string().contains("needs a [pace]"));
}

#[test]
fn error_of_a_combination_points_at_its_axis() {
    let refused = |text: &str| {
        let expansion = expand(&Source::parse(text).unwrap(), 1)?;
        Estimate::of_all(&expansion).map(drop)
    };
    for (from, to, words) in [
        ("rate = \"10Mbit/s\"\n", "", "a train needs a rate"),
        ("rate = \"10Mbit/s\"\n", "rate = \"none\"\n", "a train needs a rate"),
        ("size = \"576B\"\n", "", "give size, payload_size or frame_size"),
        ("size = \"576B\"\n", "size = \"576B\"\nframe_size = \"590B\"\n", "give one of"),
        ("rate = \"10Mbit/s\"\n", "rate = \"1kbit/s\"\nrepeat = 4000\n", "at most 24h"),
        ("engine = \"spin\"", "engine = \"spin\"\nbypass = true\n", "packet-ring"),
        ("engine = \"spin\"", "bypass = true\n", "not \"auto\""),
        ("rate =", "count = 50000\nrepeat = 50000\nrate =", "at most 10000000"),
    ] {
        assert!(PLAN.contains(from));
        let error = refused(&PLAN.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(words), "{to}: {error}");
        assert!(error.at.is_some(), "{to}: {error}");
    }
    let matrix =
        "[matrix]\nsize = [\"200B\"]\npattern = [\"pair\", \"train\"]\nrate = [\"none\"]\n";
    let error = refused(&format!("{PLAN}{matrix}")).unwrap_err();
    assert_eq!(error.at.as_ref().map(|at| at.line), Some(15), "{error}");
    assert!(error.to_string().contains("pattern train"), "{error}");
}
