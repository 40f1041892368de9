//! Finds the gateway and the credential.
//!
//! The address: `--url`, `SLUICE_URL`, the configuration. The credential: a variable, a file named by a
//! variable, the token `sluice init` left in the data folder. Promise: a file others can read is refused; the token of
//! this machine's gateway is not sent to another machine by default, and is not read where an agent's key or a task key is
//! set; a credential of one kind is never sent in place of another. With TLS the gateway is identified by the
//! certificates this machine trusts, its own certificate, and those of `SLUICE_CA_FILE` or `tls.ca_file`.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqwest::Url;
use reqwest::header::HeaderValue;
use sluice_config::Config;
use sluice_gateway::keys::TokenKind;

use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::{ConfigFileArgs, variable};

/// Longest credential that is read.
const LONGEST: u64 = 4096;

/// Whose credential is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCredentialKind {
    /// An operator's token.
    Operator,
    /// An agent's key.
    Agent,
    /// A task key: of a program that states what an agent's user asked for.
    Task,
}

impl ClientCredentialKind {
    const ALL: [Self; 3] = [Self::Operator, Self::Agent, Self::Task];

    /// The variables that provide it: the credential itself, or a file that contains it.
    const fn variables(self) -> (&'static str, &'static str) {
        match self {
            Self::Operator => ("SLUICE_TOKEN", "SLUICE_TOKEN_FILE"),
            Self::Agent => ("SLUICE_AGENT_KEY", "SLUICE_AGENT_KEY_FILE"),
            Self::Task => ("SLUICE_TASK_KEY", "SLUICE_TASK_KEY_FILE"),
        }
    }

    /// Whether a variable provides such a credential.
    pub(crate) fn is_given(self) -> Result<bool, CliError> {
        let (direct, file) = self.variables();
        Ok(variable(direct)?.is_some() || variable(file)?.is_some())
    }

    const fn kind(self) -> TokenKind {
        match self {
            Self::Operator => TokenKind::Operator,
            Self::Agent => TokenKind::Agent,
            Self::Task => TokenKind::Task,
        }
    }
}

/// The parts of a client.
pub(super) struct GatewayClientParts {
    pub(super) http: reqwest::Client,
    pub(super) main: String,
    pub(super) stop: Option<String>,
    pub(super) credential: HeaderValue,
}

/// The addresses of a gateway.
#[derive(Debug, PartialEq, Eq)]
struct GatewayLocation {
    main: String,
    stop: Option<String>,
    /// Whether the address is on this machine, or in the configuration of this machine.
    ours: bool,
}

pub(super) fn find(
    url: Option<String>,
    which: &ConfigFileArgs,
    whose: ClientCredentialKind,
) -> Result<GatewayClientParts, CliError> {
    let named = match url {
        Some(url) => Some(url),
        None => variable("SLUICE_URL")?,
    };
    let mut config = None;
    let place = match named {
        Some(url) => from_url(&url)?,
        None => from_config(config.insert(load(which)?)),
    };
    let other = find_other_kind_variable(whose)?;
    let token = match read_credential_variable(whose)? {
        Some(token) => token,
        None if whose == ClientCredentialKind::Agent => return Err(no_agent_key()),
        None if whose == ClientCredentialKind::Task => return Err(no_task_key()),
        // SECURITY: a process that runs as an agent must not become an operator because a file happens to be readable.
        None if other.is_some() => return Err(set_for_another(other.unwrap_or_default())),
        None if place.ours => own_token(&match &config {
            Some(config) => config.data.clone(),
            None => load(which)?.data,
        })?,
        None => return Err(no_token("the gateway is on another machine, so the token of this machine is not used")),
    };
    let credential = bearer(&token)?;
    let http = http(config.as_ref())?;
    Ok(GatewayClientParts { http, main: place.main, stop: place.stop, credential })
}

/// A client for one address with the credential from one file; variables and configuration are ignored.
pub(super) fn with_key_file(url: &str, key_file: &Path) -> Result<GatewayClientParts, CliError> {
    let place = from_url(url)?;
    let credential = bearer(&secret(key_file)?)?;
    Ok(GatewayClientParts { http: http(None)?, main: place.main, stop: place.stop, credential })
}

/// The address under which clients of this machine reach the gateway of a configuration.
pub(crate) fn address_of(config: &Config) -> String {
    from_config(config).main
}

fn bearer(token: &str) -> Result<HeaderValue, CliError> {
    let mut credential = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| CliError::new(CommandExit::NotSignedIn, "the credential contains invalid characters"))?;
    credential.set_sensitive(true);
    Ok(credential)
}

