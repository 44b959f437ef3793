//! The owner of a run: who started it, on which host.

use std::fs;

/// Maximum length of a user or host name, in characters.
const MAX_NAME_LEN: usize = 64;

/// Returns the owner of a run that starts now, as `USER@HOST`. The user of sudo(8) is the one who
/// called it. This names a person for others to ask; it proves nothing.
pub fn owner() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let called_sudo = std::env::var("SUDO_USER").ok().filter(|_| uid == 0);
    let listed = || user_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid);
    let user = called_sudo
        .or_else(listed)
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_else(|| uid.to_string());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{}@{}", word(&user), word(&host))
}

/// Returns the name of a user in the format of passwd(5).
fn user_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let of = fields.nth(1)?.parse::<u32>().ok()?;
        (of == uid).then(|| name.to_owned())
    })
}

/// Shortens a name and replaces blanks and control characters, which the environment may contain.
fn word(name: &str) -> String {
    let safe = |c: char| if c.is_whitespace() || c.is_control() { '_' } else { c };
    name.chars().take(MAX_NAME_LEN).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nalice:x:1000:1000::/home/a:/bin/sh\n";
        assert_eq!(user_in(passwd, 1_000).as_deref(), Some("alice"));
        assert_eq!(user_in(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_in(passwd, 7), None);
    }

    #[test]
    fn owner_has_one_line_without_blanks() {
        assert_eq!(word("a b\n\u{1b}[2Jc"), "a_b__[2Jc");
        assert_eq!(word(&"x".repeat(100)).len(), MAX_NAME_LEN);
        let owner = owner();
        assert!(owner.contains('@') && !owner.contains(char::is_whitespace), "{owner}");
    }
}
