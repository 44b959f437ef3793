//! What each rule watches: the streams and nodes of the newest schedule that it selects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dwell_rollup::{Name, NodeSchedule, Stream};
use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::condition::{Condition, Quantity, Span, Statistic};
use super::error::AlertError;
use super::file::{AlertRules, Rule};
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::query::measure;
use crate::schedule::{NodeNames, Schedule, Selection, Window};
use crate::spans::{join, length};
use crate::store::HubTransaction;

/// A stream of the newest schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduledStream {
    /// The node that sends the probes.
    pub sender: Name,
    /// Reflector, protocol and schedule entry.
    pub stream: Stream,
    /// Time between probes in nanoseconds.
    pub interval_ns: i64,
    /// Daily windows; none: always.
    pub windows: Vec<Window>,
}

impl ScheduledStream {
    /// Returns the longest part of a time of this length in which probes are due, at the time of day with
    /// most of them, in nanoseconds.
    pub(super) fn active_ns(&self, length_ns: i64) -> i64 {
        if self.windows.is_empty() {
            return length_ns;
        }
        // The part is longest where the time begins or ends with a window. It looks back at most a day.
        let windows = self.windows.iter();
        let starts = windows.flat_map(|window| {
            let start_ns = DAY_NS + i64::from(window.start_s) * SECOND_NS;
            let end_ns = start_ns + i64::from(window.seconds()) * SECOND_NS;
            [start_ns, end_ns.saturating_sub(length_ns)]
        });
        let active = starts.map(|from_ns| {
            let to_ns = from_ns.saturating_add(length_ns);
            let spans = self.windows.iter().flat_map(|window| window.spans(from_ns, to_ns));
            length(&join(spans.collect()))
        });
        active.max().unwrap_or(0)
    }

    /// The subject of alerts about it.
    pub fn subject(&self) -> Subject {
        Subject::Pair {
            sender: self.sender.clone(),
            reflector: self.stream.reflector.clone(),
            measure: measure(&self.stream.entry),
        }
    }
}

/// Returns the key of an alert in a database.
pub fn alert_key(rule: &str, subject: &Subject) -> String {
    let kind = match subject {
        Subject::Pair { .. } => "pair ",
        Subject::Node(_) | Subject::Site(_) => "",
    };
    format!("{rule} {kind}{subject}")
}

/// What an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A stream between two nodes.
    Pair {
        /// The node that sends the probes.
        sender: Name,
        /// The node that reflects them.
        reflector: Name,
        /// Name of the measurement in the schedule.
        measure: String,
    },
    /// A single node.
    Node(Name),
    /// The nodes of a site.
    Site(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { sender, reflector, measure } => {
                write!(f, "{sender}:{reflector} {measure}")
            }
            Self::Node(node) => write!(f, "node {node}"),
            Self::Site(site) => write!(f, "site {site}"),
        }
    }
}

/// Nodes that are reported together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The subject of alerts about it.
    pub subject: Subject,
    /// Its nodes that a rule watches.
    pub nodes: BTreeSet<Name>,
}

/// What a rule watches.
#[derive(Clone, Debug, PartialEq)]
pub enum Subjects {
    /// Streams.
    Streams(Vec<ScheduledStream>),
    /// Sites.
    Sites(Vec<Site>),
}

/// A rule with what it watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The rule.
    pub rule: Rule,
    /// What it watches. Alerts about anything else have ended; `None` if names of the rule are unknown,
    /// so that nothing is evaluated.
    pub subjects: Option<Subjects>,
    /// Streams that it selects and that do not send enough probes. Alerts about them stay as they are.
    pub unsupported: Vec<Subject>,
    /// What prevents the evaluation of the rule, or of a part of it.
    pub problems: Vec<AlertError>,
}

impl Watch {
    /// Returns the keys of all alerts that the rule may have.
    pub(super) fn keys(&self) -> Vec<String> {
        let key = |subject: &Subject| alert_key(&self.rule.name, subject);
        let mut keys: Vec<String> = self.unsupported.iter().map(key).collect();
        keys.extend(match &self.subjects {
            None => Vec::new(),
            Some(Subjects::Streams(streams)) => {
                streams.iter().map(|stream| key(&stream.subject())).collect()
            }
            Some(Subjects::Sites(sites)) => sites.iter().map(|site| key(&site.subject)).collect(),
        });
        keys
    }
}

/// The nodes and streams of the newest schedule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// Version of the schedule; `None` if none was applied.
    pub version: Option<u64>,
    /// Time at which it was applied, in nanoseconds since 1970.
    pub applied_ns: Option<i64>,
    groups: BTreeMap<String, Vec<String>>,
    nodes: BTreeSet<Name>,
    streams: Vec<ScheduledStream>,
}

