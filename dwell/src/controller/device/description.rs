//! Fields of a device's description on the command line.

use std::net::IpAddr;

use dwell_fleet::Device;

/// Maximum length of a text in bytes.
const MAX_TEXT_LEN: usize = 4_096;

/// Maximum length of a tag in bytes.
const MAX_TAG_LEN: usize = 63;

/// Maximum length of an interface name in bytes: IFNAMSIZ without the final zero.
const MAX_INTERFACE_LEN: usize = 15;

/// Fields of a description.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct DescriptionArgs {
    /// Model, such as 'Raspberry Pi 4B'
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(super) model: Option<String>,

    /// Use of the device, such as sender
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(super) role: Option<String>,

    /// Interface that carries test traffic, such as eth0; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = interface)]
    pub(super) interface: Vec<String>,

    /// IP address that probes are sent to; may be repeated [default: that of the SSH host]
    #[arg(long, value_name = "IP", value_delimiter = ',', value_parser = address)]
    pub(super) address: Vec<IpAddr>,

    /// Tag for selecting devices; may be repeated
    #[arg(long, value_name = "TAG", value_delimiter = ',', value_parser = tag)]
    pub(super) tag: Vec<String>,

    /// Note
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(super) note: Option<String>,

    /// Price, such as '35 USD'
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(super) price: Option<String>,

    /// Run the node as root, by sudo -n
    #[arg(long)]
    pub(super) sudo: bool,
}

dwell_units::named! {
    /// A field that can be cleared, by the name of its option.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Field {
        /// Model.
        Model = "model",
        /// Role.
        Role = "role",
        /// Interfaces.
        Interface = "interface",
        /// Addresses.
        Address = "address",
        /// Tags.
        Tag = "tag",
        /// Note.
        Note = "note",
        /// Price.
        Price = "price",
        /// Whether the node runs as root.
        Sudo = "sudo",
    }
}

impl Field {
    /// Reads a name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        Self::named(name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|field| field.name()).collect();
            format!("known fields: {}", known.join(", "))
        })
    }

    /// Clears the field of a device.
    pub(super) fn clear(self, device: &mut Device) {
        match self {
            Self::Model => device.model = None,
            Self::Role => device.role = None,
            Self::Interface => device.interfaces.clear(),
            Self::Address => device.addresses.clear(),
            Self::Tag => device.tags.clear(),
            Self::Note => device.notes = None,
            Self::Price => device.price = None,
            Self::Sudo => device.sudo = false,
        }
    }

    /// Value in words; empty without a value.
    pub(super) fn value(self, device: &Device) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match self {
            Self::Model => text(&device.model),
            Self::Role => text(&device.role),
            Self::Interface => device.interfaces.join(", "),
            Self::Address => {
                device.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
            }
            Self::Tag => device.tags.join(", "),
            Self::Note => text(&device.notes),
            Self::Price => text(&device.price),
            Self::Sudo => if device.sudo { "yes" } else { "" }.to_owned(),
        }
    }
}

impl DescriptionArgs {
    /// Whether a field is given.
    pub(super) fn sets(&self, field: Field) -> bool {
        match field {
            Field::Model => self.model.is_some(),
            Field::Role => self.role.is_some(),
            Field::Interface => !self.interface.is_empty(),
            Field::Address => !self.address.is_empty(),
            Field::Tag => !self.tag.is_empty(),
            Field::Note => self.note.is_some(),
            Field::Price => self.price.is_some(),
            Field::Sudo => self.sudo,
        }
    }

    /// Replaces the given fields of a device.
    pub(super) fn apply(&self, device: &mut Device) {
        let replace = |field: &mut Option<String>, given: &Option<String>| {
            if given.is_some() {
                field.clone_from(given);
            }
        };
        replace(&mut device.model, &self.model);
        replace(&mut device.role, &self.role);
        replace(&mut device.notes, &self.note);
        replace(&mut device.price, &self.price);
        replace_list(&mut device.interfaces, &self.interface);
        replace_list(&mut device.addresses, &self.address);
        replace_list(&mut device.tags, &self.tag);
        device.sudo |= self.sudo;
    }
}

