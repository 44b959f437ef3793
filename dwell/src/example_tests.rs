//! Every command of both programs ends its help with two valid examples.

use clap::Command;
use dwell_node_cli::{NodeProgram, examples};

use crate::{Program, example_tables};

#[test]
fn every_command_ends_its_help_with_two_examples() {
    check(&examples::command::<Program>(&example_tables())).unwrap();
    check(&examples::command::<NodeProgram>(&examples::node_tables())).unwrap();
}

/// Checks that the help of `command` and of every visible subcommand ends with two examples, and
/// that `command` accepts them. Returns the first failure.
fn check(command: &Command) -> Result<(), String> {
    let program = command.get_name().to_owned();
    check_below(command, command, &program, &program)
}

fn check_below(
    whole: &Command,
    command: &Command,
    path: &str,
    program: &str,
) -> Result<(), String> {
    let help = command.clone().render_long_help().to_string();
    let Some((_, text)) = help.rsplit_once("\nExamples:\n") else {
        return Err(format!("'{path} --help' does not end with examples"));
    };
    let start = format!("{program} ");
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() < 2 || !lines.iter().all(|line| line.starts_with(&start)) {
        return Err(format!("'{path} --help' does not end with two examples: {text}"));
    }
    for line in lines {
        // Shell redirections are not arguments. `help` prints instead of being parsed.
        let typed = line.split(['<', '>']).next().filter(|_| !line.contains('\'')).unwrap_or(line);
        let parsed = whole.clone().try_get_matches_from(words(typed));
        if let Err(error) = parsed
            && !line.starts_with(&format!("{program} help "))
        {
            return Err(format!("'{line}' is refused: {error}"));
        }
    }
    let visible = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    visible.into_iter().try_for_each(|below| {
        check_below(whole, below, &format!("{path} {}", below.get_name()), program)
    })
}

/// Splits a command line into words; single quotes group.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}
