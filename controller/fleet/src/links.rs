//! The links of a lab as they were created. A plan or a lab file states what links should do; how
//! they are emulated is decided when they are created.

use serde_json::Value;

/// A link, or a medium shared by several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedLink {
    /// The nodes it connects.
    pub nodes: Vec<String>,
    /// Bits per second; `None` if not limited.
    pub rate_bps: Option<u64>,
    /// `veth`, `netem`, `tbf` or `tap`.
    pub mechanism: String,
}

impl CreatedLink {
    /// Reads the links from the output of `dwell lab up --json` (`dwell.lab/1`). Unreadable links
    /// are left out.
    pub(crate) fn read(lab: &[u8]) -> Vec<Self> {
        let lab: Value = serde_json::from_slice(lab).unwrap_or_default();
        let links = lab["links"].as_array().into_iter().flatten();
        let of_link = |link: &Value| Self::of(link, &[&link["a"], &link["b"]]);
        let medium = &lab["medium"];
        let ports = medium["ports"].as_array().into_iter().flatten();
        let on_medium: Vec<&Value> = ports.map(|port| &port["node"]).collect();
        links.filter_map(of_link).chain(Self::of(medium, &on_medium)).collect()
    }

    fn of(description: &Value, nodes: &[&Value]) -> Option<Self> {
        Some(Self {
            nodes: nodes.iter().filter_map(|node| node.as_str()).map(str::to_owned).collect(),
            rate_bps: description["parameters"]["rate_bps"].as_u64(),
            mechanism: description["mechanism"].as_str()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_media_are_read_from_the_lab() {
        let line = br#"{"schema": "dwell.lab/1", "medium": null, "links": [
            {"a": "n1", "b": "n2", "mechanism": "tbf", "parameters": {"rate_bps": 5000000}},
            {"a": "n2", "b": "n3", "mechanism": "veth", "parameters": {"rate_bps": null}}]}"#;
        let links = CreatedLink::read(line);
        assert_eq!((links[0].rate_bps, links[0].mechanism.as_str()), (Some(5_000_000), "tbf"));
        assert_eq!(
            (links[1].rate_bps, links[1].nodes.as_slice()),
            (None, &["n2", "n3"].map(str::to_owned)[..])
        );
        let forced = br#"{"links": [], "medium": {"mechanism": "netem",
            "parameters": {"rate_bps": 65}, "ports": [{"node": "n1"}, {"node": "n2"}]}}"#;
        assert_eq!(CreatedLink::read(forced)[0].nodes, ["n1", "n2"]);
        assert_eq!(CreatedLink::read(b"no lab"), []);
        assert_eq!(CreatedLink::read(br#"{"links": [7, {"a": 1}]}"#), []);
    }
}
