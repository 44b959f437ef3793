//! PostgreSQL: the server of the suite, and what SQLite does not have.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use dwell_hub::store::HubStore;
use dwell_hub::{
    HubError, PostgresStore, Resolution, Retention, Rules, accept_clock, expire, ingest,
};
use dwell_rollup::Level;

use crate::agent::{Agent, DAY, HOUR, NOW, deliver, message, name};
use crate::postgres_server::PostgresServer;
use crate::sqlite_store;
use crate::state::{TestStore, rows, state};

/// Database that the others are copies of.
const TEMPLATE: &str = "hub_template";

/// The server of all tests.
fn server() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    let started = SERVER.get_or_init(|| {
        let server = PostgresServer::start("off")?;
        server.execute("postgres", &format!("CREATE DATABASE {TEMPLATE}"));
        drop(PostgresStore::open(&server.url(TEMPLATE), None).unwrap());
        Some(server)
    });
    started.as_ref()
}

/// Returns the server, or reports that the test is skipped.
pub(crate) fn server_for(test: &str) -> Option<&'static PostgresServer> {
    let server = server();
    if server.is_none() {
        println!("SKIP {test}: PostgreSQL 15 is not installed");
    }
    server
}

fn new_database(server: &PostgresServer, options: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let database = format!("hub{}", NEXT.fetch_add(1, Ordering::Relaxed));
    server.execute("postgres", &format!("CREATE DATABASE {database} {options}"));
    server.url(&database)
}

/// Empties a database that a test has used.
const EMPTY: &str = "DO $$
DECLARE tables text;
BEGIN
    SELECT string_agg('dwell_hub.' || child.relname, ', ') INTO tables
    FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid WHERE child.relkind = 'r';
    IF tables IS NOT NULL THEN EXECUTE 'DROP TABLE ' || tables; END IF;
    SELECT string_agg('dwell_hub.' || tablename, ', ') INTO tables
    FROM pg_tables WHERE schemaname = 'dwell_hub' AND tablename <> 'schema_version';
    EXECUTE 'TRUNCATE ' || tables || ' RESTART IDENTITY';
END $$";

/// Databases that no test uses: to create one takes longer than to empty it.
static UNUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A database of a test.
struct Lent(String);

impl Drop for Lent {
    fn drop(&mut self) {
        UNUSED.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

/// A store in a database of its own.
pub(crate) fn store(server: &PostgresServer) -> TestStore {
    let unused = UNUSED.lock().unwrap().pop();
    let url = match unused {
        Some(url) => {
            let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
            client.batch_execute(EMPTY).unwrap();
            url
        }
        None => new_database(server, &format!("TEMPLATE {TEMPLATE}")),
    };
    let lent = Lent(url.clone());
    TestStore::new(move || Box::new(PostgresStore::open(&url, None).unwrap()), lent)
}

#[test]
fn hubs_that_start_at_once_create_one_schema() {
    let Some(server) = server_for("postgres::hubs_that_start_at_once_create_one_schema") else {
        return;
    };
    let url = new_database(server, "");
    let missing = PostgresStore::open_to_read(&url, None).unwrap_err();
    assert!(matches!(missing, HubError::Missing(_)), "{missing:?}");
    let hubs = [(); 4].map(|()| {
        let url = url.clone();
        thread::spawn(move || drop(PostgresStore::open(&url, None).unwrap()))
    });
    hubs.into_iter().for_each(|hub| hub.join().unwrap());
    PostgresStore::open_to_read(&url, None).unwrap();
}

#[test]
fn running_hub_refuses_a_newer_schema() {
    let Some(server) = server_for("postgres::running_hub_refuses_a_newer_schema") else { return };
    let url = new_database(server, &format!("TEMPLATE {TEMPLATE}"));
    let mut hub = PostgresStore::open(&url, None).unwrap();
    hub.begin().unwrap().set_clock(NOW).unwrap();
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    client.batch_execute("UPDATE dwell_hub.schema_version SET version = 99").unwrap();
    let errors = [
        hub.begin().map(|_| ()).unwrap_err(),
        hub.begin_to_read().map(|_| ()).unwrap_err(),
        PostgresStore::open(&url, None).map(|_| ()).unwrap_err(),
        PostgresStore::open_to_read(&url, None).map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, HubError::Newer { found: 99, .. }), "{error:?}");
        assert!(error.to_string().contains("hub schema 99"), "{error}");
    }
}

