//! Watching: checks that the files the gateway depends on are still there while it runs.
//!
//! Takes the data folder, the keys, the state file, the disk and the certificate as they are now; gives alerts. Promise:
//! people are notified of each change for the worse once, and again only after it was fixed in between; an alert that
//! could not be stored is tried again. The store notices a missing database file when it commits (`store`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use sluice_core::Actor;
use sluice_core::certificate::{CertificateStatus, certificate_status};
use sluice_core::ids::MessageId;
use sluice_services::CallError;
use sluice_store::{MessageSeverity, OutboxMessage};

use crate::gateway::DiskSpace;
use crate::tls::TlsReloadOutcome;
use crate::{Gateway, recovery};

/// The files that a gateway depends on, as they were when it started.
#[derive(Debug)]
pub(crate) struct HealthWatch {
    data: Option<InodeIdentity>,
    keys: BTreeSet<PathBuf>,
    /// The alerts that people received and whose cause is not fixed yet.
    told: Mutex<BTreeMap<&'static str, String>>,
}

/// The device and inode of a file or folder.
type InodeIdentity = (u64, u64);

/// Something that is wrong.
#[derive(Debug)]
struct HealthProblem {
    topic: &'static str,
    severity: MessageSeverity,
    text: String,
}

impl HealthWatch {
    /// Remembers the current files.
    pub fn over(data: &Path) -> Self {
        let listed = fs::read_dir(data.join("keys")).into_iter().flatten().flatten();
        let keys = listed.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        Self { data: identity(data), keys, told: Mutex::default() }
    }

    /// The entries of `found` that people do not know of. Alerts whose cause is fixed are removed.
    fn news(&self, found: Vec<HealthProblem>) -> Vec<HealthProblem> {
        let mut told = self.told.lock();
        told.retain(|topic, _| found.iter().any(|trouble| trouble.topic == *topic));
        found.into_iter().filter(|trouble| told.get(trouble.topic) != Some(&trouble.text)).collect()
    }

    fn told(&self, topic: &'static str, text: String) {
        self.told.lock().insert(topic, text);
    }
}

/// Checks everything once.
///
/// # Errors
/// When an alert cannot be stored; it is tried again with the next check.
pub async fn look(gw: &Gateway) -> Result<(), CallError> {
    for trouble in renewed(gw).into_iter().chain(recovery::restore_state_file(gw).await.map(state_file)) {
        alert(gw, &trouble).await?;
    }
    let found = [disk(gw), data_folder(gw), keys(gw), certificate(gw)];
    for trouble in gw.watch.news(found.into_iter().flatten().collect()) {
        tracing::error!("{}", trouble.text);
        alert(gw, &trouble).await?;
        gw.watch.told(trouble.topic, trouble.text);
    }
    Ok(())
}

async fn alert(gw: &Gateway, HealthProblem { topic, severity, text }: &HealthProblem) -> Result<(), CallError> {
    let id = MessageId::mint(gw.ids.as_ref());
    let message =
        OutboxMessage { id, topic: (*topic).into(), severity: *severity, body: serde_json::json!({ "text": text }) };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.signals.letters.notify_one();
    Ok(())
}

fn disk(gw: &Gateway) -> Option<HealthProblem> {
    let limits = &gw.config.disk;
    let (severity, text) = match gw.disk_space() {
        DiskSpace::Enough => return None,
        DiskSpace::Low => (
            MessageSeverity::Warning,
            format!("The disk is nearly full (below {}): new writes are refused.", limits.low),
        ),
        DiskSpace::None => {
            (MessageSeverity::Critical, format!("The disk is full (below {}): nothing is sent.", limits.stop))
        }
    };
    let text = format!("{text} Make room on the disk of `{}`.", gw.config.data.display());
    Some(HealthProblem { topic: "disk.low", severity, text })
}

fn data_folder(gw: &Gateway) -> Option<HealthProblem> {
    let (data, before) = (&gw.config.data, gw.watch.data?);
    let what = match identity(data) {
        Some(now) if now == before => return None,
        Some(_) => "replaced by another one",
        None => "removed or is no longer readable",
    };
    let text = format!(
        "The data folder `{}` was {what} while the gateway runs. Its keys are gone with it: put the folder back before the \
         next start.",
        data.display()
    );
    Some(HealthProblem { topic: "data.replaced", severity: MessageSeverity::Critical, text })
}

fn keys(gw: &Gateway) -> Option<HealthProblem> {
    // If the whole folder is gone, its files need no alert of their own.
    if data_folder(gw).is_some() {
        return None;
    }
    let lost = gw.watch.keys.iter().find_map(|path| File::open(path).err().map(|error| (path, error)));
    let (path, error) = lost?;
    let text = format!(
        "The key file `{}` cannot be read any more ({}). The gateway goes on with what it has in memory and cannot start \
         again without it: put it back.",
        path.display(),
        error.kind()
    );
    Some(HealthProblem { topic: "keys.unreadable", severity: MessageSeverity::Critical, text })
}

fn state_file(path: PathBuf) -> HealthProblem {
    let text = format!(
        "The state file `{}` was removed or changed while the gateway ran. It was written again. If nobody did that on \
         purpose, look at who can write there (docs/recovery.md).",
        path.display()
    );
    HealthProblem { topic: "recovery.state_file_changed", severity: MessageSeverity::Critical, text }
}

fn certificate(gw: &Gateway) -> Option<HealthProblem> {
    let until = gw.tls.get()?.until()?;
    let (topic, severity, what) = match certificate_status(until, gw.now()) {
        CertificateStatus::Valid => return None,
        CertificateStatus::Expiring => ("tls.expiring", MessageSeverity::Warning, "expires"),
        CertificateStatus::Expired => ("tls.expired", MessageSeverity::Critical, "has expired"),
    };
    let text = format!(
        "The TLS certificate {what} ({until}). Replace the files of `tls`; the gateway takes new ones within a minute, \
         without a restart."
    );
    Some(HealthProblem { topic, severity, text })
}

/// Takes new certificate files. Files that cannot be used are reported once.
fn renewed(gw: &Gateway) -> Option<HealthProblem> {
    match gw.tls.get()?.reload(gw.now()) {
        TlsReloadOutcome::Same => None,
        TlsReloadOutcome::Used => {
            tracing::info!("new connections use the new TLS certificate");
            None
        }
        TlsReloadOutcome::Refused(why) => {
            tracing::error!("the new TLS certificate cannot be used, the old one stays: {why}");
            let text = format!("The new TLS certificate or key cannot be used: {why}. The old one stays in use.");
            Some(HealthProblem { topic: "tls.refused", severity: MessageSeverity::Critical, text })
        }
    }
}

fn identity(path: &Path) -> Option<InodeIdentity> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}