impl Fleet {
    /// Reads the newest schedule.
    ///
    /// # Errors
    /// The database failed.
    pub fn read(transaction: &mut dyn HubTransaction) -> Result<Self, HubError> {
        let Some(version) = transaction.newest_version()? else { return Ok(Self::default()) };
        let applied = transaction.schedules()?.into_iter().find(|it| it.version == version);
        let applied_ns = applied.as_ref().map(|applied| applied.applied_ns);
        let text = applied.map(|applied| applied.text).unwrap_or_default();
        let schedule =
            Schedule::parse(&text).map_err(|error| HubError::stored("schedule", error))?;
        let mut nodes: BTreeSet<Name> = BTreeSet::new();
        let members = schedule.groups.values().flatten();
        let named = schedule.nodes.keys().chain(members).filter_map(|name| name.parse().ok());
        nodes.extend(named);
        let mut streams = Vec::new();
        for (node, json) in transaction.node_schedules(version, None)? {
            let part = NodeSchedule::from_json(json.as_bytes())
                .map_err(|error| HubError::stored("schedule", error))?;
            for entry in part.entries {
                let protocol =
                    entry.scheme().parse().map_err(|error| HubError::stored("schedule", error))?;
                nodes.insert(node.clone());
                nodes.insert(entry.reflector.clone());
                let windows = entry.windows.iter().map(|window| window.to_string().parse());
                streams.push(ScheduledStream {
                    sender: node.clone(),
                    interval_ns: entry.interval.0.max(1),
                    windows: windows
                        .collect::<Result<_, _>>()
                        .map_err(|error: String| HubError::stored("window", error))?,
                    stream: Stream { reflector: entry.reflector, protocol, entry: entry.name },
                });
            }
        }
        streams.sort_unstable();
        Ok(Self { version: Some(version), applied_ns, groups: schedule.groups, nodes, streams })
    }

    /// Returns what rules watch. Problems of a rule do not affect the others.
    pub fn watches(&self, rules: &AlertRules) -> Vec<Watch> {
        let watch = |rule: &Rule| {
            let (mut problems, mut unsupported) = (Vec::new(), Vec::new());
            let subjects = match rule.when {
                Condition::Above { quantity, span, .. } => self.streams(rule).map(|mut streams| {
                    if streams.is_empty() {
                        problems.push(self.without_streams(rule));
                    }
                    let spans = [span, rule.clear_span(span)];
                    let check = |stream: &ScheduledStream| {
                        spans.iter().try_for_each(|span| support(rule, quantity, *span, stream))
                    };
                    streams.retain(|stream| match check(stream) {
                        Ok(()) => true,
                        Err(problem) => {
                            problems.push(problem);
                            unsupported.push(stream.subject());
                            false
                        }
                    });
                    Subjects::Streams(streams)
                }),
                Condition::Silent(_) => self.sites(rules, rule).map(Subjects::Sites),
            };
            let subjects = subjects.map_err(|problem| problems.push(problem)).ok();
            Watch { rule: rule.clone(), subjects, unsupported, problems }
        };
        rules.alert.iter().map(watch).collect()
    }

    fn names(&self) -> NodeNames<'_> {
        NodeNames { groups: &self.groups, nodes: &self.nodes }
    }

    fn streams(&self, rule: &Rule) -> Result<Vec<ScheduledStream>, AlertError> {
        let Rule { mesh, star, pairs, .. } = rule;
        let is_selective = mesh.is_some() || star.is_some() || !pairs.is_empty();
        let selected = if is_selective {
            let selection = Selection { mesh: mesh.as_ref(), star: star.as_ref(), pairs };
            Some(self.names().pairs(selection).map_err(|message| rule.error(message))?)
        } else {
            None
        };
        let is_watched = |stream: &&ScheduledStream| {
            let pair = (stream.sender.clone(), stream.stream.reflector.clone());
            let name = measure(&stream.stream.entry);
            selected.as_ref().is_none_or(|pairs| pairs.contains(&pair))
                && rule.measure.as_ref().is_none_or(|measure| *measure == name)
        };
        Ok(self.streams.iter().filter(is_watched).cloned().collect())
    }

    /// The problem of a rule that selects no stream.
    fn without_streams(&self, rule: &Rule) -> AlertError {
        rule.error(match self.version {
            None => "no schedule is applied, so it selects no stream; apply one with `dwell hub \
                     schedule apply FILE`"
                .to_owned(),
            Some(version) => format!(
                "it selects no stream of schedule version {version}; select pairs that a measurement \
                 has"
            ),
        })
    }

    fn sites(&self, rules: &AlertRules, rule: &Rule) -> Result<Vec<Site>, AlertError> {
        let names = self.names();
        let all = ["all".to_owned()];
        let selected = rule.nodes.as_ref().map_or(&all[..], |nodes| nodes.as_slice());
        let watched = names.members(selected).map_err(|message| rule.error(message))?;
        if watched.is_empty() {
            return Err(rule.error("it selects no node of a schedule; apply a schedule"));
        }
        let mut members: BTreeMap<&String, BTreeSet<Name>> = BTreeMap::new();
        for (site, of) in &rules.sites {
            let of = names.members(of.as_slice());
            let error = |message| AlertError::value(format!("sites.{site}"), message);
            members.insert(site, of.map_err(error)?);
        }
        if rules.sites.is_empty() {
            for (group, of) in &self.groups {
                let of = of.iter().filter_map(|name| name.parse().ok()).collect();
                members.insert(group, of);
            }
        }
        let mut sites: BTreeMap<Subject, BTreeSet<Name>> = BTreeMap::new();
        for node in watched {
            let mut of = members.iter().filter(|(_, nodes)| nodes.contains(&node));
            let subject = match (of.next(), of.next()) {
                // Groups may overlap: they name a place only if they do not.
                (Some((site, _)), None) => Subject::Site((*site).clone()),
                (Some((site, _)), Some((other, _))) if !rules.sites.is_empty() => {
                    let message =
                        format!("node {node} is also in site {other}; remove it from one");
                    return Err(AlertError::value(format!("sites.{site}"), message));
                }
                _ => Subject::Node(node.clone()),
            };
            sites.entry(subject).or_default().insert(node);
        }
        Ok(sites.into_iter().map(|(subject, nodes)| Site { subject, nodes }).collect())
    }
}

