//! Loads compiled programs and reports why the kernel refuses one.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{Object, ObjectBuilder, OpenObject, PrintLevel, set_print};

use super::BpfError;

/// Number of last verifier lines in an error; the verdict is at the end.
const MAX_ERROR_LINES: usize = 12;

/// Maximum number of bytes kept of libbpf's output; a verifier log may be megabytes long.
const MAX_OUTPUT: usize = 16 * 1_024;

/// Start and end of libbpf's line about a kernel function that the kernel lacks.
const NO_FUNCTION: [&str; 2] = ["extern (func ksym) '", "': not found in kernel"];

/// Line of the verifier about bpf_ktime_get_tai_ns (helper 208) on a kernel that lacks it.
const NO_TAI: &str = "invalid func unknown#208\n";

thread_local! {
    /// Output of libbpf on this thread since it was last taken.
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Opens an object file, lets `prepare` select programs and set constants, and loads it.
pub(super) fn load(
    bytes: &[u8],
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, BpfError> {
    static SET_PRINT: Once = Once::new();
    SET_PRINT.call_once(|| {
        set_print(Some((PrintLevel::Warn, append_output)));
    });
    OUTPUT.take();
    let loaded = ObjectBuilder::default().open_memory(bytes).and_then(|mut object| {
        prepare(&mut object)?;
        object.load()
    });
    loaded.map_err(|error| refusal(&error, &OUTPUT.take()))
}

fn refusal(error: &libbpf_rs::Error, output: &str) -> BpfError {
    // Without privilege the kernel fails before it runs the verifier.
    let is_verdict = output.contains("processed ");
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !is_verdict {
        return BpfError::NotPermitted(std::io::Error::from_raw_os_error(libc::EPERM));
    }
    if output.contains(NO_TAI) {
        return BpfError::TooOld { hooks: "CLOCK_TAI in eBPF programs", since: "6.1" };
    }
    let [start, end] = NO_FUNCTION;
    let after = output.split_once(start).and_then(|(_, after)| after.split_once(end));
    if let Some((function, _)) = after {
        return BpfError::NoFunction(function.to_owned());
    }
    let lines: Vec<_> = output
        .lines()
        .map(|line| line.trim_start_matches("libbpf: ").trim_end())
        .filter(|line| !line.is_empty() && !line.contains("PROG LOAD LOG --"))
        .collect();
    let last = &lines[lines.len().saturating_sub(MAX_ERROR_LINES)..];
    let reason = if last.is_empty() { error.to_string() } else { last.join("\n") };
    BpfError::Refused { reason }
}

/// Appends to the output, of which only the end is kept.
fn append_output(_: PrintLevel, line: String) {
    OUTPUT.with_borrow_mut(|said| {
        said.push_str(&line);
        if said.len() > MAX_OUTPUT {
            let from = said.ceil_char_boundary(said.len() - MAX_OUTPUT / 2);
            said.drain(..from);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &[u8] = include_bytes!("../../../bpf/refused.bpf.o");
    const MISSING_FUNCTION: &[u8] = include_bytes!("../../../bpf/missing_function.bpf.o");

    #[test]
    fn refused_program_error_contains_verifier_output() {
        match load(REFUSED, |_| Ok(())) {
            Err(BpfError::Refused { reason }) => {
                assert!(reason.contains("invalid"), "{reason}");
                assert!(reason.lines().count() <= MAX_ERROR_LINES, "{reason}");
            }
            Err(BpfError::NotPermitted(_)) => println!(
                "SKIP bpf::object::tests::refused_program_error_contains_verifier_output: \
                 needs root"
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn missing_kernel_function_is_named() {
        match load(MISSING_FUNCTION, |_| Ok(())) {
            Err(error @ BpfError::NoFunction(_)) => {
                assert!(error.is_unsupported());
                assert!(error.to_string().contains(" dwell_no_such_function,"), "{error}");
            }
            Err(BpfError::NotPermitted(_)) => {
                println!("SKIP bpf::object::tests::missing_kernel_function_is_named: needs root")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kernel_without_the_tai_clock_is_named_as_too_old() {
        let error = libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
        let log = "libbpf: prog 'reflect_probes': -- BEGIN PROG LOAD LOG --\n\
                   812: (85) call unknown#208\ninvalid func unknown#208\n\
                   processed 900 insns (limit 1000000)\n-- END PROG LOAD LOG --\n";
        let text = |log| refusal(&error, log).to_string();
        assert_eq!(text(log), "CLOCK_TAI in eBPF programs needs Linux 6.1");
        assert!(text(&log.replace("208", "2080")).starts_with("the kernel refused"));
    }

    #[test]
    fn invalid_object_file_is_refused() {
        assert!(matches!(load(b"no object", |_| Ok(())), Err(BpfError::Refused { .. })));
    }
}