/// Replaces a list by the given values, each once, if there are any.
fn replace_list<T: Clone + PartialEq>(field: &mut Vec<T>, given: &[T]) {
    if given.is_empty() {
        return;
    }
    field.clear();
    for value in given {
        if !field.contains(value) {
            field.push(value.clone());
        }
    }
}

fn text(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty; `dwell device edit NAME --clear FIELD` clears a field".into());
    }
    if text.len() > MAX_TEXT_LEN {
        return Err(format!("it has {} bytes; at most {MAX_TEXT_LEN} are allowed", text.len()));
    }
    Ok(text.to_owned())
}

fn interface(name: &str) -> Result<String, String> {
    // As the kernel checks names: dev_valid_name() in net/core/dev.c.
    let valid = |c: char| !c.is_whitespace() && !c.is_control() && !"/:".contains(c);
    if name.is_empty() || name.len() > MAX_INTERFACE_LEN || !name.chars().all(valid) {
        return Err(format!(
            "an interface has a name like eth0, of at most {MAX_INTERFACE_LEN} bytes, without \
             blanks, '/' and ':'"
        ));
    }
    Ok(name.to_owned())
}

fn address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        text.parse().map_err(|_| "give an IP address, like 192.0.2.7 or 2001:db8::7".to_owned())?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("probes need the address of one machine".into());
    }
    Ok(address)
}

fn tag(text: &str) -> Result<String, String> {
    let valid = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > MAX_TAG_LEN || !text.chars().all(valid) {
        return Err(format!(
            "a tag has letters, digits, '-', '_' and '.', at most {MAX_TAG_LEN} bytes"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_fields_are_replaced_and_others_kept() {
        let mut device = Device::new("pi4", "h").unwrap();
        device.model = Some("Pi".into());
        device.tags = vec!["old".into()];
        let args = DescriptionArgs {
            tag: vec!["shelf".into(), "lab".into(), "shelf".into()],
            note: Some("new antenna".into()),
            ..DescriptionArgs::default()
        };
        args.apply(&mut device);
        assert_eq!(device.model.as_deref(), Some("Pi"));
        assert_eq!(device.tags, ["shelf", "lab"]);
        assert_eq!(device.notes.as_deref(), Some("new antenna"));
        assert!(args.sets(Field::Tag) && !args.sets(Field::Model));
    }

    #[test]
    fn every_field_can_be_set_shown_and_cleared() {
        let bare = Device::new("pi4", "h").unwrap();
        let args = DescriptionArgs {
            model: Some("m".into()),
            role: Some("r".into()),
            interface: vec!["eth0".into()],
            address: vec!["192.0.2.7".parse().unwrap()],
            tag: vec!["t".into()],
            note: Some("n".into()),
            price: Some("p".into()),
            sudo: true,
        };
        for field in Field::ALL {
            assert_eq!(Field::parse(field.name()), Ok(field));
            let mut device = bare.clone();
            assert_eq!(field.value(&device), "");
            args.apply(&mut device);
            assert!(args.sets(field) && !field.value(&device).is_empty(), "{field:?}");
            field.clear(&mut device);
            assert_eq!(field.value(&device), "", "{field:?}");
        }
        assert!(Field::parse("colour").unwrap_err().contains("interface, address, tag"));
    }

    #[test]
    fn invalid_values_are_refused() {
        for wrong in ["", "a/b", "a b", "interface-with-a-long-name", "a\u{1b}"] {
            assert!(interface(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "a b", "a,b", "\u{202e}x"] {
            assert!(tag(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["pi", "0.0.0.0", "ff02::1", "192.0.2.7/24"] {
            assert!(address(wrong).is_err(), "{wrong:?}");
        }
        assert!(text(" ").is_err() && text(&"x".repeat(MAX_TEXT_LEN + 1)).is_err());
        assert_eq!(text(" a\nb "), Ok("a\nb".to_owned()));
    }
}
