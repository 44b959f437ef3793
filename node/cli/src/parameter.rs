//! Usage errors about options that are defined in `dwell-protocol`.

use clap::{Args, Command};
use dwell_protocol::ParameterError;

use crate::Failure;

/// The usage error of a value outside its range; `A` has its flag.
pub(crate) fn usage<A: Args>(error: &ParameterError) -> Failure {
    let ParameterError { field, value, right } = error;
    let command = A::augment_args(Command::new(""));
    let option = command.get_arguments().find(|option| option.get_id() == field);
    let flag = option.and_then(|option| option.get_long()).unwrap_or(field);
    Failure::usage(format!("invalid value {value} for --{flag}: {right}"))
}

#[cfg(test)]
mod tests {
    use dwell_protocol::PingParameters;

    use super::*;

    #[test]
    fn message_names_the_flag_of_the_field() {
        let error = |field| ParameterError { field, value: "0s".into(), right: "above 0" };
        let text = |field| usage::<PingParameters>(&error(field)).error.to_string();
        assert_eq!(text("timeout"), "invalid value 0s for --timeout: above 0");
        assert_eq!(text("duration"), "invalid value 0s for --deadline: above 0");
    }
}
