//! Checks of what the configuration names: files, folders, the database, the disk, ports.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_core::certificate::{CertificateStanding, standing};
use sluice_gateway::config::{Config, Size, Way};
use sluice_gateway::vault::Source;
use sluice_store::replica::Replica;

use super::{Finding, State};
use crate::failure::io_words;

/// How long a gateway may take to say that it lives.
const PATIENCE: Duration = Duration::from_secs(2);
/// Deepest and most that is looked at in the data folder.
const DEPTH: usize = 4;
const FILES: usize = 10_000;

/// Nobody but the owner may read what is secret.
pub(super) fn permissions(config: &Config) -> Vec<Finding> {
    let data = &config.data;
    let mut findings = Vec::new();
    if data.exists() {
        let mut open = Vec::new();
        let mut seen = 0;
        readable_by_others(data, 0, &mut seen, &mut open);
        findings.push(match open.first() {
            None => Finding::new("permissions", State::Ok, format!("only you can read {}", data.display())),
            Some((path, mode)) => {
                let more = if open.len() > 1 { format!(" and {} more", open.len() - 1) } else { String::new() };
                let message = format!("others can use {}{more} (mode {mode:04o})", path.display());
                Finding::new("permissions", State::Fail, message).hint(format!("chmod -R go= {}", data.display()))
            }
        });
    } else {
        findings.push(
            Finding::new("permissions", State::Warn, format!("there is no data folder {} yet", data.display()))
                .hint("sluice init makes one with the first keys"),
        );
    }
    let single = [config.tls.as_ref().map(|tls| tls.key.clone())];
    for path in single.into_iter().flatten() {
        findings.push(match fs::metadata(&path) {
            Err(error) => Finding::new("permissions", State::Fail, format!("{}: {}", path.display(), io_words(&error))),
            Ok(about) if about.mode() & 0o077 != 0 => {
                let message = format!("others can use {} (mode {:04o})", path.display(), about.mode() & 0o7777);
                Finding::new("permissions", State::Fail, message).hint(format!("chmod 600 {}", path.display()))
            }
            Ok(_) => Finding::new("permissions", State::Ok, format!("only you can read {}", path.display())),
        });
    }
    findings
}

/// Whether one user can read both an agent's key and the operator's token: an agent that runs as that user can approve
/// its own writes.
pub(super) fn keys_apart(config: &Config) -> Option<Finding> {
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
        Finding::new("credentials", State::Warn, message).hint(
            "an agent that runs as you can approve its own writes: run it as another user, and move its key there",
        ),
    )
}

/// The agent's key that this environment names.
fn named_key() -> Option<PathBuf> {
    crate::settings::variable("SLUICE_AGENT_KEY_FILE").ok().flatten().map(PathBuf::from)
}

const KEY_HINT: &str = "docs/vault.md says where a root key can come from";

/// Where the root key of the vault comes from, and whether it can be had.
pub(super) fn root_key(config: &Config) -> Finding {
    let source = Source::of(config);
    let words = source.describe();
    if !source.exists() {
        return match source {
            Source::File(_) => Finding::new("vault", State::Info, format!("{words} is made on the first start")),
            Source::Credential(_) | Source::Passphrase(_) => {
                Finding::new("vault", State::Fail, format!("there is no {words}")).hint(KEY_HINT)
            }
        };
    }
    // A passphrase is tried with any salt: whether it is the right one only the gateway can tell.
    match source.read(&[0; 16]) {
        Err(why) => Finding::new("vault", State::Fail, why).hint(KEY_HINT),
        Ok(_) if matches!(&source, Source::File(path) if path.starts_with(&config.data)) => {
            Finding::new("vault", State::Info, format!("the root key comes from the {words}, beside what it seals"))
                .hint("whoever copies the data folder has both: back them up apart, or use a systemd credential")
        }
        Ok(_) => Finding::new("vault", State::Ok, format!("the root key comes from the {words}")),
    }
}

