//! The ways between nodes, as their kernels have them.

use serde::Deserialize;

/// The ways between all nodes of a lab whose routes a daemon keeps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Routes {
    routes: Vec<Way>,
}

/// How one node reaches an address of another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Way {
    from: String,
    to: String,
    address: String,
    gateway: Option<String>,
    interface: Option<String>,
}

impl Routes {
    /// From what `dwell lab routes --json` prints; `None` when it is no such thing.
    pub fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// What is different in `now`, in words: the first of what is. `None` when nothing is.
    pub fn change(&self, now: &Self) -> Option<String> {
        let gone = self.routes.iter().find(|way| !now.routes.contains(way));
        let Way { from, to, address, .. } =
            gone.or_else(|| now.routes.iter().find(|way| !self.routes.contains(way)))?;
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
    fn a_way_that_became_another_is_named() {
        let before = table("\"10.0.0.2\"");
        assert_eq!(before.change(&table("\"10.0.0.2\"")), None);
        let change = before.change(&table("null")).unwrap();
        assert_eq!(change, "the route from n1 to n3 (10.0.0.3) changed");
        assert_eq!(Routes::read(b"{}"), None);
    }
}
