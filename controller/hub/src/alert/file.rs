//! The TOML file of alert rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use dwell_units::Nanos;
use serde::Deserialize;

use super::condition::{Clear, Condition, Span};
use super::error::AlertError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::schedule::{Names, Star, is_name};

/// Version of the file format.
const VERSION: u32 = 1;

/// Maximum length of the rules in bytes.
const MAX_LEN: usize = 1 << 20;

/// Maximum number of rules.
const MAX_RULES: usize = 1_000;

/// Part of the limit below which an alert clears, unless the rule has `clear`.
const CLEAR_MARGIN: f64 = 0.8;

/// Longest time for which nodes must be heard until a silent alert clears, unless the rule has `clear`.
const DEFAULT_HEARD_NS: i64 = 300 * SECOND_NS;

/// Alert rules as they were written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertRules {
    version: u32,
    /// Time in which records of an interval arrive.
    #[serde(default = "default_delay")]
    pub delay: Nanos,
    /// Time between two messages that the same alert fires.
    #[serde(default = "default_notify_interval")]
    pub notify_interval: Nanos,
    /// Time after which a message is repeated while an alert fires.
    #[serde(default = "default_reminder")]
    pub reminder: Nanos,
    /// Nodes and groups of a site, by its name.
    #[serde(default)]
    pub sites: BTreeMap<String, Names>,
    /// The rules.
    #[serde(default)]
    pub alert: Vec<Rule>,
    /// Receivers of messages, by name.
    #[serde(default)]
    pub notify: BTreeMap<String, Receiver>,
    /// The mail server.
    #[serde(default)]
    pub smtp: Option<Smtp>,
}

const fn default_delay() -> Nanos {
    Nanos::from_secs(60)
}

const fn default_notify_interval() -> Nanos {
    Nanos::from_secs(900)
}

const fn default_reminder() -> Nanos {
    Nanos(DAY_NS)
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name, unique in the file.
    pub name: String,
    /// Condition under which it fires.
    pub when: Condition,
    /// Condition under which it clears.
    #[serde(default)]
    clear: Option<Clear>,
    /// Full mesh: every ordered pair of these nodes.
    #[serde(default)]
    pub mesh: Option<Names>,
    /// Every node of one set to every node of another.
    #[serde(default)]
    pub star: Option<Star>,
    /// Single pairs, as `SENDER:REFLECTOR`.
    #[serde(default)]
    pub pairs: Vec<String>,
    /// Nodes of a condition about silence.
    #[serde(default)]
    pub nodes: Option<Names>,
    /// Only streams of this measurement of the schedule.
    #[serde(default)]
    pub measure: Option<String>,
    /// Names of receivers.
    #[serde(default)]
    pub notify: Vec<String>,
    /// Whether the samples of a stream are requested when it fires.
    #[serde(default)]
    pub samples: bool,
}

/// A receiver of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Receiver {
    /// URL that receives a `dwell.alert/1` object by POST.
    pub webhook: Option<String>,
    /// Addresses that receive an e-mail.
    pub email: Vec<String>,
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smtp {
    /// Name or address.
    pub host: String,
    /// Port; without one, that of `security`.
    #[serde(default)]
    pub port: Option<u16>,
    /// Address of the sender.
    pub from: String,
    /// User name.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password, on the machine of the hub.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Encryption of the connection.
    #[serde(default)]
    pub security: Security,
}

/// Encryption of the connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// TLS after the STARTTLS command, which is required.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// No encryption, only on the machine itself.
    None,
}

impl Smtp {
    /// The port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.security {
            Security::StartTls => 587,
            Security::Tls => 465,
            Security::None => 25,
        })
    }

    fn check(&self) -> Result<(), String> {
        let address = self.host.parse::<IpAddr>();
        let is_local = self.host == "localhost" || address.is_ok_and(|it| it.is_loopback());
        if self.security == Security::None && !is_local {
            return Err(
                "security = \"none\" is only for localhost; use \"starttls\" or \"tls\"".into()
            );
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err("give user and password_file, or none of them".into());
        }
        if self.port == Some(0) {
            return Err("port must be 1 to 65535".into());
        }
        check_address(&self.from)
    }
}

fn check_address(address: &str) -> Result<(), String> {
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@')
    };
    match address.split_once('@') {
        Some((user, host)) if is_plain(user) && is_plain(host) => Ok(()),
        _ => Err(format!("'{address}' is no e-mail address; write it like ops@example.org")),
    }
}

impl Receiver {
    fn check(&self) -> Result<(), String> {
        if self.webhook.is_none() && self.email.is_empty() {
            return Err("give webhook or email".into());
        }
        if let Some(url) = &self.webhook {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
            if !is_url || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "'{url}' is no URL of a webhook; write it like https://example.org/hook"
                ));
            }
        }
        self.email.iter().try_for_each(|address| check_address(address))
    }
}

