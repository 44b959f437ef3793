//! Tests `dwell completions`, which prints the completions that the repository also contains as
//! files.

use std::process::Command;

fn printed(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dwell")).args(["completions", shell]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{shell}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_of_every_shell_go_to_standard_output() {
    for (shell, sign) in [
        ("bash", "complete -F _dwell"),
        ("zsh", "#compdef dwell"),
        ("fish", "complete -c dwell"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = printed(shell);
        assert!(script.contains(sign) && script.contains("ping"), "{shell}");
    }
}

#[test]
fn unknown_shell_is_refused_with_the_known_ones() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_dwell")).args(["completions", "tcsh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("bash") && said.contains("fish"), "{said}");
}

#[test]
fn help_terms_does_not_replace_command_help() {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dwell")).arg("help").args(words).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help(&["terms"]).contains("[RFC 2681]"));
    assert!(help(&["compare"]).contains("Usage: dwell compare"));
}
