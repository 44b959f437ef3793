//! Names under which the server may be addressed. A page of a hostile site whose name was pointed at
//! this machine (DNS rebinding) sends its own name as `Host`, and is refused.

use std::net::IpAddr;

/// The permitted names and addresses besides loopback.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Permits loopback, the names given with `--host`, and the address listened on.
    pub(crate) fn new(listen: IpAddr, names: &[String]) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| normal(name)).collect();
        if !listen.is_unspecified() {
            names.push(listen.to_string());
        }
        Self { names }
    }

    /// Whether requests to this authority (`HOST` or `HOST:PORT`) are answered. The port is not
    /// compared: a tunnel has another one.
    pub(crate) fn permit(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        let host = normal(host);
        is_loopback(&host) || self.names.contains(&host)
    }
}

/// Whether a name or address can only mean this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    address || host == "localhost" || host.ends_with(".localhost")
}

/// Returns the host of an authority, without brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = port.strip_prefix(':').unwrap_or(port);
    let valid = !host.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    valid.then_some(host)
}

/// Lower case, without the dot of a fully qualified name; addresses in their usual form.
fn normal(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host.parse().map_or(host, |ip: IpAddr| ip.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_and_given_names_are_permitted_with_any_port() {
        let hosts = Hosts::new(Ipv4Addr::UNSPECIFIED.into(), &["Lab.Example.".into()]);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.:80",
            "dwell.localhost",
            "127.0.0.1:9000",
            "127.9.9.9",
            "[::1]",
            "[::1]:8080",
            "[0:0:0:0:0:0:0:1]:1",
            "[::ffff:127.0.0.1]",
            "lab.example",
            "LAB.example.:443",
        ] {
            assert!(hosts.permit(host), "{host}");
        }
    }

    #[test]
    fn foreign_and_malformed_names_are_refused() {
        let hosts = Hosts::new("192.0.2.5".parse().unwrap(), &["lab.example".into()]);
        assert!(hosts.permit("192.0.2.5:8080"), "the address listened on");
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "lab.example.evil",
            "evil-lab.example",
            "evil@localhost",
            "localhost:80@evil.example",
            "localhost:port",
            "0.0.0.0",
            "[::]",
            "[::1",
            "::1",
            "[localhost]",
            "192.0.2.6",
            ":8080",
            "local host",
        ] {
            assert!(!hosts.permit(host), "{host}");
        }
    }
}
