//! Programs that agents run: `process.*`.
//!
//! Takes the programs an operator listed, below the opened folders; gives what they said as outside text. Promise: a program
//! has no network, no file but its folder and what the system installs, an environment that was shown, and limits; it is
//! seen and ended by the agent that started it alone; it ends with the gateway.

mod table;

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, Clock, HoldId};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::table::{Entry, ProgramState, Stream, Table};
use super::files::{Files, HostedFolder, HostedText};
use super::{Ask, Found, Performed, ReadSource, Service, Trouble, Work};
use crate::config;
use crate::intake::Reader;
use crate::programs::{FOLDERS, find, print_of};
use crate::workers::{Cancel, Network, PinnedFolder, Profile, ProgramSignal, Terms, Workers};

/// How long a call waits for a program that does not run in the background: within the time of a write.
const WAITED: Duration = Duration::from_secs(40);
/// Largest file a program may write.
const FILE_BYTES: u64 = 1 << 30;
/// Processes and threads of a program.
const PROCESSES: u64 = 256;
/// Most lines of one answer.
const LINES: u64 = 10_000;

/// The service.
pub struct Process {
    files: Arc<Files>,
    workers: Arc<Workers>,
    clock: Arc<dyn Clock>,
    scratch: PathBuf,
    settings: config::Process,
    table: Arc<Table>,
    /// Ends programs that take too long.
    timers: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Drop for Process {
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

/// What a call asks to be run.
struct Wanted {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: HostedFolder,
    changes: bool,
    time: Duration,
    memory: u64,
}

impl Process {
    /// Over these folders.
    #[must_use]
    pub fn new(
        (files, workers): (Arc<Files>, Arc<Workers>),
        clock: Arc<dyn Clock>,
        scratch: PathBuf,
        settings: config::Process,
    ) -> Self {
        // What a gateway that was killed left behind.
        let _gone = std::fs::remove_dir_all(&scratch);
        Self { files, workers, clock, scratch, settings, table: Arc::default(), timers: Mutex::default() }
    }

    async fn wanted(&self, action: &Action) -> Result<Wanted, Refusal> {
        let command = text(action, "command").unwrap_or_default();
        let listed = self.settings.programs.iter().find(|name| name.as_str() == command);
        let program = listed.and_then(|name| find(name.as_str()));
        let program = program.ok_or_else(|| {
            let known: Vec<&str> = self.settings.programs.iter().map(config::Word::as_str).collect();
            let words = format!("only these programs are run here: {}", known.join(", "));
            Refusal::new(Code::ProcessNotAllowed).with_text(&words)
        })?;
        if action.arguments().contains_key("cpu_limit") {
            return Err(wrong("`cpu_limit` cannot be kept on this gateway: leave it out"));
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
        Ok(Wanted { program, arguments, environment, folder, changes, time, memory })
    }

    /// What a person is shown of a program before it runs. The last line is the one that an approval is bound to.
    async fn shown(&self, action: &Action) -> Result<Vec<String>, Refusal> {
        let wanted = self.wanted(action).await?;
        let Wanted { program, arguments, environment, changes, time, .. } = &wanted;
        let mut lines = vec![format!("runs {}", json!(program))];
        lines.extend(arguments.iter().map(|argument| format!("argument {}", json!(argument))));
        lines.extend(environment.iter().map(|(name, value)| format!("variable {name}={}", json!(value))));
        let may = if *changes { "may change files there" } else { "only reads there" };
        lines.push(format!("in {}, {may}, no network, at most {} s", wanted.folder.path, time.as_secs()));
        let path = program.clone();
        let print = tokio::task::spawn_blocking(move || print_of(&path)).await;
        let print = print.unwrap_or_else(|_| Err(std::io::Error::other("broke down")));
        let (print, _) = print.map_err(|error| Refusal::new(Code::ProcessFailed).because(error))?;
        lines.push(format!("state of the program: {} {print}", program.display()));
        // SECURITY: a program reads whatever lies in its folder, so that nothing hidden may lie there.
        if self.files.hides_something(wanted.folder).await? {
            let words = "the folder holds files that a rule keeps from this agent, and a program would read them: name \
                         another folder";
            return Err(Refusal::new(Code::PolicyBlocked).with_text(words));
        }
        Ok(lines)
    }

    fn terms(&self, wanted: Wanted, own: &Path) -> Terms {
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
        Terms {
            program: wanted.program,
            arguments: wanted.arguments,
            environment,
            folder,
            read: self.settings.read.clone(),
            look,
            write,
            pinned: vec![pin],
            network: Network::None,
            memory: wanted.memory,
            file_bytes: FILE_BYTES,
            processes: PROCESSES,
            profile: Profile::Server,
            mode: crate::workers::Mode::Required,
            namespaces: Ok(()),
        }
    }

    async fn start(&self, hold: &Hold) -> Result<Performed, Trouble> {
        let action = &hold.action;
        let lines = self.shown(action).await.map_err(Trouble::Refused)?;
        if hold.consent.is_some() && action.found().last().is_some_and(|bound| Some(bound) != lines.last()) {
            return Err(Trouble::NotDone(Refusal::new(Code::FilesNotAsApproved)));
        }
        let wanted = self.wanted(action).await.map_err(Trouble::Refused)?;
        let failed = |error: std::io::Error| Trouble::NotDone(Refusal::new(Code::ProcessFailed).because(error));
        let (id, time) = (id_of(hold.id), wanted.time);
        let own = self.scratch.join(&id);
        DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(failed)?;
        let cancel = Cancel::new().map_err(failed)?;
        let command = text(action, "command").unwrap_or_default().to_owned();
        let most = usize::try_from(self.settings.output.as_bytes()).unwrap_or(usize::MAX);
        let entry = Arc::new(Entry::new((hold.agent().clone(), command), self.clock.now(), cancel, most));
        if !self.table.add(&id, &entry, usize::try_from(self.settings.at_once).unwrap_or(1)) {
            return Err(Trouble::NotDone(Refusal::new(Code::ProcessTooMany)));
        }
        let terms = self.terms(wanted, &own);
        let input = text(action, "stdin").unwrap_or_default().as_bytes().to_vec();
        let started = begin(
            Running {
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
            return Err(Trouble::Refused(Refusal::new(Code::ProcessFailed).because(why)));
        }
        self.end_after(time, Arc::clone(&entry));
        if !action.arguments().get("background").and_then(Value::as_bool).unwrap_or(false) {
            // One that takes longer goes on; the agent looks after it.
            let _over = timeout(WAITED.min(time + Duration::from_secs(1)), entry.over()).await;
        }
        let most = usize::try_from(number(action, "stdout_lines").unwrap_or(100).min(LINES)).unwrap_or(100);
        let result = self.summary(&id, &entry, most, Reader::of_write(hold)).await;
        Ok(Performed { receipt: format!("started {id}"), result, after: None, undo_until: None })
    }

    /// Ends a program that takes longer than this.
    fn end_after(&self, time: Duration, entry: Arc<Entry>) {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        while timers.try_join_next().is_some() {}
        timers.spawn(async move {
            if timeout(time, entry.over()).await.is_err() {
                entry.stop(ProgramState::TimedOut);
            }
        });
    }

    /// What the agent is told of a program. It ran, whatever becomes of its output on the way.
    async fn summary(&self, id: &str, entry: &Entry, most: usize, reader: Reader) -> Value {
        let (output, complaints) = {
            let log = entry.log();
            (log.last(Stream::Output, most), log.last(Stream::Complaints, most))
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
                            HostedText::Shown => json!(text),
                            HostedText::Withheld(finding) => json!({"withheld": {"finding_id": finding}}),
                        },
                    );
                }
            }
            Err(no) => crate::value::put(&mut shown, "output_refused", no.code().as_str()),
        }
        shown
    }

