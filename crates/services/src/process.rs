//! The process service: programs that agents run (`process.*`).
//!
//! Takes the programs that an operator listed, in the opened folders; gives their output as outside text. Promise: a
//! program has no network, no files but its folder and the installed system, only an environment that was shown, and
//! limits; only the agent that started it can see and end it; it ends with the gateway.

mod table;

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, BoxedFuture, CapabilityName, Clock, HoldId};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::table::{ProgramEntry, ProgramOutputStream, ProgramState, ProgramTable};
use super::files::{FilesystemService, HostedFolder, HostedTextOutcome};
use super::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::ContentRecipient;
use crate::programs::{FOLDERS, find, fingerprint_file};
use crate::workers::{
    GatewayWorkers, PinnedFolder, ProgramSignal, ThirdPartyNetwork, ThirdPartyProfile, ThirdPartyTerms, WorkerCancel,
};

/// How long a call waits for a program that does not run in the background: within the deadline of a write.
const WAITED: Duration = Duration::from_secs(40);
/// The largest file that a program may write, in bytes.
const FILE_BYTES: u64 = 1 << 30;
/// The most processes and threads of a program.
const PROCESSES: u64 = 256;
/// The most lines of one answer.
const LINES: u64 = 10_000;

/// The service.
pub struct ProcessService {
    files: Arc<FilesystemService>,
    workers: Arc<GatewayWorkers>,
    clock: Arc<dyn Clock>,
    scratch: PathBuf,
    settings: sluice_config::Process,
    table: Arc<ProgramTable>,
    /// The timers that end programs at their time limit.
    timers: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for ProcessService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Drop for ProcessService {
    fn drop(&mut self) {
        self.table.end_all();
    }
}

fn text<'a>(action: &'a Action, name: &str) -> Option<&'a str> {
    action.arguments().get(name).and_then(Value::as_str)
}

fn number(action: &Action, name: &str) -> Option<u64> {
    action.arguments().get(name).and_then(Value::as_u64)
}

fn wrong(words: &str) -> Refusal {
    Refusal::new(Code::SchemaWrongType).with_text(words)
}

/// The id of the program that a write starts.
fn id_of(hold: HoldId) -> String {
    format!("proc_{:032x}", hold.bits())
}

/// The program that a call asks to run.
struct RequestedProgram {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: HostedFolder,
    changes: bool,
    time: Duration,
    memory: u64,
}

impl ProcessService {
    /// The service over these folders.
    #[must_use]
    pub fn new(
        (files, workers): (Arc<FilesystemService>, Arc<GatewayWorkers>),
        clock: Arc<dyn Clock>,
        scratch: PathBuf,
        settings: sluice_config::Process,
    ) -> Self {
        // Left behind by a gateway that was killed.
        let _gone = std::fs::remove_dir_all(&scratch);
        Self { files, workers, clock, scratch, settings, table: Arc::default(), timers: Mutex::default() }
    }

