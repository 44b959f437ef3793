//! `dwell generate`: writes man pages and shell completions, both from the command definition. They
//! are committed under `docs/`, and a test compares them with newly generated ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use dwell_node_cli::{Exit, Failure, NodeProgram, examples};

use crate::Program;

/// What to generate.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Generate {
    /// Write a man page per command
    Man(Directory),
    /// Write completions for bash, zsh and fish
    Completions(Directory),
}

/// Output directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Directory {
    /// Output directory; created if it does not exist
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

impl Generate {
    /// Writes the files for both binaries.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let (Self::Man(directory) | Self::Completions(directory)) = &self;
        let directory = directory.path.as_path();
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create directory {}", directory.display()))?;
        let dwell = examples::command::<Program>(&crate::example_tables());
        let node = examples::command::<NodeProgram>(&examples::node_tables());
        for program in [dwell, node] {
            match self {
                Self::Man(_) => man_pages(program, directory),
                Self::Completions(_) => completions(program, directory),
            }
            .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
        Ok(Exit::Measured)
    }
}

fn completions(program: Command, directory: &Path) -> io::Result<()> {
    let name = program.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, format!("{name}.bash")),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        fs::write(directory.join(file), completion_script(shell, &program))?;
    }
    Ok(())
}

/// Returns the completions of a program for one shell.
pub(crate) fn completion_script(shell: Shell, program: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(program), program.get_name(), &mut script);
    script
}

/// Returns the command without its hidden parts, which the generators would include.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|a| !a.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|c| !c.is_hide_set()).map(visible));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}

/// Writes a page for the program and one for each command: `dwell-lab-up.1` for `dwell lab up`.
fn man_pages(program: Command, directory: &Path) -> io::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    man_page_tree(&program, directory)
}

fn man_page_tree(command: &Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        man_page_tree(subcommand, directory)?;
    }
    let man = Man::new(command.clone())
        .source(concat!("dwell ", env!("CARGO_PKG_VERSION")))
        .manual("dwell manual");
    let mut page = File::create(directory.join(man.get_filename()))?;
    man.render(&mut page)?;
    page.write_all(exit_status().as_bytes())
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
        Exit::Unsupported => "Not supported here, or a privilege is missing.",
        Exit::Undecided => {
            "Measured, but a stated threshold cannot be decided: too few samples, or the limit is \
             inside the interval."
        }
        Exit::Interrupted => "Interrupted; results up to then are written.",
    }
}