    fn own(&self, action: &Action) -> Result<(String, Arc<Entry>), Refusal> {
        let id = text(action, "process_id").unwrap_or_default();
        let entry = self.table.of(action.agent(), id).ok_or_else(|| Refusal::new(Code::ProcessNotFound))?;
        Ok((id.to_owned(), entry))
    }

    async fn answer(&self, ask: &Ask) -> Result<Value, Refusal> {
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
                    "stdout" => Some(Stream::Output),
                    "stderr" => Some(Stream::Complaints),
                    _ => None,
                };
                let most = usize::try_from(number(action, "limit").unwrap_or(100).min(LINES)).unwrap_or(100);
                let page = entry.log().page(stream, number(action, "offset").unwrap_or(0), most);
                let (lines, next, dropped) = page;
                let source = format!("output of {}", entry.command);
                let screened = self.files.screen_texts(Reader::of(ask), source, vec![lines.join("\n")]).await?;
                let mut shown = json!({"process_id": id, "state": entry.state().word(), "next_offset": next,
                                       "dropped_lines": dropped, "untrusted": true});
                match screened.first() {
                    Some(HostedText::Withheld(finding)) => {
                        crate::value::put(&mut shown, "withheld", json!({"finding_id": finding}));
                    }
                    Some(HostedText::Shown) | None => crate::value::put(&mut shown, "lines", lines),
                }
                Ok(shown)
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    async fn kill(&self, action: &Action) -> Result<Performed, Refusal> {
        let (id, entry) = self.own(action)?;
        let signal = signal(action)?;
        let patience = Duration::from_secs(number(action, "force_after").unwrap_or(10)).min(WAITED);
        if entry.state() == ProgramState::Running {
            let sent = {
                let signals = entry.signals.lock().unwrap_or_else(PoisonError::into_inner);
                signal != ProgramSignal::Kill && signals.as_ref().is_some_and(|signals| signals.send(signal))
            };
            if !sent || timeout(patience, entry.over()).await.is_err() {
                entry.stop(ProgramState::Killed);
            }
        }
        Ok(Performed { receipt: format!("ended {id}"), result: facts(&id, &entry), after: None, undo_until: None })
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

/// What is known of a program beside what it said.
fn facts(id: &str, entry: &Entry) -> Value {
    let code = match entry.state() {
        ProgramState::Completed(code) => code,
        ProgramState::Running | ProgramState::Killed | ProgramState::TimedOut => None,
    };
    json!({"process_id": id, "command": entry.command, "state": entry.state().word(), "exit_code": code,
           "started_at": entry.started.to_string(), "ended_at": entry.ended().map(|at| at.to_string()),
           "lines": entry.log().count()})
}

/// What a program runs with on its thread.
struct Running {
    workers: Arc<Workers>,
    entry: Arc<Entry>,
    clock: Arc<dyn Clock>,
    /// A folder of its own, gone when it ends.
    own: PathBuf,
}

/// Starts a program on a thread of its own, and comes back when it runs.
async fn begin(running: Running, terms: Terms, input: Vec<u8>) -> Result<(), String> {
    let (tell, told) = oneshot::channel();
    let thread = std::thread::Builder::new().name("process".into());
    let begun = thread.spawn(move || {
        let Running { workers, entry, clock, own } = running;
        match workers.stranger(terms) {
            Err(error) => drop(tell.send(Err(error.to_string()))),
            Ok(mut program) => {
                *entry.signals.lock().unwrap_or_else(PoisonError::into_inner) = program.signals().ok();
                // Whoever asked may have gone; the program runs all the same.
                let _told = tell.send(Ok(()));
                let pipes = (program.input.take(), program.output.take(), program.error.take());
                let exit = std::thread::scope(|threads| {
                    threads.spawn(|| {
                        if let Some(reads) = pipes.0 {
                            let _written = File::from(reads).write_all(&input);
                        }
                    });
                    for (pipe, stream) in [(pipes.1, Stream::Output), (pipes.2, Stream::Complaints)] {
                        let entry = &entry;
                        threads.spawn(move || pipe.map(|pipe| listen(pipe, stream, entry)));
                    }
                    let (exit, _) = program.ended(&entry.cancel);
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

fn listen(pipe: OwnedFd, stream: Stream, entry: &Entry) {
    let (mut pipe, mut buffer) = (File::from(pipe), vec![0; 64 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        entry.log().take(stream, buffer.get(..count).unwrap_or_default());
    }
}

impl Service for Process {
    fn is_local(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("process.")
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn described(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    fn found<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Vec<String>, Refusal>> {
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

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            // Spent by this one start or end, whatever becomes of it.
            let capability = permit.action().capability().clone();
            drop(permit);
            match capability.as_str() {
                "process.run" => self.start(hold).await,
                "process.kill" => self.kill(&hold.action).await.map_err(Trouble::Refused),
                _ => Err(Trouble::refused(Code::GatewayUnsupported)),
            }
        })
    }

    /// A program that is listed was started. Of one that is not nobody can tell: it ended with a gateway, or never ran.
    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(async move {
            let applied = |id: &str, entry: &Entry| {
                let receipt = format!("found {id}");
                Found::Applied(Performed { receipt, result: facts(id, entry), after: None, undo_until: None })
            };
            match hold.action.capability().as_str() {
                "process.kill" => match self.own(&hold.action) {
                    Ok((_, entry)) if entry.state() == ProgramState::Running => Found::Absent,
                    Ok((id, entry)) => applied(&id, &entry),
                    Err(_) => Found::Unknown,
                },
                _ => {
                    let id = id_of(hold.id);
                    self.table.of(hold.agent(), &id).map_or(Found::Unknown, |entry| applied(&id, &entry))
                }
            }
        })
    }
}
