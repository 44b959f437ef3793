//! The fleet in `dwell serve`: a real database of a hub, filled by `ingest`.

#[path = "../../../hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the hub")]
mod agent;
mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dwell_server::{AccessConfig, Config, HubSource, bind, serve};
use dwell_store::FleetSamples;
use serde_json::Value;
use tempfile::TempDir;

use crate::data::{fill, fill_mesh, fill_quiet};

/// Number of nodes of the large mesh. Unoptimised code fills a smaller one.
const NODES: usize = if cfg!(debug_assertions) { 30 } else { 100 };

/// Time within which unoptimised code answers with the large mesh.
const PAGE_TIMEOUT: Duration = Duration::from_secs(15);

/// A server in a thread of this process, which goes on until the process ends.
struct Server {
    address: SocketAddr,
    _data: TempDir,
}

/// An answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Server {
    fn start(data: TempDir) -> Self {
        let hub = HubSource::sqlite(data.path().to_owned());
        Self::start_with(data, hub)
    }

    fn start_with(data: TempDir, hub: HubSource) -> Self {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config {
            data: data.path().to_owned(),
            hub,
            program: PathBuf::from("dwell"),
            access: AccessConfig { hosts: Vec::new(), tls: None, require_token: false },
            log: |_| {},
        };
        std::thread::spawn(move || serve(config, listener));
        Self { address, _data: data }
    }

    /// Returns the whole answer.
    fn get_bytes(&self, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // HTTP/1.0 has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn get(&self, path: &str) -> Answer {
        let text = String::from_utf8(self.get_bytes(path)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&text(self, path)).unwrap()
    }
}

fn server() -> Server {
    let data = tempfile::tempdir().unwrap();
    fill(data.path());
    Server::start(data)
}