#[expect(clippy::disallowed_methods, reason = "the command line talks to its gateway, which is not the outside")]
fn http(config: Option<&Config>) -> Result<reqwest::Client, CliError> {
    // SECURITY: a proxy or another address would see the credential.
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(super::CONNECT)
        // A person may think for minutes between two requests. A connection that the gateway closed meanwhile looks open
        // until something is sent over it, and then nobody knows whether that arrived: no connection is used twice.
        .pool_max_idle_per_host(0)
        .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")));
    let tls = config.and_then(|config| config.tls.as_ref());
    // The gateway's own certificate is trusted, whoever signed it; so is a certificate authority that was named.
    let named = variable("SLUICE_CA_FILE")?.map(PathBuf::from).or_else(|| tls.and_then(|tls| tls.ca_file.clone()));
    for file in tls.map(|tls| &tls.cert).into_iter().chain(&named) {
        let chain = fs::read(file).map_err(|error| unreadable(file, &error))?;
        let chain = reqwest::Certificate::from_pem_bundle(&chain).ok().filter(|chain| !chain.is_empty());
        let none = || CliError::new(CommandExit::Failed, format!("`{}` contains no certificate", file.display()));
        builder = builder.tls_certs_merge(chain.ok_or_else(none)?);
    }
    builder
        .build()
        .map_err(|error| CliError::new(CommandExit::Failed, "the HTTP client cannot be set up").why(error.to_string()))
}

fn load(which: &ConfigFileArgs) -> Result<Config, CliError> {
    let settings = which.load(Vec::new())?;
    let name = settings.name();
    let loaded = settings.loaded.map_err(|errors| {
        CliError::new(CommandExit::Failed, format!("`{name}` cannot be used to find the gateway"))
            .why(errors.faults.first().map_or_else(String::new, |fault| fault.message.clone()))
            .hint("see all problems: sluice config check; or name the gateway: --url URL")
    })?;
    Ok(loaded.0)
}

fn from_url(text: &str) -> Result<GatewayLocation, CliError> {
    let wrong = |why: &str| {
        CliError::new(
            CommandExit::Usage,
            format!("`{}` is not the address of a gateway", crate::escape::escape_line(text)),
        )
        .why(why)
        .hint("for example http://127.0.0.1:7420")
    };
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong("it begins with neither http:// nor https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("an address must not contain credentials"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a part after ? or #"));
    }
    let host = url.host_str().ok_or_else(|| wrong("it names no host"))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ours = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    // A gateway behind a proxy has no port in its address, and its stop lane is not known.
    let stop = url.port().and_then(|port| port.checked_add(1)).map(|port| format!("{}://{host}:{port}", url.scheme()));
    Ok(GatewayLocation { main: url.as_str().trim_end_matches('/').to_owned(), stop, ours })
}

fn from_config(config: &Config) -> GatewayLocation {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let host = |address: SocketAddr| match (config.tls.is_some(), config.public_hosts.first()) {
        // A certificate is issued to a name.
        (true, Some(name)) => name.split(':').next().unwrap_or(name).to_owned(),
        _ if address.ip().is_unspecified() && address.is_ipv4() => "127.0.0.1".into(),
        _ if address.ip().is_unspecified() => "[::1]".into(),
        _ if address.is_ipv6() => format!("[{}]", address.ip()),
        _ => address.ip().to_string(),
    };
    let url = |address: SocketAddr| format!("{scheme}://{}:{}", host(address), address.port());
    GatewayLocation { main: url(config.listen), stop: Some(url(config.stop_listen)), ours: true }
}

/// Reads the credential from the variables.
fn read_credential_variable(whose: ClientCredentialKind) -> Result<Option<String>, CliError> {
    let (direct, file) = whose.variables();
    let (name, token) = match (variable(direct)?, variable(file)?) {
        (Some(token), _) => (direct, token.trim().to_owned()),
        (None, Some(path)) => (file, secret(Path::new(&path))?),
        (None, None) => return Ok(None),
    };
    check_credential_kind(whose, name, &token)?;
    Ok(Some(token))
}

/// Refuses a credential of another kind before it is sent anywhere.
fn check_credential_kind(whose: ClientCredentialKind, name: &str, token: &str) -> Result<(), CliError> {
    let kind = TokenKind::ALL.into_iter().find(|kind| token.starts_with(kind.prefix()));
    match kind {
        Some(kind) if kind != whose.kind() => Err(CliError::new(
            CommandExit::NotSignedIn,
            format!("`{name}` holds {}, not {}", noun(kind), noun(whose.kind())),
        )
        .why("a credential of one kind does not work in place of another")),
        Some(_) | None => Ok(()),
    }
}

