//! Devices over SSH as the nodes of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use dwell_plan::Topology;
use dwell_protocol::{Lease, Request};

use crate::connection::Connections;
use crate::deployment::{Deployment, StartedNode};
use crate::handle::{DeviceBindings, Opener};
use crate::node_binaries::NodeBinaries;
use crate::parallel::{MAX_PARALLEL, for_each_parallel};
use crate::{ClockReadings, Device, Fleet, FleetError, FromNode, NodeDevice, Nodes, TrialEdge};

/// Time in which a lost device must return: a board reboots within a minute.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(90);

/// Time between attempts to reach a lost device.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of devices that an error names.
const MAX_NAMED: usize = 5;

/// The devices of one run.
#[derive(Debug)]
pub(crate) struct SshFleet {
    bindings: DeviceBindings,
    opener: Opener,
    /// The node programs; found when the first device is connected.
    binaries: Option<NodeBinaries>,
    connections: Connections,
    /// Roles that were connected at any time.
    known: BTreeMap<String, KnownNode>,
}

/// A node as its device described itself.
#[derive(Debug)]
struct KnownNode {
    /// Addresses that probes are sent to.
    addresses: Vec<IpAddr>,
    device: NodeDevice,
}

impl SshFleet {
    /// Returns a fleet that is not connected yet.
    pub(crate) fn new(bindings: DeviceBindings, opener: Opener) -> Self {
        Self {
            bindings,
            opener,
            binaries: None,
            connections: Connections::with_keepalive(),
            known: BTreeMap::new(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.opener.stop.load(Ordering::Relaxed)
    }

    /// Connects the devices of these roles at the same time. Each node is adopted as soon as it has
    /// started, because a node without requests ends. Devices that are connected stay so if others are
    /// unreachable, but not if others are leased: two runs that wait for each other's devices would
    /// wait forever.
    fn connect(&mut self, roles: &[String]) -> Result<(), FleetError> {
        let binaries = match self.binaries.take() {
            Some(binaries) => binaries,
            None => NodeBinaries::find(&self.opener.program).map_err(|error| {
                FleetError::Nodes { message: error.to_string(), unsupported: false }
            })?,
        };
        let devices = self.devices(roles)?;
        let (lease, stop) = (self.lease(), Arc::clone(&self.opener.stop));
        let start = |device: &Device| {
            Deployment::connect(device, &binaries, &stop)?.deploy(&binaries)?.start(&lease)
        };
        let (mut failed, mut leased) = (BTreeMap::new(), BTreeMap::new());
        for_each_parallel(&devices, MAX_PARALLEL, start, |index, started| match started {
            Ok(node) => self.add(&roles[index], node),
            // It would wait for itself: the lease is the one that was taken here under another name.
            Err(FleetError::Leased { device, lease: other }) if other == lease => {
                let message = "it is the same machine as another device of this run".to_owned();
                failed.insert(index, FleetError::Device { device, message });
            }
            Err(error) if error.is_leased() => _ = leased.insert(index, error),
            Err(error) => _ = failed.insert(index, error),
        });
        self.binaries = Some(binaries);
        let failed: Vec<FleetError> = failed.into_values().collect();
        if let (Some((_, leased)), true) = (leased.pop_first(), failed.is_empty()) {
            self.connections.close_all();
            return Err(if self.opener.waits { leased } else { failed_nodes(&[leased]) });
        }
        if failed.is_empty() { Ok(()) } else { Err(failed_nodes(&failed)) }
    }

    fn devices(&self, roles: &[String]) -> Result<Vec<Device>, FleetError> {
        let device = |role: &String| {
            self.bindings.roles.get(role).cloned().ok_or_else(|| FleetError::Nodes {
                message: format!("role {role} has no device"),
                unsupported: false,
            })
        };
        roles.iter().map(device).collect()
    }

    fn lease(&self) -> Lease {
        Lease {
            owner: self.bindings.owner.clone(),
            run: self.opener.run.clone(),
            since: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }

    fn add(&mut self, role: &str, node: StartedNode) {
        let StartedNode { process, facts, program_sha256, hello } = node;
        if let Some(device) = self.bindings.roles.get(role) {
            let given = &device.addresses;
            let addresses =
                if given.is_empty() { facts.address.into_iter().collect() } else { given.clone() };
            let device = NodeDevice {
                name: device.name.clone(),
                destination: device.destination.clone(),
                program_sha256,
                arch: facts.machine,
            };
            self.known.insert(role.to_owned(), KnownNode { addresses, device });
        }
        self.connections.adopt(role, process, Some(hello));
    }
}

/// Returns the error of devices that are not available.
fn failed_nodes(failed: &[FleetError]) -> FleetError {
    let named: Vec<_> = failed.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = failed.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("\n{more} more devices failed") } else { String::new() };
    FleetError::Nodes { message: format!("{}{more}", named.join("\n")), unsupported: false }
}

impl Fleet for SshFleet {
    fn prepare(&mut self, topology: &Topology) -> Result<(), FleetError> {
        let Topology::Devices(roles) = topology else {
            let message = "devices cannot form a lab".to_owned();
            return Err(FleetError::Nodes { message, unsupported: true });
        };
        let wanted: BTreeSet<_> = roles.iter().collect();
        let deadline = Instant::now() + RECONNECT_TIMEOUT;
        loop {
            let missing = wanted.iter().filter(|role| !self.connections.is_open(role));
            let missing: Vec<String> = missing.map(|role| (*role).clone()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            // A device that was never reached is more likely misconfigured than rebooting.
            let may_return = missing.iter().all(|role| self.known.contains_key(role));
            match self.connect(&missing) {
                Err(FleetError::Nodes { .. })
                    if may_return && Instant::now() < deadline && !self.is_stopped() =>
                {
                    thread::sleep(RECONNECT_INTERVAL);
                }
                outcome => return outcome,
            }
        }
    }

    fn nodes(&self) -> Nodes {
        let known = self.known.iter().filter(|(_, node)| !node.addresses.is_empty());
        let addresses = known.map(|(role, node)| (role.clone(), node.addresses.clone())).collect();
        let clocks = self.connections.clock_domains();
        clocks.fold(Nodes::new(addresses), |nodes, (role, clock)| nodes.with_clock(role, clock))
    }

    fn device(&self, node: &str) -> Option<NodeDevice> {
        self.known.get(node).map(|node| node.device.clone())
    }

    fn measure_clocks(&mut self, edge: TrialEdge) -> BTreeMap<String, ClockReadings> {
        self.connections.measure_clocks(edge)
    }

    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        self.connections.send(node, request)
    }

    fn next(&mut self, wait: Duration) -> Option<(String, FromNode)> {
        self.connections.next(wait)
    }

    fn release(&mut self, node: &str) {
        self.connections.release(node);
    }

    fn dissolve(&mut self) -> Result<(), FleetError> {
        self.connections.close_all();
        Ok(())
    }
}
