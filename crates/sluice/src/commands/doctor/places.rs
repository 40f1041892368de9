//! Checks of what the configuration names: files, folders, the database, disk space, ports.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_config::{ByteSize, Config, MountTransport};
use sluice_core::UtcMillis;
use sluice_core::certificate::{CertificateStatus, certificate_status};
use sluice_egress::vault::RootKeySource;
use sluice_store::replica::Replica;

use super::{DoctorCheckStatus, DoctorFinding};
use crate::failure::describe_io_error;

/// How long a gateway may take to respond to a health check.
const PATIENCE: Duration = Duration::from_secs(2);
/// How deep and how many files in the data folder are checked.
const DEPTH: usize = 4;
const FILES: usize = 10_000;

/// Checks that only the owner can read secret files.
pub(super) fn permissions(config: &Config) -> Vec<DoctorFinding> {
    let data = &config.data;
    let mut findings = Vec::new();
    if data.exists() {
        let mut open = Vec::new();
        let mut seen = 0;
        readable_by_others(data, 0, &mut seen, &mut open);
        findings.push(match open.first() {
            None => DoctorFinding::new(
                "permissions",
                DoctorCheckStatus::Ok,
                format!("only you can access {}", data.display()),
            ),
            Some((path, mode)) => {
                let more = if open.len() > 1 { format!(" and {} more", open.len() - 1) } else { String::new() };
                let message = format!("other users can access {}{more} (mode {mode:04o})", path.display());
                DoctorFinding::new("permissions", DoctorCheckStatus::Fail, message)
                    .hint(format!("chmod -R go= {}", data.display()))
            }
        });
    } else {
        findings.push(
            DoctorFinding::new(
                "permissions",
                DoctorCheckStatus::Warn,
                format!("the data folder {} does not exist yet", data.display()),
            )
            .hint("create it with the first keys: sluice init"),
        );
    }
    let single = [config.tls.as_ref().map(|tls| tls.key.clone())];
    for path in single.into_iter().flatten() {
        findings.push(match fs::metadata(&path) {
            Err(error) => DoctorFinding::new(
                "permissions",
                DoctorCheckStatus::Fail,
                format!("{}: {}", path.display(), describe_io_error(&error)),
            ),
            Ok(about) if about.mode() & 0o077 != 0 => {
                let message = format!("other users can access {} (mode {:04o})", path.display(), about.mode() & 0o7777);
                DoctorFinding::new("permissions", DoctorCheckStatus::Fail, message)
                    .hint(format!("chmod 600 {}", path.display()))
            }
            Ok(_) => DoctorFinding::new(
                "permissions",
                DoctorCheckStatus::Ok,
                format!("only you can access {}", path.display()),
            ),
        });
    }
    findings
}

/// Whether one user can read both an agent's key and the operator's token: then an agent that runs as that user can
/// approve its own writes.
pub(super) fn keys_apart(config: &Config) -> Option<DoctorFinding> {
    let can_read = |path: &Path| fs::File::open(path).is_ok();
    let token = config.data.join("operator.token");
    if !can_read(&token) {
        return None;
    }
    let folder = config.data.join("agents");
    let keys = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_key = |path: &PathBuf| path.extension().is_some_and(|end| end == "key");
    let mut keys: Vec<PathBuf> = keys.filter(is_key).filter(|path| can_read(path)).collect();
    keys.extend(named_key().filter(|path| can_read(path)));
    keys.sort();
    let key = keys.first()?;
    let message = format!("you can read both {} and {}", key.display(), token.display());
    Some(
        DoctorFinding::new("credentials", DoctorCheckStatus::Warn, message).hint(
            "an agent that runs as you can approve its own writes: run it as another user, and move its key there",
        ),
    )
}

/// The agent key file from the environment.
fn named_key() -> Option<PathBuf> {
    crate::settings::variable("SLUICE_AGENT_KEY_FILE").ok().flatten().map(PathBuf::from)
}

const KEY_HINT: &str = "docs/vault.md says where a root key can come from";

/// Checks where the root key of the vault comes from, and whether it can be read.
pub(super) fn root_key(config: &Config) -> DoctorFinding {
    let source = RootKeySource::of(config);
    let words = source.describe();
    if !source.exists() {
        return match source {
            RootKeySource::File(_) => DoctorFinding::new(
                "vault",
                DoctorCheckStatus::Info,
                format!("the {words} is created on the first start"),
            ),
            RootKeySource::Credential(_) | RootKeySource::Passphrase(_) => {
                DoctorFinding::new("vault", DoctorCheckStatus::Fail, format!("the {words} does not exist"))
                    .hint(KEY_HINT)
            }
        };
    }
    // A passphrase is tried with any salt: only the gateway can tell whether it is the right one.
    match source.read(&[0; 16]) {
        Err(why) => DoctorFinding::new("vault", DoctorCheckStatus::Fail, why).hint(KEY_HINT),
        Ok(_) if matches!(&source, RootKeySource::File(path) if path.starts_with(&config.data)) => DoctorFinding::new(
            "vault",
            DoctorCheckStatus::Info,
            format!("the root key comes from the {words}, in the same folder as what it encrypts"),
        )
        .hint("a copy of the data folder contains both: back them up separately, or use a systemd credential"),
        Ok(_) => DoctorFinding::new("vault", DoctorCheckStatus::Ok, format!("the root key comes from the {words}")),
    }
}

