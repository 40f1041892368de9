//! The TLS certificate in use, and its replacement at run time.
//!
//! Takes the certificate files of the configuration; gives the acceptor for new connections. Promise: new files are
//! used together and without a restart; files that cannot be used change nothing, and open connections stay.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use sluice_config::TlsConfig;
use sluice_core::UtcMillis;
use sluice_core::certificate::not_after;
use tokio_rustls::TlsAcceptor;

/// The certificate in use, with the files it comes from.
#[derive(Debug)]
pub struct LiveTls {
    files: TlsConfig,
    current: ArcSwap<LoadedCertificate>,
    /// The digest of files that were read and could not be used.
    refused: Mutex<Option<[u8; 32]>>,
}

#[derive(Debug)]
struct LoadedCertificate {
    config: Arc<rustls::ServerConfig>,
    /// The digest of the files.
    read: [u8; 32],
    until: Option<UtcMillis>,
}

/// The result of a reload.
#[derive(Debug, PartialEq, Eq)]
pub enum TlsReloadOutcome {
    /// The files are in use already, or were refused before.
    Same,
    /// The new files are in use from now on.
    Used,
    /// The new files cannot be used; the old ones stay.
    Refused(String),
}

impl LiveTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn load(files: &TlsConfig) -> Result<Self, String> {
        let current = ArcSwap::from_pointee(certificate(&CertificateFiles::from(files)?)?);
        Ok(Self { files: files.clone(), current, refused: Mutex::new(None) })
    }

    /// The acceptor for the next connection.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// When the certificate in use expires, if it says so.
    #[must_use]
    pub fn until(&self) -> Option<UtcMillis> {
        self.current.load().until
    }

    /// Reads the files again.
    pub fn reload(&self, now: UtcMillis) -> TlsReloadOutcome {
        let mut refused = self.refused.lock();
        let (digest, fresh) = match CertificateFiles::from(&self.files) {
            Ok(read) if read.digest == self.current.load().read => {
                *refused = None;
                return TlsReloadOutcome::Same;
            }
            Ok(read) => (read.digest, certificate(&read)),
            Err(why) => (Sha256::digest(why.as_bytes()).into(), Err(why)),
        };
        let fresh = fresh.and_then(|fresh| match fresh.until {
            Some(until) if until <= now => Err(format!("it has expired ({until})")),
            Some(_) | None => Ok(fresh),
        });
        match fresh {
            Ok(fresh) => {
                self.current.store(Arc::new(fresh));
                *refused = None;
                TlsReloadOutcome::Used
            }
            Err(_) if refused.replace(digest) == Some(digest) => TlsReloadOutcome::Same,
            Err(why) => TlsReloadOutcome::Refused(why),
        }
    }
}

/// When the first certificate of a file expires.
///
/// # Errors
/// When the file holds no certificate.
pub fn until_of(path: &Path) -> Result<Option<UtcMillis>, String> {
    let bytes = std::fs::read(path).map_err(|error| said(path, &error))?;
    let first = CertificateDer::pem_slice_iter(&bytes).next().ok_or_else(|| said(path, &"it holds no certificate"))?;
    Ok(not_after(&first.map_err(|error| said(path, &error))?))
}

/// Both files, read once.
struct CertificateFiles {
    cert: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    digest: [u8; 32],
    names: TlsConfig,
}

impl CertificateFiles {
    fn from(files: &TlsConfig) -> Result<Self, String> {
        let bytes = |path: &Path| std::fs::read(path).map_err(|error| said(path, &error));
        let (cert, key) = (bytes(&files.cert)?, zeroize::Zeroizing::new(bytes(&files.key)?));
        let digest = Sha256::new().chain_update(Sha256::digest(&cert)).chain_update(&*key).finalize().into();
        Ok(Self { cert, key, digest, names: files.clone() })
    }
}

fn certificate(read: &CertificateFiles) -> Result<LoadedCertificate, String> {
    let CertificateFiles { cert, key, digest, names } = read;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(cert).collect();
    let chain = chain.map_err(|error| said(&names.cert, &error))?;
    let until = chain.first().and_then(|first| not_after(first));
    // SECURITY: an error about the key says what is wrong with it, never what it contains.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| said(&names.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    Ok(LoadedCertificate { config: Arc::new(config), read: *digest, until })
}

fn said(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Millis;

    fn pair(folder: &Path, name: &str) -> (Vec<u8>, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(folder.join("cert.pem"), &cert).unwrap();
        std::fs::write(folder.join("key.pem"), &key).unwrap();
        (cert.into_bytes(), key.into_bytes())
    }

    #[test]
    fn new_files_are_used_together_and_broken_ones_change_nothing_and_are_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (first, _) = pair(path, "one.example");
        let files = TlsConfig { cert: path.join("cert.pem"), key: path.join("key.pem"), ca_file: None };
        let live = LiveTls::load(&files).unwrap();
        let now = UtcMillis::from_millis(1_800_000_000_000);
        let used = || live.current.load().read;
        let before = used();
        assert_eq!(live.reload(now), TlsReloadOutcome::Same);

        let (second, second_key) = pair(path, "two.example");
        std::fs::write(&files.cert, &first).unwrap();
        assert!(matches!(live.reload(now), TlsReloadOutcome::Refused(_)), "a certificate with the key of another");
        for broken in ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&files.cert, broken).unwrap();
            assert!(matches!(live.reload(now), TlsReloadOutcome::Refused(_)), "{broken}");
            assert_eq!(live.reload(now), TlsReloadOutcome::Same, "said once: {broken}");
        }
        std::fs::remove_file(&files.cert).unwrap();
        assert!(matches!(live.reload(now), TlsReloadOutcome::Refused(_)));
        assert_eq!(used(), before, "the old one stays");

        std::fs::write(&files.cert, &second).unwrap();
        std::fs::write(&files.key, &second_key).unwrap();
        let end = until_of(&files.cert).unwrap().unwrap();
        assert!(
            matches!(live.reload(end + Millis::from_secs(1)), TlsReloadOutcome::Refused(why) if why.contains("expired"))
        );
        assert_eq!(live.reload(now), TlsReloadOutcome::Used);
        assert_ne!(used(), before);
        assert_eq!(live.until(), Some(end));
    }
}