impl Rule {
    pub(super) fn error(&self, message: impl Into<String>) -> AlertError {
        AlertError::value(format!("alert '{}'", self.name), message)
    }

    /// The condition under which it clears: that of the file, or four fifths of the limit.
    pub fn clear(&self) -> Clear {
        match (self.clear, self.when) {
            (Some(clear), _) => clear,
            (None, Condition::Above { quantity, limit, .. }) => {
                Clear::Below { quantity, limit: limit * CLEAR_MARGIN, span: None }
            }
            (None, Condition::Silent(ns)) => Clear::Heard(ns.min(DEFAULT_HEARD_NS)),
        }
    }

    /// The time of the condition under which it clears. `when` is that of the condition under which it
    /// fires.
    pub(super) fn clear_span(&self, when: Span) -> Span {
        match self.clear() {
            Clear::Below { span: Some(other), .. } => other,
            _ => when,
        }
    }

    fn check(&self) -> Result<(), String> {
        match (self.when, self.clear) {
            (
                Condition::Above { quantity, limit, .. },
                Some(Clear::Below { quantity: of, limit: below, .. }),
            ) => {
                if quantity != of {
                    return Err(format!(
                        "clear is about {}, when about {}; use the same",
                        of.name(),
                        quantity.name()
                    ));
                }
                if below > limit {
                    return Err(
                        "the limit of clear is above that of when; the alert would fire again \
                                at once"
                            .into(),
                    );
                }
            }
            (Condition::Above { .. }, Some(Clear::Heard(_))) => {
                return Err("'heard' clears a condition about silence only".into());
            }
            (Condition::Silent(_), Some(Clear::Below { .. })) => {
                return Err("a condition about silence clears with \"heard for 5m\"".into());
            }
            (_, None) | (Condition::Silent(_), Some(Clear::Heard(_))) => {}
        }
        let shapes = [self.mesh.is_some(), self.star.is_some(), !self.pairs.is_empty()];
        let shapes = shapes.into_iter().filter(|shape| *shape).count();
        let is_silent = matches!(self.when, Condition::Silent(_));
        if is_silent && (shapes > 0 || self.measure.is_some()) {
            return Err("a condition about silence selects nodes, not pairs; use nodes".into());
        }
        if is_silent && self.samples {
            return Err("samples is for conditions about delays and loss; remove it".into());
        }
        if !is_silent && self.nodes.is_some() {
            return Err("nodes is for conditions about silence; use mesh, star or pairs".into());
        }
        if shapes > 1 {
            return Err("give at most one of mesh, star and pairs".into());
        }
        Ok(())
    }
}

impl AlertRules {
    /// Reads alert rules.
    ///
    /// # Errors
    /// The text holds no alert rules, or they contradict themselves. Names of nodes and groups are not
    /// checked here.
    pub fn parse(text: &str) -> Result<Self, AlertError> {
        if text.len() > MAX_LEN {
            let message = format!("they have {} bytes, more than {MAX_LEN}", text.len());
            return Err(AlertError::Syntax(message));
        }
        let rules: Self = toml::from_str(text)
            .map_err(|error| AlertError::Syntax(error.to_string().trim_end().to_owned()))?;
        if rules.version != VERSION {
            return Err(AlertError::Version(rules.version));
        }
        rules.check()?;
        Ok(rules)
    }

