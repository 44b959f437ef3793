//! A client that sends what no client library does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::network::Network;

/// A connection with the key of a node.
pub(crate) struct RawClient(StreamOwned<ClientConnection, TcpStream>);

impl RawClient {
    pub(crate) fn connect(network: &Network, seed: &str) -> Self {
        let mut tcp = TcpStream::connect(("127.0.0.1", network.port)).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let info = read_line(&mut tcp);
        let info: Value = serde_json::from_str(info.strip_prefix("INFO ").unwrap()).unwrap();
        let pair = nkeys::KeyPair::from_seed(seed).unwrap();
        let signature = pair.sign(info["nonce"].as_str().unwrap().as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(network.path("ca.pem")).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut client = Self(StreamOwned::new(tls, tcp));
        let options = json!({
            "verbose": false, "pedantic": false, "tls_required": true, "headers": true,
            "nkey": pair.public_key(), "sig": URL_SAFE_NO_PAD.encode(signature),
        });
        client.0.write_all(format!("CONNECT {options}\r\n").as_bytes()).unwrap();
        client.flush();
        client
    }

    /// Publishes bytes as the headers of a message.
    pub(crate) fn publish(&mut self, subject: &str, reply: &[u8], headers: &[u8], payload: &[u8]) {
        let lens = format!(" {} {}\r\n", headers.len(), headers.len() + payload.len());
        let parts =
            [b"HPUB ", subject.as_bytes(), b" ", reply, lens.as_bytes(), headers, payload, b"\r\n"];
        self.0.write_all(&parts.concat()).unwrap();
        self.flush();
    }

    /// Waits until the server has taken all messages.
    fn flush(&mut self) {
        self.0.write_all(b"PING\r\n").unwrap();
        loop {
            let line = read_line(&mut self.0);
            assert!(!line.starts_with("-ERR"), "{line}");
            if line == "PONG" {
                return;
            }
        }
    }
}

fn read_line(stream: &mut impl Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}
