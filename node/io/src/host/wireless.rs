//! Wi-Fi radios: requests to nl80211, and to mac80211_hwsim, which simulates radios. Both see the
//! network namespace of the thread that opened them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use dwell_host::netlink::{Attributes, attribute, u32_of};
use dwell_host::nl80211;
pub use dwell_host::{Channel, Network, Station, WirelessInterface, neighbouring_channels};
use dwell_units::Nanos;

use crate::clock;
use crate::host::generic_netlink::Family;

/// Time-out of a scan of a few channels.
const SCAN_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Command and attribute of mac80211_hwsim (drivers/net/wireless/virtual/mac80211_hwsim.h).
const HWSIM_CMD_NEW_RADIO: u8 = 4;
const HWSIM_ATTR_RADIO_NAME: u16 = 17;

/// The radios of a network namespace.
#[derive(Debug)]
pub struct Wireless(Family);

/// An ad hoc network (IBSS) without encryption, on a channel 20 MHz wide with the rates of 802.11n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdHocNetwork {
    /// Name (SSID), at most 32 bytes.
    pub name: String,
    /// BSSID. Nodes that know it need not search the network.
    pub bssid: [u8; 6],
    /// Centre frequency of the channel in MHz.
    pub frequency_mhz: u32,
}

impl Wireless {
    /// Opens nl80211; `None` if this kernel has no radios.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn open() -> io::Result<Option<Self>> {
        Ok(Family::open(nl80211::FAMILY)?.map(Self))
    }

    /// Returns all wireless interfaces.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn interfaces(&self) -> io::Result<Vec<WirelessInterface>> {
        let all = self.0.dump(nl80211::CMD_GET_INTERFACE, &Attributes::default())?;
        Ok(all.iter().filter_map(|message| WirelessInterface::parse(message)).collect())
    }

    /// Returns the stations in reach of the interface with this index.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not list stations.
    pub fn stations(&self, interface: u32) -> io::Result<Vec<Station>> {
        let all = self.0.dump(nl80211::CMD_GET_STATION, &of_interface(interface))?;
        Ok(all.iter().filter_map(|message| Station::parse(message)).collect())
    }

    /// Returns the survey of the channels that the interface with this index has received on.
    ///
    /// # Errors
    /// There is no such interface, or its driver has no survey.
    pub fn channels(&self, interface: u32) -> io::Result<Vec<Channel>> {
        let all = self.0.dump(nl80211::CMD_GET_SURVEY, &of_interface(interface))?;
        Ok(all.iter().filter_map(|message| Channel::parse(message)).collect())
    }

    /// Listens on channels, given by their frequencies in MHz, without sending; returns the networks
    /// received. Takes about 0.1 s per channel, in which the interface with this index neither sends
    /// nor receives on its own channel. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Not permitted, a channel is unknown to the radio, the interface is down, or the scan was
    /// aborted or did not end within ten seconds.
    pub fn scan(&self, interface: u32, frequencies: &[u32]) -> io::Result<Vec<Network>> {
        let events = Family::open(nl80211::FAMILY)?.ok_or(io::ErrorKind::Unsupported)?;
        events.subscribe(nl80211::SCAN_GROUP)?;
        let listed = (1..).zip(frequencies);
        let listed = listed.fold(Attributes::default(), |list, (n, mhz)| list.with_u32(n, *mhz));
        // Without names to ask for, the scan is passive.
        let request =
            of_interface(interface).with(nl80211::ATTR_SCAN_FREQUENCIES, listed.as_bytes());
        let start = clock::monotonic();
        self.0.run(nl80211::CMD_TRIGGER_SCAN, &request)?;
        let ended = events.event(SCAN_TIMEOUT, |command, attributes| {
            let of = attribute(attributes, nl80211::ATTR_IFINDEX).and_then(u32_of);
            match command {
                nl80211::CMD_NEW_SCAN_RESULTS if of == Some(interface) => Some(true),
                nl80211::CMD_SCAN_ABORTED if of == Some(interface) => Some(false),
                _ => None,
            }
        })?;
        match ended {
            Some(true) => {}
            Some(false) => return Err(io::Error::other("the scan was aborted")),
            None => return Err(io::ErrorKind::TimedOut.into()),
        }
        let all = self.0.dump(nl80211::CMD_GET_SCAN, &of_interface(interface))?;
        // The kernel also lists networks that earlier scans received.
        let elapsed_ms = (clock::monotonic() - start).0 / 1_000_000;
        let networks = all.iter().filter_map(|message| Network::parse(message));
        Ok(networks.filter(|network| i64::from(network.age_ms) <= elapsed_ms).collect())
    }

    /// Moves a radio (wiphy) with its interfaces to the network namespace at `path`.
    ///
    /// # Errors
    /// There is no such radio or namespace, or its driver does not support namespaces.
    pub fn move_radio(&self, radio: u32, path: &Path) -> io::Result<()> {
        let namespace = File::open(path)?;
        let descriptor = namespace.as_raw_fd().cast_unsigned();
        let attributes = Attributes::default()
            .with_u32(nl80211::ATTR_WIPHY, radio)
            .with_u32(nl80211::ATTR_NETNS_FD, descriptor);
        self.0.run(nl80211::CMD_SET_WIPHY_NETNS, &attributes).map(drop)
    }

    /// Switches the interface with this index to ad hoc mode. It must be down.
    ///
    /// # Errors
    /// It is up, or its driver has no such mode.
    pub fn set_ad_hoc(&self, interface: u32) -> io::Result<()> {
        let attributes =
            of_interface(interface).with_u32(nl80211::ATTR_IFTYPE, nl80211::IFTYPE_ADHOC);
        self.0.run(nl80211::CMD_SET_INTERFACE, &attributes).map(drop)
    }

    /// Joins an ad hoc network with the interface of this index, which must be up and in ad hoc
    /// mode. The network is created if no other node is in reach.
    ///
    /// # Errors
    /// The interface is down, or regulations forbid the channel.
    pub fn join_ad_hoc(&self, interface: u32, network: &AdHocNetwork) -> io::Result<()> {
        let attributes = of_interface(interface)
            .with(nl80211::ATTR_SSID, network.name.as_bytes())
            .with_u32(nl80211::ATTR_WIPHY_FREQ, network.frequency_mhz)
            .with_u32(nl80211::ATTR_WIPHY_CHANNEL_TYPE, nl80211::CHAN_HT20)
            .with(nl80211::ATTR_FREQ_FIXED, &[])
            .with(nl80211::ATTR_MAC, &network.bssid);
        self.0.run(nl80211::CMD_JOIN_IBSS, &attributes).map(drop)
    }
}

fn of_interface(index: u32) -> Attributes {
    Attributes::default().with_u32(nl80211::ATTR_IFINDEX, index)
}

/// The kernel's simulator of radios, mac80211_hwsim.
#[derive(Debug)]
pub struct RadioSimulator(Family);

impl RadioSimulator {
    /// Opens the simulator; `None` if its module is not loaded.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn open() -> io::Result<Option<Self>> {
        Ok(Family::open("MAC80211_HWSIM")?.map(Self))
    }

    /// Creates a radio with one interface in this network namespace; returns its number. Frames
    /// pass only between radios that were created in the same namespace. A radio ends with the
    /// namespace that it is in, unless it was created in the machine's own.
    ///
    /// # Errors
    /// Not permitted (CAP_NET_ADMIN in the user namespace), or another radio has the name.
    pub fn create(&self, name: &str) -> io::Result<u32> {
        let attributes = Attributes::default().with(HWSIM_ATTR_RADIO_NAME, name.as_bytes());
        self.0.run(HWSIM_CMD_NEW_RADIO, &attributes)
    }
}
