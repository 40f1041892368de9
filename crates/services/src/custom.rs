//! Custom capabilities: HTTP requests that an operator declares and the gateway sends for an agent, and programs that
//! the gateway runs.
//!
//! Takes the declarations of a folder (`capabilities/<name>.yaml`), read once at the start; gives each as a capability
//! behind the gate, with its own connection through egress or a place in the sandbox. Promise: a declaration with a
//! flaw is not offered, and the others are offered all the same.

mod answer;
mod machine;
mod program;
mod request;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderName, Method};
use sha2::{Digest as _, Sha256};
use sluice_config::network::{CredentialPlacement, EgressConnection, EgressUrl, HostPattern, IpNetwork, PathPattern};
use sluice_content::leak::LeakScope;
use sluice_content::stages::SafeSchema;
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::custom::program::DeclaredProgram;
use sluice_core::custom::{self, CustomCapability, CustomImplementation, DeclaredRequest, RequestTemplate};
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::proxy::{self, ProxyFileError, ProxyFlaw};
use sluice_core::{CapabilityName, Clock, GatewayDeps, Ids, Millis, ServiceName};
use sluice_egress::Egress;
use sluice_egress::leak::{LeakScanner, OutgoingRequest};
use sluice_egress::vault::Vault;
use tokio::sync::Semaphore;

use crate::active_freezes::ActiveFreezes;
use crate::declarations;
use crate::intake::Intake;
use crate::workers::GatewayWorkers;

pub use machine::{look_at_machine, missing_programs};
use program::PreparedProgram;
pub use service::CustomService;

/// Most programs that run at once.
const AT_ONCE: usize = 8;

/// A declaration as it was found on the disk.
#[derive(Debug)]
pub struct CustomCapabilityFile {
    /// The name of the capability: the file name without its extension.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// The content of the file, if it can be read.
    pub declared: Result<CustomCapability, ProxyFileError>,
    /// The flaws of the declaration.
    pub flaws: Vec<ProxyFlaw>,
    /// The fingerprints of the program's files on this machine, if they were checked.
    prints: Vec<String>,
}

impl CustomCapabilityFile {
    /// The declaration, if it can be used.
    #[must_use]
    pub fn usable(&self) -> Option<&CustomCapability> {
        self.declared.as_ref().ok().filter(|_| self.flaws.is_empty())
    }

    /// The capability that it adds to the catalogue, if it can be used.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        let declared = self.usable()?;
        let capability = declared.capability(&self.name)?;
        let definition = Some(definition(declared, &self.prints));
        Some(Capability { definition, ..capability })
    }
}

/// Reads a folder of declarations, ordered by name. A folder that does not exist holds none.
#[must_use]
pub fn find(folder: &Path, scan: &dyn LeakScanner) -> Vec<CustomCapabilityFile> {
    declarations::files(folder).into_iter().map(|path| read(path, scan)).collect()
}

/// Reads one declaration and finds all its flaws.
#[must_use]
pub fn read(path: PathBuf, scan: &dyn LeakScanner) -> CustomCapabilityFile {
    let (name, declared) = declarations::read(&path, custom::MAX_BYTES, CustomCapability::from_yaml);
    let flaws = declared.as_ref().map(|declared| flaws(declared, &name, scan)).unwrap_or_default();
    CustomCapabilityFile { name, path, declared, flaws, prints: Vec::new() }
}

/// What calls of a capability are judged by: the declaration, and the program's files as the gateway found them.
fn definition(declared: &CustomCapability, prints: &[String]) -> String {
    if prints.is_empty() {
        return declared.digest.clone();
    }
    let mut hash = Sha256::new_with_prefix(b"sluice custom program 1\0");
    for print in prints {
        hash.update(print.as_bytes());
        hash.update([0]);
    }
    format!("{}:{}", declared.digest, sluice_core::hex::encode(&hash.finalize()))
}

