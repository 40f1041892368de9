//! Carries out a custom capability by a program in the sandbox.
//!
//! Takes a call's arguments; gives how the program ended and its output. Promise: the program that runs is the one that
//! was approved or, where no approval was needed, the one that the gateway found at its start; it has the folders,
//! hosts and variables of its declaration and nothing else; it is dead when this returns or the gateway ends; without
//! proof that nothing happened, a write is in doubt.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use sluice_config::network::{HostPattern, IpNetwork};
use sluice_content::leak::{LeakScope, LiveSecrets};
use sluice_content::stages::SafeSchema;
use sluice_core::custom::CustomCapability;
use sluice_core::custom::program::{
    CommandTemplate, CommandTemplateError, DeclaredProgram, EnvironmentValue, ExitMeaning, FilledCommand,
};
use sluice_core::custom::request::TemplateContext;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::SecretName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, CapabilityName};
use sluice_egress::vault::SecretUse;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{self, CustomAnswerOrigin, ExpectedAnswerShape, WireCustomAnswer};
use super::machine::{FILE, ProgramFileFingerprint, fingerprint_files};
use super::request::found_there;
use super::service::{key_of, marker_fingerprint, service_of, unfit};
use super::{CustomServiceDeps, connection_name};
use crate::intake::{ContentRecipient, IncomingItem, IntakeOutcome};
use crate::programs::connect_proxy::{self, ConnectProxy};
use crate::programs::{FOLDERS, PrivateRunFolder, ProgramOutcome, ProgramTask, ProgramTaskError, run};
use crate::workers::{
    JailMode, PinnedFolder, ProgramExit, ThirdPartyProfile, ThirdPartyTerms, WorkerPoolError, WorkerStartError,
};
use crate::{CompletedWrite, LookupOutcome, ServiceRead, WriteError};

/// How long a program waits for its turn.
const TURN: Duration = Duration::from_secs(3);
/// Largest file a program may write.
const FILE_BYTES: u64 = 1 << 30;
/// Most processes and threads of a program.
const PROCESSES: u64 = 256;
/// Most characters of a program's error output that people see.
const COMPLAINT: usize = 300;
/// Placeholder on a card for the idempotency key, which is made with the write.
const SHOWN_KEY: &str = "{call.key}";

/// What a declared program can reach, parsed for use.
#[derive(Debug)]
pub(super) struct PreparedProgram {
    /// The hosts that it may reach.
    pub hosts: Vec<HostPattern>,
    /// Private addresses that these hosts may have.
    pub opened: Vec<IpNetwork>,
    /// The schema of its output.
    pub schema: Option<SafeSchema>,
    /// The files of the program as they were when the gateway started.
    pub prints: Vec<String>,
}

/// One declared program with what it can reach.
pub(super) struct CustomProgramRunner<'a> {
    pub deps: &'a CustomServiceDeps,
    pub name: &'a CapabilityName,
    pub file: &'a CustomCapability,
    pub own: &'a DeclaredProgram,
    pub reach: &'a PreparedProgram,
}

/// Whether a run may change the folders of `writes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramFolderAccess {
    Changed,
    LookedAt,
}

/// One run of a program.
struct CustomProgramRun<'r> {
    template: &'r CommandTemplate,
    action: &'r Action,
    beside: TemplateContext<'r>,
    /// The fingerprints that the files must have.
    files: &'r [String],
    folders: ProgramFolderAccess,
}

/// Why a program did not run to its end.
enum CustomProgramError {
    /// It was not started: nothing happened.
    NotStarted(Refusal),
    /// Its files are not those that may be run. Nothing happened.
    Changed,
    /// It took too long and was killed.
    TooSlow,
    /// It is not known how far it got.
    Lost,
}

