//! Checks across keys: errors that no single value shows alone.

use std::fs;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use super::channels::{Email, Security};
use super::database::{DatabaseLocation, DatabaseSettings, DatabaseUrl};
use super::disk::Disk;
use super::general::General;
use super::limits::Limits;
use super::mounts::MountTransport;
use super::origin::ConfigOrigin;
use super::reader::ConfigReader;
use super::tls::{TlsConfig, TlsFiles};
use super::{ConfigSections, io_words};

/// Largest file that may hold a URL, in bytes.
const URL_FILE: u64 = 16 * 1024;

/// The address of the stop listener.
pub(crate) fn stop_address(general: &General, reader: &mut ConfigReader<'_>) -> Option<SocketAddr> {
    let listen = general.listen;
    match general.stop_listen {
        // Port 0 lets the system choose, for each listener.
        Some(stop) if stop == listen && stop.port() != 0 => {
            let fault = reader.refuse("stop_listen", "config.conflict", "`stop_listen` is the address of `listen`");
            fault.why("`stop_listen` must answer when `listen` no longer does");
            None
        }
        Some(stop) => Some(stop),
        None if listen.port() == 0 => Some(listen),
        None => match listen.port().checked_add(1) {
            Some(port) => Some(SocketAddr::new(listen.ip(), port)),
            None => {
                let fault = reader.refuse("listen", "config.conflict", "there is no port above that of `listen`");
                fault.hint("set `stop_listen`");
                None
            }
        },
    }
}

/// Both files of a certificate, or none.
pub(crate) fn tls(files: &TlsFiles, reader: &mut ConfigReader<'_>) -> Option<TlsConfig> {
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            Some(TlsConfig { cert: cert.clone(), key: key.clone(), ca_file: files.ca_file.clone() })
        }
        (None, None) => None,
        (cert, _) => {
            let (has, lacks) = if cert.is_some() { ("tls.cert", "tls.key") } else { ("tls.key", "tls.cert") };
            reader.refuse(has, "config.conflict", format!("`{has}` is set and `{lacks}` is not"));
            None
        }
    }
}

/// Refuses addresses that other machines can reach without TLS.
pub(crate) fn reachable(general: &General, tls: bool, reader: &mut ConfigReader<'_>) {
    let listeners = [("listen", Some(general.listen)), ("stop_listen", general.stop_listen)];
    let outside = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    for (key, address) in listeners {
        // By default the stop listener follows the first one: then the error is reported once.
        let follows = key == "stop_listen" && reader.origin(key) == ConfigOrigin::Default;
        if tls || general.behind_proxy || follows || !address.is_some_and(|address| outside(&address)) {
            continue;
        }
        reader
            .refuse(key, "config.conflict", format!("`{key}` can be reached by other machines, without TLS"))
            .why("keys and contents would cross the network unencrypted")
            .hint(
                "set `tls`, or `behind_proxy: true` if a proxy terminates TLS and only the proxy can reach \
                 this address",
            );
    }
}

/// The one database.
pub(crate) fn database(
    written: &mut DatabaseSettings,
    data: &Path,
    reader: &mut ConfigReader<'_>,
) -> Option<DatabaseLocation> {
    let named = [
        ("database.url", written.url.is_some()),
        ("database.url_file", written.url_file.is_some()),
        ("database.path", written.path.is_some()),
    ];
    let mut named = named.into_iter().filter(|(_, set)| *set).map(|(key, _)| key);
    if let (Some(first), Some(second)) = (named.next(), named.next()) {
        let message = format!("`{second}` and `{first}` are both set");
        reader.refuse(second, "config.conflict", message).why("the gateway has one database");
        return None;
    }
    if let Some(url) = &written.url {
        return Some(DatabaseLocation::Server(url.clone()));
    }
    let Some(file) = &written.url_file else {
        let path = written.path.get_or_insert_with(|| data.join("sluice.db"));
        return Some(DatabaseLocation::File(path.clone()));
    };
    match url_in(file) {
        Ok(url) => Some(DatabaseLocation::Server(url)),
        Err(why) => {
            let message = format!("`{}` cannot be used as `database.url_file`", file.display());
            reader.refuse("database.url_file", "config.value", message).why(why);
            None
        }
    }
}

fn url_in(file: &Path) -> Result<DatabaseUrl, String> {
    let about = fs::metadata(file).map_err(|error| io_words(&error))?;
    if !about.is_file() || about.len() > URL_FILE {
        return Err("it is not a small regular file".into());
    }
    let text = zeroize::Zeroizing::new(fs::read_to_string(file).map_err(|error| io_words(&error))?);
    DatabaseUrl::url(text.trim()).map_err(|bad| format!("its content {}", bad.message))
}

