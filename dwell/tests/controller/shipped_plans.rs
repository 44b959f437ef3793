//! Plans in `plans/`, validated by the real binary.

use crate::fixture::{Sandbox, repository, stdout};

#[test]
fn every_shipped_plan_passes_a_dry_run() {
    let sandbox = Sandbox::new();
    let entries = std::fs::read_dir(repository("plans")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let plans: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    assert!(plans.len() >= 20, "{plans:?}");
    for plan in plans {
        // Some name files from the root of the repository.
        let mut command = sandbox.command(&["run", plan.to_str().unwrap(), "--dry-run"]);
        let output = command.current_dir(repository("")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", plan.display());
        assert!(stdout(&output).contains("trial"), "{}: {output:?}", plan.display());
    }
    assert!(!sandbox.data().exists(), "a dry run creates no directory");
}
