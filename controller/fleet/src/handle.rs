//! The stored description of a run's fleet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dwell_plan::Topology;
use serde::{Deserialize, Serialize};

use crate::lab::LabFleet;
use crate::ssh_fleet::SshFleet;
use crate::{Device, Fleet, FleetError};

/// Data by which a later process finds the nodes of a run, or removes what a dead runner left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetHandle {
    /// The lab with this name.
    Lab(String),
    /// A lab that another program than this one creates and runs in its nodes.
    LabOfProgram {
        /// Name of the lab.
        name: String,
        /// A `dwell` or `dwell-node` of this version, such as one built with other options.
        program: PathBuf,
    },
    /// Devices over SSH.
    Devices(DeviceBindings),
}

/// The devices of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBindings {
    /// Who started the run, as `USER@HOST`.
    pub owner: String,
    /// The device of each role, as it was described when the run began.
    pub roles: BTreeMap<String, Device>,
}

/// The process that opens a fleet.
#[derive(Clone, Debug)]
pub struct Opener {
    /// The `dwell` program.
    pub program: PathBuf,
    /// The run, by its name.
    pub run: String,
    /// Whether [`Fleet::prepare`] may be called again while another run uses a device
    /// ([`FleetError::Leased`]). Otherwise this is a failure of the nodes.
    pub waits: bool,
    /// Set to end all waits for devices.
    pub stop: Arc<AtomicBool>,
}

impl FleetHandle {
    /// Returns the handle of a new run. `unique` differs between concurrent runs; `devices` are those
    /// that the roles of the topology are bound to.
    ///
    /// # Errors
    /// Roles and devices do not match.
    pub fn new(
        topology: &Topology,
        unique: u32,
        devices: Option<DeviceBindings>,
    ) -> Result<Self, FleetError> {
        let refused = |message: &str| {
            Err(FleetError::Nodes { message: message.to_owned(), unsupported: false })
        };
        match (topology, devices) {
            (Topology::Lab(_), None) => Ok(Self::Lab(format!("run-{unique:08x}"))),
            (Topology::Lab(_), Some(_)) => refused("a lab has no devices"),
            (Topology::Devices(roles), Some(devices)) => {
                match roles.iter().find(|role| !devices.roles.contains_key(*role)) {
                    Some(role) => refused(&format!("role {role} has no device")),
                    None => Ok(Self::Devices(devices)),
                }
            }
            (Topology::Devices(_), None) => refused("the roles of the plan have no devices"),
        }
    }

    /// Lets another program create the lab and run in its nodes.
    ///
    /// # Errors
    /// The nodes are devices, which have programs of their own.
    pub fn with_program(self, program: PathBuf) -> Result<Self, FleetError> {
        match self {
            Self::Lab(name) | Self::LabOfProgram { name, .. } => {
                Ok(Self::LabOfProgram { name, program })
            }
            Self::Devices(_) => Err(FleetError::Nodes {
                message: "only a lab can use another program".to_owned(),
                unsupported: false,
            }),
        }
    }

    /// Returns the fleet, without creating or connecting to any node.
    pub fn open(self, opener: Opener) -> Box<dyn Fleet> {
        match self {
            Self::Lab(name) => Box::new(LabFleet::new(opener.program, name)),
            Self::LabOfProgram { name, program } => Box::new(LabFleet::new(program, name)),
            Self::Devices(devices) => Box::new(SshFleet::new(devices, opener)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_a_lab_keeps_its_stored_form() {
        let topology = toml::from_str("lab = \"line:2\"").unwrap();
        let handle = FleetHandle::new(&topology, 0x1f_2e3d, None).unwrap();
        let stored = serde_json::to_string(&handle).unwrap();
        assert_eq!(stored, "{\"lab\":\"run-001f2e3d\"}");
        assert_eq!(serde_json::from_str::<FleetHandle>(&stored).unwrap(), handle);
        assert!(serde_json::from_str::<FleetHandle>("{\"moon\":\"x\"}").is_err());
    }

    #[test]
    fn handle_of_devices_needs_all_roles() {
        let topology = toml::from_str("roles = [\"a\", \"b\"]").unwrap();
        let device = |name: &str| (name.to_owned(), Device::new("pi4", "pi@board").unwrap());
        let bound = |roles: &[&str]| {
            let roles = roles.iter().map(|role| device(role)).collect();
            Some(DeviceBindings { owner: "u@h".into(), roles })
        };
        let missing = FleetHandle::new(&topology, 1, bound(&["a"])).unwrap_err();
        assert_eq!(missing.to_string(), "role b has no device");
        assert!(FleetHandle::new(&topology, 1, None).is_err());
        let handle = FleetHandle::new(&topology, 1, bound(&["a", "b"])).unwrap();
        let stored = serde_json::to_string(&handle).unwrap();
        assert_eq!(serde_json::from_str::<FleetHandle>(&stored).unwrap(), handle);
    }
}
