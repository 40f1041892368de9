//! Custom capabilities: requests that an operator declares and the gateway makes in an agent's name, and programs that
//! it runs.
//!
//! Takes the declarations of a folder (`capabilities/<name>.yaml`), read once at the start; gives each as a capability
//! behind the gate, with a connection of its own on the way out or a place in the sandbox. Promise: a declaration with a
//! flaw is offered to nobody, and the others are offered all the same.

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
use sluice_content::leak::Scope;
use sluice_content::stages::Schema;
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::custom::program::DeclaredProgram;
use sluice_core::custom::{self, CustomCapability, CustomWay, DeclaredRequest, RequestTemplate};
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::proxy::{self, Flaw, Unreadable};
use sluice_core::{CapabilityName, Clock, Ids, ServiceName, Span};
use tokio::sync::Semaphore;

use crate::declarations;
use crate::egress::ssrf::Net;
use crate::egress::{Connection, Egress, HostPattern, PathPattern, Placement, Target};
use crate::intake::Intake;
use crate::open::World;
use crate::rooms::leak::{Outgoing, Scan};
use crate::standstill::Standstill;
use crate::vault::Vault;
use crate::workers::Workers;

pub use machine::{look_at_machine, missing_programs};
use program::ProgramReach;
pub use service::CustomService;

/// Programs that run at once.
const AT_ONCE: usize = 8;

/// A declaration as it was found on disk.
#[derive(Debug)]
pub struct FoundCapability {
    /// The name of the capability: the file's, without its ending.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// What it says, if it can be read.
    pub declared: Result<CustomCapability, Unreadable>,
    /// What is wrong with it.
    pub flaws: Vec<Flaw>,
    /// The files of a program as they are on this machine, if they were looked at.
    prints: Vec<String>,
}

impl FoundCapability {
    /// The declaration, if it can be used.
    #[must_use]
    pub fn usable(&self) -> Option<&CustomCapability> {
        self.declared.as_ref().ok().filter(|_| self.flaws.is_empty())
    }

    /// What it adds to the catalogue, if it can be used.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        let declared = self.usable()?;
        let capability = declared.capability(&self.name)?;
        let definition = Some(definition(declared, &self.prints));
        Some(Capability { definition, ..capability })
    }
}

/// Reads a folder of declarations, by name. A folder that is not there holds none.
#[must_use]
pub fn find(folder: &Path, scan: &dyn Scan) -> Vec<FoundCapability> {
    declarations::files(folder).into_iter().map(|path| read(path, scan)).collect()
}

/// Reads one declaration and looks for everything that is wrong with it.
#[must_use]
pub fn read(path: PathBuf, scan: &dyn Scan) -> FoundCapability {
    let (name, declared) = declarations::read(&path, custom::MAX_BYTES, CustomCapability::from_yaml);
    let flaws = declared.as_ref().map(|declared| flaws(declared, &name, scan)).unwrap_or_default();
    FoundCapability { name, path, declared, flaws, prints: Vec::new() }
}

/// What calls of a capability are judged by: the declaration, and the files of its program as the gateway found them.
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

/// What is wrong with a declaration, secrets it spells out included.
fn flaws(declared: &CustomCapability, name: &str, scan: &dyn Scan) -> Vec<Flaw> {
    let mut flaws = declared.check(name);
    for (place, field, text) in literals(declared) {
        let found = scan.outgoing(&Outgoing { url: "", headers: &[], body: text.as_bytes(), scope: Scope::Service });
        if !found.is_empty() && !flaws.iter().any(|flaw| flaw.code == "custom.secret") {
            let text = format!("`{field}` holds what must not leave; put it in the vault");
            flaws.push(Flaw { code: "custom.secret", place: format!("{place}.{field}"), text });
        }
    }
    match &declared.way {
        CustomWay::Request(request) => {
            if let Some(header) = &request.idempotency_header
                && HeaderName::from_bytes(header.as_bytes()).is_err()
            {
                let text = "not the name of a header".to_owned();
                flaws.push(Flaw { code: "custom.header", place: "idempotency_header".into(), text });
            }
            if let (true, Err(why)) = (flaws.is_empty(), connection(request, name)) {
                flaws.push(Flaw { code: "custom.connection", place: "base_url".into(), text: why });
            }
        }
        CustomWay::Program(own) => {
            if let (true, Err((place, text))) = (flaws.is_empty(), reach(own, Vec::new())) {
                flaws.push(Flaw { code: "custom.program", place: place.into(), text });
            }
        }
    }
    flaws
}

/// Everything that a declaration spells out: its place, the name of the field and the text.
fn literals(declared: &CustomCapability) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    match &declared.way {
        CustomWay::Request(request) => {
            for (place, template) in templates(request) {
                let texts = template.literals().into_iter();
                found.extend(texts.map(|(field, text)| (place, field.to_owned(), text.to_owned())));
            }
        }
        CustomWay::Program(own) => {
            for (place, template) in own.templates() {
                found.extend(template.literals().into_iter().map(|(field, text)| (place, field.to_owned(), text)));
            }
            let variables = own.environment.iter();
            found.extend(variables.map(|(name, value)| ("program.environment", name.clone(), value.clone())));
        }
    }
    found
}