/// Checks that a stream sends enough probes for a percentile.
fn support(
    rule: &Rule,
    quantity: Quantity,
    span: Span,
    stream: &ScheduledStream,
) -> Result<(), AlertError> {
    let Quantity::Delay(_, Statistic::Percentile(name, quantile)) = quantity else { return Ok(()) };
    let active_ns = stream.active_ns(span.ns());
    let sent = active_ns / stream.interval_ns;
    if quantile.rank(sent.unsigned_abs()).is_some() {
        return Ok(());
    }
    let needed = (1.0 / (1.0 - quantile.share())).round() as i64;
    let row = span.resolution().length_ns();
    let longer = needed.saturating_mul(stream.interval_ns).saturating_add(row - 1) / row * row;
    // A daily window may end before.
    let is_possible =
        stream.windows.is_empty() || longer <= DAY_NS && stream.active_ns(longer) == longer;
    let longer = is_possible.then(|| format!("a time of at least {}, or ", Nanos(longer)));
    let subject = stream.subject();
    Err(rule.error(format!(
        "{name} over {} needs at least {needed} probes, but {subject} sends {sent} (one per {}{}); use \
         {}an interval of at most {}",
        Nanos(span.ns()),
        Nanos(stream.interval_ns),
        if stream.windows.is_empty() { "" } else { " in its daily windows" },
        longer.unwrap_or_default(),
        rounded(Nanos(active_ns / needed)),
    )))
}