/// Files that group or others could open. Files in a closed folder cannot be opened, but are checked too: the folder
/// may be opened one day.
fn readable_by_others(path: &Path, depth: usize, seen: &mut usize, open: &mut Vec<(PathBuf, u32)>) {
    let Ok(about) = fs::symlink_metadata(path) else { return };
    *seen += 1;
    if about.is_symlink() || *seen > FILES {
        return;
    }
    // A public key may be read by everyone.
    let is_public = about.is_file() && path.extension().is_some_and(|end| end == "pub");
    if about.mode() & 0o077 != 0 && !is_public {
        open.push((path.to_owned(), about.mode() & 0o7777));
    }
    if about.is_dir() && depth < DEPTH {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.sort();
        inside.iter().for_each(|path| readable_by_others(path, depth + 1, seen, open));
    }
}

/// Checks whether the replicas of connected services are encrypted as configured.
pub(super) fn copies(config: &Config) -> Vec<DoctorFinding> {
    let wanted = config.services.encrypt_copies;
    let mut folders: Vec<PathBuf> =
        fs::read_dir(config.data.join("replicas")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let mut findings = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let name = folder.file_name().unwrap_or_default().display();
        let sealed = Replica::is_sealed_on_disk(folder);
        let words = if sealed { "encrypted" } else { "not encrypted" };
        findings.push(if sealed == wanted {
            let state = if sealed { DoctorCheckStatus::Ok } else { DoctorCheckStatus::Info };
            DoctorFinding::new("copies", state, format!("the replica of {name} is {words}"))
        } else {
            DoctorFinding::new("copies", DoctorCheckStatus::Warn, format!("the replica of {name} is still {words}"))
                .hint("the next start of the gateway converts it as set in `services.encrypt_copies`")
        });
    }
    if wanted && matches!(RootKeySource::of(config), RootKeySource::File(path) if path.starts_with(&config.data)) {
        let message =
            "the key of the encrypted replicas is in the vault, and the vault's root key is in the same data folder";
        findings.push(DoctorFinding::new("copies", DoctorCheckStatus::Warn, message).hint(
            "a stolen disk contains both: use a passphrase, a systemd credential, or `vault.key_file` elsewhere",
        ));
    }
    findings
}

/// Checks that the programs and folders of mounted servers exist. None of them is started.
pub(super) fn mounts(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for mount in &config.mounts.0 {
        let name = &mount.name;
        let MountTransport::Program(program) = &mount.way else {
            findings.push(DoctorFinding::new(
                "mounts",
                DoctorCheckStatus::Info,
                format!("`{name}` is a remote server; it is checked when the gateway runs"),
            ));
            continue;
        };
        let named = program.read.iter().chain(&program.write).chain(&program.folder);
        let missing = named.map(PathBuf::as_path).find(|path| !path.exists());
        let command = Path::new(&program.command);
        let gone = program.command.contains('/') && !command.is_file();
        findings.push(match missing.or(gone.then_some(command)) {
            Some(path) => DoctorFinding::new(
                "mounts",
                DoctorCheckStatus::Fail,
                format!("`{name}` needs {}, which does not exist", path.display()),
            )
            .hint("install the server, or correct `mounts` in sluice.yaml"),
            None => DoctorFinding::new(
                "mounts",
                DoctorCheckStatus::Ok,
                format!("the program and folders of `{name}` exist"),
            ),
        });
    }
    findings
}

/// Checks that a server responds where e-mail is sent and replies are fetched, without signing in.
pub(super) fn mail(config: &Config) -> Vec<DoctorFinding> {
    let email = &config.email;
    let hosts = [
        ("e-mail is sent to", &email.smtp_host, email.smtp_port),
        ("replies are fetched from", &email.imap_host, email.imap_port),
    ];
    let mut findings = Vec::new();
    for (what, host, port) in hosts {
        let Some(host) = host else { continue };
        let place = format!("{}:{port}", host.as_str());
        let found = place.to_socket_addrs().ok().into_iter().flatten().take(4);
        let answers = found.into_iter().any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok());
        findings.push(if answers {
            DoctorFinding::new("mail", DoctorCheckStatus::Ok, format!("{what} {place}, which responds"))
        } else {
            DoctorFinding::new("mail", DoctorCheckStatus::Warn, format!("{what} {place}, which does not respond"))
                .hint("check `email` in sluice.yaml; while the gateway runs, sluice status shows the state of mail")
        });
    }
    let nowhere = config.approvals.people.iter().all(|person| person.email.is_none());
    if !findings.is_empty() && nowhere {
        let message = "mail is set up, but nobody in `approvals.people` has an `email`";
        findings.push(DoctorFinding::new("mail", DoctorCheckStatus::Warn, message));
    }
    findings
}