/// The flaws of a declaration, including secrets that it contains literally.
fn flaws(declared: &CustomCapability, name: &str, scan: &dyn LeakScanner) -> Vec<ProxyFlaw> {
    let mut flaws = declared.check(name);
    for (place, field, text) in literals(declared) {
        let found = scan.blocking_pattern_ids(&OutgoingRequest {
            url: "",
            headers: &[],
            body: text.as_bytes(),
            scope: LeakScope::Service,
        });
        if !found.is_empty() && !flaws.iter().any(|flaw| flaw.code == "custom.secret") {
            let text = format!("`{field}` contains a secret or personal data; put it in the vault");
            flaws.push(ProxyFlaw { code: "custom.secret", place: format!("{place}.{field}"), text });
        }
    }
    match &declared.way {
        CustomImplementation::Request(request) => {
            if let Some(header) = &request.idempotency_header
                && HeaderName::from_bytes(header.as_bytes()).is_err()
            {
                let text = "not a valid header name".to_owned();
                flaws.push(ProxyFlaw { code: "custom.header", place: "idempotency_header".into(), text });
            }
            if let (true, Err(why)) = (flaws.is_empty(), connection(request, name)) {
                flaws.push(ProxyFlaw { code: "custom.connection", place: "base_url".into(), text: why });
            }
        }
        CustomImplementation::Program(own) => {
            if let (true, Err((place, text))) = (flaws.is_empty(), reach(own, Vec::new())) {
                flaws.push(ProxyFlaw { code: "custom.program", place: place.into(), text });
            }
        }
    }
    flaws
}

/// Every literal text of a declaration: its place, the name of the field and the text.
fn literals(declared: &CustomCapability) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    match &declared.way {
        CustomImplementation::Request(request) => {
            for (place, template) in templates(request) {
                let texts = template.literals().into_iter();
                found.extend(texts.map(|(field, text)| (place, field.to_owned(), text.to_owned())));
            }
        }
        CustomImplementation::Program(own) => {
            for (place, template) in own.templates() {
                found.extend(template.literals().into_iter().map(|(field, text)| (place, field.to_owned(), text)));
            }
            let variables = own.environment.iter();
            found.extend(variables.map(|(name, value)| ("program.environment", name.clone(), value.clone())));
        }
    }
    found
}

/// What a program can reach, parsed for use.
fn reach(own: &DeclaredProgram, prints: Vec<String>) -> Result<PreparedProgram, (&'static str, String)> {
    let hosts: Result<Vec<HostPattern>, String> = own.network.iter().map(|host| HostPattern::parse(host)).collect();
    let opened: Result<Vec<IpNetwork>, String> = own.allow_addresses.iter().map(|net| IpNetwork::parse(net)).collect();
    let schema = own.answer.as_ref().map(SafeSchema::compile).transpose();
    let no_schema =
        "the schema cannot be used: it refers to another document, or the cost of checking it has no limit".to_owned();
    Ok(PreparedProgram {
        hosts: hosts.map_err(|why| ("program.network", why))?,
        opened: opened.map_err(|why| ("program.allow_addresses", why))?,
        schema: schema.map_err(|_| ("program.answer", no_schema))?,
        prints,
    })
}

/// Every request template of a declaration, with its key.
fn templates(declared: &DeclaredRequest) -> Vec<(&'static str, RequestTemplate)> {
    let mut all = vec![("request", declared.request.clone())];
    all.extend(declared.lookup.iter().map(|lookup| ("lookup", lookup.template())));
    all.extend(declared.rollback.iter().map(|rollback| ("rollback", rollback.template())));
    all
}

/// The connection of a custom capability: its host, its methods, its paths and nothing else. No agent can name it.
///
/// # Errors
/// When no connection can be made of the declaration, with the reason.
pub fn connection(declared: &DeclaredRequest, name: &str) -> Result<EgressConnection, String> {
    let target = EgressUrl::parse(&declared.base_url)?;
    let mut connection = EgressConnection::new(connection_name(name)?, vec![HostPattern::parse(target.host())?]);
    let limits = &declared.limits;
    connection.ports = vec![target.port()];
    connection.plain_http = declared.base_url.starts_with("http://");
    connection.redirects = 0;
    connection.max_answer = u64::from(limits.answer_kb) << 10;
    connection.timeout = Millis::from_secs(limits.timeout_seconds);
    connection.limits.per_minute = Some(limits.per_minute);
    connection.limits.per_hour = Some(limits.per_hour);
    connection.limits.burn = Some(limits.burn);
    let base = base_path(&declared.base_url);
    connection.methods = Vec::new();
    for (_, template) in templates(declared) {
        let method = method(template.method);
        if !connection.methods.contains(&method) {
            connection.methods.push(method);
        }
        connection.paths.push(PathPattern::with_places(&format!("{base}{}", template.path))?);
    }
    for net in &declared.allow_addresses {
        connection.allow_addresses.push(IpNetwork::parse(net)?);
    }
    if let Some(credential) = &declared.credential {
        let secret = SecretName::new(credential.secret.as_str()).map_err(|why| why.to_string())?;
        connection.credential = Some((secret, CredentialPlacement::parse(&credential.placement)?));
    }
    Ok(connection)
}

