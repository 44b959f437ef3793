//! Services, destinations and own addresses for the program in the driver.

use std::net::{IpAddr, SocketAddr};

use dwell_engine::reflector::{DriverService, MAX_DESTINATIONS, MAX_SERVICES};
use dwell_io::bpf::DriverDestination;
use dwell_io::interface::{Interface, OwnAddress};
use dwell_protocol::ReflectEngine;

use super::Listen;
use crate::{Failure, protocols};

/// Addresses for the program in the driver.
pub(super) struct Addresses {
    pub(super) destinations: Vec<DriverDestination>,
    /// Sources that get no reply.
    pub(super) own: Vec<IpAddr>,
}

/// Returns the addresses for the program.
///
/// # Errors
/// The program has not enough room for them.
pub(super) fn resolve(
    engine: ReflectEngine,
    services: &[DriverService],
    interface: &Interface,
    all: &[OwnAddress],
) -> Result<Addresses, Failure> {
    let is_loopback = interface.name == "lo";
    let is_here = |own: &OwnAddress| match own.address {
        _ if is_loopback => true,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => own.interface == interface.index,
        address => !address.is_loopback(),
    };
    let mut here: Vec<_> = all.iter().filter(|own| is_here(own)).map(|own| own.address).collect();
    here.sort_unstable();
    here.dedup();
    let mut destinations = Vec::new();
    for (number, service) in (0..).zip(services) {
        let (local_gap, global_gap) = service.gaps();
        destinations.extend(service.addresses(&here).map(|address| DriverDestination {
            to: SocketAddr::new(address, service.listen.port()),
            kind: service.reply as u32,
            service: number,
            local_gap,
            global_gap,
        }));
    }
    let broadcast = all.iter().filter_map(|own| own.broadcast).map(IpAddr::V4);
    let mut own: Vec<_> = all.iter().map(|own| own.address).chain(broadcast).collect();
    own.sort_unstable();
    own.dedup();
    if destinations.len() > MAX_DESTINATIONS || own.len() > MAX_DESTINATIONS {
        return Err(Failure::usage(format!(
            "--engine {} answers at most {MAX_DESTINATIONS} pairs of address and port, and these {} \
             URLs have {} on a machine with {} addresses; name addresses instead of 0.0.0.0 and [::]",
            engine.name(),
            services.len(),
            destinations.len(),
            own.len()
        )));
    }
    Ok(Addresses { destinations, own })
}

/// Refuses addresses of other machines where no socket would.
pub(super) fn check_addresses(listens: &[Listen], own: &[OwnAddress]) -> Result<(), Failure> {
    let mut portless = listens.iter().filter(|listen| !listen.scheme.spec().has_reflector());
    let foreign = portless.find(|listen| {
        let ip = listen.address.ip();
        !ip.is_unspecified() && !own.iter().any(|own| own.address == ip)
    });
    match foreign {
        Some(Listen { url, address, .. }) => {
            let ip = address.ip();
            Err(Failure::usage(format!("{url}: {ip} is not an address of this machine")))
        }
        None => Ok(()),
    }
}

/// Numbers the services that the program answers.
pub(super) fn number_services(
    engine: ReflectEngine,
    listens: &mut [Listen],
) -> Result<Vec<DriverService>, Failure> {
    let engine = engine.name();
    let mut services = Vec::new();
    for listen in listens {
        // The program has no HMAC.
        let reply = listen.scheme.spec().driver_reply.filter(|_| listen.key.is_none());
        let Some(reply) = reply else { continue };
        listen.service = Some(services.len() as u32);
        let Listen { address, limit, .. } = *listen;
        services.push(DriverService { reply, listen: address, limits: limit });
    }
    match services.len() {
        0 => Err(Failure::usage(format!(
            "--engine {engine} answers {} without a key; use --engine socket for others",
            protocols::urls_with(|spec| spec.driver_reply.is_some())
        ))),
        1..=MAX_SERVICES => Ok(services),
        more => Err(Failure::usage(format!(
            "--engine {engine} answers at most {MAX_SERVICES} addresses, not {more}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dwell_engine::protocol::DriverReply;

    use super::*;
    use crate::Exit;

    #[test]
    fn more_pairs_than_there_is_room_for_are_refused_at_start() {
        let interface = Interface {
            index: 2,
            name: "eth0".to_owned(),
            up: true,
            mtu: Some(1_500),
            qdisc: None,
            driver: None,
            offloads: None,
            stamping: None,
        };
        let addresses = |count: u32| -> Vec<OwnAddress> {
            let first = u32::from(Ipv4Addr::new(10, 0, 0, 1));
            let address = |n| IpAddr::V4(Ipv4Addr::from(first + n));
            (0..count)
                .map(|n| OwnAddress { interface: 2, address: address(n), broadcast: None })
                .collect()
        };
        let services = [7_001, 7_002].map(|port| DriverService {
            reply: DriverReply::Echo,
            listen: SocketAddr::from(([0, 0, 0, 0], port)),
            limits: None,
        });
        let resolve = |services: &[_], addresses: &[_]| {
            super::resolve(ReflectEngine::Auto, services, &interface, addresses)
        };
        let room = resolve(&services, &addresses(2_048)).unwrap();
        assert_eq!((room.destinations.len(), room.own.len()), (4_096, 2_048));
        let failure = resolve(&services, &addresses(2_049)).err().unwrap();
        assert_eq!(failure.exit, Exit::Usage);
        let text = failure.error.to_string();
        let parts = [
            "--engine auto answers at most 4096 pairs",
            "2 URLs have 4098",
            "2049 addresses",
            "name addresses",
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        // One service on fewer addresses than the machine has.
        let named = [DriverService { listen: "10.0.0.1:7001".parse().unwrap(), ..services[0] }];
        assert!(resolve(&named, &addresses(4_096)).is_ok());
        assert!(resolve(&named, &addresses(4_097)).is_err());
    }
}