#[test]
fn batches_in_opposite_order_do_not_wait_for_ever() {
    let Some(server) = server_for("postgres::batches_in_opposite_order_do_not_wait_for_ever")
    else {
        return;
    };
    let test = store(server);
    let nodes: Vec<_> = (0..20).map(|n| name(&format!("n{n}"))).collect();
    let rounds: Vec<Vec<_>> = (0..10)
        .map(|round| {
            let message_of = |node| {
                let mut agent = Agent::new(&format!("{node}"), 1 + round, 1, NOW - HOUR);
                message([&agent.rollup(Level::FiveMinutes, &[1])])
            };
            nodes.iter().map(message_of).collect()
        })
        .collect();
    let hubs = [false, true].map(|is_reversed| {
        let (mut hub, nodes, rounds) = (test.open(), nodes.clone(), rounds.clone());
        thread::spawn(move || {
            for messages in &rounds {
                let mut deliveries: Vec<_> = nodes
                    .iter()
                    .zip(messages)
                    .map(|(node, message)| dwell_hub::Delivery { node, arrival_ns: NOW, message })
                    .collect();
                if is_reversed {
                    deliveries.reverse();
                }
                ingest(&mut *hub, &deliveries, &Rules::default()).unwrap();
            }
        })
    });
    hubs.into_iter().for_each(|hub| hub.join().unwrap());
    let mut store = test.open();
    assert_eq!(rows(&mut *store, Resolution::FiveMinutes).len(), 200);
    let hours = rows(&mut *store, Resolution::Hour);
    assert_eq!((hours.len(), hours[0].counts.sent), (20, 20), "each of ten records of two probes");
}