/// Checks that the certificate is valid, and for how long.
pub(super) fn certificate(config: &Config, now: UtcMillis) -> Option<DoctorFinding> {
    let cert = &config.tls.as_ref()?.cert;
    let until = match sluice_gateway::tls::until_of(cert) {
        Ok(Some(until)) => until,
        Ok(None) => {
            return Some(DoctorFinding::new(
                "tls",
                DoctorCheckStatus::Warn,
                format!("{} has no expiry date", cert.display()),
            ));
        }
        Err(why) => return Some(DoctorFinding::new("tls", DoctorCheckStatus::Fail, why).hint("check `tls.cert`")),
    };
    let renew = "replace the files of `tls`; a running gateway loads new ones within a minute";
    Some(match certificate_status(until, now) {
        CertificateStatus::Valid => {
            DoctorFinding::new("tls", DoctorCheckStatus::Ok, format!("the certificate is valid until {until}"))
        }
        CertificateStatus::Expiring => {
            DoctorFinding::new("tls", DoctorCheckStatus::Warn, format!("the certificate expires soon, at {until}"))
                .hint(renew)
        }
        CertificateStatus::Expired => {
            DoctorFinding::new("tls", DoctorCheckStatus::Fail, format!("the certificate has expired, at {until}"))
                .hint(renew)
        }
    })
}

/// How much of the disk is free.
pub(super) fn disk(config: &Config) -> DoctorFinding {
    let place = config.data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let about = match rustix::fs::statvfs(place) {
        Ok(about) => about,
        Err(error) => {
            let why = describe_io_error(&io::Error::from(error));
            return DoctorFinding::new(
                "disk",
                DoctorCheckStatus::Warn,
                format!("free space cannot be determined: {why}"),
            );
        }
    };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let whole = about.f_blocks.saturating_mul(about.f_frsize);
    let percent = (u128::from(free) * 100).checked_div(u128::from(whole)).unwrap_or(0);
    let left = format!("{} free, {percent} %", ByteSize::from_mb(free / 1_000_000));
    if config.disk.stop.undercut(free, whole) {
        DoctorFinding::new(
            "disk",
            DoctorCheckStatus::Fail,
            format!("{left}: below {} nothing is sent", config.disk.stop),
        )
        .hint("free some space, or set disk.stop")
    } else if config.disk.low.undercut(free, whole) {
        DoctorFinding::new(
            "disk",
            DoctorCheckStatus::Warn,
            format!("{left}: below {} new writes are refused", config.disk.low),
        )
        .hint("free some space, or set disk.low")
    } else {
        DoctorFinding::new("disk", DoctorCheckStatus::Ok, left)
    }
}

/// Checks that the folders of agents exist.
pub(super) fn roots(config: &Config) -> Vec<DoctorFinding> {
    let missing = config.filesystem.roots.iter().filter(|root| !root.path.is_dir());
    let finding = |path: &Path| {
        DoctorFinding::new(
            "filesystem",
            DoctorCheckStatus::Fail,
            format!("the root {} is not a folder", path.display()),
        )
        .hint("create it, or remove it from filesystem.roots")
    };
    missing.map(|root| finding(&root.path)).collect()
}

/// Checks that a port is free, or used by a gateway.
pub(super) fn port(key: &'static str, address: SocketAddr, tls: bool) -> DoctorFinding {
    match TcpListener::bind(address) {
        Ok(_) => DoctorFinding::new(key, DoctorCheckStatus::Ok, format!("{address} is free")),
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => DoctorFinding::new(
            key,
            DoctorCheckStatus::Fail,
            format!("{address} cannot be used: {}", describe_io_error(&error)),
        )
        .hint(format!("choose another {key}")),
        Err(_) if tls => {
            DoctorFinding::new(key, DoctorCheckStatus::Info, format!("{address} is in use, perhaps by this gateway"))
        }
        Err(_) if lives(address) => {
            DoctorFinding::new(key, DoctorCheckStatus::Ok, format!("a gateway responds at {address}"))
        }
        Err(_) => DoctorFinding::new(key, DoctorCheckStatus::Fail, format!("{address} is in use by another program"))
            .hint(format!("stop that program, or choose another {key}")),
    }
}

/// Whether the server there answers `/livez` as a gateway does.
fn lives(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        write!(stream, "GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok::<_, io::Error>(start == *b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}
