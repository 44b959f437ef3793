//! Where a request comes from: decisions on `Origin` and the Fetch Metadata headers, which browsers
//! send and scripts of pages cannot change.

/// What a browser says about the page that sends a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source<'a> {
    /// `Origin`.
    pub(crate) origin: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub(crate) site: Option<&'a str>,
    /// `Sec-Fetch-Mode`.
    pub(crate) mode: Option<&'a str>,
    /// `Sec-Fetch-Dest`.
    pub(crate) dest: Option<&'a str>,
    /// `User-Agent`, which a page cannot change without asking the other site first.
    pub(crate) agent: Option<&'a str>,
}

impl Source<'_> {
    /// Whether a page of this server, or the person at the browser, sends the request. Requests
    /// without these headers pass: they come from other programs or from old browsers.
    pub(crate) fn is_own(&self, authority: &str, tls: bool) -> bool {
        let site = self.site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        site && self.origin.is_none_or(|origin| is_origin_of(origin, authority, tls))
    }

    /// Whether a page of another site loads this address as a part of itself (picture, script, frame,
    /// fetch). Following a link is permitted.
    pub(crate) fn is_embedding(&self) -> bool {
        let foreign = matches!(self.site, Some("cross-site" | "same-site"));
        let link = self.mode == Some("navigate")
            && self.dest.is_none_or(|dest| dest == "document" || dest == "empty");
        foreign && !link
    }

    /// Whether a browser sends the request: all browsers name themselves Mozilla.
    pub(crate) fn is_browser(&self) -> bool {
        let mozilla = self.agent.is_some_and(|agent| agent.contains("Mozilla/"));
        mozilla || self.origin.is_some() || self.site.is_some()
    }
}

/// Whether an origin (`SCHEME://HOST[:PORT]`) is the one of this authority. Without TLS both schemes
/// are accepted, as a proxy in front may add TLS.
fn is_origin_of(origin: &str, authority: &str, tls: bool) -> bool {
    let host = match origin.split_once("://") {
        Some(("https", host)) => host.strip_suffix(":443").unwrap_or(host),
        Some(("http", host)) if !tls => host.strip_suffix(":80").unwrap_or(host),
        _ => return false,
    };
    let ports: &[&str] = if tls { &[":443"] } else { &[":80", ":443"] };
    let own = ports.iter().find_map(|port| authority.strip_suffix(port)).unwrap_or(authority);
    host.eq_ignore_ascii_case(own)
}

/// Whether a page may send this content type to another site without asking it first (CORS). A
/// request without a content type counts as one.
pub(crate) fn is_simple_content_type(content_type: Option<&str>) -> bool {
    let Some(value) = content_type else { return true };
    let kind = value.split([';', ',']).next().unwrap_or_default().trim().to_ascii_lowercase();
    let simple = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""];
    simple.contains(&kind.as_str()) || !kind.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from<'a>(origin: Option<&'a str>, site: Option<&'a str>) -> Source<'a> {
        Source { origin, site, ..Source::default() }
    }

    #[test]
    fn own_pages_and_programs_pass() {
        for (origin, site, authority, tls) in [
            (None, None, "localhost:8080", false),
            (None, Some("none"), "localhost:8080", false),
            (Some("http://localhost:8080"), Some("same-origin"), "localhost:8080", false),
            (Some("http://LOCALHOST:8080"), None, "localhost:8080", false),
            (Some("https://lab.example"), None, "lab.example", true),
            (Some("https://lab.example"), None, "lab.example:443", true),
            (Some("https://lab.example"), None, "lab.example", false),
            (Some("http://lab.example"), None, "lab.example:80", false),
            (Some("http://[::1]:8080"), None, "[::1]:8080", false),
        ] {
            assert!(from(origin, site).is_own(authority, tls), "{origin:?} {site:?} {authority}");
        }
    }

    #[test]
    fn foreign_pages_are_refused() {
        for (origin, site, tls) in [
            (Some("http://evil.example"), None, false),
            (Some("http://lab.example"), None, true),
            (Some("http://lab.example:8081"), None, false),
            (Some("http://lab.example.evil"), None, false),
            (Some("http://evil@lab.example"), None, false),
            (Some("null"), None, false),
            (Some(""), None, false),
            (Some("lab.example"), None, false),
            (Some("file://lab.example"), None, false),
            (None, Some("cross-site"), false),
            (None, Some("same-site"), false),
            (None, Some("new-value"), false),
            (Some("http://lab.example"), Some("cross-site"), false),
        ] {
            assert!(!from(origin, site).is_own("lab.example", tls), "{origin:?} {site:?}");
        }
    }

    #[test]
    fn links_are_followed_and_parts_of_foreign_pages_are_not() {
        let source = |site, mode, dest| Source {
            site: Some(site),
            mode: Some(mode),
            dest: Some(dest),
            ..Source::default()
        };
        for (site, mode, dest, embedding) in [
            ("cross-site", "navigate", "document", false),
            ("same-site", "navigate", "document", false),
            ("none", "navigate", "document", false),
            ("same-origin", "cors", "empty", false),
            ("same-origin", "no-cors", "script", false),
            ("cross-site", "navigate", "iframe", true),
            ("cross-site", "navigate", "object", true),
            ("cross-site", "no-cors", "image", true),
            ("cross-site", "cors", "empty", true),
            ("same-site", "no-cors", "script", true),
        ] {
            let text = format!("{site} {mode} {dest}");
            assert_eq!(source(site, mode, dest).is_embedding(), embedding, "{text}");
        }
        assert!(!Source::default().is_embedding());
    }

    #[test]
    fn content_types_that_a_page_may_send_unasked_are_simple() {
        for simple in [
            "text/plain",
            "TEXT/PLAIN; charset=utf-8",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
            "json",
            "text/plain, application/json",
        ] {
            assert!(is_simple_content_type(Some(simple)), "{simple}");
        }
        assert!(is_simple_content_type(None));
        for asked in ["application/json", "application/json; charset=utf-8", "application/toml"] {
            assert!(!is_simple_content_type(Some(asked)), "{asked}");
        }
    }
}