/// Returns a page that exists.
fn text(server: &Server, path: &str) -> String {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// Returns the text of the cell of a pair in the mesh, with its class before it.
fn cell(page: &str, sender: &str, reflector: &str) -> String {
    let link = format!("href=\"/mesh/{sender}/{reflector}?");
    let (before, after) = page.split_once(&link).unwrap_or_else(|| panic!("no {link}: {page}"));
    let (_, class) = before.rsplit_once("<td class=\"").unwrap();
    let class = class.split('"').next().unwrap();
    let text = after.split_once('>').unwrap().1.split("</a>").next().unwrap();
    format!("{class}: {text}")
}

#[test]
fn mesh_distinguishes_values_and_missing_results() {
    let server = server();
    let html = text(&server, "/mesh?metric=p50");
    assert!(html.contains("p50 of the round trip in ms"), "{html}");
    // 10 of 3,000 probes were lost, 5 of them while the reflector was paused.
    let of_pair = cell(&html, "a", "b");
    assert!(
        of_pair.starts_with('c') && of_pair.contains(": 20<br><small>\u{2715}0.167%"),
        "{of_pair}"
    );
    assert!(cell(&html, "a", "c").starts_with("c0 stale: 4."), "{}", cell(&html, "a", "c"));
    assert!(cell(&html, "a", "c").contains("3 h old"));
    // Pauses of an older time are not read.
    assert!(!cell(&html, "a", "c").contains('\u{2715}'), "{}", cell(&html, "a", "c"));
    assert_eq!(cell(&html, "b", "c"), "missing: \u{2013}");
    assert!(html.contains("1 pair has no current results"), "{html}");
    assert!(html.contains("c</a> <span class=\"about\">paused</span>"), "{html}");
    // One-way delays need the error of both clocks.
    let html = text(&server, "/mesh?metric=p50&delay=one-way&window=24h");
    assert!(
        cell(&html, "a", "b").contains(": \u{2192}8.01 \u{2190}12"),
        "{}",
        cell(&html, "a", "b")
    );
    assert!(cell(&html, "b", "a").contains(": \u{21c4}40"), "{}", cell(&html, "b", "a"));
    assert!(html.contains("\u{b1}150.0us"), "{html}");
    let html = text(&server, "/mesh?metric=loss");
    assert!(cell(&html, "a", "b").contains(": 0.167"), "{}", cell(&html, "a", "b"));
    assert!(cell(&html, "a", "c").starts_with("few stale: ?"), "{}", cell(&html, "a", "c"));
    // Percentiles that the number of delays does not support are no values.
    let html = text(&server, "/mesh?metric=p99");
    assert!(cell(&html, "a", "c").contains("few stale: n 48"), "{}", cell(&html, "a", "c"));
}

#[test]
fn pair_has_bands_gaps_pauses_and_the_same_figures() {
    let server = server();
    let html = text(&server, "/mesh/a/b?range=24h");
    for part in [
        "Round trip from a to b",
        "Round trip from b to a",
        "id=\"figure-smoke-reverse\"",
        "aria-current=\"page\">24 h</a>",
        "<dt>lost in pauses</dt>",
        "mesh (stamp)",
    ] {
        assert!(html.contains(part), "no {part}: {html}");
    }
    let specs: Value = server.json("/mesh/a/b/figures.json?range=24h");
    let [main, strip] = &specs["smoke-forward"]["vconcat"].as_array().unwrap()[..] else {
        panic!("{specs}")
    };
    let rows = main["data"]["values"].as_array().unwrap();
    let breaks = rows.iter().filter(|row| row["p50"].is_null()).count();
    assert_eq!(breaks, 2, "a gap of half an hour, and the end: {rows:?}");
    let domain = strip["encoding"]["y"]["scale"]["domain"].as_array().unwrap();
    assert_eq!(domain.len(), 3, "{domain:?}");
    // The links answer the same question.
    let link = html.split("href=\"/api/v1/query?").nth(1).unwrap().split('"').next().unwrap();
    let link = link.replace("&#38;", "&").replace("&amp;", "&");
    let csv = text(&server, &format!("/api/v1/query?{link}"));
    assert!(csv.starts_with("sender,reflector,measure,protocol,metric,from,to,sent"), "{csv}");
    assert!(csv.lines().count() > 288, "{csv}");
    let json = link.replace("&format=csv", "");
    let object = server.json(&format!("/api/v1/query?{json}"));
    assert_eq!(object["schema"], "dwell.query/1");
    // 2 h of records, without a gap of half an hour.
    let sent = &object["streams"][0]["total"]["packets"]["sent"];
    assert_eq!(*sent, 18 * 300, "{object}");
    // One-way delays without a bound are round trips, and the page says so.
    let html = text(&server, "/mesh/b/a?metric=one_way_forward_ns");
    assert!(html.contains("Shown: the round trip."), "{html}");
    for range in ["1h", "7d", "30d", "90d"] {
        text(&server, &format!("/mesh/a/b?range={range}&metric=one_way_forward_ns"));
    }
}

#[test]
fn pair_leads_to_its_samples() {
    let data = tempfile::tempdir().unwrap();
    fill(data.path());
    let now_ns = jiff::Timestamp::now().as_nanosecond() as i64;
    let about = |reflector: &str, first_sequence: u64| FleetSamples {
        sender: "a".to_owned(),
        reflector: reflector.to_owned(),
        protocol: "stamp".to_owned(),
        entry: "mesh+x".to_owned(),
        incarnation: "0000000000000001".to_owned(),
        first_sequence,
        sequences: first_sequence.to_string(),
        from_ns: now_ns - 60_000_000_000,
        to_ns: now_ns - 1_000_000_000,
        samples: 0,
    };
    let path = about("b", 7).store(data.path(), &[]).unwrap();
    about("c", 8).store(data.path(), &[]).unwrap();
    let bytes = fs::read(&path).unwrap();
    let server = Server::start(data);
    let html = text(&server, "/mesh/a/b");
    let link = "/mesh/a/b/samples/a-0000000000000001-7.parquet";
    assert!(html.contains(&format!("href=\"{link}\"")), "{html}");
    assert!(!html.contains("-8.parquet"), "{html}");
    assert!(html.contains("dwell hub samples request a:b --from "), "{html}");
    let file = server.get_bytes(link);
    assert!(file.ends_with(&bytes), "{} of {} bytes", file.len(), bytes.len());
    for missing in ["a-0000000000000001-8.parquet", "..%2fhub.sqlite", "x"] {
        let answer = server.get(&format!("/mesh/a/b/samples/{missing}"));
        assert_eq!(answer.status, 404, "{missing}");
    }
}

#[test]
fn node_pages_say_what_is_wrong() {
    let server = server();
    let html = text(&server, "/nodes");
    for part in
        ["3 nodes", "paused, heard", "within 50.00us of UTC", "not synchronised", "1 bad records"]
    {
        assert!(html.contains(part), "no {part}: {html}");
    }
    let html = text(&server, "/nodes/c");
    for part in [
        "entry mesh+x is refused: packets: 9pps",
        "entry mesh+y fails: no route",
        "its spool has dropped 7 records of samples",
        "1.0MB of 64.0MB",
        "<h2 id=\"bad\">Bad records</h2>",
        "an &#60;experiment&#62;",
        "<dt>agent</dt><dd>0.2.0+test</dd>",
    ] {
        assert!(html.contains(part), "no {part}: {html}");
    }
}

#[test]
fn alerts_page_lists_firing_pending_and_problems() {
    let server = server();
    let html = text(&server, "/alerts");
    let firing = html.find("<h2 id=\"firing\">Firing</h2>").expect("firing alerts");
    let pending = html.find("<h2 id=\"pending\">Pending</h2>").expect("pending alerts");
    let events = html.find("<h2 id=\"events\">Last events</h2>").expect("events");
    assert!(firing < pending && pending < events);
    for part in [
        "2 firing, 2 pending",
        "by u@h, process 1.",
        "<a href=\"/mesh/a/b\">a:b mesh</a></th><td>slow</td>",
        "(n = 1",
        "b until ",
        ": a &#60;new&#62; switch",
        "alert &#39;tail&#39;: p99_9 over 5min needs at least 1000 probes",
        "samples: not requested: no hub collects from a over SSH",
        "<th scope=\"row\">ops webhook</th>",
        "not sent yet",
    ] {
        assert!(html.contains(part), "no {part}: {html}");
    }
    assert!(!html.contains("no hub evaluates"), "{html}");
}

#[test]
fn alerts_page_says_that_no_hub_evaluates() {
    let data = tempfile::tempdir().unwrap();
    fill_quiet(data.path());
    let server = Server::start(data);
    let html = text(&server, "/alerts");
    assert!(html.contains("no alert rules are applied"), "{html}");
    assert!(html.contains("dwell hub alerts apply alerts.toml"), "{html}");
    let data = tempfile::tempdir().unwrap();
    fill(data.path());
    let dir = data.path().to_owned();
    let mut store = dwell_hub::SqliteStore::open(&dir).unwrap();
    let mut transaction = dwell_hub::store::HubStore::begin(&mut store).unwrap();
    let kind = dwell_hub::store::TextKind::AlertLease;
    let lease = transaction.texts(kind).unwrap().remove("lease").unwrap();
    let mut lease: Value = serde_json::from_str(&lease).unwrap();
    lease["evaluated_ns"] = (lease["evaluated_ns"].as_i64().unwrap() - 180_000_000_000).into();
    transaction.set_text(kind, "lease", Some(&lease.to_string())).unwrap();
    transaction.commit().unwrap();
    let html = text(&Server::start(data), "/alerts");
    assert!(html.contains("no hub evaluates the rules now"), "{html}");
}

#[test]
fn slow_hub_does_not_hide_other_metrics() {
    let data = tempfile::tempdir().unwrap();
    let hub = HubSource::new(|| {
        std::thread::sleep(Duration::from_secs(6));
        Err(dwell_hub::HubError::Missing("hub".to_owned()))
    });
    let server = Server::start_with(data, hub);
    let start = Instant::now();
    let metrics = text(&server, "/metrics");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(metrics.contains("dwell_hub_readable 0\n"), "{metrics}");
}

#[test]
fn hostile_addresses_of_a_fleet_are_refused() {
    let server = server();
    for (path, status) in [
        ("/mesh/%3Cscript%3E/b", 404),
        ("/mesh/a/..%2f..%2fetc", 404),
        ("/mesh/a/none", 404),
        ("/mesh/none/b/figures.json", 422),
        ("/nodes/%3Cscript%3E", 404),
        ("/nodes/unknown", 404),
        ("/mesh?window=%3Cscript%3E", 422),
        ("/mesh?metric=%3Cscript%3E", 422),
        ("/mesh/a/b?range=%3Cscript%3E", 422),
        ("/mesh/a/b?of=%3Cscript%3E/%3Cscript%3E", 404),
        ("/mesh?of=%3Cscript%3E/x", 200),
        ("/api/v1/query?sender=%3Cscript%3E&reflector=b", 422),
        ("/api/v1/query?sender=a&reflector=b&step=1ns", 422),
        ("/api/v1/query?sender=a&reflector=b&from=2026", 422),
        ("/api/v1/query?sender=a", 400),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let is_json = answer.head.contains("application/json");
        assert!(is_json || !answer.body.contains("<script>"), "{path}: {}", answer.body);
    }
}

#[test]
fn pages_without_a_hub_say_how_to_start_one() {
    let server = Server::start(tempfile::tempdir().unwrap());
    for path in ["/mesh", "/nodes", "/alerts"] {
        assert!(text(&server, path).contains("dwell hub --embedded"), "{path}");
    }
    assert_eq!(server.get("/mesh/a/b").status, 404);
    assert_eq!(server.get("/api/v1/query?sender=a&reflector=b").status, 404);
    assert!(!text(&server, "/metrics").contains("dwell_node"));
}

/// Names of metrics in a text.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c)).filter(|word| word.starts_with("dwell_")).collect()
}