#[test]
fn expiry_beside_hubs_and_readers_ends() {
    let Some(server) = server_for("postgres::expiry_beside_hubs_and_readers_ends") else { return };
    let test = store(server);
    let writers = ["a", "b"].map(|node| {
        let (mut hub, mut agent) = (test.open(), Agent::new(node, 1, 1, NOW - 4 * DAY));
        thread::spawn(move || {
            for _ in 0..40 {
                let record = agent.rollup(Level::TenSeconds, &[1]);
                agent.wait(3 * HOUR);
                agent.step_clock(-HOUR);
                deliver(&mut *hub, &agent.node, &message([&record])).unwrap();
            }
        })
    });
    let (mut reader, mut expirer) = (test.open(), test.open());
    let reading = thread::spawn(move || {
        for _ in 0..40 {
            state(&mut *reader);
        }
    });
    for hours in 0..40 {
        match expire(&mut *expirer, &Retention::default(), NOW + hours * HOUR) {
            Ok(_) => {}
            // Readers were in the way; a hub tries again later.
            Err(error) => assert!(error.is_temporary(), "{error:?}"),
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    reading.join().unwrap();
}

#[test]
fn full_database_makes_no_record_bad() {
    const TEST: &str = "postgres::full_database_makes_no_record_bad";
    let Some(server) = server_for(TEST) else { return };
    let dir = server.dir().join("small");
    std::fs::create_dir(&dir).unwrap();
    let mount = |options: &str| {
        let options = format!("uid=65534,gid=65534,mode=700,{options}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&dir).status().unwrap().success()
    };
    if !mount("size=16m") {
        println!("SKIP {TEST}: no permission to mount a small file system");
        return;
    }
    let unmount = Unmount(dir.clone());
    server.execute("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", dir.display()));
    let url = new_database(server, &format!("TEMPLATE {TEMPLATE} TABLESPACE small"));
    let mut hub = PostgresStore::open(&url, None).unwrap();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let mut delivered = Vec::new();
    let filler = vec![7; 4 << 20];
    let error = loop {
        let message = agent.messages_of_an_hour();
        delivered.push(message.clone());
        if let Err(error) = deliver(&mut hub, &agent.node, &message) {
            break error;
        }
        // Fills the rest of the disk.
        let _ = std::fs::write(dir.join(format!("filler{}", delivered.len())), &filler);
        assert!(delivered.len() < 1_000);
    };
    assert!(error.is_full() && !error.is_temporary(), "{error:?}");
    for filler in 1..=delivered.len() {
        let _ = std::fs::remove_file(dir.join(format!("filler{filler}")));
    }
    let mut expected = sqlite_store();
    for message in &delivered {
        deliver(&mut hub, &agent.node, message).unwrap();
        deliver(&mut *expected, &agent.node, message).unwrap();
    }
    assert_eq!(state(&mut hub), state(&mut *expected));
    assert_eq!(hub.begin_to_read().unwrap().bad(None, 1).unwrap().len(), 0);
    drop(hub);
    let database = url.split(['/', '?']).nth(3).unwrap();
    server.execute("postgres", &format!("DROP DATABASE {database}"));
    server.execute("postgres", "DROP TABLESPACE small");
    drop(unmount);
}

/// Unmounts a directory when it is dropped.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn records_survive_a_crash_of_the_server() {
    const TEST: &str = "postgres::records_survive_a_crash_of_the_server";
    if server_for(TEST).is_none() {
        return;
    }
    let Some(server) = PostgresServer::start("on") else { return };
    server.execute("postgres", "CREATE DATABASE hub");
    let mut hub = PostgresStore::open(&server.url("hub"), None).unwrap();
    let mut expected = sqlite_store();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let mut next = || agent.messages_of_an_hour();
    let node = name("a");
    let restart = ["restart", "--mode", "immediate"];
    // Between two transactions: the next one connects again without an error.
    let first = next();
    deliver(&mut hub, &node, &first).unwrap();
    server.control(&restart);
    let second = next();
    deliver(&mut hub, &node, &second).unwrap();
    // In a transaction: it fails, and has no effect.
    let mut transaction = hub.begin().unwrap();
    transaction.add_nodes(&[name("z")]).unwrap();
    server.control(&restart);
    let error = transaction.add_nodes(&[name("y")]).unwrap_err();
    assert!(error.is_temporary() && !error.is_full(), "{error:?}");
    let error = transaction.commit().unwrap_err();
    assert!(error.is_temporary() || matches!(error, HubError::Database { .. }), "{error:?}");
    // While it is stopped: every attempt fails, and the records stay good.
    server.control(&["stop", "--mode", "immediate"]);
    let third = next();
    for _ in 0..2 {
        let error = deliver(&mut hub, &node, &third).unwrap_err();
        assert!(matches!(error, HubError::Connect { .. }), "{error:?}");
        assert!(error.to_string().contains("PostgreSQL database hub on "), "{error}");
    }
    server.control(&["start"]);
    // Sent again, as by a node without receipts.
    for message in [&third, &second, &first] {
        deliver(&mut hub, &node, message).unwrap();
    }
    for message in [&first, &second, &third] {
        deliver(&mut *expected, &node, message).unwrap();
    }
    assert_eq!(state(&mut hub), state(&mut *expected));
    assert_eq!(hub.begin_to_read().unwrap().bad(None, 1).unwrap().len(), 0);
}

#[test]
fn statements_have_a_timeout() {
    let Some(server) = server_for("postgres::statements_have_a_timeout") else { return };
    let url = new_database(server, &format!("TEMPLATE {TEMPLATE}"));
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    // Reads the setting in a transaction of the hub.
    let trigger = "CREATE TABLE dwell_hub.seen (timeout text);
        CREATE FUNCTION dwell_hub.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO dwell_hub.seen VALUES (current_setting('statement_timeout'));
            RETURN NEW;
        END $$;
        CREATE TRIGGER note BEFORE INSERT ON dwell_hub.nodes
        FOR EACH ROW EXECUTE FUNCTION dwell_hub.note()";
    client.batch_execute(trigger).unwrap();
    let mut hub = PostgresStore::open(&url, None).unwrap();
    let mut transaction = hub.begin().unwrap();
    transaction.add_nodes(&[name("a")]).unwrap();
    transaction.commit().unwrap();
    let row = client.query_one("SELECT timeout FROM dwell_hub.seen", &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "2min");
}

#[test]
fn clock_of_several_hubs_is_a_minute_old_at_most() {
    let Some(server) = server_for("postgres::clock_of_several_hubs_is_a_minute_old_at_most") else {
        return;
    };
    let mut test = store(server);
    for after_s in [0, 30, 61, 90] {
        accept_clock(&mut *test, NOW + after_s * 1_000_000_000).unwrap();
        let stored = test.begin_to_read().unwrap().clock().unwrap().unwrap();
        assert!((0..60_000_000_000).contains(&(NOW + after_s * 1_000_000_000 - stored)));
    }
}

#[test]
fn tls_trusts_only_the_named_authority() {
    const TEST: &str = "postgres::tls_trusts_only_the_named_authority";
    if server_for(TEST).is_none() {
        return;
    }
    let Some(server) = PostgresServer::start("off") else { return };
    let shell = |script: &str| {
        let mut command = PostgresServer::command("sh", server.dir());
        let output = command.args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    shell(
        "for name in ca other; do
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                -subj /CN=$name -keyout $name.key -out $name.pem
        done
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
            -keyout data/server.key -out server.csr
        echo subjectAltName=DNS:localhost >names
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
            -extfile names -out data/server.crt",
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    server.execute("postgres", "CREATE DATABASE hub");
    for setting in ["ssl = on", "listen_addresses = '127.0.0.1'", &format!("port = {port}")] {
        server.execute("postgres", &format!("ALTER SYSTEM SET {setting}"));
    }
    server.control(&["restart", "--mode", "fast"]);
    let open = |host: &str, authority: &str| {
        let file = server.dir().join(authority);
        let url = format!("postgres://hub@{host}:{port}/hub?sslrootcert={}", file.display());
        PostgresStore::open(&url, None)
    };
    let mut hub = open("localhost", "ca.pem").unwrap();
    hub.begin().unwrap().set_clock(NOW).unwrap();
    for (host, authority) in [("localhost", "other.pem"), ("127.0.0.1", "ca.pem")] {
        let error = open(host, authority).unwrap_err();
        assert!(matches!(error, HubError::Connect { .. }), "{host} {authority}: {error:?}");
    }
}
