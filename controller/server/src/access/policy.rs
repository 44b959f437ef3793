//! What `dwell serve` demands before it listens: pure decisions on its options.

use std::net::IpAddr;

/// What the options say.
#[derive(Clone, Copy, Debug)]
pub struct Exposure<'a> {
    /// Address to listen on.
    pub listen: IpAddr,
    /// Further names by which the server is reached (`--host`).
    pub hosts: &'a [String],
    /// Whether a certificate and its key are given.
    pub tls: bool,
    /// `--insecure-http`.
    pub insecure_http: bool,
    /// `--require-token`.
    pub require_token: bool,
    /// Whether the data directory has a token.
    pub has_token: bool,
}

/// What has to be added to the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A token, and why it is needed.
    Token(&'static str),
    /// A certificate, or consent to send everything unencrypted.
    Encryption,
}

impl Exposure<'_> {
    /// Returns everything that is missing.
    pub fn missing(&self) -> Vec<Missing> {
        let remote = !self.listen.to_canonical().is_loopback();
        let reason = if remote {
            Some("other machines can reach this address")
        } else if self.hosts.iter().any(|host| !super::host::is_loopback(host)) {
            Some("--host means that other machines reach the server through a proxy")
        } else {
            self.require_token.then_some("--require-token is given")
        };
        let token = reason.filter(|_| !self.has_token).map(Missing::Token);
        let encryption =
            (remote && !self.tls && !self.insecure_http).then_some(Missing::Encryption);
        token.into_iter().chain(encryption).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Exposure<'static> = Exposure {
        listen: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        hosts: &[],
        tls: false,
        insecure_http: false,
        require_token: false,
        has_token: false,
    };

    fn missing(exposure: &Exposure) -> (bool, bool) {
        let missing = exposure.missing();
        let token = missing.iter().any(|one| matches!(one, Missing::Token(_)));
        (token, missing.contains(&Missing::Encryption))
    }

    #[test]
    fn loopback_needs_nothing() {
        for listen in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let exposure = Exposure { listen: listen.parse().unwrap(), ..LOCAL };
            assert_eq!(exposure.missing(), [], "{listen}");
        }
    }

    #[test]
    fn other_addresses_need_a_token_and_encryption_or_consent() {
        for listen in ["0.0.0.0", "::", "192.0.2.5", "10.0.0.1", "fe80::1", "::ffff:192.0.2.5"] {
            let remote = Exposure { listen: listen.parse().unwrap(), ..LOCAL };
            assert_eq!(missing(&remote), (true, true), "{listen}");
            assert_eq!(missing(&Exposure { has_token: true, ..remote }), (false, true));
            assert_eq!(missing(&Exposure { tls: true, ..remote }), (true, false));
            assert_eq!(missing(&Exposure { insecure_http: true, ..remote }), (true, false));
            let all = Exposure { has_token: true, tls: true, ..remote };
            assert_eq!(missing(&all), (false, false));
        }
    }

    #[test]
    fn loopback_behind_a_proxy_needs_a_token() {
        let hosts = ["lab.example".to_owned()];
        assert_eq!(missing(&Exposure { hosts: &hosts, ..LOCAL }), (true, false));
        let hosts = ["dwell.localhost".to_owned()];
        assert_eq!(missing(&Exposure { hosts: &hosts, ..LOCAL }), (false, false));
        assert_eq!(missing(&Exposure { require_token: true, ..LOCAL }), (true, false));
    }
}
