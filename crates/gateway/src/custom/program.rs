//! A custom capability that is carried out by a program in the sandbox.
//!
//! Takes a call's arguments; gives how the program ended and what it printed. Promise: what runs is the program that was
//! approved, or, where nobody was asked, the one that the gateway started with; it has the folders, hosts and variables
//! of its declaration and nothing else; it is dead when this returns or the gateway ends; whatever does not prove that
//! nothing happened leaves a write in doubt.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use sluice_content::leak::{LiveSecrets, Scope as LeakScope};
use sluice_content::stages::Schema;
use sluice_core::custom::CustomCapability;
use sluice_core::custom::program::{
    CommandError, CommandTemplate, DeclaredProgram, ExitMeaning, FilledCommand, VariableValue,
};
use sluice_core::custom::request::Beside;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::SecretName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, CapabilityName};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{self, Origin, Said, Shape};
use super::machine::{FILE, FilePrint, prints_of};
use super::request::found_there;
use super::service::{key_of, print, service_of, unfit};
use super::{CustomGround, connection_name};
use crate::egress::HostPattern;
use crate::egress::ssrf::Net;
use crate::intake::{Incoming, Reader, Taken};
use crate::programs::hatch::{self, Hatch};
use crate::programs::{FOLDERS, OwnFolder, ProgramFailure, ProgramOutcome, ProgramTask, run};
use crate::services::{Ask, Found, Performed, Trouble};
use crate::vault::Use;
use crate::workers::{Mode, NotStarted, PinnedFolder, Profile, ProgramExit, Terms, WorkersError};

/// How long a program waits for its turn.
const TURN: Duration = Duration::from_secs(3);
/// Largest file a program may write.
const FILE_BYTES: u64 = 1 << 30;
/// Processes and threads of a program.
const PROCESSES: u64 = 256;
/// Most that people are shown of what a program complained about, in characters.
const COMPLAINT: usize = 300;
/// What stands in a card for the idempotency key, which is made with the write.
const SHOWN_KEY: &str = "{call.key}";

/// What a declared program can reach, in the form in which it is used.
#[derive(Debug)]
pub(super) struct ProgramReach {
    /// The hosts.
    pub hosts: Vec<HostPattern>,
    /// Private addresses that they may have.
    pub opened: Vec<Net>,
    /// The shape of what it prints.
    pub schema: Option<Schema>,
    /// The files of the program as they were when the gateway started.
    pub prints: Vec<String>,
}

/// One declared program with what it can reach.
pub(super) struct ProgramWay<'a> {
    pub ground: &'a CustomGround,
    pub name: &'a CapabilityName,
    pub file: &'a CustomCapability,
    pub own: &'a DeclaredProgram,
    pub reach: &'a ProgramReach,
}

/// Whether a run may change the folders of `writes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folders {
    Changed,
    LookedAt,
}

/// One run.
struct Run<'r> {
    template: &'r CommandTemplate,
    action: &'r Action,
    beside: Beside<'r>,
    /// The files that have to be there.
    files: &'r [String],
    folders: Folders,
}

/// Why a program did not run to its end.
enum NotRun {
    /// It was not started: nothing happened.
    NotStarted(Refusal),
    /// Its files are others than those that may be run. Nothing happened.
    Changed,
    /// It took too long, and was ended.
    TooSlow,
    /// Nobody can tell how far it came.
    Lost,
}

