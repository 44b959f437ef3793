//! Converts serde and TOML messages into messages for plan authors.

/// Minimum similarity of a suggestion (Jaro-Winkler, 1 for equal names).
const MIN_SIMILARITY: f64 = 0.85;

/// Rewrites a message of the TOML parser; `written` is the word at the error.
pub(crate) fn toml_message(message: &str, written: Option<&str>) -> String {
    // The parser takes a word that starts like nan, inf, true or false for one of them.
    const WORD_ERRORS: [&str; 2] = ["invalid float", "invalid boolean"];
    const INTEGER_ERRORS: [&str; 3] =
        ["invalid type: integer", "integer number overflowed", "u64 value was too large"];
    let message = message.trim();
    let begins = |all: &[&str]| all.iter().any(|one| message.starts_with(one));
    let Some(written) = written.filter(|written| !written.is_empty()) else {
        return message.to_owned();
    };
    let is_number = written.starts_with(|c: char| c.is_ascii_digit());
    if message.starts_with("string values must be quoted") || begins(&WORD_ERRORS) && !is_number {
        return format!("'{written}' is not a value; put text in quotes: \"{written}\"");
    }
    if begins(&INTEGER_ERRORS) {
        let (min, max) = (i64::MIN, i64::MAX);
        return format!("{written} is too large or small; whole numbers are from {min} to {max}");
    }
    message.to_owned()
}

/// Rewrites a serde message with the type names of plans and a suggestion for misspelt names.
pub(crate) fn serde_message(message: &str) -> String {
    // serde writes "unknown field `x`, expected one of `a`, `b`"; plans use single quotation marks.
    let text = message.trim().replace('`', "'");
    let Some((wrong, expected)) = text.split_once(", expected ") else { return text };
    let right = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        table if table.starts_with("struct ") => "a table",
        other => other,
    };
    let mut names = text.split('\'').skip(1).step_by(2);
    let suggestion = names.next().filter(|_| wrong.starts_with("unknown ")).and_then(|written| {
        names
            .map(|name| (strsim::jaro_winkler(written, name), name))
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
    });
    match suggestion {
        Some((_, name)) => format!("{wrong}; did you mean '{name}'? Expected {right}"),
        None => format!("{wrong}, expected {right}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_gets_a_suggestion() {
        let message =
            serde_message("unknown field `cuont`, expected one of `from`, `count`, `size`\n");
        assert_eq!(
            message,
            "unknown field 'cuont'; did you mean 'count'? Expected one of 'from', 'count', 'size'"
        );
        let message = serde_message("unknown field `zebra`, expected `cpu` or `traffic`");
        assert_eq!(message, "unknown field 'zebra', expected 'cpu' or 'traffic'");
    }

    #[test]
    fn types_have_plain_names() {
        for (message, expected) in [
            ("invalid type: string \"x\", expected u32", "0 to 4294967295"),
            ("invalid value: integer `-1`, expected usize", "0 or more"),
            ("invalid type: integer `5`, expected struct PingPlan", "expected a table"),
            ("missing field `version`", "missing field 'version'"),
        ] {
            assert!(serde_message(message).ends_with(expected), "{}", serde_message(message));
        }
    }
}
