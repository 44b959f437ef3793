//! Lab files named by a plan: their paths and the nodes they define. Other settings in these files
//! belong to the lab tool.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Table, Value};

use crate::error::PlanError;
use crate::source::Source;
use crate::topology::LabSpec;

/// Lab files by their path in the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabFiles {
    texts: BTreeMap<String, String>,
    nodes: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<String>,
}

impl LabFiles {
    /// The nodes of the file at `path`, if it was added.
    pub(crate) fn nodes(&self, path: &str) -> Option<&[String]> {
        self.nodes.get(path).map(Vec::as_slice)
    }
}

impl Source {
    /// The paths of all lab files that any cell may need.
    pub fn lab_files(&self) -> Vec<String> {
        let table = self.table();
        let constraints = table.get("constraint").and_then(Value::as_array).into_iter().flatten();
        let matrices = constraints.filter_map(|one| one.get("matrix")).chain(table.get("matrix"));
        let axes = matrices.filter_map(|matrix| matrix.get("topology.lab")?.as_array()).flatten();
        let base = table.get("topology").and_then(|topology: &Value| topology.get("lab"));
        let mut paths: Vec<String> = axes
            .chain(base)
            .filter_map(Value::as_str)
            .filter_map(|lab| match lab.parse() {
                Ok(LabSpec::File(path)) => Some(path),
                _ => None,
            })
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Adds the text of one of [`Self::lab_files`], or the reason why it cannot be read. Its nodes
    /// are known afterwards.
    ///
    /// # Errors
    /// If the file cannot be read or lists no nodes.
    pub fn add_lab_file(
        &mut self,
        path: &str,
        text: Result<String, String>,
    ) -> Result<(), PlanError> {
        let wrong = |why: String| self.error("topology.lab", format!("{path}: {why}"));
        let text = text.map_err(wrong)?;
        let table: Table =
            toml::from_str(&text).map_err(|error| wrong(error.to_string().trim().to_owned()))?;
        let nodes: Nodes = table.try_into().map_err(|_| {
            wrong("a lab file lists its nodes, like nodes = [\"robot\", \"base\"]".into())
        })?;
        self.labs.nodes.insert(path.to_owned(), nodes.nodes);
        self.labs.texts.insert(path.to_owned(), text);
        Ok(())
    }

    /// The added texts by path.
    pub fn lab_texts(&self) -> &BTreeMap<String, String> {
        &self.labs.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand;

    const PLAN: &str = "version = 1\nname = \"x\"\ntopology = { lab = \"a.toml\" }\n[ping]\n\
        from = \"robot\"\nto = \"base\"\ncount = 1\n";

    #[test]
    fn each_lab_file_is_listed_once() {
        let text = format!(
            "{PLAN}[matrix]\n\"topology.lab\" = [\"a.toml\", \"line:2\", \"c.toml\"]\n\
             [[constraint]]\nwhen = {{}}\nmatrix = {{ \"topology.lab\" = [\"b.toml\"] }}\n"
        );
        assert_eq!(Source::parse(&text).unwrap().lab_files(), ["a.toml", "b.toml", "c.toml"]);
        assert!(Source::parse("version = 1\n").unwrap().lab_files().is_empty());
    }

    #[test]
    fn node_missing_from_the_lab_file_is_refused() {
        let mut source = Source::parse(PLAN).unwrap();
        source.add_lab_file("a.toml", Ok("nodes = [\"robot\", \"base\"]".into())).unwrap();
        expand(&source, 1).unwrap();
        let mut source = Source::parse(&PLAN.replace("\"base\"", "\"n2\"")).unwrap();
        source.add_lab_file("a.toml", Ok("nodes = [\"robot\", \"base\"]".into())).unwrap();
        let error = expand(&source, 1).unwrap_err();
        assert_eq!((error.field.as_str(), error.at.clone().unwrap().line), ("ping.to", 6));
        assert!(error.message.contains("there are robot, base"), "{error}");
    }

    #[test]
    fn missing_or_empty_lab_file_is_a_plan_error() {
        for (text, words) in [
            (Err("No such file".to_owned()), "a.toml: No such file"),
            (Ok("nodes = 3".to_owned()), "lists its nodes"),
            (Ok("nodes = [".to_owned()), "line 1"),
        ] {
            let mut source = Source::parse(PLAN).unwrap();
            let error = source.add_lab_file("a.toml", text).unwrap_err();
            assert_eq!(error.at.clone().unwrap().line, 3);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
