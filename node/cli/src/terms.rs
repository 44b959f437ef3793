//! `dwell help terms`: the glossary of metrics and values.

use std::ffi::OsString;
use std::io::{self, Write};

use dwell_stats::glossary::{Term, TermKind, terms};

use crate::{Exit, Failure};

/// Prints the glossary if the command line is `PROGRAM help terms [TEXT...]`. Returns `None` for
/// any other, which is left to the parser.
pub fn help(arguments: impl IntoIterator<Item = OsString>) -> Option<Result<Exit, Failure>> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != "help" || arguments.next()? != "terms" {
        return None;
    }
    let texts: Vec<String> = arguments.map(|text| text.to_string_lossy().into_owned()).collect();
    Some(print(&mut io::stdout().lock(), &texts))
}

/// Prints the terms whose name contains one of `texts`, or all terms.
fn print(out: &mut impl Write, texts: &[String]) -> Result<Exit, Failure> {
    let wanted = |term: &&Term| {
        texts.is_empty() || texts.iter().any(|text| term.name.contains(text.as_str()))
    };
    let mut found = false;
    let kinds = [
        (TermKind::Metric, "Metrics: distributions of delays, under \"metrics\" in JSON"),
        (TermKind::Value, "Values: single numbers, under \"values\" in JSON"),
    ];
    for (kind, title) in kinds {
        let all: Vec<_> = terms(kind).iter().filter(wanted).collect();
        if all.is_empty() {
            continue;
        }
        let gap = if found { "\n" } else { "" };
        writeln!(out, "{gap}{title}")?;
        for Term { name, meaning, source } in all {
            writeln!(out, "  {name:24} {meaning} [{source}]")?;
        }
        found = true;
    }
    if !found {
        return Err(Failure::usage(format!(
            "no term contains '{}'; 'help terms' without a word lists all",
            texts.join("' or '")
        )));
    }
    Ok(Exit::Measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(words: &[&str]) -> Option<String> {
        let texts: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut text = Vec::new();
        print(&mut text, &texts).ok().map(|_| String::from_utf8(text).unwrap())
    }

    #[test]
    fn glossary_lists_all_terms_or_those_that_match() {
        let all = printed(&[]).unwrap();
        assert!(all.contains("  rtt_ns                   round-trip delay"), "{all}");
        assert!(all.contains("[RFC 2681]") && all.contains("loss_ratio"), "{all}");
        let some = printed(&["ipdv"]).unwrap();
        assert!(some.lines().count() == 4 && some.contains("RFC 3393"), "{some}");
        assert_eq!(printed(&["nonsense"]), None);
    }

    #[test]
    fn other_help_is_left_to_the_parser() {
        let help = |words: &[&str]| help(words.iter().map(OsString::from)).is_some();
        assert!(!help(&["dwell", "help", "ping"]));
        assert!(!help(&["dwell", "help"]));
        assert!(!help(&["dwell", "ping", "terms"]));
    }
}
