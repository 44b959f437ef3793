//! `dwell device edit`: changes or clears fields of a device.

use dwell_fleet::Device;
use dwell_node_cli::{Exit, Failure};
use dwell_results::device::one_line;
use dwell_store::StoreError;

use super::super::data::DataArgs;
use super::add::{description, exists};
use super::catalogue::{find, open};
use super::description::{DescriptionArgs, Field};

/// Arguments of `device edit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Fields that are not named keep their value. --interface, --address and --tag replace the whole list.")]
pub(super) struct Args {
    /// Name of the device
    device: String,

    /// New name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// New destination
    #[arg(long, value_name = "[USER@]HOST[:PORT]")]
    destination: Option<String>,

    #[command(flatten)]
    description: DescriptionArgs,

    /// Clear a field, by the name of its option, such as note; may be repeated
    #[arg(long, value_name = "FIELD", value_delimiter = ',', value_parser = Field::parse)]
    clear: Vec<Field>,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    check_fields(args)?;
    let mut store = open(&args.data)?;
    loop {
        let known = find(&store, &args.device)?;
        let changed = changed(args, &known.device)?;
        match store.set_device(&known.row, &changed.name, &description(&changed)?) {
            Err(StoreError::DeviceExists(name)) => return Err(exists(&store, &name)),
            Err(error) => return Err(error.into()),
            // Another process has changed the device since it was read.
            Ok(false) => {}
            Ok(true) => {
                super::super::print(&changes(&known.device, &changed))?;
                return Ok(Exit::Measured);
            }
        }
    }
}

/// Refuses a command line that changes nothing, or sets and clears a field.
fn check_fields(args: &Args) -> Result<(), Failure> {
    let sets = |field: &Field| args.description.sets(*field);
    if let Some(field) = args.clear.iter().find(|field| sets(field)) {
        let name = field.name();
        return Err(Failure::usage(format!("--{name} sets the field that --clear {name} clears")));
    }
    let is_set = Field::ALL.iter().any(sets);
    if !is_set && args.clear.is_empty() && args.name.is_none() && args.destination.is_none() {
        let fields: Vec<String> =
            Field::ALL.iter().map(|field| format!("--{}", field.name())).collect();
        return Err(Failure::usage(format!(
            "nothing to change; give --name, --destination, {} or --clear FIELD",
            fields.join(", ")
        )));
    }
    Ok(())
}

fn changed(args: &Args, device: &Device) -> Result<Device, Failure> {
    let name = args.name.as_ref().unwrap_or(&device.name);
    let destination = args.destination.as_ref().unwrap_or(&device.destination);
    Device::new(name, destination).map_err(|error| Failure::usage(error.to_string()))?;
    let mut changed = device.clone();
    changed.name.clone_from(name);
    changed.destination.clone_from(destination);
    args.description.apply(&mut changed);
    args.clear.iter().for_each(|field| field.clear(&mut changed));
    Ok(changed)
}

/// Lists the changed fields with both values.
fn changes(before: &Device, after: &Device) -> String {
    let shown = |value: &str| match value {
        "" => "none".to_owned(),
        value => one_line(value),
    };
    let fields = Field::ALL.map(|field| (field.name(), field.value(before), field.value(after)));
    let all = [
        ("name", before.name.clone(), after.name.clone()),
        ("destination", before.destination.clone(), after.destination.clone()),
    ];
    let lines: Vec<String> = all
        .into_iter()
        .chain(fields)
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| format!("  {name}: {} -> {}", shown(&before), shown(&after)))
        .collect();
    match lines.is_empty() {
        true => format!("device {} is unchanged", before.name),
        false => format!("changed device {}\n{}", before.name, lines.join("\n")),
    }
}