#[test]
fn metrics_are_per_node_and_the_dashboard_knows_them() {
    let server = server();
    let metrics = text(&server, "/metrics");
    for sample in [
        "dwell_hub_readable 1",
        "dwell_node_spool_bytes{node=\"c\"} 1000000",
        "dwell_node_clock_bound_seconds{node=\"b\"} 0.00005",
        "dwell_node_paused{node=\"c\"} 1",
        "dwell_node_records_total{node=\"c\",kind=\"bad\"} 1",
        "dwell_node_dropped_records_total{node=\"c\",level=\"samples\"} 7",
        "dwell_node_last_arrival_age_seconds{node=\"a\"}",
        "dwell_node_coverage_ratio{node=\"a\"}",
    ] {
        assert!(metrics.contains(sample), "no {sample}: {metrics}");
    }
    assert!(!metrics.contains("reflector"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/dwell-fleet.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let known = metric_names(&metrics);
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let used = metric_names(expression);
            assert!(!used.is_empty() && used.is_subset(&known), "{expression}");
            expressions += 1;
        }
    }
    assert!(expressions >= 10, "{expressions}");
    let variable = dashboard["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    assert!(metric_names(variable).is_subset(&known), "{variable}");
}

/// Returns the coverage of a node in `/metrics`.
fn coverage(metrics: &str, node: &str) -> f64 {
    let sample = format!("dwell_node_coverage_ratio{{node=\"{node}\"}} ");
    let (_, value) =
        metrics.split_once(&sample).unwrap_or_else(|| panic!("no {sample}: {metrics}"));
    value.lines().next().unwrap().parse().unwrap()
}

#[test]
fn streams_without_results_are_not_covered() {
    let server = server();
    let metrics = text(&server, "/metrics");
    // Two of twelve intervals to `b` are missing, and those to `c` ended hours ago.
    let of_a = coverage(&metrics, "a");
    assert!((of_a - 10.0 / 24.0).abs() < 0.01, "{of_a}");
    // Nothing of the stream to `c` arrived.
    let of_b = coverage(&metrics, "b");
    assert!((of_b - 0.5).abs() < 0.01, "{of_b}");
    assert!(!metrics.contains("dwell_node_coverage_ratio{node=\"c\"}"), "it sends no probes");
}

#[test]
fn time_without_due_probes_is_no_gap() {
    let data = tempfile::tempdir().unwrap();
    fill_quiet(data.path());
    let server = Server::start(data);
    let specs: Value = server.json("/mesh/a/b/figures.json?range=24h");
    let strip = &specs["smoke-forward"]["vconcat"][1];
    let domain = strip["encoding"]["y"]["scale"]["domain"].to_string();
    assert!(!domain.contains("no records"), "{domain}");
    assert!(domain.contains("lost"), "{domain}");
}

#[test]
fn pair_of_a_paused_reflector_is_paused() {
    let data = tempfile::tempdir().unwrap();
    fill_quiet(data.path());
    let server = Server::start(data);
    for metric in ["p50", "loss"] {
        let html = text(&server, &format!("/mesh?metric={metric}"));
        let of_pair = cell(&html, "a", "c");
        assert!(of_pair.ends_with(": paused"), "{metric}: {of_pair}");
    }
}

#[test]
fn large_mesh_is_one_page() {
    let data = tempfile::tempdir().unwrap();
    fill_mesh(data.path(), NODES);
    let server = Server::start(data);
    let mut times = BTreeMap::new();
    for path in ["/mesh", "/mesh?window=24h&delay=one-way&metric=p99", "/nodes", "/metrics"] {
        let start = Instant::now();
        let html = text(&server, path);
        let took = start.elapsed();
        println!("{path}: {took:?}, {} bytes", html.len());
        times.insert(path, took);
        if path.starts_with("/mesh") {
            assert_eq!(html.matches("href=\"/mesh/node-").count(), NODES * (NODES - 1));
        }
    }
    assert!(times.values().all(|took| *took < PAGE_TIMEOUT), "{times:?}");
}
