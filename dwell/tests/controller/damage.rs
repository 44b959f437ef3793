//! Partly damaged data directories: the damage is reported, and the rest stays usable.

use std::fs;
use std::process::Command;

use crate::fixture::{DWELL, Sandbox, as_root, repository, stderr, stdout};

fn imported(sandbox: &Sandbox) -> String {
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    sandbox.json(&["import", file.to_str().unwrap()])["run"].as_str().unwrap().to_owned()
}

#[test]
fn lost_catalogue_is_named_and_samples_are_kept() {
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let catalogue = sandbox.data().join("catalogue.sqlite");
    let samples = sandbox.data().join("samples").join(&run).join("1.parquet");
    let (whole, kept) = (fs::read(&catalogue).unwrap(), fs::read(&samples).unwrap());
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    for lost in ["emptied", "gone"] {
        match lost {
            "gone" => fs::remove_file(&catalogue).unwrap(),
            _ => fs::write(&catalogue, []).unwrap(),
        }
        for arguments in [
            &["runs"][..],
            &["show", "last"],
            &["import", file.to_str().unwrap()],
            &["runs", "--json"],
        ] {
            let output = sandbox.dwell(arguments);
            assert_eq!(output.status.code(), Some(1), "{lost}: {arguments:?}: {output:?}");
            let stderr = stderr(&output);
            assert!(
                stderr.contains("catalogue.sqlite") && stderr.contains(&run),
                "{lost}: {stderr}"
            );
        }
        assert_eq!(fs::read(&samples).unwrap(), kept);
    }
    fs::write(&catalogue, whole).unwrap();
    assert!(sandbox.dwell(&["show", &run]).status.success());
    assert_ne!(imported(&sandbox), run);
}

#[test]
fn damaged_catalogue_pages_error_names_the_file() {
    let sandbox = Sandbox::new();
    imported(&sandbox);
    let catalogue = sandbox.data().join("catalogue.sqlite");
    let mut bytes = fs::read(&catalogue).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(&catalogue, bytes).unwrap();
    for arguments in [&["runs"][..], &["show", "last"]] {
        let output = sandbox.dwell(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(catalogue.to_str().unwrap()), "{output:?}");
    }
}

#[test]
fn damaged_trial_is_named_and_others_are_shown() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    for _ in 0..2 {
        let output = sandbox.dwell(&["run", &plan, "--quiet"]);
        assert!(output.status.success(), "{output:?}");
    }
    let run = sandbox.query("SELECT run FROM runs ORDER BY id DESC").remove(0);
    let path = sandbox.data().join("samples").join(&run).join("2.parquet");
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();

    let output = sandbox.dwell(&["show", "last", "--recompute", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(path.to_str().unwrap()), "{output:?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let received = |trial: usize| &shown["trials"][trial]["packets"]["received"];
    assert_eq!((received(0), received(2)), (&30.into(), &30.into()));
    assert!(received(1).is_null(), "{shown}");

    let runs = sandbox.query("SELECT run FROM runs ORDER BY id");
    let output = sandbox.dwell(&["compare", &runs[0], &runs[1]]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("trial 2 of"), "{output:?}");
    let compared = stdout(&output);
    assert!(compared.contains("size 100B") && compared.contains("size 300B"), "{compared}");
    assert!(!compared.contains("size 200B"), "{compared}");

    // Damages the summary of another trial.
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let spoil = "UPDATE summaries SET summary = '{' WHERE role = 'measurement' AND trial_id =
                 (SELECT max(id) FROM trials WHERE number = 3)";
    assert_eq!(db.execute(spoil, []), Ok(1));
    let output = sandbox.dwell(&["show", "last"]);
    assert!(output.status.success(), "{output:?}");
    // Long reasons are wrapped.
    let shown = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("summary of trial 3 cannot be read"), "{shown}");
    let page = sandbox.path("page.html").display().to_string();
    let output = sandbox.dwell(&["report", "last", "-o", &page]);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("summary of trial 3"), "{output:?}");
}

#[test]
fn damaged_parameters_affect_only_their_trial() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = sandbox.dwell(&["run", &sandbox.plan(3), "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let spoil = "UPDATE trials SET parameters = '{bad' WHERE number = 1";
    assert_eq!(db.execute(spoil, []), Ok(1));
    let words = "parameters of trial 1 cannot be read";

    let output = sandbox.dwell(&["show", "last", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output).matches(words).count(), 1, "{output:?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = &shown["trials"];
    assert!(trials[0]["reason"].as_str().unwrap().contains(words), "{shown}");
    assert!(trials[0]["packets"].is_null(), "results without parameters have no meaning: {shown}");
    for (trial, size) in [(1, "200B"), (2, "300B")] {
        assert_eq!(trials[trial]["packets"]["received"], 30, "{shown}");
        assert_eq!(trials[trial]["parameters"]["size"], size);
    }
    let page = sandbox.path("page.html").display().to_string();
    let output = sandbox.dwell(&["report", "last", "-o", &page]);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains(words), "{output:?}");
    let output = sandbox.dwell(&["export", "last", "--format", "csv"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(words), "{output:?}");
    let rows = stdout(&output);
    assert!(rows.contains("200B") && rows.contains("300B"), "{rows}");
    assert!(!rows.lines().any(|row| row.starts_with("1,")), "{rows}");
}

#[test]
fn data_directory_is_readable_without_write_permission() {
    // Root can become another user.
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let program = sandbox.path("program");
    fs::copy(DWELL, &program).unwrap();
    let top = sandbox.path("");
    assert!(Command::new("chmod").arg("755").args([&top, &program]).status().unwrap().success());
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&program)
            .args(arguments)
            .env("DWELL_DATA", sandbox.data())
            .current_dir("/")
            .output()
            .unwrap()
    };
    let reads = || {
        for arguments in [
            &["runs"][..],
            &["show", "last"],
            &["show", &run, "--json", "--recompute"],
            &["export", &run, "--format", "csv"],
        ] {
            let output = as_nobody(arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            assert!(stdout(&output).contains(&run) || arguments[0] == "export", "{output:?}");
        }
    };
    reads();
    // Also during a write.
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    db.execute("UPDATE runs SET title = 'written'", []).unwrap();
    assert!(sandbox.data().join("catalogue.sqlite-wal").exists());
    reads();
    assert!(stdout(&as_nobody(&["runs", "--json"])).contains("written"));
    drop(db);
    let output = as_nobody(&["delete", &run, "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(sandbox.query("SELECT run FROM runs"), [run.as_str()]);
}

#[test]
fn file_as_data_directory_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("data", "");
    for arguments in [&["runs"][..], &["show", "last"]] {
        let output = sandbox.dwell(&[arguments, &["--data", &file]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains("--data"), "{output:?}");
    }
}
