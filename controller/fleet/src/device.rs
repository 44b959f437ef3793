//! A device as the user describes it: a machine that is reached by SSH.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Maximum length of a device's name in bytes.
const MAX_NAME_LEN: usize = 63;

/// Maximum length of a destination in bytes.
const MAX_DESTINATION_LEN: usize = 512;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name in dwell: letters, digits, `-`, `_` and `.`, not starting with `-` or `.`.
    pub name: String,
    /// Where ssh(1) connects: `[user@]host[:port]`, or a name from ssh_config(5).
    pub destination: String,
    /// Model, such as `Raspberry Pi 4B`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the device is used for, such as `sender`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Interfaces that carry test traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Addresses that probes are sent to. Without any, its end of the ssh connection is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Tags by which devices are selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Price as free text, such as `35 USD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Whether the node runs through `sudo -n`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
}

impl Device {
    /// Returns a device with this name and destination.
    ///
    /// # Errors
    /// The name or the destination is invalid.
    pub fn new(name: &str, destination: &str) -> Result<Self, DeviceError> {
        if !is_name(name) {
            return Err(DeviceError::Name(name.to_owned()));
        }
        split_destination(destination)
            .ok_or_else(|| DeviceError::Destination(destination.to_owned()))?;
        Ok(Self {
            name: name.to_owned(),
            destination: destination.to_owned(),
            model: None,
            role: None,
            interfaces: Vec::new(),
            addresses: Vec::new(),
            tags: Vec::new(),
            notes: None,
            price: None,
            sudo: false,
        })
    }

    /// Returns the arguments of ssh(1) that select this destination: `-p PORT` and `-l USER` where
    /// given, and the host last.
    pub fn ssh_arguments(&self) -> Vec<String> {
        let (user, host, port) = self.parts();
        let port = port.into_iter().flat_map(|port| ["-p".to_owned(), port.to_string()]);
        let user = user.into_iter().flat_map(|user| ["-l".to_owned(), user.to_owned()]);
        port.chain(user).chain(["--".to_owned(), host.to_owned()]).collect()
    }

    /// Returns user, host and port of the destination.
    pub(crate) fn parts(&self) -> (Option<&str>, &str, Option<u16>) {
        split_destination(&self.destination).unwrap_or_default()
    }
}

/// A name or destination that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The name.
    Name(String),
    /// The destination.
    Destination(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "invalid device name '{name}': use letters, digits, '-', '_' and '.', not first '-' or \
                 '.', at most {MAX_NAME_LEN}"
            ),
            Self::Destination(destination) => write!(
                f,
                "invalid destination '{destination}': give [user@]host[:port], like pi@192.0.2.7 or \
                 pi@[2001:db8::7]:2222, or a name from ~/.ssh/config"
            ),
        }
    }
}

impl std::error::Error for DeviceError {}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty()
        && name.len() <= MAX_NAME_LEN
        && name.bytes().all(allowed)
        && !name.starts_with(['-', '.'])
}

/// Splits a destination into user, host and port. An IPv6 address with a port is in brackets.
fn split_destination(destination: &str) -> Option<(Option<&str>, &str, Option<u16>)> {
    let printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if destination.len() > MAX_DESTINATION_LEN || !printable(destination) {
        return None;
    }
    let (user, rest) = match destination.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, destination),
    };
    let (host, port) = if let Some(bracketed) = rest.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else if rest.parse::<std::net::Ipv6Addr>().is_ok() {
        (rest, None)
    } else {
        match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        }
    };
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port != 0)?),
        None => None,
    };
    // An option of ssh must not be hidden in a host or user.
    let valid = |part: &str| !part.is_empty() && !part.starts_with('-');
    (valid(host) && user.is_none_or(valid)).then_some((user, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(destination: &str) -> String {
        Device::new("d", destination).unwrap().ssh_arguments().join(" ")
    }

    #[test]
    fn destination_becomes_arguments_of_ssh() {
        assert_eq!(arguments("pi4"), "-- pi4");
        assert_eq!(arguments("pi@192.0.2.7"), "-l pi -- 192.0.2.7");
        assert_eq!(arguments("pi@board:2222"), "-p 2222 -l pi -- board");
        assert_eq!(arguments("2001:db8::7"), "-- 2001:db8::7");
        assert_eq!(arguments("root@[2001:db8::7]:22"), "-p 22 -l root -- 2001:db8::7");
        assert_eq!(arguments("a@realm@host"), "-l a@realm -- host");
        assert_eq!(arguments("pi@[2001:db8::7]"), "-l pi -- 2001:db8::7");
    }

    #[test]
    fn invalid_destination_or_name_is_refused() {
        let long = "h".repeat(MAX_DESTINATION_LEN + 1);
        for destination in [
            "",
            "@h",
            "pi@",
            "-oProxyCommand=x",
            "pi@-x",
            "h:0",
            "h:99999",
            "h:x",
            "[::1",
            "[h]:1",
            "a b",
            &long,
        ] {
            let error = Device::new("d", destination).unwrap_err();
            assert_eq!(error, DeviceError::Destination(destination.to_owned()));
        }
        for name in ["", "-x", ".x", "a/b", "a b", "ü", &"n".repeat(MAX_NAME_LEN + 1)] {
            assert_eq!(Device::new(name, "h").unwrap_err(), DeviceError::Name(name.to_owned()));
        }
    }

    #[test]
    fn description_survives_a_json_round_trip() {
        let mut device = Device::new("pi4", "pi@192.0.2.7").unwrap();
        device.addresses = vec!["192.0.2.107".parse().unwrap()];
        device.sudo = true;
        let text = serde_json::to_string(&device).unwrap();
        assert_eq!(serde_json::from_str::<Device>(&text).unwrap(), device);
        let bare = Device::new("pi4", "pi").unwrap();
        let text = serde_json::to_string(&bare).unwrap();
        assert_eq!(text, r#"{"name":"pi4","destination":"pi"}"#);
    }
}
