//! Certificate and key of the server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// Files of the certificate chain and of its key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Why TLS cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("cannot read {what} from {}: {reason}", path.display())]
    File {
        /// What it should contain.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Other users can read the key.
    #[error("{} is readable by others; restrict it with `chmod o-rwx {}`", .0.display(), .0.display())]
    ReadableKey(PathBuf),
    /// Certificate and key do not belong together, or are of an unknown kind.
    #[error("cannot use {} with {}", certificate.display(), key.display())]
    Unusable {
        /// Certificate.
        certificate: PathBuf,
        /// Key.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

impl TlsFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// A file is missing, malformed or readable by others, or the key is not that of the certificate.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(|all| if all.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(all) })
            .map_err(|error| unreadable("a certificate", &self.certificate, &error))?;
        let mode = fs::metadata(&self.key).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o007 != 0 {
            return Err(TlsError::ReadableKey(self.key.clone()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable("a private key", &self.key, &error))?;
        let unusable = |source| TlsError::Unusable {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn unreadable(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it contains none in PEM form".to_owned(),
        error => error.to_string(),
    };
    TlsError::File { what, path: path.to_owned(), reason }
}