impl ProgramWay<'_> {
    /// Whether these arguments give a command line.
    pub fn check(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let beside = Beside { key: Some(SHOWN_KEY), kept: Map::new() };
        let filled = self.file.command_line(&self.own.template(), arguments, &beside);
        filled.map(drop).map_err(|no| no_command(&no))
    }

    /// What a person is shown of the program before it runs. The lines that name files are those that an approval is
    /// bound to, with everything else.
    pub async fn found(&self, action: &Action) -> Result<Vec<String>, Refusal> {
        let beside = Beside { key: Some(SHOWN_KEY), kept: Map::new() };
        let line = self.file.command_line(&self.own.template(), action.arguments(), &beside);
        let line = line.map_err(|no| no_command(&no))?;
        let mut lines = vec![format!("runs {}", json!(line.program))];
        lines.extend(line.arguments.iter().map(|argument| format!("argument {}", json!(argument))));
        if !line.input.is_empty() {
            lines.push(format!("reads {}", json!(String::from_utf8_lossy(&line.input))));
        }
        lines.extend(self.own.environment.iter().map(|(name, value)| match VariableValue::of(value) {
            VariableValue::Text(text) => format!("variable {name}={}", json!(text)),
            VariableValue::Key => format!("variable {name}={SHOWN_KEY}"),
            VariableValue::Secret(secret) => format!("variable {name} from the secret {}", json!(secret)),
        }));
        let listed = |list: &[String]| if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        let own = self.own;
        let hosts = if own.network.is_empty() { "no network".to_owned() } else { listed(&own.network) };
        lines.push(format!(
            "may read {}; may change {}; reaches {hosts}; at most {} s",
            listed(&own.reads),
            listed(&own.writes),
            own.limits.timeout_seconds
        ));
        let prints = self.prints().await.map_err(|why| Refusal::new(Code::ProcessFailed).because(why))?;
        lines.extend(prints.into_iter().map(|print| print.line));
        Ok(lines)
    }

    /// The files of the program as they are now.
    async fn prints(&self) -> Result<Vec<FilePrint>, String> {
        let own = self.own.clone();
        let looked = tokio::task::spawn_blocking(move || prints_of(&own)).await;
        looked.unwrap_or_else(|_| Err("the files could not be read".to_owned()))
    }

    /// The files that a write may run: those that a person was shown. Where nobody was asked, they have to be those that
    /// the gateway started with as well; otherwise there are none.
    fn agreed(&self, hold: &Hold) -> Vec<String> {
        let bound: Vec<String> = hold.action.found().iter().filter(|line| line.starts_with(FILE)).cloned().collect();
        match hold.consent {
            None if bound != self.reach.prints => Vec::new(),
            Some(_) | None => bound,
        }
    }

    pub async fn answer(&self, ask: &Ask) -> Result<Value, Refusal> {
        let template = self.own.template();
        let (action, beside) = (&ask.action, Beside::default());
        // What a person approved was shown with its files; those have to be the ones of the start as well.
        let shown: Vec<&String> = action.found().iter().filter(|line| line.starts_with(FILE)).collect();
        if !shown.is_empty() && shown != self.reach.prints.iter().collect::<Vec<_>>() {
            return Err(self.changed());
        }
        // SECURITY: the arguments of a read are handed to a program that may reach hosts.
        let said = Value::Object(action.arguments().clone()).to_string();
        if self.ground.egress.must_stay(&said, LeakScope::Service) {
            return Err(Refusal::new(Code::LeakFound));
        }
        let files = &self.reach.prints;
        let outcome = self.run(Run { template: &template, action, beside, files, folders: Folders::LookedAt }).await;
        let outcome = outcome.map_err(|not| match not {
            NotRun::NotStarted(no) => no,
            NotRun::Changed => self.changed(),
            NotRun::TooSlow => Refusal::new(Code::CustomTooSlow),
            NotRun::Lost => Refusal::new(Code::CustomProgramFailed),
        })?;
        if outcome.is_cut {
            let text = format!("the program printed more than {} kB, and was ended", self.own.limits.answer_kb);
            return Err(Refusal::new(Code::CustomProgramFailed).with_text(&text));
        }
        let (code, meaning) = self.meaning(&outcome);
        match meaning {
            ExitMeaning::Done => Ok(self.shown(&outcome, code, Some(Reader::of(ask))).await.0),
            ExitMeaning::NotApplied => Err(Refusal::new(Code::ExecuteUnavailable)),
            ExitMeaning::Refused => {
                let text = format!("the program refused with exit code {code}");
                Err(Refusal::new(Code::ExecuteRefused).with_text(&text))
            }
            ExitMeaning::Unclear => Err(Refusal::new(Code::CustomProgramFailed)),
        }
    }

    pub async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<Performed, Trouble> {
        let key = key_of(permit.hold());
        let files = self.agreed(hold);
        let template = self.own.template();
        let beside = Beside { key: Some(&key), kept: Map::new() };
        let run = Run { template: &template, action: &hold.action, beside, files: &files, folders: Folders::Changed };
        let (outcome, code) = self.done(run, hold).await?;
        let (shown, value) = self.shown(&outcome, code, Some(Reader::of_write(hold))).await;
        let kept = self.file.kept_of(&value);
        // What is needed to take it back may be missing in the answer; then it can only be said that it cannot be.
        let beside = Beside { key: Some(&key), kept: kept.clone() };
        let can_go_back = self.own.rollback.as_ref().is_some_and(|rollback| {
            self.file.command_line(&rollback.template(), hold.action.arguments(), &beside).is_ok()
        });
        let after = can_go_back.then(|| print("applied", hold.id));
        let receipt = answer::receipt(&format!("exit {code}"), self.program_name(), &kept);
        Ok(Performed { receipt, result: shown, after, undo_until: None })
    }

    /// Asks the lookup program, which prints `applied`, `absent` or `unknown`. Anything else says nothing.
    pub async fn find(&self, hold: &Hold) -> Found {
        let Some(template) = &self.own.lookup else {
            // Run again with the same key, or to the same end: it happens once.
            return if self.file.is_repeatable() { Found::Absent } else { Found::Unknown };
        };
        let (key, files) = (key_of(hold.id), self.agreed(hold));
        let beside = Beside { key: Some(&key), kept: Map::new() };
        let run = Run { template, action: &hold.action, beside, files: &files, folders: Folders::LookedAt };
        match self.run(run).await {
            Ok(outcome) if outcome.is_success() && !outcome.is_cut => match outcome.output.trim_ascii() {
                b"applied" => found_there("found", self.program_name(), Value::Null),
                b"absent" => Found::Absent,
                _ => Found::Unknown,
            },
            Err(NotRun::NotStarted(no)) => Found::not_given(&no),
            Ok(_) | Err(NotRun::Changed | NotRun::TooSlow | NotRun::Lost) => Found::Unknown,
        }
    }

    pub async fn take_back(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        let impossible = || Trouble::refused(Code::RollbackNotPossible);
        let template: CommandTemplate = serde_json::from_slice(before).map_err(|_| impossible())?;
        let HoldState::Done { receipt, .. } = &done.state else { return Err(impossible()) };
        // The key is that of the write that takes back, so that the program tells the two apart.
        let (key, files) = (key_of(permit.hold()), self.agreed(done));
        let beside = Beside { key: Some(&key), kept: answer::kept_in(receipt) };
        let run = Run { template: &template, action: &done.action, beside, files: &files, folders: Folders::Changed };
        let (outcome, code) = self.done(run, done).await?;
        let (shown, _) = self.shown(&outcome, code, None).await;
        let receipt = answer::receipt(&format!("exit {code}"), self.program_name(), &Map::new());
        Ok(Performed { receipt, result: shown, after: None, undo_until: None })
    }

    /// Runs a program that changes something, and gives how it ended if that proves that it is done.
    async fn done(&self, run: Run<'_>, hold: &Hold) -> Result<(ProgramOutcome, i32), Trouble> {
        let outcome = match self.run(run).await {
            Ok(outcome) => outcome,
            Err(NotRun::NotStarted(no)) => return Err(Trouble::NotDone(no)),
            // A person is asked again about the files as they are now.
            Err(NotRun::Changed) if hold.consent.is_some() && !matches!(hold.state, HoldState::Done { .. }) => {
                return Err(Trouble::NotDone(Refusal::new(Code::FilesNotAsApproved)));
            }
            Err(NotRun::Changed) => return Err(Trouble::Refused(self.changed())),
            Err(NotRun::TooSlow | NotRun::Lost) => return Err(Trouble::Unclear),
        };
        let (code, meaning) = self.meaning(&outcome);
        if meaning == ExitMeaning::Done {
            return Ok((outcome, code));
        }
        let words = self.words(&outcome.complaints).await;
        let said = |no: Refusal| no.with_text(&format!("the program ended with {code}")).quoting(words.as_deref());
        Err(match meaning {
            ExitMeaning::NotApplied => Trouble::NotDone(said(Refusal::new(Code::ExecuteUnavailable))),
            ExitMeaning::Refused => Trouble::Refused(said(Refusal::new(Code::ExecuteRefused))),
            ExitMeaning::Done | ExitMeaning::Unclear => words.map_or(Trouble::Unclear, Trouble::UnclearSaying),
        })
    }

    /// The exit code, and what it proves. One that was ended by force proves nothing.
    fn meaning(&self, outcome: &ProgramOutcome) -> (i32, ExitMeaning) {
        match outcome.exit {
            ProgramExit::Code(code) => (code, self.own.exit_codes.meaning_of(code)),
            ProgramExit::Signal(signal) => (-signal, ExitMeaning::Unclear),
            ProgramExit::Unknown => (-1, ExitMeaning::Unclear),
        }
    }

    fn changed(&self) -> Refusal {
        let text = format!(
            "the program of `{}` is not the one that was approved, or that the gateway started with; nothing was run",
            self.name
        );
        Refusal::new(Code::ExecuteRefusedMismatch).with_text(&text)
    }

    /// The name of the program's file.
    fn program_name(&self) -> &str {
        self.own.command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
    }

    /// What the agent is told of what a program printed, and its JSON value.
    async fn shown(&self, outcome: &ProgramOutcome, code: i32, reader: Option<Reader>) -> (Value, Value) {
        let Ok(service) = service_of(self.name) else { return (Value::Null, Value::Null) };
        let (kind, shape) = match &self.reach.schema {
            Some(schema) => ("application/json", Shape::Json(schema)),
            None => ("text/plain", Shape::Text),
        };
        let said = Said {
            bytes: outcome.output.clone(),
            kind: Some(kind.to_owned()),
            ended: ("exit_code", i64::from(code)),
            shape,
            is_cut: outcome.is_cut,
        };
        let origin = Origin { service: &service, place: ("program", self.program_name()), reader };
        self.ground.shown(said, origin).await
    }

    /// The end of what a program complained about, where it may be shown to people.
    async fn words(&self, complaints: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(complaints);
        let text = text.trim();
        let skip = text.chars().count().saturating_sub(COMPLAINT);
        let end: String = text.chars().skip(skip).collect();
        if end.is_empty() {
            return None;
        }
        let item = Incoming {
            bytes: end.into_bytes(),
            declared: Some("text/plain".into()),
            service: service_of(self.name).ok()?,
            source: format!("complaints of {}", self.program_name()),
            author: self.program_name().to_owned(),
            at: self.ground.clock.now(),
            beside: None,
            reader: None,
            enveloped: false,
        };
        match self.ground.intake.take_in(&item).await {
            Ok(Taken::Clean(cleaned)) if cleaned.withheld.is_none() => {
                let may_be_shown = !self.ground.egress.must_stay(&cleaned.text, LeakScope::Service);
                may_be_shown.then_some(cleaned.text)
            }
            Ok(Taken::Clean(_) | Taken::Refused { .. }) | Err(_) => None,
        }
    }

    async fn run(&self, wanted: Run<'_>) -> Result<ProgramOutcome, NotRun> {
        let failed = |error: std::io::Error| NotRun::NotStarted(Refusal::new(Code::ProcessFailed).because(error));
        let line = self.file.command_line(wanted.template, wanted.action.arguments(), &wanted.beside);
        let line = line.map_err(|no| NotRun::NotStarted(no_command(&no)))?;
        let turn = timeout(TURN, self.ground.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(NotRun::NotStarted(Refusal::new(Code::ProcessTooMany))) };
        let hosts = (self.reach.hosts.as_slice(), self.reach.opened.as_slice());
        let hatch = Hatch::plan(hosts.0, &self.ground.workers).await;
        let hatch = hatch.map_err(|why| NotRun::NotStarted(Refusal::new(Code::ProcessFailed).because(why)))?;
        let (mut environment, given) = self.environment(&wanted, &hatch).await.map_err(NotRun::NotStarted)?;
        let own = self.ground.folder.join(format!("{:032x}", self.ground.ids.mint()));
        let own = OwnFolder::new(own).map_err(failed)?;
        for name in ["HOME", "TMPDIR"] {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.to_owned(), own.path().display().to_string()));
            }
        }
        // As late as it can be: what is read here is what is run.
        let prints = self.prints().await;
        let prints = prints.map_err(|why| NotRun::NotStarted(Refusal::new(Code::ProcessFailed).because(why)))?;
        if !prints.iter().map(|print| &print.line).eq(wanted.files) {
            return Err(NotRun::Changed);
        }
        let limits = &self.own.limits;
        let mut task = ProgramTask {
            terms: self.terms(&wanted, (&line, environment), own.path(), (&prints, hatch.network())),
            input: line.input,
            time: Duration::from_secs(limits.timeout_seconds),
            most: usize::try_from(limits.answer_kb).unwrap_or(usize::MAX) << 10,
            listener: None,
        };
        let (hand, handed) = oneshot::channel::<OwnedFd>();
        let is_closed = matches!(hatch, Hatch::Closed);
        let is_own = matches!(hatch, Hatch::InNamespace);
        if is_own {
            task.listener = Some(Box::new(move |socket| drop(hand.send(socket))));
        }
        let service = service_of(self.name).map_err(NotRun::NotStarted)?;
        let mut beside = JoinSet::new();
        let serving = async {
            if !is_closed {
                let socket = if is_own { handed.await.ok() } else { None };
                // A hatch that does not open leaves the program without a network.
                let _opened = hatch.open(hosts, socket, (&self.ground.standstill, service), &mut beside);
            }
            std::future::pending::<Infallible>().await
        };
        let ended = tokio::select! {
            ended = run(&self.ground.workers, task) => ended,
            never = serving => match never {},
        };
        let mut outcome = ended.map_err(not_run)?;
        // SECURITY: the secrets it was given are taken out here, whether or not the leak scan knows them by now.
        for said in [&mut outcome.output, &mut outcome.complaints] {
            if let Some(clean) = given.scrub(said) {
                *said = clean;
            }
        }
        Ok(outcome)
    }

    /// Everything that the program finds in its environment, but for its own folder, and the secrets in it.
    async fn environment(
        &self,
        wanted: &Run<'_>,
        hatch: &Hatch,
    ) -> Result<(Vec<(String, String)>, LiveSecrets), Refusal> {
        let mut given = Vec::new();
        let mut all = vec![("PATH".to_owned(), FOLDERS.join(":")), ("LANG".to_owned(), "C.UTF-8".to_owned())];
        all.extend(hatch::variables(hatch.network()));
        for (name, value) in &self.own.environment {
            let value = match VariableValue::of(value) {
                VariableValue::Text(text) => text.to_owned(),
                VariableValue::Key => wanted.beside.key.unwrap_or_default().to_owned(),
                VariableValue::Secret(secret) => {
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
        let unknown = |why: String| Refusal::new(Code::VaultUnknown).because(why);
        let name = SecretName::new(secret).map_err(|why| unknown(why.to_string()))?;
        let connection = connection_name(self.name.as_str()).map_err(unknown)?;
        let mut hosts = self.own.network.clone();
        if hosts.is_empty() {
            hosts.push("localhost".to_owned());
        }
        let by = Actor::Agent(action.agent().clone());
        let wanted = Use { capability: self.name.as_str(), connection: &connection, hosts: &hosts, by };
        let taken = self.ground.vault.take(&name, &wanted).await.map_err(crate::vault::VaultError::refusal)?;
        String::from_utf8(taken.expose().to_vec()).map_err(|_| unknown("the secret is no text".to_owned()))
    }

    fn terms(
        &self,
        wanted: &Run<'_>,
        (line, environment): (&FilledCommand, Vec<(String, String)>),
        own: &Path,
        (prints, network): (&[FilePrint], crate::workers::Network),
    ) -> Terms {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let files = prints.iter().filter_map(|print| Some((print.path.clone(), print.identity?)));
        let pinned: Vec<PinnedFolder> =
            files.map(|(path, (device, inode))| PinnedFolder { path, device, inode }).collect();
        let mut look: Vec<PathBuf> = pinned.iter().map(|pin| pin.path.clone()).collect();
        let mut write = vec![own.to_path_buf()];
        match wanted.folders {
            Folders::Changed => write.extend(paths(&self.own.writes)),
            Folders::LookedAt => look.extend(paths(&self.own.writes)),
        }
        Terms {
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
            profile: Profile::Server,
            mode: Mode::Required,
            namespaces: Ok(()),
        }
    }
}

/// Why there is no outcome, and whether anything can have happened.
fn not_run(failure: ProgramFailure) -> NotRun {
    match failure {
        ProgramFailure::TooSlow => NotRun::TooSlow,
        ProgramFailure::System(_) => NotRun::Lost,
        // It may have become the program in the moment in which nobody waited for it any longer.
        ProgramFailure::NotStarted(WorkersError::NotStarted(NotStarted::Spawn(error)))
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
        {
            NotRun::Lost
        }
        ProgramFailure::NotStarted(error) => NotRun::NotStarted(Refusal::new(Code::ProcessFailed).because(error)),
    }
}

fn no_command(no: &CommandError) -> Refusal {
    match no {
        CommandError::Fill(no) => unfit(no),
        CommandError::Option(_) | CommandError::Unusable(_) => {
            Refusal::new(Code::SchemaWrongType).with_text(&no.to_string())
        }
    }
}
