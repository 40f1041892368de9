//! Watching: whether what the gateway stands on is still there while it runs.
//!
//! Takes the data folder, the keys, the state file, the disk and the certificate as they are now; gives alerts. Promise:
//! people hear of each change for the worse once, again only after it was well in between, and an alert that could not be
//! kept is tried again. A database file that is gone is noticed by whoever commits to it (`store`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sluice_core::Actor;
use sluice_core::certificate::{CertificateStanding, standing};
use sluice_core::ids::MessageId;
use sluice_store::{Message, Severity};

use crate::gateway::Room;
use crate::tls::Reloaded;
use crate::{Gateway, No, recovery};

/// What a gateway stands on, as it was when it began.
#[derive(Debug)]
pub(crate) struct Watch {
    data: Option<Identity>,
    keys: BTreeSet<PathBuf>,
    /// What people were told and has not been well since.
    told: Mutex<BTreeMap<&'static str, String>>,
}

/// A file or folder as the file system knows it.
type Identity = (u64, u64);

/// Something that is not as it should be.
#[derive(Debug)]
struct Trouble {
    topic: &'static str,
    severity: Severity,
    text: String,
}

impl Watch {
    /// Remembers what is there now.
    pub fn over(data: &Path) -> Self {
        let listed = fs::read_dir(data.join("keys")).into_iter().flatten().flatten();
        let keys = listed.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        Self { data: identity(data), keys, told: Mutex::default() }
    }

    /// Those of `found` that people do not know of. What is well again is forgotten.
    fn news(&self, found: Vec<Trouble>) -> Vec<Trouble> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|topic, _| found.iter().any(|trouble| trouble.topic == *topic));
        found.into_iter().filter(|trouble| told.get(trouble.topic) != Some(&trouble.text)).collect()
    }

    fn told(&self, topic: &'static str, text: String) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(topic, text);
    }
}

/// One look at everything.
///
/// # Errors
/// When an alert cannot be kept; it is tried again with the next look.
pub async fn look(gw: &Gateway) -> Result<(), No> {
    for trouble in renewed(gw).into_iter().chain(recovery::restored_file(gw).await.map(state_file)) {
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

async fn alert(gw: &Gateway, Trouble { topic, severity, text }: &Trouble) -> Result<(), No> {
    let id = MessageId::mint(gw.ids.as_ref());
    let message =
        Message { id, topic: (*topic).into(), severity: *severity, body: serde_json::json!({ "text": text }) };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.letters.notify_one();
    Ok(())
}

fn disk(gw: &Gateway) -> Option<Trouble> {
    let limits = &gw.config.disk;
    let (severity, text) = match gw.room() {
        Room::Enough => return None,
        Room::Low => {
            (Severity::Warning, format!("The disk is nearly full (below {}): no new write is taken.", limits.low))
        }
        Room::None => (Severity::Critical, format!("The disk is full (below {}): nothing is sent.", limits.stop)),
    };
    let text = format!("{text} Make room on the disk of `{}`.", gw.config.data.display());
    Some(Trouble { topic: "disk.low", severity, text })
}

fn data_folder(gw: &Gateway) -> Option<Trouble> {
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
    Some(Trouble { topic: "data.replaced", severity: Severity::Critical, text })
}

fn keys(gw: &Gateway) -> Option<Trouble> {
    // A folder that is gone says it all.
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
    Some(Trouble { topic: "keys.unreadable", severity: Severity::Critical, text })
}

fn state_file(path: PathBuf) -> Trouble {
    let text = format!(
        "The state file `{}` was removed or changed while the gateway ran. It was written again. If nobody did that on \
         purpose, look at who can write there (docs/recovery.md).",
        path.display()
    );
    Trouble { topic: "recovery.state_file_changed", severity: Severity::Critical, text }
}

fn certificate(gw: &Gateway) -> Option<Trouble> {
    let until = gw.tls.get()?.until()?;
    let (topic, severity, what) = match standing(until, gw.now()) {
        CertificateStanding::Valid => return None,
        CertificateStanding::Expiring => ("tls.expiring", Severity::Warning, "expires"),
        CertificateStanding::Expired => ("tls.expired", Severity::Critical, "has expired"),
    };
    let text = format!(
        "The TLS certificate {what} ({until}). Replace the files of `tls`; the gateway takes new ones within a minute, \
         without a restart."
    );
    Some(Trouble { topic, severity, text })
}

/// Takes new certificate files. Those that cannot be used are said once.
fn renewed(gw: &Gateway) -> Option<Trouble> {
    match gw.tls.get()?.reload(gw.now()) {
        Reloaded::Same => None,
        Reloaded::Used => {
            tracing::info!("new connections get the new TLS certificate");
            None
        }
        Reloaded::Refused(why) => {
            tracing::error!("the new TLS certificate cannot be used, the old one stays: {why}");
            let text = format!("The new TLS certificate or key cannot be used: {why}. The old one stays in use.");
            Some(Trouble { topic: "tls.refused", severity: Severity::Critical, text })
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}
