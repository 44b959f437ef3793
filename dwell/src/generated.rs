//! Man pages and shell completions, both from the command definition. They are committed under
//! `docs/`, and these tests compare them with newly generated ones. With `BLESS=1` they write them
//! instead (`make man`, `make completions`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::{env, fs};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use dwell_node_cli::{Exit, NodeProgram, examples};

use crate::completions::completion_script;
use crate::{Program, example_tables};

/// Content of files by name.
type Files = BTreeMap<String, Vec<u8>>;

#[test]
fn man_pages_match_the_command_definition() {
    let mut pages = Files::new();
    for program in programs() {
        let mut program = program.disable_help_subcommand(true);
        program.build();
        add_man_pages(&mut pages, &program);
    }
    assert_committed(&pages, "man");
}

#[test]
fn completions_match_the_command_definition() {
    let mut scripts = Files::new();
    for program in programs() {
        let name = program.get_name();
        for (shell, file) in [
            (Shell::Bash, format!("{name}.bash")),
            (Shell::Zsh, format!("_{name}")),
            (Shell::Fish, format!("{name}.fish")),
        ] {
            scripts.insert(file, completion_script(shell, &program));
        }
    }
    assert_committed(&scripts, "completions");
}

fn programs() -> [Command; 2] {
    [
        examples::command::<Program>(&example_tables()),
        examples::command::<NodeProgram>(&examples::node_tables()),
    ]
}

fn assert_committed(fresh: &Files, what: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(what);
    let committed = files(&directory).unwrap();
    let names = fresh.keys().chain(committed.keys());
    let stale: Vec<_> = names.filter(|name| fresh.get(*name) != committed.get(*name)).collect();
    if env::var_os("BLESS").is_none() {
        assert!(
            stale.is_empty(),
            "out of date: {stale:?}; run `make {what}` and commit the result"
        );
        return;
    }
    for name in stale {
        let path = directory.join(name);
        match fresh.get(name) {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
    }
}

fn files(directory: &Path) -> io::Result<Files> {
    fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect()
}

/// Adds a page for the command and one for each below it: `dwell-lab-up.1` for `dwell lab up`.
fn add_man_pages(pages: &mut Files, command: &Command) {
    let below = command.get_subcommands().filter(|c| !c.is_hide_set());
    below.for_each(|below| add_man_pages(pages, below));
    let man = Man::new(command.clone())
        .source(concat!("dwell ", env!("CARGO_PKG_VERSION")))
        .manual("dwell manual");
    let mut page = Vec::new();
    man.render(&mut page).unwrap();
    page.extend(exit_status().into_bytes());
    pages.insert(man.get_filename(), page);
}

/// Returns the last section of every page.
fn exit_status() -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in [
        Exit::Measured,
        Exit::Failed,
        Exit::Usage,
        Exit::Threshold,
        Exit::Unsupported,
        Exit::Undecided,
        Exit::Interrupted,
    ] {
        roff.control("TP", []);
        roff.text([bold((exit as u8).to_string())]);
        roff.text([roman(meaning(exit))]);
    }
    roff.render()
}

fn meaning(exit: Exit) -> &'static str {
    match exit {
        Exit::Measured => "Success. A server that is stopped on request also exits with 0.",
        Exit::Failed => "Runtime failure, including no reply at all.",
        Exit::Usage => "Usage error: invalid command line, plan or input file.",
        Exit::Threshold => "Measured, but a stated threshold failed.",
        Exit::Unsupported => "Not supported or not permitted here.",
        Exit::Undecided => {
            "Measured, but a stated threshold cannot be decided: too few samples, or the limit is \
             inside the interval."
        }
        Exit::Interrupted => "Interrupted; results up to then are written.",
    }
}