/// Rounds an interval down to what can be written in a schedule.
fn rounded(interval: Nanos) -> Nanos {
    let unit = if interval.0 >= SECOND_NS { SECOND_NS / 10 } else { SECOND_NS / 1_000 };
    Nanos(interval.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn fleet() -> Fleet {
        let stream = |sender: &str, reflector: &str, seconds: i64| ScheduledStream {
            sender: name(sender),
            stream: Stream {
                reflector: name(reflector),
                protocol: name("stamp"),
                entry: name(&format!("mesh+{reflector}")),
            },
            interval_ns: seconds * SECOND_NS,
            windows: Vec::new(),
        };
        let groups = [("core", vec!["a", "b"]), ("edge", vec!["b", "c"])];
        let groups = groups.map(|(name, of)| {
            (name.to_owned(), of.into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        Fleet {
            version: Some(3),
            applied_ns: None,
            groups: groups.into(),
            nodes: ["a", "b", "c"].map(name).into(),
            streams: vec![stream("a", "b", 1), stream("b", "a", 1), stream("b", "c", 10)],
        }
    }

    fn watch(text: &str) -> Watch {
        let rules = format!("version = 1\n[[alert]]\nname = \"x\"\n{text}");
        fleet().watches(&AlertRules::parse(&rules).unwrap()).remove(0)
    }

    fn subjects(text: &str) -> Vec<String> {
        match watch(text).subjects.unwrap() {
            Subjects::Streams(streams) => {
                streams.iter().map(|stream| stream.subject().to_string()).collect()
            }
            Subjects::Sites(sites) => sites
                .iter()
                .map(|site| {
                    format!(
                        "{}: {}",
                        site.subject,
                        site.nodes.iter().map(Name::as_str).collect::<Vec<_>>().join(",")
                    )
                })
                .collect(),
        }
    }

    #[test]
    fn rule_selects_streams_as_a_schedule_does() {
        let loss = "when = \"loss > 1% for 5m\"\n";
        assert_eq!(subjects(loss), ["a:b mesh", "b:a mesh", "b:c mesh"]);
        assert_eq!(subjects(&format!("{loss}mesh = \"core\"")), ["a:b mesh", "b:a mesh"]);
        assert_eq!(subjects(&format!("{loss}pairs = [\"b:c\"]")), ["b:c mesh"]);
        let star = format!("{loss}star = {{ from = \"edge\", to = \"a\" }}");
        assert_eq!(subjects(&star), ["b:a mesh"]);
        for (lines, reason) in [
            ("pairs = [\"a:c\"]", "no stream of schedule version 3"),
            ("measure = \"other\"", "no stream of schedule version 3"),
            ("mesh = \"x\"", "'x' is no node and no group"),
        ] {
            let is_known = !reason.contains("no node");
            let watch = watch(&format!("{loss}{lines}"));
            let problem = watch.problems[0].to_string();
            assert!(problem.contains(reason), "{problem}");
            assert_eq!(watch.subjects, is_known.then(|| Subjects::Streams(Vec::new())));
        }
    }

    #[test]
    fn unsupported_percentile_is_refused_with_the_remedy() {
        let slow = watch("when = \"p99 > 20ms for 5m\"\n");
        assert_eq!(
            slow.subjects.as_ref().map(|it| matches!(it, Subjects::Streams(of) if of.len() == 2)),
            Some(true)
        );
        assert_eq!(
            slow.problems[0].to_string(),
            "alert 'x': p99 over 5min needs at least 100 probes, but b:c mesh sends 30 (one per 10s); \
             use a time of at least 1000s, or an interval of at most 3s"
        );
        assert_eq!(watch("when = \"p99 > 20ms for 20m\"\n").problems, []);
        assert_eq!(watch("when = \"p95 > 20ms for 5m\"\n").problems, []);
    }

    #[test]
    fn unsupported_percentile_to_clear_is_refused() {
        let slow = "when = \"p99 > 20ms for 20m\"\npairs = [\"a:b\"]\n";
        let clear = |span: &str| watch(&format!("{slow}clear = \"p99 < 15ms for {span}\"\n"));
        assert_eq!(clear("2m").problems, []);
        let short = clear("30s");
        assert_eq!(short.subjects, Some(Subjects::Streams(Vec::new())));
        assert_eq!(short.keys(), ["x pair a:b mesh"], "its alerts stay");
        assert_eq!(
            short.problems[0].to_string(),
            "alert 'x': p99 over 30s needs at least 100 probes, but a:b mesh sends 30 (one per 1s); \
             use a time of at least 100s, or an interval of at most 300ms"
        );
    }

    #[test]
    fn daily_windows_limit_the_probes_of_a_percentile() {
        let mut fleet = fleet();
        let windows = ["08:00-08:10", "08:05-08:12", "22:00-22:01"];
        fleet.streams[2].windows = windows.map(|window| window.parse().unwrap()).into();
        let active =
            |minutes: i64| fleet.streams[2].active_ns(minutes * 60 * SECOND_NS) / (60 * SECOND_NS);
        assert_eq!([5, 12, 30, 840, 1_440].map(active), [5, 12, 12, 13, 13]);
        assert_eq!(fleet.streams[0].active_ns(5), 5);
        // Across midnight.
        fleet.streams[1].windows = vec!["23:00-02:00".parse().unwrap()];
        assert_eq!(fleet.streams[1].active_ns(DAY_NS), 3 * 3_600 * SECOND_NS);
        let rules = "version = 1\n[[alert]]\nname = \"x\"\nwhen = \"p99 > 20ms for 20m\"\n\
                     pairs = [\"b:c\"]\n";
        let watch = fleet.watches(&AlertRules::parse(rules).unwrap()).remove(0);
        assert_eq!(
            watch.problems[0].to_string(),
            "alert 'x': p99 over 20min needs at least 100 probes, but b:c mesh sends 72 (one per 10s in \
             its daily windows); use an interval of at most 7.2s"
        );
    }

    #[test]
    fn nodes_are_reported_by_site() {
        let silent = "when = \"silent for 15m\"\n";
        // Node b is in both groups.
        assert_eq!(subjects(silent), ["node b: b", "site core: a", "site edge: c"]);
        let sites = format!("{silent}nodes = [\"a\", \"c\"]\n[sites]\nhall = [\"core\", \"c\"]\n");
        assert_eq!(subjects(&sites), ["site hall: a,c"]);
        let twice = watch(&format!("{silent}[sites]\nx = \"a\"\ny = \"core\"\n"));
        let problem = twice.problems[0].to_string();
        assert_eq!(problem, "sites.x: node a is also in site y; remove it from one");
    }
}
