//! The stored description of a run's fleet.

use std::path::PathBuf;

use dwell_plan::Topology;
use serde::{Deserialize, Serialize};

use crate::lab::LabFleet;
use crate::{Fleet, FleetError};

/// Data by which a later process finds the nodes of a run, or removes what a dead runner left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetHandle {
    /// The lab with this name.
    Lab(String),
}

impl FleetHandle {
    /// Returns the handle of a new run. `unique` differs between concurrent runs.
    ///
    /// # Errors
    /// There is no transport to the nodes of this topology ([`FleetError::is_unsupported`]).
    pub fn new(topology: &Topology, unique: u32) -> Result<Self, FleetError> {
        match topology {
            Topology::Lab(_) => Ok(Self::Lab(format!("run-{unique:08x}"))),
            Topology::Devices(_) => Err(FleetError::Nodes {
                message: "this dwell cannot reach devices; run the plan in a lab with \
                          topology.lab instead of topology.roles"
                    .into(),
                unsupported: true,
            }),
        }
    }

    /// Returns the fleet, without creating or connecting to any node. `program` is the `dwell`
    /// program.
    pub fn open(self, program: PathBuf) -> Box<dyn Fleet> {
        match self {
            Self::Lab(name) => Box::new(LabFleet::new(program, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_a_lab_keeps_its_stored_form() {
        let topology = toml::from_str("lab = \"line:2\"").unwrap();
        let handle = FleetHandle::new(&topology, 0x1f_2e3d).unwrap();
        let stored = serde_json::to_string(&handle).unwrap();
        assert_eq!(stored, "{\"lab\":\"run-001f2e3d\"}");
        assert_eq!(serde_json::from_str::<FleetHandle>(&stored).unwrap(), handle);
        assert!(serde_json::from_str::<FleetHandle>("{\"moon\":\"x\"}").is_err());
    }

    #[test]
    fn devices_without_a_transport_are_unsupported() {
        let topology = toml::from_str("roles = [\"a\", \"b\"]").unwrap();
        assert!(FleetHandle::new(&topology, 1).unwrap_err().is_unsupported());
    }
}