/// A mailbox needs an address, a password and an encrypted connection.
pub(crate) fn mail(email: &Email, reader: &mut ConfigReader<'_>) {
    let Some(host) = &email.imap_host else { return };
    if email.smtp_host.is_none() {
        reader
            .refuse("email.imap_host", "config.conflict", "`email.imap_host` is set and `email.smtp_host` is not")
            .why("replies answer messages, and without `email.smtp_host` none are sent");
    }
    if email.imap_secret.is_none() {
        reader
            .refuse("email.imap_host", "config.conflict", "`email.imap_host` is set and `email.imap_secret` is not")
            .hint("put the password into the vault (sluice secrets set), and set its name here");
    }
    if email.imap_security == Security::Off && !["127.0.0.1", "localhost", "::1"].contains(&host.as_str()) {
        reader
            .refuse(
                "email.imap_security",
                "config.conflict",
                "`email.imap_security` is `off` and the host is not this machine",
            )
            .why("the password would cross the network unencrypted");
    }
}

/// Pairs of keys of which one must be larger.
pub(crate) fn orders(limits: &Limits, disk: &Disk, reader: &mut ConfigReader<'_>) {
    if limits.streams_per_key > limits.streams {
        reader.refuse("limits.streams_per_key", "config.conflict", "`streams_per_key` is more than `streams`");
    }
    if disk.stop.free > disk.low.free || disk.stop.percent > disk.low.percent {
        reader
            .refuse("disk.stop", "config.conflict", "`disk.stop` is larger than `disk.low`")
            .why("new writes must be refused before sending stops");
    }
}

/// The gateway's own files, which no agent and no service may reach.
fn own(written: &ConfigSections, file: Option<&Path>) -> Vec<(&'static str, PathBuf)> {
    let general = &written.general;
    let own = [
        ("the data folder", Some(general.data.as_path())),
        ("the policies", Some(general.policies.as_path())),
        ("the declarations of custom capabilities", Some(general.capabilities.as_path())),
        ("sluice.yaml", file),
        ("the database", written.database.path.as_deref()),
        ("the file with the database's URL", written.database.url_file.as_deref()),
        ("the private key of TLS", written.tls.key.as_deref()),
    ];
    own.into_iter().filter_map(|(what, path)| Some((what, real(path?)))).collect()
}

/// Refuses folders of agents that would let them reach the gateway's own files.
pub(crate) fn roots(written: &ConfigSections, file: Option<&Path>, reader: &mut ConfigReader<'_>) {
    let own = own(written, file);
    for root in &written.filesystem.roots {
        let path = real(&root.path);
        let Some((what, _)) = own.iter().find(|(_, own)| own.starts_with(&path) || path.starts_with(own)) else {
            continue;
        };
        let message = format!("the root `{}` holds, or lies in, {what}", root.path.display());
        reader
            .refuse("filesystem.roots", "config.conflict", message)
            .why("an agent could read keys or change its own rules")
            .hint("give agents a folder of their own, such as `workspace`");
    }
}

/// Refuses mounts that may write files where they would count as the person's own words.
pub(crate) fn trusted(written: &ConfigSections, reader: &mut ConfigReader<'_>) {
    for root in written.filesystem.roots.iter().filter(|root| root.trusted) {
        let trusted = real(&root.path);
        for mount in &written.general.mounts.0 {
            let MountTransport::Program(program) = &mount.way else { continue };
            let writes = program.write.iter().map(|path| real(path));
            if writes.into_iter().any(|there| there.starts_with(&trusted) || trusted.starts_with(&there)) {
                let message =
                    format!("the mount `{}` may write below the trusted root `{}`", mount.name, root.path.display());
                reader
                    .refuse("filesystem.roots", "config.conflict", message)
                    .why("what a mounted server writes is outside text, and would not be screened there")
                    .hint("remove `trusted`, or give the server a folder of its own");
            }
        }
    }
}

/// Refuses mounts that would let a third-party server reach the gateway's own files.
pub(crate) fn mounts(written: &ConfigSections, file: Option<&Path>, reader: &mut ConfigReader<'_>) {
    let own = own(written, file);
    for mount in &written.general.mounts.0 {
        let MountTransport::Program(program) = &mount.way else { continue };
        for path in program.read.iter().chain(&program.write) {
            let there = real(path);
            let Some((what, _)) = own.iter().find(|(_, own)| own.starts_with(&there) || there.starts_with(own)) else {
                continue;
            };
            let message = format!("`{}` of the mount `{}` holds, or lies in, {what}", path.display(), mount.name);
            reader
                .refuse("mounts", "config.conflict", message)
                .why("a third-party server could read keys or change the rules")
                .hint("give it a folder of its own");
        }
    }
}

/// The path without links, as far as it exists, and without `..` after that.
fn real(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|start| Some((start, fs::canonicalize(start).ok()?)));
    let Some((start, mut real)) = known else { return path.to_owned() };
    for part in path.strip_prefix(start).unwrap_or(path).components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            other => real.push(other),
        }
    }
    real
}
