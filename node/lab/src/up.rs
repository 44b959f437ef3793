//! `lab up`: from a topology to a complete lab, or to nothing at all.

use std::fs::File;
use std::io::Read;

use dwell_io::netns;
use dwell_io::process::{self, Signal};
use dwell_units::Nanos;

use crate::addressing::{self, End};
use crate::babel;
use crate::creation::{self, Steps};
use crate::description::{Lab, LabState, Link, LinkState, Node, Parameters, SCHEMA};
use crate::device;
use crate::down;
use crate::emulation::MechanismChooser;
use crate::error::LabError;
use crate::iproute;
use crate::namespace::{self, netns_name};
use crate::namespace_keeper;
use crate::quota;
use crate::radio;
use crate::shared_bridge;
use crate::state::{LabDir, Lock, is_lab_name};
use crate::topology::{Edge, Mechanism, MediumKind, Topology};

/// Creates a lab called `name`, or with a short random name. Without the privilege for network
/// namespaces it is created in a user namespace, in which this process then stays.
///
/// `progress` is called, on any thread, with the number of steps done and of all steps. `abandoned`
/// is called between steps and must be cheap; once it returns true, the lab is removed again.
///
/// Must be called while the process is single-threaded.
///
/// # Errors
/// Any step failed; the incomplete lab is then removed.
pub fn up(
    topology: &Topology,
    name: Option<&str>,
    progress: &(dyn Fn(usize, usize) + Sync),
    abandoned: &(dyn Fn() -> bool + Sync),
) -> Result<Lab, LabError> {
    let signals = process::block(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
        .map_err(LabError::io("blocking signals"))?;
    let name = match name {
        Some(name) if is_lab_name(name) => name.to_owned(),
        Some(name) => return Err(LabError::Name(name.to_owned())),
        None => random_name()?,
    };
    babel::check(topology.routing)?;
    radio::check(topology)?;
    device::check(topology)?;
    let rootless = !netns::may_create();
    let (dir, lock) = LabDir::create(&name, rootless)?;
    let interrupted = || signals.take(Nanos::ZERO).is_some() || abandoned();
    let steps = Steps::new(topology, progress, &interrupted);
    make_all(&dir, &lock, topology, rootless, &steps).map_err(|error| {
        match down::remove_all(&dir, &lock) {
            Ok(_) => error,
            Err(rollback) => LabError::NotRolledBack {
                name,
                error: Box::new(error),
                rollback: Box::new(rollback),
            },
        }
    })
}

fn make_all(
    dir: &LabDir,
    lock: &Lock,
    topology: &Topology,
    rootless: bool,
    steps: &Steps<'_>,
) -> Result<Lab, LabError> {
    // First, under the lock: from here on other processes see the lab and wait for it.
    steps.check_interrupted()?;
    if rootless {
        namespace_keeper::start(dir, lock)?;
    }
    // From here on all these names belong to the lab, and namespaces with them may be removed.
    namespace::check_free(dir.name())?;
    let mut lab = plan(dir, topology, rootless)?;
    dir.write(&lab)?;
    creation::make(dir, lock, topology, &mut lab, steps)?;
    Ok(lab)
}

/// Plans the lab.
fn plan(dir: &LabDir, topology: &Topology, rootless: bool) -> Result<Lab, LabError> {
    let name = dir.name();
    let node = |(place, node): (usize, &String)| -> Result<Node, LabError> {
        let netns = netns_name(name, node);
        let quota = topology.quotas.iter().find(|(of, _)| *of == place);
        let quota = quota.map(|(_, share)| quota::plan(node, &netns, *share)).transpose()?;
        let device = topology.devices.iter().find(|(of, _)| *of == place);
        let device = device.map(|(_, request)| device::plan(node, request)).transpose()?;
        let addresses = addressing::node(place);
        Ok(Node { name: node.clone(), netns, addresses, quota, device })
    };
    let mut chooser = MechanismChooser::default();
    let mut link = |(place, edge): (usize, &Edge)| -> Result<Link, LabError> {
        let mechanism = chooser.mechanism(&edge.options)?;
        let (a, b) = (&topology.nodes[edge.a], &topology.nodes[edge.b]);
        let log = dir.file(&format!("link-{place}.events"));
        Ok(Link {
            a: a.clone(),
            b: b.clone(),
            a_interface: b.clone(),
            b_interface: a.clone(),
            a_address: addressing::link_end(place, End::A),
            b_address: addressing::link_end(place, End::B),
            mechanism,
            state: LinkState::Up,
            parameters: Parameters::new(&edge.options.parameters(), seed(edge, place, mechanism)?),
            event_log: (mechanism == Mechanism::Tap).then(|| log.display().to_string()),
            counters: None,
        })
    };
    let medium = topology.shared.map(|kind| match kind {
        MediumKind::Bridge => shared_bridge::plan(name, topology, &mut MechanismChooser::default()),
        MediumKind::Radio => radio::plan(name, topology, &mut MechanismChooser::default()),
    });
    let links = if medium.is_some() { &[][..] } else { &topology.links };
    Ok(Lab {
        schema: SCHEMA.to_owned(),
        name: name.to_owned(),
        state: LabState::Making,
        rootless,
        iproute2: iproute::version(),
        nodes: topology.nodes.iter().enumerate().map(node).collect::<Result<_, _>>()?,
        links: links.iter().enumerate().map(&mut link).collect::<Result<_, _>>()?,
        medium: medium.transpose()?,
        routing: topology.routing,
        daemons: Vec::new(),
    })
}

/// Returns the seed of one link: derived from the requested seed, different for each link, the same
/// in every lab.
fn seed(edge: &Edge, place: usize, mechanism: Mechanism) -> Result<Option<u64>, LabError> {
    if !edge.options.parameters().is_random() {
        return Ok(None);
    }
    match (mechanism, edge.options.seed) {
        (Mechanism::Veth | Mechanism::Tbf | Mechanism::Hwsim, _) | (Mechanism::Netem, None) => {
            Ok(None)
        }
        (_, Some(seed)) => Ok(Some(seed.wrapping_add(place as u64))),
        (Mechanism::Tap, None) => random().map(Some),
    }
}

/// Returns a name of four characters that are not easily confused.
fn random_name() -> Result<String, LabError> {
    const LETTERS: &[u8] = b"abcdefghjkmnpqrstuvwxyz";
    const ALL: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
    let mut bits = random()?;
    let mut pick = |from: &[u8]| {
        let n = from.len() as u64;
        let letter = from[(bits % n) as usize];
        bits /= n;
        char::from(letter)
    };
    Ok([LETTERS, ALL, ALL, ALL].into_iter().map(&mut pick).collect())
}

fn random() -> Result<u64, LabError> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(LabError::io("reading /dev/urandom"))?;
    // Limited to 53 bits, so that every JSON reader gets the same number.
    Ok(u64::from_ne_bytes(bytes) >> 11)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_name_is_valid() {
        let name = random_name().unwrap();
        assert!(is_lab_name(&name), "{name}");
    }
}
