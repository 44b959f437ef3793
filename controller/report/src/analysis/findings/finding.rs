//! A finding.

use std::borrow::Cow;

use serde::Serialize;

/// One or a few sentences about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject: `delay`, `effect-<axis>`, `loss`, `failed`, `trust` ...
    pub id: String,
    /// Plain text without markup.
    pub text: String,
}

/// Maximum number of characters of a finding without its details.
const MAX_LEAD_LEN: usize = 160;

/// End of a sentence that is cut.
const CUT: &str = " ...";

impl Finding {
    /// The first sentences, at most 160 characters, and the rest, its details. A longer first
    /// sentence is cut, and the details have the whole text.
    pub fn lead_and_details(&self) -> (Cow<'_, str>, &str) {
        let fits = |end: &usize| self.text[..*end].chars().count() <= MAX_LEAD_LEN;
        if let Some(end) = sentence_ends(&self.text).take_while(fits).last() {
            return (self.text[..end].into(), self.text[end..].trim_start());
        }
        let spaces = self.text.match_indices(' ').map(|(at, _)| at);
        let fits = |end: &usize| self.text[..*end].chars().count() + CUT.len() <= MAX_LEAD_LEN;
        let end = spaces.take_while(fits).last().unwrap_or_default();
        (format!("{}{CUT}", &self.text[..end]).into(), &self.text)
    }

    /// Whether the data do not decide what the first sentence is about.
    pub(crate) fn is_undecided(&self) -> bool {
        let end = sentence_ends(&self.text).next().unwrap_or(self.text.len());
        self.text[..end].to_lowercase().contains("cannot tell")
    }
}

/// Byte positions after the full stops of sentences.
fn sentence_ends(text: &str) -> impl Iterator<Item = usize> {
    let starts = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let stops = text.match_indices(". ").map(|(at, _)| at + 1);
    stops.filter(move |end| starts(&text[end + 1..])).chain([text.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(text: &str) -> Finding {
        Finding { id: "effect-load".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn lead_has_whole_sentences_of_at_most_160_characters() {
        let short =
            finding("Delay: p99.9 rose 3x (1. to 2.5 us). Also different at b. Intervals: 95 %.");
        assert_eq!(short.lead_and_details(), (short.text.as_str().into(), ""));
        let long =
            finding(&format!("Delay: p99 rose. {} Intervals: 95 %.", "Also more. ".repeat(20)));
        let (lead, details) = long.lead_and_details();
        assert!(lead.len() <= MAX_LEAD_LEN && lead.ends_with("more."), "{lead}");
        assert_eq!(format!("{lead} {details}"), long.text);
        let first = format!("Delay: {}.", "very ".repeat(40));
        let longer = finding(&format!("{first} Second."));
        let (lead, details) = longer.lead_and_details();
        assert!(lead.len() <= MAX_LEAD_LEN && lead.ends_with("very ..."), "{lead}");
        assert_eq!(details, longer.text, "a cut sentence is in the details");
    }

    #[test]
    fn only_the_first_sentence_decides() {
        assert!(finding("Cannot tell whether load changes it. Other.").is_undecided());
        assert!(!finding("Delay: p99 rose. Cannot tell at b.").is_undecided());
    }
}