/// What group or others could open. A closed folder closes all that is in it, and is still looked into: it
/// may be opened one day.
fn readable_by_others(path: &Path, depth: usize, seen: &mut usize, open: &mut Vec<(PathBuf, u32)>) {
    let Ok(about) = fs::symlink_metadata(path) else { return };
    *seen += 1;
    if about.is_symlink() || *seen > FILES {
        return;
    }
    // A public key is for everyone.
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

/// Whether the copies of connected services lie on the disk as they should.
pub(super) fn copies(config: &Config) -> Vec<Finding> {
    let wanted = config.services.encrypt_copies;
    let mut folders: Vec<PathBuf> =
        fs::read_dir(config.data.join("replicas")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let mut findings = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let name = folder.file_name().unwrap_or_default().display();
        let sealed = Replica::lies_sealed(folder);
        let words = if sealed { "encrypted" } else { "not encrypted" };
        findings.push(if sealed == wanted {
            let state = if sealed { State::Ok } else { State::Info };
            Finding::new("copies", state, format!("the copy of {name} is {words}"))
        } else {
            Finding::new("copies", State::Warn, format!("the copy of {name} is still {words}"))
                .hint("the next start of the gateway turns it into the form `services.encrypt_copies` wants")
        });
    }
    if wanted && matches!(Source::of(config), Source::File(path) if path.starts_with(&config.data)) {
        let message =
            "the key of encrypted copies is in the vault, and the vault's root key lies in the same data folder";
        findings.push(
            Finding::new("copies", State::Warn, message)
                .hint("a stolen disk has both: use a passphrase, a systemd credential, or `vault.key_file` elsewhere"),
        );
    }
    findings
}

/// Whether the programs and folders of mounted servers are there. None of them is started.
pub(super) fn mounts(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mount in &config.mounts.0 {
        let name = &mount.name;
        let Way::Program(program) = &mount.way else {
            findings.push(Finding::new(
                "mounts",
                State::Info,
                format!("`{name}` is at an address; it is asked when the gateway runs"),
            ));
            continue;
        };
        let named = program.read.iter().chain(&program.write).chain(&program.folder);
        let missing = named.map(PathBuf::as_path).find(|path| !path.exists());
        let command = Path::new(&program.command);
        let gone = program.command.contains('/') && !command.is_file();
        findings.push(match missing.or(gone.then_some(command)) {
            Some(path) => {
                Finding::new("mounts", State::Fail, format!("`{name}` needs {}, which is not there", path.display()))
                    .hint("install the server, or correct `mounts` in sluice.yaml")
            }
            None => Finding::new("mounts", State::Ok, format!("the program and folders of `{name}` are there")),
        });
    }
    findings
}

/// Whether somebody answers where letters are sent and replies are fetched. Nobody signs in.
pub(super) fn mail(config: &Config) -> Vec<Finding> {
    let email = &config.email;
    let hosts =
        [("letters go to", &email.smtp_host, email.smtp_port), ("replies are at", &email.imap_host, email.imap_port)];
    let mut findings = Vec::new();
    for (what, host, port) in hosts {
        let Some(host) = host else { continue };
        let place = format!("{}:{port}", host.as_str());
        let found = place.to_socket_addrs().ok().into_iter().flatten().take(4);
        let answers = found.into_iter().any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok());
        findings.push(if answers {
            Finding::new("mail", State::Ok, format!("{what} {place}, where somebody answers"))
        } else {
            Finding::new("mail", State::Warn, format!("{what} {place}, where nobody answers"))
                .hint("check `email` in sluice.yaml; while the gateway runs, sluice status says how mail is")
        });
    }
    let nowhere = config.approvals.people.iter().all(|person| person.email.is_none());
    if !findings.is_empty() && nowhere {
        let message = "mail is set up, and nobody in `approvals.people` has an `email`";
        findings.push(Finding::new("mail", State::Warn, message));
    }
    findings
}

/// The certificate is one, and valid for a while.
pub(super) fn certificate(config: &Config, now: Timestamp) -> Option<Finding> {
    let cert = &config.tls.as_ref()?.cert;
    let until = match sluice_gateway::tls::until_of(cert) {
        Ok(Some(until)) => until,
        Ok(None) => return Some(Finding::new("tls", State::Warn, format!("{} says no end", cert.display()))),
        Err(why) => return Some(Finding::new("tls", State::Fail, why).hint("check `tls.cert`")),
    };
    let renew = "replace the files of `tls`; a running gateway takes new ones within a minute";
    Some(match standing(until, now) {
        CertificateStanding::Valid => Finding::new("tls", State::Ok, format!("the certificate is valid until {until}")),
        CertificateStanding::Expiring => {
            Finding::new("tls", State::Warn, format!("the certificate expires soon, at {until}")).hint(renew)
        }
        CertificateStanding::Expired => {
            Finding::new("tls", State::Fail, format!("the certificate has expired, at {until}")).hint(renew)
        }
    })
}

/// How much of the disk is left.
pub(super) fn disk(config: &Config) -> Finding {
    let place = config.data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let about = match rustix::fs::statvfs(place) {
        Ok(about) => about,
        Err(error) => {
            let why = io_words(&io::Error::from(error));
            return Finding::new("disk", State::Warn, format!("its room cannot be told: {why}"));
        }
    };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let whole = about.f_blocks.saturating_mul(about.f_frsize);
    let percent = (u128::from(free) * 100).checked_div(u128::from(whole)).unwrap_or(0);
    let left = format!("{} left, {percent} %", Size::from_mb(free / 1_000_000));
    if config.disk.stop.undercut(free, whole) {
        Finding::new("disk", State::Fail, format!("{left}: below {} nothing is sent", config.disk.stop))
            .hint("make room, or set disk.stop")
    } else if config.disk.low.undercut(free, whole) {
        Finding::new("disk", State::Warn, format!("{left}: below {} no new write is taken", config.disk.low))
            .hint("make room, or set disk.low")
    } else {
        Finding::new("disk", State::Ok, left)
    }
}

/// Folders of agents exist.
pub(super) fn roots(config: &Config) -> Vec<Finding> {
    let missing = config.filesystem.roots.iter().filter(|root| !root.path.is_dir());
    let finding = |path: &Path| {
        Finding::new("filesystem", State::Fail, format!("the root {} is no folder", path.display()))
            .hint("make it, or take it out of filesystem.roots")
    };
    missing.map(|root| finding(&root.path)).collect()
}

/// A port is free, or a gateway has it already.
pub(super) fn port(key: &'static str, address: SocketAddr, tls: bool) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => Finding::new(key, State::Ok, format!("{address} is free")),
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            Finding::new(key, State::Fail, format!("{address} cannot be used: {}", io_words(&error)))
                .hint(format!("choose another {key}"))
        }
        Err(_) if tls => Finding::new(key, State::Info, format!("{address} is in use, perhaps by this gateway")),
        Err(_) if lives(address) => Finding::new(key, State::Ok, format!("{address} is answered by a gateway")),
        Err(_) => Finding::new(key, State::Fail, format!("{address} is in use by something else"))
            .hint(format!("stop that, or choose another {key}")),
    }
}

/// Whether something there answers `/livez` as a gateway does.
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