const fn noun(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Agent => "an agent key",
        TokenKind::Operator => "an operator token",
        TokenKind::Inbox => "an inbox key",
        TokenKind::Task => "a task key",
    }
}

/// The variable that holds a credential of another kind, if there is one.
fn find_other_kind_variable(whose: ClientCredentialKind) -> Result<Option<&'static str>, CliError> {
    for other in ClientCredentialKind::ALL.into_iter().filter(|other| *other != whose) {
        let (direct, file) = other.variables();
        for name in [direct, file] {
            if variable(name)?.is_some() {
                return Ok(Some(name));
            }
        }
    }
    Ok(None)
}

fn own_token(data: &Path) -> Result<String, CliError> {
    let path = data.join("operator.token");
    if !path.exists() {
        return Err(no_token(&format!("there is no `{}`", path.display())));
    }
    secret(&path)
}

/// Reads a credential out of a file that only its owner can read.
fn secret(path: &Path) -> Result<String, CliError> {
    let refused = |failure: CliError| CliError { exit: CommandExit::NotSignedIn, ..failure };
    let file = fs::File::open(path).map_err(|error| refused(unreadable(path, &error)))?;
    // SECURITY: the mode of the open file, not of its path, which may name another file a moment later.
    let mode = file.metadata().map_err(|error| refused(unreadable(path, &error)))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(CliError::new(CommandExit::NotSignedIn, format!("other users can access `{}`", path.display()))
            .why(format!("its mode is {:o}; only the owner may access a credential", mode & 0o777))
            .hint(format!("chmod 600 {}", path.display())));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| refused(unreadable(path, &error)))?;
    Ok(text.trim().to_owned())
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(CommandExit::Failed, format!("cannot read `{}`", path.display())).why(describe_io_error(error))
}

fn no_token(why: &str) -> CliError {
    CliError::new(CommandExit::NotSignedIn, "no operator token found").why(why).hint(
        "set SLUICE_TOKEN_FILE or SLUICE_TOKEN, or run this in the folder of sluice.yaml; a token is never read from the command line",
    )
}

fn no_agent_key() -> CliError {
    CliError::new(CommandExit::NotSignedIn, "no agent key found")
        .why("only agents make calls; an operator token does not work here")
        .hint("set SLUICE_AGENT_KEY_FILE or SLUICE_AGENT_KEY; make a key: sluice keys create --agent NAME --out FILE")
}

fn no_task_key() -> CliError {
    CliError::new(CommandExit::NotSignedIn, "no task key found")
        .why("a task is stated with a task key, never with the agent's key")
        .hint("set SLUICE_TASK_KEY_FILE; make a key: sluice keys create --task-for AGENT --out FILE")
}

fn set_for_another(name: &str) -> CliError {
    CliError::new(CommandExit::NotSignedIn, "no operator token found")
        .why(format!("`{name}` is set, so the operator token in the data folder is not used"))
        .hint(format!("unset {name}, or name the token explicitly: SLUICE_TOKEN_FILE=FILE"))
}

/// Creates the file for a new credential: it must not exist yet, and only its owner can read it.
pub(crate) fn create_private_file(path: &Path) -> Result<(fs::File, PathBuf), CliError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = opened.map_err(|error| {
        let exit =
            if error.kind() == std::io::ErrorKind::AlreadyExists { CommandExit::Conflict } else { CommandExit::Failed };
        CliError::new(exit, format!("cannot write `{}`", path.display())).why(describe_io_error(&error))
    })?;
    Ok((file, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_port() {
        let place = from_url("http://127.0.0.1:7420/").unwrap();
        assert_eq!(place.main, "http://127.0.0.1:7420");
        assert_eq!((place.stop.as_deref(), place.ours), (Some("http://127.0.0.1:7421"), true));
        let far = from_url("https://gate.example.org").unwrap();
        assert_eq!((far.main.as_str(), far.stop, far.ours), ("https://gate.example.org", None, false));
        assert!(from_url("http://[::1]:7420").unwrap().ours);
        assert!(!from_url("http://localhost.example.org:7420").unwrap().ours);
        for bad in ["", "gate", "ftp://gate", "http://user:secret@gate", "http://gate?x", "http://gate#x"] {
            assert!(from_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_credential_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "sgo_x\n").unwrap();
        for (mode, works) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match secret(&path) {
                Ok(text) => assert!(works && text == "sgo_x", "{mode:o}"),
                Err(failure) => assert!(!works && failure.exit == CommandExit::NotSignedIn, "{mode:o}"),
            }
        }
    }
}
