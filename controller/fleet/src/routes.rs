//! The routes between nodes, as their kernels have them.

use serde::Deserialize;

/// The routes between all nodes of a lab with a routing daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Routes {
    routes: Vec<RouteEntry>,
}

/// The route from one node to an address of another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct RouteEntry {
    from: String,
    to: String,
    address: String,
    gateway: Option<String>,
    interface: Option<String>,
}

impl Routes {
    /// Reads the output of `dwell lab routes --json`; `None` if it is something else.
    pub fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// Describes the first route that differs in `now`; `None` if the tables are equal.
    pub fn change(&self, now: &Self) -> Option<String> {
        let removed = self.routes.iter().find(|route| !now.routes.contains(route));
        let RouteEntry { from, to, address, .. } =
            removed.or_else(|| now.routes.iter().find(|route| !self.routes.contains(route)))?;
        Some(format!("the route from {from} to {to} ({address}) changed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(gateway: &str) -> Routes {
        let text = format!(
            "{{\"schema\": \"dwell.lab-routes/1\", \"routes\": [{{\"from\": \"n1\", \"to\": \"n3\",\
             \"address\": \"10.0.0.3\", \"protocol\": \"babel\", \"gateway\": {gateway},\
             \"interface\": \"n2\"}}]}}"
        );
        Routes::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn changed_route_is_named() {
        let before = table("\"10.0.0.2\"");
        assert_eq!(before.change(&table("\"10.0.0.2\"")), None);
        let change = before.change(&table("null")).unwrap();
        assert_eq!(change, "the route from n1 to n3 (10.0.0.3) changed");
        assert_eq!(Routes::read(b"{}"), None);
    }
}