fn connection_name(name: &str) -> Result<ConnectionName, String> {
    ConnectionName::new(format!("custom.{name}")).map_err(|why| why.to_string())
}

fn method(method: proxy::ProxyMethod) -> Method {
    match method {
        proxy::ProxyMethod::Get => Method::GET,
        proxy::ProxyMethod::Post => Method::POST,
        proxy::ProxyMethod::Put => Method::PUT,
        proxy::ProxyMethod::Patch => Method::PATCH,
        proxy::ProxyMethod::Delete => Method::DELETE,
    }
}

/// The path of the base address, without a trailing slash.
fn base_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/')
}

/// Everything that custom capabilities need from the gateway.
pub struct CustomServiceDeps {
    /// The only way out for requests.
    pub egress: Arc<Egress>,
    /// The intake, which screens answers.
    pub intake: Arc<Intake>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// The vault, which holds the credentials.
    pub vault: Arc<Vault>,
    /// The workers that run programs.
    pub workers: Arc<GatewayWorkers>,
    /// The freezes in force.
    pub standstill: Arc<ActiveFreezes>,
    /// The folder that holds the programs' own folders.
    pub folder: PathBuf,
    /// Limits how many programs run at once.
    turns: Semaphore,
}

impl CustomServiceDeps {
    /// Builds the ground; the programs' folders are below `folder`.
    #[must_use]
    pub fn new(
        (egress, intake, vault): (&Arc<Egress>, &Arc<Intake>, &Arc<Vault>),
        (workers, standstill): (&Arc<GatewayWorkers>, &Arc<ActiveFreezes>),
        folder: PathBuf,
        world: &GatewayDeps,
    ) -> Self {
        // Left behind by a gateway that was killed.
        let _gone = std::fs::remove_dir_all(&folder);
        Self {
            egress: Arc::clone(egress),
            intake: Arc::clone(intake),
            clock: Arc::clone(&world.clock),
            ids: Arc::clone(&world.ids),
            vault: Arc::clone(vault),
            workers: Arc::clone(workers),
            standstill: Arc::clone(standstill),
            folder,
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

impl std::fmt::Debug for CustomServiceDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomGround").finish_non_exhaustive()
    }
}

/// One declaration in use.
#[derive(Debug)]
pub struct DeclaredCapability {
    file: CustomCapability,
    way: CustomBackend,
}

/// How a capability is carried out, opened.
#[derive(Debug)]
enum CustomBackend {
    /// By a request through this connection.
    Request(Arc<EgressConnection>),
    /// By a program with this reach.
    Program(Box<PreparedProgram>),
}

/// Adds every usable declaration to a catalogue. A declaration whose name is taken is left out, and the log says so.
pub fn add_to(catalogue: &mut Catalogue, found: &mut [CustomCapabilityFile]) {
    for one in found {
        let Some(capability) = one.capability() else {
            tracing::error!(capability = %one.name, "`{}` has flaws and is not offered", one.path.display());
            continue;
        };
        if let Err(error) = catalogue.add(capability) {
            tracing::error!(capability = %one.name, "`{}` is not offered: {error}", one.path.display());
            one.flaws.push(ProxyFlaw { code: "custom.name", place: "file name".into(), text: error.to_string() });
        }
    }
}

/// Opens every usable declaration. Gives the services that carry them out.
#[must_use]
pub fn open(found: &[CustomCapabilityFile], deps: CustomServiceDeps) -> Vec<(ServiceName, Arc<CustomService>)> {
    let mut declared = BTreeMap::new();
    for one in found {
        let (Some(usable), Ok(name)) = (one.usable(), CapabilityName::new(one.name.as_str())) else { continue };
        let way = match &usable.way {
            CustomImplementation::Request(request) => {
                let Ok(connection) = connection(request, &one.name) else { continue };
                deps.egress.open(connection.clone());
                CustomBackend::Request(Arc::new(connection))
            }
            CustomImplementation::Program(own) => {
                let Ok(reach) = reach(own, one.prints.clone()) else { continue };
                CustomBackend::Program(Box::new(reach))
            }
        };
        declared.insert(name, DeclaredCapability { file: usable.clone(), way });
    }
    let mut names: Vec<ServiceName> =
        declared.keys().filter_map(|name| CustomCapability::service_name(name.as_str())).collect();
    names.dedup();
    let service = Arc::new(CustomService::new(declared, deps));
    names.into_iter().map(|name| (name, Arc::clone(&service))).collect()
}
