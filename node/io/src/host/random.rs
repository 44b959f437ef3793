//! Random numbers from the kernel, for values that must be unpredictable.

use std::io;

/// Fills `bytes`. Blocks until the kernel's generator is ready, which it is soon after booting.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`, borrowed exclusively.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(more) => filled += more,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_draws_differ() {
        let (mut one, mut other) = ([0; 16], [0; 16]);
        super::fill(&mut one).unwrap();
        super::fill(&mut other).unwrap();
        assert!(one != other && one != [0; 16]);
    }
}
