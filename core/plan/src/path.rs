//! Paths of TOML fields: `ping.size`, `loads.busy.cpu[0].level`, `matrix."topology.link.rate"`.

use std::fmt;

use toml::{Table, Value};

/// Path of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Element(usize),
}

impl Path {
    /// Parses the path at the start of `text` and returns the remaining text.
    ///
    /// # Errors
    /// A message if the text does not start with a path.
    pub(crate) fn read(text: &str) -> Result<(Self, &str), String> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let key;
            (key, rest) = key_at(rest).ok_or_else(|| {
                format!("'{text}' is not a field path, like ping.size or loads.busy.cpu[0].level")
            })?;
            steps.push(Step::Key(key.to_owned()));
            while let Some((index, after)) =
                rest.strip_prefix('[').and_then(|inside| inside.split_once(']'))
            {
                let index = index
                    .trim()
                    .parse()
                    .map_err(|_| format!("[{index}] is not a list index; indices start at [0]"))?;
                steps.push(Step::Element(index));
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(after) => rest = after,
                None => return Ok((Self(steps), rest)),
            }
        }
    }

    /// Parses a text that consists of one path.
    ///
    /// # Errors
    /// A message if it does not.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        match Self::read(text)? {
            (path, "") => Ok(path),
            (_, rest) => Err(format!("unexpected '{rest}' in the path '{text}'")),
        }
    }

    /// Name of the outermost table.
    pub(crate) fn first(&self) -> &str {
        match self.0.first() {
            Some(Step::Key(key)) => key,
            _ => "",
        }
    }

    /// Returns whether the paths are equal or one contains the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }

    /// Path of the sibling field with this name.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.pop();
        steps.push(Step::Key(name.to_owned()));
        Self(steps)
    }

    /// Sets the field in `table` to `value` and creates missing tables.
    ///
    /// # Errors
    /// A message if the path crosses a value that is not a table, or exceeds a list.
    pub(crate) fn put(&self, table: &mut Table, value: Value) -> Result<(), String> {
        let [Step::Key(first), rest @ ..] = &self.0[..] else {
            return Err("a path starts with a name".into());
        };
        if rest.is_empty() {
            table.insert(first.clone(), value);
            return Ok(());
        }
        let below = table.entry(first.as_str()).or_insert_with(|| Value::Table(Table::new()));
        put_below(below, first, rest, value)
    }

    /// Removes the field from `table`, unless it is missing or inside a list.
    pub(crate) fn remove(&self, mut table: &mut Table) {
        for (n, step) in self.0.iter().enumerate() {
            let Step::Key(key) = step else { return };
            if n + 1 == self.0.len() {
                table.remove(key);
                return;
            }
            let Some(Value::Table(below)) = table.get_mut(key) else { return };
            table = below;
        }
    }
}

/// Sets the field at `steps` below `parent`, a value named `name`.
fn put_below(parent: &mut Value, name: &str, steps: &[Step], value: Value) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *parent = value;
        return Ok(());
    };
    match (step, parent) {
        (Step::Key(key), Value::Table(table)) => {
            let empty = || match rest {
                [] => Value::Boolean(false),
                _ => Value::Table(Table::new()),
            };
            put_below(table.entry(key.as_str()).or_insert_with(empty), key, rest, value)
        }
        (Step::Key(key), _) => Err(format!("'{name}' is not a table, so it has no '{key}'")),
        (Step::Element(index), Value::Array(list)) => {
            let count = list.len();
            let element = list.get_mut(*index).ok_or_else(|| {
                format!("'{name}' has {count} elements, starting at [0], so it has no [{index}]")
            })?;
            put_below(element, name, rest, value)
        }
        (Step::Element(index), _) => Err(format!("'{name}' is not a list, so it has no [{index}]")),
    }
}

/// Splits the bare or quoted key off the start of `text`.
fn key_at(text: &str) -> Option<(&str, &str)> {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote) {
            return inside.split_once(quote);
        }
    }
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

impl fmt::Display for Path {
    /// Formats as in stored positions, without quotation marks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if n == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Element(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_names_quoted_names_and_elements() {
        for (text, shown) in [
            ("ping.size", "ping.size"),
            ("loads.busy.cpu[0].level", "loads.busy.cpu[0].level"),
            ("matrix.\"topology.link.rate\"[1]", "matrix.topology.link.rate[1]"),
            ("'load'", "load"),
        ] {
            assert_eq!(Path::of(text).unwrap().to_string(), shown);
        }
        for text in ["", ".", "ping.", "ping..size", "[0]", "a[x]", "a[-1]", "a b", "\"open", "a[0"]
        {
            assert!(Path::of(text).is_err(), "{text}");
        }
        assert_eq!(Path::read("ping.size = 7").unwrap().1, " = 7");
    }

    #[test]
    fn value_is_put_only_into_existing_elements() {
        let mut table: Table = toml::from_str("a = [{ b = 1 }, { b = 2 }]").unwrap();
        let put =
            |table: &mut Table, path: &str| Path::of(path).unwrap().put(table, Value::Integer(9));
        put(&mut table, "a[1].b").unwrap();
        put(&mut table, "c.d.e").unwrap();
        assert_eq!(table["a"][1]["b"].as_integer(), Some(9));
        assert_eq!(table["c"]["d"]["e"].as_integer(), Some(9));
        assert!(put(&mut table, "a[2].b").unwrap_err().contains("2 elements"));
        assert!(put(&mut table, "a.b").unwrap_err().contains("not a table"));
        assert!(put(&mut table, "c[0]").unwrap_err().contains("not a list"));
    }

    #[test]
    fn paths_overlap_if_one_contains_the_other() {
        let overlap = |a: &str, b: &str| Path::of(a).unwrap().overlaps(&Path::of(b).unwrap());
        assert!(overlap("topology.link", "topology.link.rate"));
        assert!(overlap("ping.size", "ping.size"));
        assert!(!overlap("ping.size", "ping.sizes"));
        assert!(!overlap("a[0].b", "a[1].b"));
    }
}
