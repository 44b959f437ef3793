//! What a device lacks by its last answer, and how to provide it.

use dwell_fleet::Device;
use serde::Serialize;
use serde_json::Value;

use super::answer::StoredAnswer;

/// A feature that needs a privilege.
struct Feature {
    /// Start of the ability's name in `dwell.doctor/1`.
    ability: &'static str,
    /// What is lost without it.
    loss: &'static str,
    /// Capabilities that provide it; empty if only root has it.
    capabilities: &'static [&'static str],
}

/// Features that need a privilege, most important first. Abilities that concern labs are left out: a
/// device needs none.
const FEATURES: [Feature; 7] = [
    Feature {
        ability: "real-time scheduling",
        loss: "timing threads wait for other programs",
        capabilities: &["cap_sys_nice"],
    },
    Feature {
        ability: "locked memory",
        loss: "page faults delay packets",
        capabilities: &["cap_ipc_lock"],
    },
    Feature {
        ability: "ICMP raw socket",
        loss: "no pacing engines packet-ring and xsk; icmp:// needs ping sockets",
        capabilities: &["cap_net_raw"],
    },
    Feature {
        ability: "ports below 1024",
        loss: "no reflector on STAMP's port 862",
        capabilities: &["cap_net_bind_service"],
    },
    Feature {
        ability: "eBPF: load an XDP",
        loss: "no timestamps or replies in the driver",
        capabilities: EBPF,
    },
    Feature {
        ability: "eBPF",
        loss: "no `trace`, no node delays from kernel hooks",
        capabilities: EBPF,
    },
    Feature { ability: "no idle states", loss: "no `ping --no-idle`", capabilities: &[] },
];

/// Capabilities for loading and attaching eBPF programs: bpf(2), since Linux 5.8.
const EBPF: &[&str] = &["cap_bpf", "cap_net_admin", "cap_net_raw", "cap_perfmon"];

/// An ability in `dwell.doctor/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ability {
    /// Name.
    pub name: String,
    /// `None` if it was not tested.
    pub available: Option<bool>,
    /// Why not, or how.
    pub reason: Option<String>,
}

/// Returns the abilities in a doctor's answer. Malformed entries are skipped: the answer is untrusted.
pub fn abilities(doctor: &Value) -> Vec<Ability> {
    let all = doctor["abilities"].as_array().into_iter().flatten();
    let ability = |found: &Value| {
        Some(Ability {
            name: found["name"].as_str()?.to_owned(),
            available: found["available"].as_bool(),
            reason: found["reason"].as_str().map(str::to_owned),
        })
    };
    all.filter_map(ability).collect()
}

/// Privileges that a device lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lacks {
    /// The lacking abilities.
    pub lacking: Vec<Lack>,
    /// Rule of sudoers(5) that provides all of them; `None` if it cannot express the path.
    pub sudoers: Option<String>,
    /// Command on the device that provides those with a capability; `None` if no capability does.
    pub setcap: Option<String>,
}

/// An ability that needs a privilege.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Its name.
    pub ability: String,
    /// What is lost without it.
    pub loss: &'static str,
    /// The kernel's reason.
    pub reason: String,
    /// Whether only root has it.
    pub root_only: bool,
}

/// Returns the privileges that a device lacks; `None` if none would help: the node runs as root, or
/// nothing was refused.
pub fn lacks(device: &Device, answer: &StoredAnswer) -> Option<Lacks> {
    if device.sudo || answer.uid == 0 {
        return None;
    }
    let mut lacking = Vec::new();
    let mut capabilities: Vec<&str> = Vec::new();
    let abilities = abilities(&answer.doctor);
    for feature in FEATURES {
        let is_new = |name: &str, lacking: &[Lack]| lacking.iter().all(|lack| lack.ability != name);
        for ability in abilities.iter().filter(|it| it.name.starts_with(feature.ability)) {
            let reason = ability.reason.as_deref().unwrap_or_default();
            let refused = ability.available == Some(false) && is_refusal(reason);
            if !refused || !is_new(&ability.name, &lacking) {
                continue;
            }
            lacking.push(Lack {
                ability: ability.name.clone(),
                loss: feature.loss,
                reason: reason.to_owned(),
                root_only: feature.capabilities.is_empty(),
            });
            for capability in feature.capabilities {
                if !capabilities.contains(capability) {
                    capabilities.push(capability);
                }
            }
        }
    }
    capabilities.sort_unstable();
    let setcap = (!capabilities.is_empty())
        .then(|| format!("sudo setcap {}+ep {}", capabilities.join(","), quoted(&answer.program)));
    let sudoers = sudoers_rule(device, answer);
    (!lacking.is_empty()).then_some(Lacks { lacking, sudoers, setcap })
}

/// Whether the kernel refused something for lack of a privilege: EPERM, EACCES or a resource limit.
fn is_refusal(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["not permitted", "permission denied", "limit on locked memory"]
        .iter()
        .any(|words| reason.contains(words))
}

/// Returns the rule of sudoers(5) by which the user may run every node program in its directory.
fn sudoers_rule(device: &Device, answer: &StoredAnswer) -> Option<String> {
    let user = device.destination.rsplit_once('@').map(|(user, _)| user);
    // ALL and other names in capitals are aliases there.
    let plain = |user: &&str| {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        user.bytes().all(valid) && user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
    };
    let user = user.filter(plain).map_or_else(|| format!("#{}", answer.uid), str::to_owned);
    let dir = escaped_for_sudoers(&answer.dir)?;
    Some(format!("{user} ALL=(root) NOPASSWD: {dir}/dwell-node-*"))
}

