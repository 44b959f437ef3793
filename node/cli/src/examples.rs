//! Examples at the end of every command's `--help`: two per command, from one table per program.

use clap::{Command, CommandFactory, FromArgMatches};

/// Path of a command and its examples, both without the program name.
pub type Examples = (&'static str, [&'static str; 2]);

/// Examples of the node commands.
pub const NODE: &[Examples] = &[
    ("ping", ["ping 192.0.2.7", "ping udp://192.0.2.7:7007 -c 1000 -i 1ms --fail-if 'p99 > 10ms'"]),
    (
        "range",
        [
            "range stamp://192.0.2.7 --calibration ap.json",
            "range --from ftm results.txt --medium air --json",
        ],
    ),
    (
        "range calibrate",
        [
            "range calibrate stamp://192.0.2.7 --distance 1m --output ap.json",
            "range calibrate --from ftm near.txt --distance 1m --output ap.json",
        ],
    ),
    ("reflect", ["reflect", "reflect stamp://0.0.0.0:8620 udp://0.0.0.0:7007"]),
    (
        "node-sim",
        [
            "node-sim --like chung-2021-best",
            "node-sim text+tcp://0.0.0.0:7100 --service-time 1ms --sockets 8 --json",
        ],
    ),
    (
        "relay",
        [
            "relay --listen udp://0.0.0.0:5001 --to udp://192.0.2.7:5001",
            "relay --listen tcp://0.0.0.0:5001 --to tcp://192.0.2.7:5001 --json",
        ],
    ),
    ("pace", ["pace --rate 100Mbit/s", "pace udp://192.0.2.7:5001 --rate 10M --size 576B --sink"]),
    ("pace sink", ["pace sink udp://0.0.0.0:5001", "pace sink udp://0.0.0.0:5001 --json"]),
    (
        "load",
        ["load cpu --level 50 --duration 10s", "load traffic tcp://192.0.2.7:5001 --duration 10s"],
    ),
    ("load cpu", ["load cpu --level 50", "load cpu --cpu 1 --duration 10s"]),
    (
        "load traffic",
        [
            "load traffic udp://192.0.2.7:5001 --rate 80M --duration 10s",
            "load traffic tcp://192.0.2.7:5001 --flows 4 --duration 10s",
        ],
    ),
    ("load sink", ["load sink", "load sink udp://0.0.0.0:5001 tcp://0.0.0.0:5001"]),
    (
        "trace",
        [
            "trace --flow 'udp port 5001'",
            "trace --flow 'icmp host 192.0.2.7' --interface eth0 --duration 60s --json",
        ],
    ),
    ("lab", ["lab up line:3 --rate 10Mbit/s", "lab exec n1 -- ping -c 3 n3"]),
    ("lab up", ["lab up line:3", "lab up star:4 --name field --rate 10M --delay 5ms --loss 1%"]),
    ("lab exec", ["lab exec n1 -- ping -c 3 n3", "lab exec --lab field n2 -- tc -s qdisc"]),
    ("lab list", ["lab list", "lab list --json"]),
    ("lab routes", ["lab routes", "lab routes field --json"]),
    ("lab down", ["lab down field", "lab down --all"]),
    ("agent", ["agent --config /etc/dwell/agent.toml", "agent --config site.toml --quiet"]),
    ("doctor", ["doctor", "doctor --json"]),
    ("worker", ["worker", "worker < requests > events"]),
];

/// Examples of `dwell-node` itself.
const NODE_PROGRAM: Examples = ("", ["ping 192.0.2.7", "help terms"]);

/// Parses the command line of `P`. Its help includes the examples of `tables`.
pub fn parse<P: CommandFactory + FromArgMatches>(tables: &[&[Examples]]) -> P {
    let matches = command::<P>(tables).get_matches();
    P::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The example tables of `dwell-node`.
pub fn node_tables() -> [&'static [Examples]; 2] {
    [NODE, &[NODE_PROGRAM]]
}

/// The clap command of `P`. Its help includes the examples of `tables`.
pub fn command<P: CommandFactory>(tables: &[&[Examples]]) -> Command {
    let command = P::command();
    let program = command.get_name().to_owned();
    with_examples(command, "", &program, tables)
}

fn with_examples(
    mut command: Command,
    path: &str,
    program: &str,
    tables: &[&[Examples]],
) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for name in names {
        let below = format!("{path} {name}");
        command = command.mut_subcommand(name, |command| {
            with_examples(command, below.trim_start(), program, tables)
        });
    }
    let all = tables.iter().copied().flatten();
    let Some((_, examples)) = all.into_iter().find(|(of, _)| *of == path) else { return command };
    let mut text = command.get_after_help().map_or(String::new(), |text| format!("{text}\n\n"));
    text += "Examples:";
    for example in examples {
        text += &format!("\n  {program} {example}");
    }
    command.after_help(text)
}