    async fn wanted(&self, action: &Action) -> Result<RequestedProgram, Refusal> {
        let command = text(action, "command").unwrap_or_default();
        let listed = self.settings.programs.iter().find(|name| name.as_str() == command);
        let program = listed.and_then(|name| find(name.as_str()));
        let program = program.ok_or_else(|| {
            let known: Vec<&str> = self.settings.programs.iter().map(sluice_config::SingleWord::as_str).collect();
            let words = format!("only these programs can be run here: {}", known.join(", "));
            Refusal::new(Code::ProcessNotAllowed).with_text(&words)
        })?;
        if action.arguments().contains_key("cpu_limit") {
            return Err(wrong("this gateway cannot enforce `cpu_limit`: leave it out"));
        }
        let arguments = action.arguments().get("args").and_then(Value::as_array);
        let arguments: Vec<String> =
            arguments.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut environment = Vec::new();
        for (name, value) in action.arguments().get("environment").and_then(Value::as_object).into_iter().flatten() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let value = value.as_str().filter(|value| !value.contains('\0'));
            let named = !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
            match value {
                Some(value) if named => environment.push((name.clone(), value.to_owned())),
                _ => return Err(wrong("a variable of `environment` has letters, digits and `_`, and a text as value")),
            }
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(wrong("an argument has a NUL byte in it"));
        }
        let roots = self.files.roots_of(action.agent());
        let path = match (text(action, "working_directory"), roots.as_slice()) {
            (Some(path), _) => path.to_owned(),
            (None, [(only, _)]) => only.clone(),
            (None, _) => {
                let words = "name the `working_directory`: several folders are open to this agent";
                return Err(Refusal::new(Code::SchemaMissingArgument).with_text(words));
            }
        };
        let folder = self.files.hosted(action, &path, false).await?;
        let changes = self.files.hosted(action, &path, true).await.is_ok();
        let time = Duration::from_secs(number(action, "timeout").unwrap_or(300)).min(self.settings.time.as_duration());
        let memory = self.settings.memory.as_bytes();
        let memory = number(action, "memory_limit").map_or(memory, |asked| asked.min(memory));
        Ok(RequestedProgram { program, arguments, environment, folder, changes, time, memory })
    }

    /// What a person is shown of a program before it runs. An approval is bound to the last line.
    async fn shown(&self, action: &Action) -> Result<Vec<String>, Refusal> {
        let wanted = self.wanted(action).await?;
        let RequestedProgram { program, arguments, environment, changes, time, .. } = &wanted;
        let mut lines = vec![format!("runs {}", json!(program))];
        lines.extend(arguments.iter().map(|argument| format!("argument {}", json!(argument))));
        lines.extend(environment.iter().map(|(name, value)| format!("variable {name}={}", json!(value))));
        let may = if *changes { "may change files there" } else { "only reads there" };
        lines.push(format!("in {}, {may}, no network, at most {} s", wanted.folder.path, time.as_secs()));
        let path = program.clone();
        let print = tokio::task::spawn_blocking(move || fingerprint_file(&path)).await;
        let print = print.unwrap_or_else(|_| Err(std::io::Error::other("broke down")));
        let (print, _) = print.map_err(|error| Refusal::new(Code::ProcessFailed).with_source(error))?;
        lines.push(format!("state of the program: {} {print}", program.display()));
        // SECURITY: a program can read everything in its folder, so nothing hidden may lie there.
        if self.files.hides_something(wanted.folder).await? {
            let words = "the folder holds files that a rule hides from this agent, and a program would read them: name \
                         another folder";
            return Err(Refusal::new(Code::PolicyBlocked).with_text(words));
        }
        Ok(lines)
    }

    fn terms(&self, wanted: RequestedProgram, own: &Path) -> ThirdPartyTerms {
        let text = |path: &Path| path.display().to_string();
        let mut environment = vec![
            ("PATH".to_owned(), FOLDERS.join(":")),
            ("HOME".to_owned(), text(own)),
            ("TMPDIR".to_owned(), text(own)),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ];
        for (name, value) in wanted.environment {
            environment.retain(|(known, _)| *known != name);
            environment.push((name, value));
        }
        let folder = PathBuf::from(&wanted.folder.path);
        let pin = PinnedFolder { path: folder.clone(), device: wanted.folder.device, inode: wanted.folder.inode };
        let (mut look, mut write) = (Vec::new(), vec![own.to_path_buf()]);
        if wanted.changes {
            write.push(folder.clone())
        } else {
            look.push(folder.clone())
        }
        ThirdPartyTerms {
            program: wanted.program,
            arguments: wanted.arguments,
            environment,
            folder,
            read: self.settings.read.clone(),
            look,
            write,
            pinned: vec![pin],
            network: ThirdPartyNetwork::None,
            memory: wanted.memory,
            file_bytes: FILE_BYTES,
            processes: PROCESSES,
            profile: ThirdPartyProfile::Server,
            mode: crate::workers::JailMode::Required,
            namespaces: Ok(()),
        }
    }

    async fn start(&self, hold: &Hold) -> Result<CompletedWrite, WriteError> {
        let action = &hold.action;
        let lines = self.shown(action).await.map_err(WriteError::Refused)?;
        if hold.consent.is_some() && action.found().last().is_some_and(|bound| Some(bound) != lines.last()) {
            return Err(WriteError::NotDone(Refusal::new(Code::FilesNotAsApproved)));
        }
        let wanted = self.wanted(action).await.map_err(WriteError::Refused)?;
        let failed = |error: std::io::Error| WriteError::NotDone(Refusal::new(Code::ProcessFailed).with_source(error));
        let (id, time) = (id_of(hold.id), wanted.time);
        let own = self.scratch.join(&id);
        DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(failed)?;
        let cancel = WorkerCancel::new().map_err(failed)?;
        let command = text(action, "command").unwrap_or_default().to_owned();
        let most = usize::try_from(self.settings.output.as_bytes()).unwrap_or(usize::MAX);
        let entry = Arc::new(ProgramEntry::new((hold.agent().clone(), command), self.clock.now(), cancel, most));
        if !self.table.add(&id, &entry, usize::try_from(self.settings.at_once).unwrap_or(1)) {
            return Err(WriteError::NotDone(Refusal::new(Code::ProcessTooMany)));
        }
        let terms = self.terms(wanted, &own);
        let input = text(action, "stdin").unwrap_or_default().as_bytes().to_vec();
        let started = begin(
            RunningProgram {
                workers: Arc::clone(&self.workers),
                entry: Arc::clone(&entry),
                own,
                clock: Arc::clone(&self.clock),
            },
            terms,
            input,
        )
        .await;
        if let Err(why) = started {
            self.table.remove(&id);
            return Err(WriteError::Refused(Refusal::new(Code::ProcessFailed).with_source(why)));
        }
        self.end_after(time, Arc::clone(&entry));
        if !action.arguments().get("background").and_then(Value::as_bool).unwrap_or(false) {
            // A program that takes longer continues; the agent watches it.
            let _over = timeout(WAITED.min(time + Duration::from_secs(1)), entry.wait_until_ended()).await;
        }
        let most = usize::try_from(number(action, "stdout_lines").unwrap_or(100).min(LINES)).unwrap_or(100);
        let result = self.summary(&id, &entry, most, ContentRecipient::of_write(hold)).await;
        Ok(CompletedWrite { receipt: format!("started {id}"), result, after: None, undo_until: None })
    }

    /// Ends a program after its time limit.
    fn end_after(&self, time: Duration, entry: Arc<ProgramEntry>) {
        let mut timers = self.timers.lock();
        while timers.try_join_next().is_some() {}
        timers.spawn(async move {
            if timeout(time, entry.wait_until_ended()).await.is_err() {
                entry.stop(ProgramState::TimedOut);
            }
        });
    }

    /// The answer to the agent about a program. The program ran even if its output cannot be shown.
    async fn summary(&self, id: &str, entry: &ProgramEntry, most: usize, reader: ContentRecipient) -> Value {
        let (output, complaints) = {
            let log = entry.log();
            (log.last(ProgramOutputStream::Output, most), log.last(ProgramOutputStream::Complaints, most))
        };
        let mut shown = facts(id, entry);
        let texts = vec![output.join("\n"), complaints.join("\n")];
        match self.files.screen_texts(reader, format!("output of {}", entry.command), texts.clone()).await {
            Ok(screened) => {
                for ((name, text), screened) in ["stdout", "stderr"].into_iter().zip(texts).zip(screened) {
                    crate::value::put(
                        &mut shown,
                        name,
                        match screened {
                            HostedTextOutcome::Shown => json!(text),
                            HostedTextOutcome::Withheld(finding) => json!({"withheld": {"finding_id": finding}}),
                        },
                    );
                }
            }
            Err(no) => crate::value::put(&mut shown, "output_refused", no.code().as_str()),
        }
        shown
    }

    fn own(&self, action: &Action) -> Result<(String, Arc<ProgramEntry>), Refusal> {
        let id = text(action, "process_id").unwrap_or_default();
        let entry = self.table.of(action.agent(), id).ok_or_else(|| Refusal::new(Code::ProcessNotFound))?;
        Ok((id.to_owned(), entry))
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let action = &ask.action;
        match action.capability().as_str() {
            "process.list" => {
                let filter = text(action, "state_filter").unwrap_or("all");
                let limit = usize::try_from(number(action, "limit").unwrap_or(50)).unwrap_or(50);
                let own = self.table.list(action.agent());
                let wanted = own.iter().filter(|(_, entry)| filter == "all" || entry.state().word() == filter);
                let shown: Vec<Value> = wanted.take(limit).map(|(id, entry)| facts(id, entry)).collect();
                Ok(json!({"processes": shown}))
            }
            "process.monitor" => self.own(action).map(|(id, entry)| facts(&id, &entry)),
            "process.logs" => {
                let (id, entry) = self.own(action)?;
                let stream = match text(action, "stream").unwrap_or("both") {
                    "stdout" => Some(ProgramOutputStream::Output),
                    "stderr" => Some(ProgramOutputStream::Complaints),
                    _ => None,
                };
                let most = usize::try_from(number(action, "limit").unwrap_or(100).min(LINES)).unwrap_or(100);
                let page = entry.log().page(stream, number(action, "offset").unwrap_or(0), most);
                let (lines, next, dropped) = page;
                let source = format!("output of {}", entry.command);
                let screened =
                    self.files.screen_texts(ContentRecipient::of(ask), source, vec![lines.join("\n")]).await?;
                let mut shown = json!({"process_id": id, "state": entry.state().word(), "next_offset": next,
                                       "dropped_lines": dropped, "untrusted": true});
                match screened.first() {
                    Some(HostedTextOutcome::Withheld(finding)) => {
                        crate::value::put(&mut shown, "withheld", json!({"finding_id": finding}));
                    }
                    Some(HostedTextOutcome::Shown) | None => crate::value::put(&mut shown, "lines", lines),
                }
                Ok(shown)
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    async fn kill(&self, action: &Action) -> Result<CompletedWrite, Refusal> {
        let (id, entry) = self.own(action)?;
        let signal = signal(action)?;
        let patience = Duration::from_secs(number(action, "force_after").unwrap_or(10)).min(WAITED);
        if entry.state() == ProgramState::Running {
            let sent = {
                let signals = entry.signals.lock();
                signal != ProgramSignal::Kill && signals.as_ref().is_some_and(|signals| signals.send(signal))
            };
            if !sent || timeout(patience, entry.wait_until_ended()).await.is_err() {
                entry.stop(ProgramState::Killed);
            }
        }
        Ok(CompletedWrite { receipt: format!("ended {id}"), result: facts(&id, &entry), after: None, undo_until: None })
    }
}

fn signal(action: &Action) -> Result<ProgramSignal, Refusal> {
    let name = text(action, "signal").unwrap_or("SIGTERM");
    match name.strip_prefix("SIG").unwrap_or(name) {
        "TERM" => Ok(ProgramSignal::Terminate),
        "INT" => Ok(ProgramSignal::Interrupt),
        "HUP" => Ok(ProgramSignal::Hangup),
        "KILL" => Ok(ProgramSignal::Kill),
        _ => Err(wrong("`signal` is SIGTERM, SIGINT, SIGHUP or SIGKILL")),
    }
}

/// The known facts about a program, without its output.
fn facts(id: &str, entry: &ProgramEntry) -> Value {
    let code = match entry.state() {
        ProgramState::Completed(code) => code,
        ProgramState::Running | ProgramState::Killed | ProgramState::TimedOut => None,
    };
    json!({"process_id": id, "command": entry.command, "state": entry.state().word(), "exit_code": code,
           "started_at": entry.started.to_string(), "ended_at": entry.ended().map(|at| at.to_string()),
           "lines": entry.log().count()})
}

/// The state of a program on its thread.
struct RunningProgram {
    workers: Arc<GatewayWorkers>,
    entry: Arc<ProgramEntry>,
    clock: Arc<dyn Clock>,
    /// The program's own temporary folder, deleted when it ends.
    own: PathBuf,
}

/// Starts a program on a thread of its own, and returns when it runs.
async fn begin(running: RunningProgram, terms: ThirdPartyTerms, input: Vec<u8>) -> Result<(), String> {
    let (tell, told) = oneshot::channel();
    let thread = std::thread::Builder::new().name("process".into());
    let begun = thread.spawn(move || {
        let RunningProgram { workers, entry, clock, own } = running;
        match workers.start_third_party(terms) {
            Err(error) => drop(tell.send(Err(error.to_string()))),
            Ok(mut program) => {
                *entry.signals.lock() = program.signals().ok();
                // The caller may be gone; the program runs in any case.
                let _told = tell.send(Ok(()));
                let pipes = (program.input.take(), program.output.take(), program.error.take());
                let exit = std::thread::scope(|threads| {
                    threads.spawn(|| {
                        if let Some(reads) = pipes.0 {
                            let _written = File::from(reads).write_all(&input);
                        }
                    });
                    for (pipe, stream) in
                        [(pipes.1, ProgramOutputStream::Output), (pipes.2, ProgramOutputStream::Complaints)]
                    {
                        let entry = &entry;
                        threads.spawn(move || pipe.map(|pipe| listen(pipe, stream, entry)));
                    }
                    let (exit, _) = program.wait_for_exit(&entry.cancel);
                    exit
                });
                entry.end(exit, clock.now());
            }
        }
        let _gone = std::fs::remove_dir_all(&own);
    });
    begun.map_err(|error| error.to_string())?;
    told.await.map_err(|_| "its thread ended".to_owned())?
}

fn listen(pipe: OwnedFd, stream: ProgramOutputStream, entry: &ProgramEntry) {
    let (mut pipe, mut buffer) = (File::from(pipe), vec![0; 64 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        entry.log().take(stream, buffer.get(..count).unwrap_or_default());
    }
}

impl Service for ProcessService {
    fn is_local(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("process.")
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn describe_targets(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    fn describe_current_state<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Vec<String>, Refusal>> {
        Box::pin(async move {
            match action.capability().as_str() {
                "process.run" => self.shown(action).await,
                "process.kill" => {
                    signal(action)?;
                    let (id, entry) = self.own(action)?;
                    Ok(vec![format!("ends {id}: {}, started {}", entry.command, entry.started)])
                }
                _ => Ok(Vec::new()),
            }
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            // Spent by this one start or end, whatever the result.
            let capability = permit.action().capability().clone();
            drop(permit);
            match capability.as_str() {
                "process.run" => self.start(hold).await,
                "process.kill" => self.kill(&hold.action).await.map_err(WriteError::Refused),
                _ => Err(WriteError::refused(Code::GatewayUnsupported)),
            }
        })
    }

    /// A program that is listed was started. The outcome of any other is unknown: it ended with a gateway, or never
    /// ran.
    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async move {
            let applied = |id: &str, entry: &ProgramEntry| {
                let receipt = format!("found {id}");
                LookupOutcome::Applied(CompletedWrite {
                    receipt,
                    result: facts(id, entry),
                    after: None,
                    undo_until: None,
                })
            };
            match hold.action.capability().as_str() {
                "process.kill" => match self.own(&hold.action) {
                    Ok((_, entry)) if entry.state() == ProgramState::Running => LookupOutcome::Absent,
                    Ok((id, entry)) => applied(&id, &entry),
                    Err(_) => LookupOutcome::Unknown,
                },
                _ => {
                    let id = id_of(hold.id);
                    self.table.of(hold.agent(), &id).map_or(LookupOutcome::Unknown, |entry| applied(&id, &entry))
                }
            }
        })
    }
}