/// Escapes special characters of a path in sudoers(5). Returns `None` for a path with patterns, which
/// sudo accepts neither plain nor escaped, or on several lines.
fn escaped_for_sudoers(path: &str) -> Option<String> {
    let is_refused = |c: char| "\\*?[]".contains(c) || c.is_control();
    if !path.starts_with('/') || path.contains(is_refused) {
        return None;
    }
    let mut escaped = String::with_capacity(path.len());
    for c in path.chars() {
        if " ,:=#".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    Some(escaped)
}

/// Quotes a path for a POSIX shell if it has other characters than plain paths.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.+".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(abilities: Value) -> StoredAnswer {
        StoredAnswer {
            uid: 1_000,
            dir: "/home/pi/.cache/dwell".into(),
            program: "/home/pi/.cache/dwell/dwell-node-5f".into(),
            doctor: json!({ "abilities": abilities }),
            ..StoredAnswer::default()
        }
    }

    fn ability(name: &str, available: Option<bool>, reason: Option<&str>) -> Value {
        json!({ "name": name, "available": available, "reason": reason })
    }

    const DENIED: Option<&str> = Some("Operation not permitted (os error 1)");

    #[test]
    fn refused_abilities_have_a_loss_and_a_remedy() {
        let device = Device::new("pi4", "pi@192.0.2.7").unwrap();
        let found = lacks(
            &device,
            &answer(json!([
                ability("real-time scheduling", Some(false), DENIED),
                ability("eBPF: load an XDP program", Some(false), DENIED),
                ability("eBPF: load a netfilter program", Some(false), DENIED),
                ability("ports below 1024", Some(true), None),
                ability("network namespaces (dwell lab)", Some(false), DENIED),
            ])),
        )
        .unwrap();
        let losses: Vec<_> = found.lacking.iter().map(|lack| (&*lack.ability, lack.loss)).collect();
        assert_eq!(
            losses,
            [
                ("real-time scheduling", "timing threads wait for other programs"),
                ("eBPF: load an XDP program", "no timestamps or replies in the driver"),
                ("eBPF: load a netfilter program", "no `trace`, no node delays from kernel hooks"),
            ]
        );
        assert_eq!(
            found.sudoers.unwrap(),
            "pi ALL=(root) NOPASSWD: /home/pi/.cache/dwell/dwell-node-*"
        );
        assert_eq!(
            found.setcap.unwrap(),
            "sudo setcap cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon,cap_sys_nice+ep \
             /home/pi/.cache/dwell/dwell-node-5f"
        );
    }

    #[test]
    fn lacking_kernel_support_is_no_lacking_privilege() {
        let device = Device::new("pi4", "pi@192.0.2.7").unwrap();
        let lacking_driver = Some("the kernel has no driver of idle states");
        let no_program = Some("built without eBPF");
        let found = answer(json!([
            ability("no idle states (ping --no-idle)", Some(false), lacking_driver),
            ability("eBPF: load an XDP program", Some(false), no_program),
            ability("real-time scheduling", None, DENIED),
        ]));
        assert_eq!(lacks(&device, &found), None);
        let found =
            answer(json!([ability("no idle states", Some(false), Some("Permission denied"))]));
        let found = lacks(&device, &found).unwrap();
        assert_eq!((found.setcap, found.lacking[0].root_only), (None, true));
    }

    #[test]
    fn root_lacks_no_privilege() {
        let device = Device::new("pi4", "root@192.0.2.7").unwrap();
        let refused = answer(json!([ability("real-time scheduling", Some(false), DENIED)]));
        assert!(lacks(&device, &refused).is_some());
        let as_root = StoredAnswer { uid: 0, ..refused.clone() };
        assert_eq!(lacks(&device, &as_root), None);
        let by_sudo = Device { sudo: true, ..device };
        assert_eq!(lacks(&by_sudo, &refused), None);
    }

    #[test]
    fn answer_of_a_hostile_device_is_quoted_or_left_out() {
        let device = Device::new("pi4", "a:b@host").unwrap();
        let mut found = answer(json!([
            ability("real-time scheduling", Some(false), DENIED),
            { "name": 7 },
            null,
        ]));
        found.dir = "/tmp/a b, ALL".into();
        found.program = "/tmp/x';reboot;'".into();
        let rule = |device: &Device, found: &StoredAnswer| lacks(device, found).unwrap().sudoers;
        let quoted = "#1000 ALL=(root) NOPASSWD: /tmp/a\\ b\\,\\ ALL/dwell-node-*";
        assert_eq!(rule(&device, &found).as_deref(), Some(quoted));
        let everyone = Device::new("pi4", "ALL@host").unwrap();
        assert_eq!(rule(&everyone, &found).as_deref(), Some(quoted));
        for dir in ["/tmp/*", "/tmp/a\\", "tmp", "/tmp\npi ALL=(ALL) NOPASSWD: ALL"] {
            let found = StoredAnswer { dir: dir.into(), ..found.clone() };
            assert_eq!(rule(&device, &found), None, "{dir}");
        }
        let found = lacks(&device, &found).unwrap();
        assert!(found.setcap.unwrap().ends_with(r"'/tmp/x'\'';reboot;'\'''"));
        assert_eq!(abilities(&json!({ "abilities": "many" })), []);
        assert_eq!(abilities(&Value::Null), []);
    }
}
