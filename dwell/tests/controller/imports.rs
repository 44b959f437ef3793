//! Imports of files of other programs from the command line.

use crate::fixture::{Sandbox, repository};

/// Returns the path of a recorded file of the importer.
fn recorded(name: &str) -> String {
    repository("controller/import/tests/data").join(name).display().to_string()
}

/// Returns ping output with this many replies of slightly more than 1 ms each.
fn ping(name: &str, replies: u32) -> String {
    let lines: String = (1..=replies)
        .map(|n| format!("64 bytes from {name}: icmp_seq={n} ttl=64 time=1.{n:03} ms\n"))
        .collect();
    format!(
        "PING {name} (10.0.0.2) 56(84) bytes of data.\n{lines}\n--- {name} ping statistics ---\n\
         {replies} packets transmitted, {replies} received, 0% packet loss, time 9ms\n"
    )
}

#[test]
fn control_characters_of_imports_are_escaped() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("\u{1b}]0;title\u{7}.txt\nrun", &ping("\u{1b}[2Jhost", 200));
    let calm = sandbox.write("calm.txt", &ping("host", 200));
    let foreign = sandbox.json(&["import", &file])["run"].as_str().unwrap().to_owned();
    let other = sandbox.json(&["import", &calm])["run"].as_str().unwrap().to_owned();
    let page = sandbox.path("page.html").display().to_string();
    let commands: [&[&str]; 6] = [
        &["import", &file],
        &["runs"],
        &["show", &foreign],
        &["compare", &foreign, &other],
        &["report", &foreign, "-o", &page],
        &["import", "no\u{1b}[31mthere"],
    ];
    for command in commands {
        let output = sandbox.dwell(command);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.is_empty());
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{command:?}: {text:?}");
    }
    let shown = String::from_utf8(sandbox.dwell(&["show", &foreign]).stdout).unwrap();
    assert!(shown.contains("\\u001b]0;title\\u0007.txt\\nrun"), "{shown}");
    // JSON contains the original text.
    let target = &sandbox.json(&["show", &foreign])["trials"][0]["measurement"]["target"];
    assert_eq!(*target, "icmp://\u{1b}[2Jhost");
}

#[test]
fn imported_flow_label_is_not_doubled() {
    let sandbox = Sandbox::new();
    sandbox.json(&["import", &recorded("d-itg-receiver.log")]);
    let shown = String::from_utf8(sandbox.dwell(&["show", "last"]).stdout).unwrap();
    assert!(shown.contains("flow 2 127.0.0.1:40379 > 127.0.0.1:9002"), "{shown}");
    assert!(!shown.contains("flow flow"), "{shown}");
}

#[test]
fn warning_of_a_flow_stays_with_its_flow() {
    let sandbox = Sandbox::new();
    let text = std::fs::read_to_string(recorded("iperf2-client-two.txt")).unwrap();
    let socket_4 = text.replace("[  3] WARNING", "[  4] WARNING");
    let file = sandbox.write("two.txt", &socket_4);
    let imported = sandbox.dwell(&["import", &file]);
    let stderr = String::from_utf8(imported.stdout).unwrap();
    assert!(stderr.contains("note: [2] 127.0.0.1:60269 - 127.0.0.1:6001: iperf says"), "{stderr}");
    let trials = &sandbox.json(&["show", "last"])["trials"];
    let warnings = |trial: usize| trials[trial]["trust"]["warnings"].as_array().unwrap().len();
    assert_eq!((warnings(0), warnings(1)), (0, 2), "{trials:#}");
}

#[test]
fn witnesses_are_distinguished_by_hash() {
    let sandbox = Sandbox::new();
    let run = sandbox.json(&["import", &recorded("dwell.csv")])["run"].as_str().unwrap().to_owned();
    let name = "stamp-roundtrip-iperf2.pcap";
    let bytes = std::fs::read(recorded(name)).unwrap();
    let witnesses = || {
        let shown = sandbox.json(&["show", &run]);
        shown["trials"][0]["witnesses"].as_array().unwrap().clone()
    };
    let witness = |file: &str| sandbox.json(&["import", file, "--witness", &run]);
    witness(&recorded(name));
    // Imitates a witness stored by an older version without hashes, which saw less.
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let older = "UPDATE summaries SET summary = json_set(json_remove(summary, \
                 '$.parameters.sha256'), '$.parameters.matched', 1) WHERE role = 'witness'";
    assert_eq!(db.execute(older, []).unwrap(), 1);
    let seen = witness(&recorded(name));
    assert_eq!(witnesses().len(), 1, "the same capture, imported again");
    assert_eq!(witnesses()[0]["parameters"]["matched"], seen["trials"][0]["matched"]);

    // Another capture of the same name, which is truncated.
    std::fs::create_dir(sandbox.path("other")).unwrap();
    let other = sandbox.path("other").join(name);
    std::fs::write(&other, &bytes[..bytes.len() - 1]).unwrap();
    witness(other.to_str().unwrap());
    witness(other.to_str().unwrap());
    assert_eq!(witnesses().len(), 2, "two captures of one name");
    let findings = sandbox.json(&["show", &run])["findings"].to_string();
    assert!(findings.contains(&format!("({name} and 1 more)")), "{findings}");
}
