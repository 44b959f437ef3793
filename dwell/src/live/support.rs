//! Capabilities of the terminal.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};

use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::symbols::bar;

/// Whether standard error can show a live view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// It is not a terminal.
    NoTerminal,
    /// It is a terminal that cannot move the cursor: TERM is dumb, empty or unset.
    NoCursor,
    /// It can.
    Full(Theme),
}

/// Characters and colours to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    /// The locale is UTF-8 and the font has braille patterns and blocks; otherwise ASCII is used.
    pub(super) has_unicode: bool,
    /// NO_COLOR is unset or empty.
    pub(super) has_color: bool,
}

/// Symbols of a sparkline in ASCII.
const ASCII_BARS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "=",
    five_eighths: "=",
    half: "-",
    three_eighths: "-",
    one_quarter: "_",
    one_eighth: "_",
    empty: " ",
};

impl Support {
    /// Support by standard error in this environment.
    pub(crate) fn detect() -> Self {
        Self::of(io::stderr().is_terminal(), |name| env::var_os(name))
    }

    fn of(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if !is_terminal {
            return Self::NoTerminal;
        }
        let Some(term) = set("TERM").filter(|term| term != "dumb") else {
            return Self::NoCursor;
        };
        // The first of these that is set decides (locale(7)).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let is_utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_string_lossy().to_ascii_lowercase();
            locale.ends_with("utf-8") || locale.ends_with("utf8")
        });
        // The font of the Linux console has 512 glyphs and no braille patterns.
        let has_unicode = is_utf8 && term != "linux";
        Self::Full(Theme { has_unicode, has_color: set("NO_COLOR").is_none() })
    }
}

impl Theme {
    /// The theme's variant of a symbol.
    pub(super) fn symbol(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.has_unicode { unicode } else { ascii }
    }

    /// Text in `color`, or without colour.
    pub(super) fn color(self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    /// Points per column of a chart.
    pub(super) fn points_per_column(self) -> usize {
        if self.has_unicode { 2 } else { 1 }
    }

    pub(super) fn marker(self) -> Marker {
        if self.has_unicode { Marker::Braille } else { Marker::Custom('*') }
    }

    pub(super) fn bars(self) -> bar::Set<'static> {
        if self.has_unicode { bar::NINE_LEVELS } else { ASCII_BARS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(is_terminal: bool, variables: &[(&str, &str)]) -> Support {
        Support::of(is_terminal, |name| {
            let value = variables.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn views_need_a_terminal_that_moves_the_cursor() {
        assert_eq!(with(false, &[("TERM", "xterm")]), Support::NoTerminal);
        for dumb in [&[][..], &[("TERM", "")], &[("TERM", "dumb")]] {
            assert_eq!(with(true, dumb), Support::NoCursor, "{dumb:?}");
        }
    }

    #[test]
    fn locale_and_no_color_choose_the_theme() {
        let full = |has_unicode, has_color| Support::Full(Theme { has_unicode, has_color });
        let utf8 = ("LANG", "en_US.UTF-8");
        for (variables, expected) in [
            (&[utf8][..], full(true, true)),
            (&[("LC_ALL", "C.utf8")], full(true, true)),
            (&[], full(false, true)),
            (&[utf8, ("LC_ALL", "C")], full(false, true)),
            (&[utf8, ("LC_ALL", "")], full(true, true)),
            (&[utf8, ("NO_COLOR", "1")], full(true, false)),
            (&[utf8, ("NO_COLOR", "")], full(true, true)),
        ] {
            let all = [&[("TERM", "xterm")][..], variables].concat();
            assert_eq!(with(true, &all), expected, "{variables:?}");
        }
        assert_eq!(with(true, &[("TERM", "linux"), utf8]), full(false, true));
    }
}