impl CustomProgramRunner<'_> {
    /// Checks that these arguments give a command line.
    pub fn check(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let beside = TemplateContext { key: Some(SHOWN_KEY), kept: Map::new() };
        let filled = self.file.fill_command(&self.own.template(), arguments, &beside);
        filled.map(drop).map_err(|no| no_command(&no))
    }

    /// What a person sees of the program before it runs. An approval is bound to the lines that name files, as to
    /// everything else.
    pub async fn found(&self, action: &Action) -> Result<Vec<String>, Refusal> {
        let beside = TemplateContext { key: Some(SHOWN_KEY), kept: Map::new() };
        let line = self.file.fill_command(&self.own.template(), action.arguments(), &beside);
        let line = line.map_err(|no| no_command(&no))?;
        let mut lines = vec![format!("runs {}", json!(line.program))];
        lines.extend(line.arguments.iter().map(|argument| format!("argument {}", json!(argument))));
        if !line.input.is_empty() {
            lines.push(format!("reads {}", json!(String::from_utf8_lossy(&line.input))));
        }
        lines.extend(self.own.environment.iter().map(|(name, value)| match EnvironmentValue::of(value) {
            EnvironmentValue::Text(text) => format!("variable {name}={}", json!(text)),
            EnvironmentValue::Key => format!("variable {name}={SHOWN_KEY}"),
            EnvironmentValue::Secret(secret) => format!("variable {name} from the secret {}", json!(secret)),
        }));
        let listed = |list: &[String]| if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        let own = self.own;
        let hosts = if own.network.is_empty() { "no network".to_owned() } else { listed(&own.network) };
        lines.push(format!(
            "may read {}; may change {}; may reach {hosts}; at most {} s",
            listed(&own.reads),
            listed(&own.writes),
            own.limits.timeout_seconds
        ));
        let prints = self.prints().await.map_err(|why| Refusal::new(Code::ProcessFailed).with_source(why))?;
        lines.extend(prints.into_iter().map(|print| print.line));
        Ok(lines)
    }

    /// The files of the program as they are now.
    async fn prints(&self) -> Result<Vec<ProgramFileFingerprint>, String> {
        let own = self.own.clone();
        let looked = tokio::task::spawn_blocking(move || fingerprint_files(&own)).await;
        looked.unwrap_or_else(|_| Err("the files could not be read".to_owned()))
    }

    /// The files that a write may run: those that a person saw. They must also be those that the gateway found at its
    /// start; otherwise there are none.
    fn agreed(&self, hold: &Hold) -> Vec<String> {
        let bound: Vec<String> = hold.action.found().iter().filter(|line| line.starts_with(FILE)).cloned().collect();
        match hold.consent {
            None if bound != self.reach.prints => Vec::new(),
            Some(_) | None => bound,
        }
    }

    pub async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let template = self.own.template();
        let (action, beside) = (&ask.action, TemplateContext::default());
        // The approved files were shown to the person; they must also be those of the start.
        let shown: Vec<&String> = action.found().iter().filter(|line| line.starts_with(FILE)).collect();
        if !shown.is_empty() && shown != self.reach.prints.iter().collect::<Vec<_>>() {
            return Err(self.changed());
        }
        // SECURITY: the arguments of a read go to a program that may reach hosts.
        let said = Value::Object(action.arguments().clone()).to_string();
        if self.deps.egress.contains_blocked_content(&said, LeakScope::Service) {
            return Err(Refusal::new(Code::LeakFound));
        }
        let files = &self.reach.prints;
        let outcome = self
            .run(CustomProgramRun {
                template: &template,
                action,
                beside,
                files,
                folders: ProgramFolderAccess::LookedAt,
            })
            .await;
        let outcome = outcome.map_err(|not| match not {
            CustomProgramError::NotStarted(no) => no,
            CustomProgramError::Changed => self.changed(),
            CustomProgramError::TooSlow => Refusal::new(Code::CustomTooSlow),
            CustomProgramError::Lost => Refusal::new(Code::CustomProgramFailed),
        })?;
        if outcome.is_cut {
            let text = format!("the program printed more than {} kB and was killed", self.own.limits.answer_kb);
            return Err(Refusal::new(Code::CustomProgramFailed).with_text(&text));
        }
        let (code, meaning) = self.meaning(&outcome);
        match meaning {
            ExitMeaning::Done => Ok(self.shown(&outcome, code, Some(ContentRecipient::of(ask))).await.0),
            ExitMeaning::NotApplied => Err(Refusal::new(Code::ExecuteUnavailable)),
            ExitMeaning::Refused => {
                let text = format!("the program refused with exit code {code}");
                Err(Refusal::new(Code::ExecuteRefused).with_text(&text))
            }
            ExitMeaning::Unclear => Err(Refusal::new(Code::CustomProgramFailed)),
        }
    }

    pub async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let key = key_of(permit.hold());
        let files = self.agreed(hold);
        let template = self.own.template();
        let beside = TemplateContext { key: Some(&key), kept: Map::new() };
        let run = CustomProgramRun {
            template: &template,
            action: &hold.action,
            beside,
            files: &files,
            folders: ProgramFolderAccess::Changed,
        };
        let (outcome, code) = self.done(run, hold).await?;
        let (shown, value) = self.shown(&outcome, code, Some(ContentRecipient::of_write(hold))).await;
        let kept = self.file.extract_kept_values(&value);
        // The answer may lack what a rollback needs; then the write cannot be undone, and the answer says so.
        let beside = TemplateContext { key: Some(&key), kept: kept.clone() };
        let can_go_back = self.own.rollback.as_ref().is_some_and(|rollback| {
            self.file.fill_command(&rollback.template(), hold.action.arguments(), &beside).is_ok()
        });
        let after = can_go_back.then(|| marker_fingerprint("applied", hold.id));
        let receipt = answer::receipt(&format!("exit {code}"), self.program_name(), &kept);
        Ok(CompletedWrite { receipt, result: shown, after, undo_until: None })
    }

    /// Runs the lookup program, which prints `applied`, `absent` or `unknown`. Any other output proves nothing.
    pub async fn find(&self, hold: &Hold) -> LookupOutcome {
        let Some(template) = &self.own.lookup else {
            // Run again with the same key or the same effect: it happens once.
            return if self.file.is_repeatable() { LookupOutcome::Absent } else { LookupOutcome::Unknown };
        };
        let (key, files) = (key_of(hold.id), self.agreed(hold));
        let beside = TemplateContext { key: Some(&key), kept: Map::new() };
        let run = CustomProgramRun {
            template,
            action: &hold.action,
            beside,
            files: &files,
            folders: ProgramFolderAccess::LookedAt,
        };
        match self.run(run).await {
            Ok(outcome) if outcome.is_success() && !outcome.is_cut => match outcome.output.trim_ascii() {
                b"applied" => found_there("found", self.program_name(), Value::Null),
                b"absent" => LookupOutcome::Absent,
                _ => LookupOutcome::Unknown,
            },
            Err(CustomProgramError::NotStarted(no)) => LookupOutcome::not_given(&no),
            Ok(_) | Err(CustomProgramError::Changed | CustomProgramError::TooSlow | CustomProgramError::Lost) => {
                LookupOutcome::Unknown
            }
        }
    }

    pub async fn take_back(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        let impossible = || WriteError::refused(Code::RollbackNotPossible);
        let template: CommandTemplate = serde_json::from_slice(before).map_err(|_| impossible())?;
        let HoldState::Done { receipt, .. } = &done.state else { return Err(impossible()) };
        // The key is that of the write that undoes, so that the program can tell the two apart.
        let (key, files) = (key_of(permit.hold()), self.agreed(done));
        let beside = TemplateContext { key: Some(&key), kept: answer::kept_in(receipt) };
        let run = CustomProgramRun {
            template: &template,
            action: &done.action,
            beside,
            files: &files,
            folders: ProgramFolderAccess::Changed,
        };
        let (outcome, code) = self.done(run, done).await?;
        let (shown, _) = self.shown(&outcome, code, None).await;
        let receipt = answer::receipt(&format!("exit {code}"), self.program_name(), &Map::new());
        Ok(CompletedWrite { receipt, result: shown, after: None, undo_until: None })
    }

    /// Runs a program that changes something, and gives how it ended if that proves success.
    async fn done(&self, run: CustomProgramRun<'_>, hold: &Hold) -> Result<(ProgramOutcome, i32), WriteError> {
        let outcome = match self.run(run).await {
            Ok(outcome) => outcome,
            Err(CustomProgramError::NotStarted(no)) => return Err(WriteError::NotDone(no)),
            // A person is asked again about the files as they are now.
            Err(CustomProgramError::Changed)
                if hold.consent.is_some() && !matches!(hold.state, HoldState::Done { .. }) =>
            {
                return Err(WriteError::NotDone(Refusal::new(Code::FilesNotAsApproved)));
            }
            Err(CustomProgramError::Changed) => return Err(WriteError::Refused(self.changed())),
            Err(CustomProgramError::TooSlow | CustomProgramError::Lost) => return Err(WriteError::Unclear),
        };
        let (code, meaning) = self.meaning(&outcome);
        if meaning == ExitMeaning::Done {
            return Ok((outcome, code));
        }
        let words = self.words(&outcome.complaints).await;
        let said =
            |no: Refusal| no.with_text(&format!("the program ended with {code}")).with_service_words(words.as_deref());
        Err(match meaning {
            ExitMeaning::NotApplied => WriteError::NotDone(said(Refusal::new(Code::ExecuteUnavailable))),
            ExitMeaning::Refused => WriteError::Refused(said(Refusal::new(Code::ExecuteRefused))),
            ExitMeaning::Done | ExitMeaning::Unclear => words.map_or(WriteError::Unclear, WriteError::UnclearSaying),
        })
    }

    /// The exit code, and what it proves. A program that was killed proves nothing.
    fn meaning(&self, outcome: &ProgramOutcome) -> (i32, ExitMeaning) {
        match outcome.exit {
            ProgramExit::Code(code) => (code, self.own.exit_codes.meaning_of(code)),
            ProgramExit::Signal(signal) => (-signal, ExitMeaning::Unclear),
            ProgramExit::Unknown => (-1, ExitMeaning::Unclear),
        }
    }

    fn changed(&self) -> Refusal {
        let text = format!(
            "the program of `{}` is not the one that was approved or found at the gateway's start; nothing was run",
            self.name
        );
        Refusal::new(Code::ExecuteRefusedMismatch).with_text(&text)
    }

    /// The name of the program's file.
    fn program_name(&self) -> &str {
        self.own.command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
    }

    /// What the agent gets of a program's output, and its JSON value.
    async fn shown(&self, outcome: &ProgramOutcome, code: i32, reader: Option<ContentRecipient>) -> (Value, Value) {
        let Ok(service) = service_of(self.name) else { return (Value::Null, Value::Null) };
        let (kind, shape) = match &self.reach.schema {
            Some(schema) => ("application/json", ExpectedAnswerShape::Json(schema)),
            None => ("text/plain", ExpectedAnswerShape::Text),
        };
        let said = WireCustomAnswer {
            bytes: outcome.output.clone(),
            kind: Some(kind.to_owned()),
            ended: ("exit_code", i64::from(code)),
            shape,
            is_cut: outcome.is_cut,
        };
        let origin = CustomAnswerOrigin { service: &service, place: ("program", self.program_name()), reader };
        self.deps.shown(said, origin).await
    }

    /// The end of a program's error output, where people may see it.
    async fn words(&self, complaints: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(complaints);
        let text = text.trim();
        let skip = text.chars().count().saturating_sub(COMPLAINT);
        let end: String = text.chars().skip(skip).collect();
        if end.is_empty() {
            return None;
        }
        let item = IncomingItem {
            bytes: end.into_bytes(),
            declared: Some("text/plain".into()),
            service: service_of(self.name).ok()?,
            source: format!("error output of {}", self.program_name()),
            author: self.program_name().to_owned(),
            at: self.deps.clock.now(),
            beside: None,
            reader: None,
            enveloped: false,
        };
        match self.deps.intake.take_in(&item).await {
            Ok(IntakeOutcome::Clean(cleaned)) if cleaned.withheld.is_none() => {
                let may_be_shown = !self.deps.egress.contains_blocked_content(&cleaned.text, LeakScope::Service);
                may_be_shown.then_some(cleaned.text)
            }
            Ok(IntakeOutcome::Clean(_) | IntakeOutcome::Refused { .. }) | Err(_) => None,
        }
    }

    async fn run(&self, wanted: CustomProgramRun<'_>) -> Result<ProgramOutcome, CustomProgramError> {
        let failed = |error: std::io::Error| {
            CustomProgramError::NotStarted(Refusal::new(Code::ProcessFailed).with_source(error))
        };
        let line = self.file.fill_command(wanted.template, wanted.action.arguments(), &wanted.beside);
        let line = line.map_err(|no| CustomProgramError::NotStarted(no_command(&no)))?;
        let turn = timeout(TURN, self.deps.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(CustomProgramError::NotStarted(Refusal::new(Code::ProcessTooMany)));
        };
        let hosts = (self.reach.hosts.as_slice(), self.reach.opened.as_slice());
        let tunnel = ConnectProxy::plan(hosts.0, &self.deps.workers).await;
        let tunnel =
            tunnel.map_err(|why| CustomProgramError::NotStarted(Refusal::new(Code::ProcessFailed).with_source(why)))?;
        let (mut environment, given) =
            self.environment(&wanted, &tunnel).await.map_err(CustomProgramError::NotStarted)?;
        let own = self.deps.folder.join(format!("{:032x}", self.deps.ids.mint()));
        let own = PrivateRunFolder::new(own).map_err(failed)?;
        for name in ["HOME", "TMPDIR"] {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.to_owned(), own.path().display().to_string()));
            }
        }
        // As late as possible: the files that are read here are the files that run.
        let prints = self.prints().await;
        let prints =
            prints.map_err(|why| CustomProgramError::NotStarted(Refusal::new(Code::ProcessFailed).with_source(why)))?;
        if !prints.iter().map(|print| &print.line).eq(wanted.files) {
            return Err(CustomProgramError::Changed);
        }
        let limits = &self.own.limits;
        let mut task = ProgramTask {
            terms: self.terms(&wanted, (&line, environment), own.path(), (&prints, tunnel.network())),
            input: line.input,
            time: Duration::from_secs(limits.timeout_seconds),
            most: usize::try_from(limits.answer_kb).unwrap_or(usize::MAX) << 10,
            listener: None,
        };
        let (hand, handed) = oneshot::channel::<OwnedFd>();
        let is_closed = matches!(tunnel, ConnectProxy::Closed);
        let is_own = matches!(tunnel, ConnectProxy::InNamespace);
        if is_own {
            task.listener = Some(Box::new(move |socket| drop(hand.send(socket))));
        }
        let service = service_of(self.name).map_err(CustomProgramError::NotStarted)?;
        let mut beside = JoinSet::new();
        let serving = async {
            if !is_closed {
                let socket = if is_own { handed.await.ok() } else { None };
                // If the connect proxy does not open, the program has no network.
                let _opened = tunnel.open(hosts, socket, (&self.deps.standstill, service), &mut beside);
            }
            std::future::pending::<Infallible>().await
        };
        let ended = tokio::select! {
            ended = run(&self.deps.workers, task) => ended,
            never = serving => match never {},
        };
        let mut outcome = ended.map_err(not_run)?;
        // SECURITY: removes the secrets that it was given, whether or not the leak scan knows them by now.
        for said in [&mut outcome.output, &mut outcome.complaints] {
            if let Some(clean) = given.scrub(said) {
                *said = clean;
            }
        }
        Ok(outcome)
    }

    /// The environment of the program, except its own folder, and the secrets in it.
    async fn environment(
        &self,
        wanted: &CustomProgramRun<'_>,
        tunnel: &ConnectProxy,
    ) -> Result<(Vec<(String, String)>, LiveSecrets), Refusal> {
        let mut given = Vec::new();
        let mut all = vec![("PATH".to_owned(), FOLDERS.join(":")), ("LANG".to_owned(), "C.UTF-8".to_owned())];
        all.extend(connect_proxy::variables(tunnel.network()));
        for (name, value) in &self.own.environment {
            let value = match EnvironmentValue::of(value) {
                EnvironmentValue::Text(text) => text.to_owned(),
                EnvironmentValue::Key => wanted.beside.key.unwrap_or_default().to_owned(),
                EnvironmentValue::Secret(secret) => {
                    let value = self.secret(secret, wanted.action).await?;
                    given.push((secret.to_owned(), value.clone()));
                    value
                }
            };
            all.retain(|(known, _)| known != name);
            all.push((name.clone(), value));
        }
        let given = LiveSecrets::new(given).map_err(|_| Refusal::new(Code::GatewayInternal))?;
        Ok((all, given))
    }

    /// A secret that the declaration gives to the program. It must be bound to the capability and to each host that the
    /// program may reach; to `localhost` if it may reach none.
    async fn secret(&self, secret: &str, action: &Action) -> Result<String, Refusal> {
        let unknown = |why: String| Refusal::new(Code::VaultUnknown).with_source(why);
        let name = SecretName::new(secret).map_err(|why| unknown(why.to_string()))?;
        let connection = connection_name(self.name.as_str()).map_err(unknown)?;
        let mut hosts = self.own.network.clone();
        if hosts.is_empty() {
            hosts.push("localhost".to_owned());
        }
        let by = Actor::Agent(action.agent().clone());
        let wanted = SecretUse { capability: self.name.as_str(), connection: &connection, hosts: &hosts, by };
        let taken = self.deps.vault.take(&name, &wanted).await.map_err(sluice_egress::vault::VaultError::refusal)?;
        String::from_utf8(taken.expose().to_vec()).map_err(|_| unknown("the secret is not text".to_owned()))
    }

    fn terms(
        &self,
        wanted: &CustomProgramRun<'_>,
        (line, environment): (&FilledCommand, Vec<(String, String)>),
        own: &Path,
        (prints, network): (&[ProgramFileFingerprint], crate::workers::ThirdPartyNetwork),
    ) -> ThirdPartyTerms {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let files = prints.iter().filter_map(|print| Some((print.path.clone(), print.identity?)));
        let pinned: Vec<PinnedFolder> =
            files.map(|(path, (device, inode))| PinnedFolder { path, device, inode }).collect();
        let mut look: Vec<PathBuf> = pinned.iter().map(|pin| pin.path.clone()).collect();
        let mut write = vec![own.to_path_buf()];
        match wanted.folders {
            ProgramFolderAccess::Changed => write.extend(paths(&self.own.writes)),
            ProgramFolderAccess::LookedAt => look.extend(paths(&self.own.writes)),
        }
        ThirdPartyTerms {
            program: PathBuf::from(&line.program),
            arguments: line.arguments.clone(),
            environment,
            folder: self.own.folder.as_ref().map_or_else(|| own.to_path_buf(), PathBuf::from),
            read: paths(&self.own.reads),
            look,
            write,
            pinned,
            network,
            memory: u64::from(self.own.limits.memory_mb) << 20,
            file_bytes: FILE_BYTES,
            processes: PROCESSES,
            profile: ThirdPartyProfile::Server,
            mode: JailMode::Required,
            namespaces: Ok(()),
        }
    }
}

/// Why there is no outcome, and whether something may have happened.
fn not_run(failure: ProgramTaskError) -> CustomProgramError {
    match failure {
        ProgramTaskError::TooSlow => CustomProgramError::TooSlow,
        ProgramTaskError::System(_) => CustomProgramError::Lost,
        // The program may have started at the moment when the gateway stopped waiting for it.
        ProgramTaskError::NotStarted(WorkerPoolError::NotStarted(WorkerStartError::Spawn(error)))
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
        {
            CustomProgramError::Lost
        }
        ProgramTaskError::NotStarted(error) => {
            CustomProgramError::NotStarted(Refusal::new(Code::ProcessFailed).with_source(error))
        }
    }
}

fn no_command(no: &CommandTemplateError) -> Refusal {
    match no {
        CommandTemplateError::Fill(no) => unfit(no),
        CommandTemplateError::Option(_) | CommandTemplateError::Unusable(_) => {
            Refusal::new(Code::SchemaWrongType).with_text(&no.to_string())
        }
    }
}
