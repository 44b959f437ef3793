//! `--on ROLE=DEVICE`: the devices that the roles of a plan are bound to.

use std::collections::BTreeMap;

use dwell_fleet::{Device, DeviceBindings};
use dwell_node_cli::Failure;
use dwell_plan::Topology;

/// Returns the devices of a run of this topology; `None` for a lab. `find` returns the device of a
/// name.
pub(super) fn bind(
    topology: &Topology,
    on: &[String],
    owner: String,
    find: &mut dyn FnMut(&str) -> Result<Device, Failure>,
) -> Result<Option<DeviceBindings>, Failure> {
    let known = match topology {
        Topology::Lab(_) if on.is_empty() => return Ok(None),
        Topology::Lab(_) => {
            return Err(Failure::usage(
                "--on binds roles to devices, but this plan runs in a lab; give it `roles = [...]` \
                 in [topology] in place of `lab`",
            ));
        }
        Topology::Devices(known) => known,
    };
    let mut roles: BTreeMap<String, Device> = BTreeMap::new();
    for binding in on {
        let Some((role, name)) = binding.split_once('=') else {
            return Err(wrong(binding, "use ROLE=DEVICE, such as sender=pi4"));
        };
        if !known.iter().any(|other| other == role) {
            let known = known.join(", ");
            return Err(wrong(binding, &format!("the plan has no role '{role}'; it has {known}")));
        }
        if let Some((other, _)) = roles.iter().find(|(_, device)| device.name == name) {
            return Err(wrong(binding, &format!("role {other} already has device {name}")));
        }
        if let Some(device) = roles.insert(role.to_owned(), find(name)?) {
            return Err(wrong(binding, &format!("role {role} already has device {}", device.name)));
        }
    }
    let missing: Vec<String> = known
        .iter()
        .filter(|role| !roles.contains_key(*role))
        .map(|role| format!("{role}=DEVICE"))
        .collect();
    if missing.is_empty() {
        return Ok(Some(DeviceBindings { owner, roles }));
    }
    Err(Failure::usage(format!(
        "roles of the plan have no device; add --on {}, with devices of `dwell device list`",
        missing.join(",")
    )))
}

fn wrong(binding: &str, why: &str) -> Failure {
    Failure::usage(format!("invalid value '{binding}' for --on: {why}"))
}

#[cfg(test)]
mod tests {
    use dwell_plan::{Plan, Source};

    use super::*;

    fn bound(topology: &str, on: &[&str]) -> Result<Option<DeviceBindings>, String> {
        let text = format!(
            "version = 1\nname = \"x\"\n[topology]\n{topology}\n[ping]\nfrom = \"n1\"\n\
             to = \"n2\"\ncount = 10\n"
        );
        let plan = Plan::read(&Source::parse(&text).unwrap()).unwrap();
        let on: Vec<_> = on.iter().map(|&text| text.to_owned()).collect();
        let mut find = |name: &str| match name {
            "pi3" | "pi4" => Ok(Device::new(name, name).unwrap()),
            _ => Err(Failure::usage(format!("there is no device '{name}'"))),
        };
        bind(&plan.topology, &on, "u@h".into(), &mut find)
            .map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn each_role_is_bound_to_its_own_device() {
        const ROLES: &str = "roles = [\"n1\", \"n2\"]";
        let devices = bound(ROLES, &["n2=pi4", "n1=pi3"]).unwrap().unwrap();
        assert_eq!((devices.roles["n1"].name.as_str(), devices.owner.as_str()), ("pi3", "u@h"));
        assert_eq!(devices.roles["n2"].destination, "pi4");
        let error = |on: &[&str]| bound(ROLES, on).unwrap_err();
        assert!(error(&[]).contains("add --on n1=DEVICE,n2=DEVICE"), "{}", error(&[]));
        assert!(error(&["n1=pi3"]).contains("add --on n2=DEVICE"));
        assert!(error(&["n1"]).contains("use ROLE=DEVICE"));
        assert!(error(&["n3=pi3"]).contains("no role 'n3'; it has n1, n2"));
        assert!(error(&["n1=pi3", "n2=pi3"]).contains("role n1 already has device pi3"));
        assert!(error(&["n1=pi3", "n1=pi4"]).contains("role n1 already has device pi3"));
        assert!(error(&["n1=pi5"]).contains("no device 'pi5'"));
    }

    #[test]
    fn plan_of_a_lab_has_no_devices() {
        const LAB: &str = "lab = \"line:2\"";
        assert_eq!(bound(LAB, &[]), Ok(None));
        assert!(bound(LAB, &["n1=pi3"]).unwrap_err().contains("runs in a lab"));
    }
}
