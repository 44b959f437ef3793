//! The hub's commands with a PostgreSQL database, with the commands of docs/fleet-operations.md.

use std::path::Path;
use std::process::{Command, Stdio};

use dwell_hub::{PostgresStore, SqliteStore};
use dwell_io::process::{Handle, Signal};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::fixture::{Sandbox, object, stderr, stdout, wait_for_exit, wait_until};
use crate::postgres_server::PostgresServer;
use crate::queries::fill;

const VARIABLE: &str = "DWELL_HUB_DATABASE";

fn server(test: &str) -> Option<PostgresServer> {
    let server = PostgresServer::start("off");
    if server.is_none() {
        println!("SKIP postgres::{test}: PostgreSQL 15 is not installed");
    }
    server
}

/// Processes of the server that serve a hub.
fn backends(server: &PostgresServer) -> Vec<u32> {
    let mut client = postgres::Client::connect(&server.url("dwell"), postgres::NoTls).unwrap();
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'dwell hub'";
    client.query(sql, &[]).unwrap().iter().map(|row| row.get::<_, i32>(0) as u32).collect()
}

#[test]
fn commands_use_the_database_of_the_url() {
    let Some(server) = server("commands_use_the_database_of_the_url") else { return };
    server.execute("postgres", "CREATE DATABASE dwell");
    let (url, sandbox) = (server.url("dwell"), Sandbox::new());
    let missing = sandbox.dwell(&["query", "--database", &url]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("there is no hub in PostgreSQL database dwell on"));
    // A hub creates the tables. It has no devices.
    let mut command = sandbox.command(&["hub", "--embedded"]);
    let mut hub = sandbox.start(command.env(VARIABLE, &url).stdout(Stdio::null()));
    wait_until("the hub runs", || sandbox.stderr().contains("hub started"));
    let schedule = sandbox.write(
        "mesh.toml",
        "version = 1\n[nodes.a]\naddress = \"192.0.2.1\"\n[nodes.b]\naddress = \"192.0.2.2\"\n\
         [[measure]]\nname = \"mesh\"\nmesh = \"all\"\n",
    );
    let applied = sandbox.dwell(&["hub", "schedule", "apply", &schedule, "--database", &url]);
    assert!(stderr(&applied).contains("applied as version 1"), "{}", stderr(&applied));
    fill(&mut PostgresStore::open(&url, None).unwrap(), "a", "b");
    let history = sandbox.dwell(&["hub", "schedule", "history", "1", "--database", &url]);
    assert!(stdout(&history).contains("mesh = \"all\""));
    let nodes = object(&sandbox.dwell(&["hub", "nodes", "--json", "--database", &url]));
    assert_eq!(nodes["nodes"][0]["node"], json!("a"));
    Handle::open(hub.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert!(wait_for_exit(&mut hub).success());
    // The data directory has no database of the hub.
    assert!(!SqliteStore::path(&sandbox.data()).exists());
    let answer = sandbox.command(&["query", "a:b"]).env(VARIABLE, &url).output().unwrap();
    assert!(stdout(&answer).starts_with("a:b  mesh  stamp  rtt_ns\n"), "{}", stdout(&answer));
}

#[test]
fn second_sigterm_ends_a_hub_whose_database_hangs() {
    let Some(server) = server("second_sigterm_ends_a_hub_whose_database_hangs") else { return };
    server.execute("postgres", "CREATE DATABASE dwell");
    let (url, sandbox) = (server.url("dwell"), Sandbox::new());
    let mut command = sandbox.command(&["hub", "--embedded"]);
    let mut hub = sandbox.start(command.env(VARIABLE, &url).stdout(Stdio::null()));
    wait_until("the hub runs", || sandbox.stderr().contains("hub started"));
    let servers = backends(&server);
    assert!(!servers.is_empty());
    servers.iter().for_each(|pid| Handle::open(*pid).unwrap().signal(Signal::Stop).unwrap());
    let handle = Handle::open(hub.id()).unwrap();
    // Its last transaction waits. Signals in quick succession may be one.
    wait_until("the hub ends", || {
        let _ = handle.signal(Signal::Terminate);
        hub.try_wait().unwrap().is_some()
    });
    assert_eq!(wait_for_exit(&mut hub).code(), Some(143));
    servers.iter().for_each(|pid| Handle::open(*pid).unwrap().signal(Signal::Continue).unwrap());
}

#[test]
fn restored_backup_gives_the_same_answers() {
    let Some(server) = server("restored_backup_gives_the_same_answers") else { return };
    server.execute("postgres", "CREATE DATABASE dwell");
    let (url, sandbox) = (server.url("dwell"), Sandbox::new());
    fill(&mut PostgresStore::open(&url, None).unwrap(), "a", "b");
    let (from, to) = (Timestamp::now() - SignedDuration::from_hours(3), Timestamp::now());
    let (from, to) = (from.to_string(), to.to_string());
    let range = ["query", "a:b", "--format", "csv", "--from", &from, "--to", &to];
    let answer = |place: &[&str]| stdout(&sandbox.dwell(&[&range[..], place].concat()));
    let query = |database: &str| answer(&["--database", &server.url(database)]);
    let before = query("dwell");
    assert!(before.contains(",300,290,9,1,"), "{before}");
    let dump = sandbox.path("hub.dump");
    let run = |program: &str, arguments: &[&str]| {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:{path}", crate::postgres_server::PROGRAMS));
        command.env("PGHOST", server.dir()).env("PGUSER", "hub").args(arguments);
        assert!(command.status().unwrap().success(), "{program} {arguments:?}");
    };
    let file = dump.to_str().unwrap();
    run("pg_dump", &["--format", "custom", "--schema", "dwell_hub", "--file", file, "dwell"]);
    run("createdb", &["restored"]);
    run("pg_restore", &["--no-owner", "--exit-on-error", "--dbname", "restored", file]);
    assert_eq!(query("restored"), before);
    // The restored database is one that a hub can use.
    fill(&mut PostgresStore::open(&server.url("restored"), None).unwrap(), "a", "b");
    // A copy of the file of SQLite.
    let data = sandbox.data();
    std::fs::create_dir_all(&data).unwrap();
    fill(&mut SqliteStore::open(&data).unwrap(), "a", "b");
    let copied = sandbox.path("copy");
    std::fs::create_dir(&copied).unwrap();
    let copy = format!("VACUUM INTO '{}'", copied.join("hub.sqlite").display());
    let source = rusqlite::Connection::open(data.join("hub.sqlite")).unwrap();
    source.execute_batch(&copy).unwrap();
    let of = |dir: &Path| answer(&["--data", dir.to_str().unwrap()]);
    assert_eq!(of(&copied), of(&data));
}

#[test]
fn password_on_the_command_line_is_refused() {
    let sandbox = Sandbox::new();
    let url = "postgres://hub:secret@127.0.0.1:1/dwell";
    let refused = sandbox.dwell(&["query", "--database", url]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains(VARIABLE) && !stderr(&refused).contains("secret"));
    // Also if it is that of the environment, as by `--database "$DWELL_HUB_DATABASE"`.
    let mut equal = sandbox.command(&["query", "--database", url]);
    let refused = equal.env(VARIABLE, url).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    // From the environment it is used, and never printed.
    let failed = sandbox.command(&["query"]).env(VARIABLE, url).output().unwrap();
    let said = stderr(&failed);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("PostgreSQL database dwell on 127.0.0.1"), "{said}");
    let help = sandbox.command(&["query", "--help"]).env(VARIABLE, url).output().unwrap();
    assert!(!said.contains("secret") && !stdout(&help).contains("secret"));
}