/// What a program can reach, in the form in which it is used.
fn reach(own: &DeclaredProgram, prints: Vec<String>) -> Result<ProgramReach, (&'static str, String)> {
    let hosts: Result<Vec<HostPattern>, String> = own.network.iter().map(|host| HostPattern::parse(host)).collect();
    let opened: Result<Vec<Net>, String> = own.allow_addresses.iter().map(|net| Net::parse(net)).collect();
    let schema = own.answer.as_ref().map(Schema::compile).transpose();
    let no_schema = "the schema cannot be used: it refers elsewhere, or checking it has no bound".to_owned();
    Ok(ProgramReach {
        hosts: hosts.map_err(|why| ("program.network", why))?,
        opened: opened.map_err(|why| ("program.allow_addresses", why))?,
        schema: schema.map_err(|_| ("program.answer", no_schema))?,
        prints,
    })
}

/// Every request of a declaration, with its key.
fn templates(declared: &DeclaredRequest) -> Vec<(&'static str, RequestTemplate)> {
    let mut all = vec![("request", declared.request.clone())];
    all.extend(declared.lookup.iter().map(|lookup| ("lookup", lookup.template())));
    all.extend(declared.rollback.iter().map(|rollback| ("rollback", rollback.template())));
    all
}

/// The connection of a custom capability: its host, its methods, its paths and nothing else. No agent can name it.
///
/// # Errors
/// What cannot be made a connection of.
pub fn connection(declared: &DeclaredRequest, name: &str) -> Result<Connection, String> {
    let target = Target::parse(&declared.base_url)?;
    let mut connection = Connection::new(connection_name(name)?, vec![HostPattern::parse(target.host())?]);
    let limits = &declared.limits;
    connection.ports = vec![target.port()];
    connection.plain_http = declared.base_url.starts_with("http://");
    connection.redirects = 0;
    connection.max_answer = u64::from(limits.answer_kb) << 10;
    connection.timeout = Span::from_secs(limits.timeout_seconds);
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
        connection.allow_addresses.push(Net::parse(net)?);
    }
    if let Some(credential) = &declared.credential {
        let secret = SecretName::new(credential.secret.as_str()).map_err(|why| why.to_string())?;
        connection.credential = Some((secret, Placement::parse(&credential.placement)?));
    }
    Ok(connection)
}

fn connection_name(name: &str) -> Result<ConnectionName, String> {
    ConnectionName::new(format!("custom.{name}")).map_err(|why| why.to_string())
}

fn method(method: proxy::Method) -> Method {
    match method {
        proxy::Method::Get => Method::GET,
        proxy::Method::Post => Method::POST,
        proxy::Method::Put => Method::PUT,
        proxy::Method::Patch => Method::PATCH,
        proxy::Method::Delete => Method::DELETE,
    }
}

/// The path in the base address, without a slash at its end.
fn base_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/')
}

/// What custom capabilities work with.
pub struct CustomGround {
    /// The way out.
    pub egress: Arc<Egress>,
    /// The way in.
    pub intake: Arc<Intake>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Credentials.
    pub vault: Arc<Vault>,
    /// Where programs run.
    pub workers: Arc<Workers>,
    /// The freezes in force.
    pub standstill: Arc<Standstill>,
    /// Folder of the programs' own folders.
    pub folder: PathBuf,
    /// Programs that run at once.
    turns: Semaphore,
}

impl CustomGround {
    /// With folders of programs below this one.
    #[must_use]
    pub fn new(
        (egress, intake, vault): (&Arc<Egress>, &Arc<Intake>, &Arc<Vault>),
        (workers, standstill): (&Arc<Workers>, &Arc<Standstill>),
        folder: PathBuf,
        world: &World,
    ) -> Self {
        // What a gateway that was killed left behind.
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

impl std::fmt::Debug for CustomGround {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomGround").finish_non_exhaustive()
    }
}

/// One declaration in use.
#[derive(Debug)]
pub(crate) struct DeclaredCapability {
    file: CustomCapability,
    way: OpenWay,
}

/// How it is carried out, opened.
#[derive(Debug)]
enum OpenWay {
    /// Through this connection.
    Request(Arc<Connection>),
    /// By a program that reaches this.
    Program(Box<ProgramReach>),
}

/// Adds every declaration that can be used to a catalogue. One whose name is taken is left out, and the log says so.
pub fn add_to(catalogue: &mut Catalogue, found: &mut [FoundCapability]) {
    for one in found {
        let Some(capability) = one.capability() else {
            tracing::error!(capability = %one.name, "`{}` has flaws and is offered to nobody", one.path.display());
            continue;
        };
        if let Err(error) = catalogue.add(capability) {
            tracing::error!(capability = %one.name, "`{}` is offered to nobody: {error}", one.path.display());
            one.flaws.push(Flaw { code: "custom.name", place: "file name".into(), text: error.to_string() });
        }
    }
}

/// Opens the way of every declaration that can be used. Gives the services that carry them out.
#[must_use]
pub fn open(found: &[FoundCapability], ground: CustomGround) -> Vec<(ServiceName, Arc<CustomService>)> {
    let mut declared = BTreeMap::new();
    for one in found {
        let (Some(usable), Ok(name)) = (one.usable(), CapabilityName::new(one.name.as_str())) else { continue };
        let way = match &usable.way {
            CustomWay::Request(request) => {
                let Ok(connection) = connection(request, &one.name) else { continue };
                ground.egress.open(connection.clone());
                OpenWay::Request(Arc::new(connection))
            }
            CustomWay::Program(own) => {
                let Ok(reach) = reach(own, one.prints.clone()) else { continue };
                OpenWay::Program(Box::new(reach))
            }
        };
        declared.insert(name, DeclaredCapability { file: usable.clone(), way });
    }
    let mut names: Vec<ServiceName> =
        declared.keys().filter_map(|name| CustomCapability::service_name(name.as_str())).collect();
    names.dedup();
    let service = Arc::new(CustomService::new(declared, ground));
    names.into_iter().map(|name| (name, Arc::clone(&service))).collect()
}