    fn check(&self) -> Result<(), AlertError> {
        const NAME_RULE: &str = "use letters, digits, '-', '_' and '.', at most 63";
        let times = [
            ("delay", self.delay, 1, 600),
            ("notify_interval", self.notify_interval, 0, 86_400),
            ("reminder", self.reminder, 60, 366 * 86_400),
        ];
        for (name, time, min_s, max_s) in times {
            if !(min_s * SECOND_NS..=max_s * SECOND_NS).contains(&time.0) {
                let message = format!("'{time}' must be from {min_s}s to {max_s}s");
                return Err(AlertError::value(name, message));
            }
        }
        for name in self.sites.keys().chain(self.notify.keys()) {
            if !is_name(name) {
                let message = format!("invalid name '{name}'; {NAME_RULE}");
                return Err(AlertError::value("sites and notify", message));
            }
        }
        for (name, receiver) in &self.notify {
            let error = |message| AlertError::value(format!("notify.{name}"), message);
            receiver.check().map_err(error)?;
            if !receiver.email.is_empty() && self.smtp.is_none() {
                return Err(error("email needs a mail server in [smtp]".into()));
            }
        }
        if let Some(smtp) = &self.smtp {
            smtp.check().map_err(|message| AlertError::value("smtp", message))?;
        }
        if self.alert.len() > MAX_RULES {
            let message = format!("there are {} rules, more than {MAX_RULES}", self.alert.len());
            return Err(AlertError::value("alert", message));
        }
        let mut names = BTreeSet::new();
        for rule in &self.alert {
            if !is_name(&rule.name) {
                let message = format!("invalid name '{}'; {NAME_RULE}", rule.name);
                return Err(AlertError::value("alert", message));
            }
            if !names.insert(&rule.name) {
                return Err(rule.error("two rules have this name; rename one"));
            }
            rule.check().map_err(|message| rule.error(message))?;
            if let Some(name) = rule.notify.iter().find(|name| !self.notify.contains_key(*name)) {
                return Err(rule.error(format!("there is no receiver [notify.{name}]")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC*", lines in "[a-z\\[\\]{}=\", \n0-9:%><-]*") {
            let _ = AlertRules::parse(&text);
            let _ = AlertRules::parse(&format!("version = 1\n[[alert]]\nname = \"a\"\n{lines}"));
            let when = lines.replace(['"', '\n'], "");
            let _ = AlertRules::parse(&format!("version = 1\n[[alert]]\nname = \"a\"\nwhen = \"{when}\""));
        }
    }

    fn error(text: &str) -> String {
        AlertRules::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn rules_are_read_with_defaults() {
        let rules = AlertRules::parse(
            "version = 1\n[[alert]]\nname = \"slow\"\nwhen = \"p99 > 20ms for 5m\"\nmesh = \"core\"\n\
             notify = [\"ops\"]\n[[alert]]\nname = \"gone\"\nwhen = \"silent for 15m\"\n\
             [notify.ops]\nwebhook = \"https://example.org/hook\"\nemail = [\"a@example.org\"]\n\
             [smtp]\nhost = \"mail.example.org\"\nfrom = \"dwell@example.org\"\n",
        )
        .unwrap();
        let [slow, gone] = &rules.alert[..] else { panic!("{rules:?}") };
        assert!(matches!(slow.clear(), Clear::Below { limit, span: None, .. } if limit == 16e6));
        assert_eq!(gone.clear(), Clear::Heard(300 * SECOND_NS));
        assert_eq!((rules.delay, rules.reminder.0), (Nanos::from_secs(60), DAY_NS));
        assert_eq!(rules.smtp.unwrap().port(), 587);
    }

    #[test]
    fn mistake_is_named_with_its_place() {
        let unknown = error("version = 1\n[[alert]]\nname = \"a\"\nwhan = \"silent for 15m\"\n");
        assert!(unknown.contains("whan") && unknown.contains("line 4, column 1"), "{unknown}");
        let when = error("version = 1\n[[alert]]\nname = \"a\"\nwhen = \"p98 > 1ms for 5m\"\n");
        assert!(when.contains("line 4, column 8") && when.contains("p50, p90"), "{when}");
        assert!(error("version = 2\n").contains("version = 2"));
        let rule = |lines: &str| error(&format!("version = 1\n[[alert]]\nname = \"a\"\n{lines}"));
        let slow = "when = \"p99 > 20ms for 5m\"\n";
        for (lines, reason) in [
            (&format!("{slow}mesh = \"all\"\npairs = [\"a:b\"]")[..], "at most one of mesh"),
            (&format!("{slow}nodes = \"all\""), "use mesh, star or pairs"),
            (&format!("{slow}notify = [\"ops\"]"), "no receiver [notify.ops]"),
            (&format!("{slow}clear = \"p95 < 15ms\""), "clear is about p95, when about p99"),
            (&format!("{slow}clear = \"p99 < 21ms\""), "fire again"),
            (&format!("{slow}clear = \"heard for 5m\""), "silence only"),
            ("when = \"silent for 15m\"\nmesh = \"all\"", "use nodes"),
            ("when = \"silent for 15m\"\nsamples = true", "samples is for conditions about delays"),
            ("when = \"silent for 15m\"\nclear = \"loss < 1%\"", "heard for 5m"),
            (&format!("{slow}[[alert]]\nname = \"a\"\n{slow}"), "two rules"),
        ] {
            let error = rule(lines);
            assert!(error.contains(reason) && error.contains("alert 'a': "), "{lines}: {error}");
        }
        let receiver = |lines: &str| error(&format!("version = 1\n[notify.ops]\n{lines}"));
        assert!(receiver("").contains("notify.ops: give webhook or email"));
        assert!(receiver("webhook = \"ftp://x\"").contains("https://example.org/hook"));
        assert!(receiver("email = [\"ops@x\"]").contains("needs a mail server in [smtp]"));
        let smtp = |lines: &str| {
            error(&format!("version = 1\n[smtp]\nfrom = \"a@b\"\nhost = \"192.0.2.1\"\n{lines}"))
        };
        assert!(smtp("security = \"none\"").contains("only for localhost"));
        assert!(smtp("user = \"x\"").contains("password_file"));
        assert!(error("version = 1\ndelay = \"1h\"\n").contains("from 1s to 600s"));
    }
}
