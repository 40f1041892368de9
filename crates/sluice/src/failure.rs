//! How a command fails: a message, the reason, the next step, and an exit code.

use std::io;
use std::process::ExitCode;

/// Exit codes. Scripts rely on them; the meaning of a code never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// Success.
    Ok = 0,
    /// The command failed, or what it checked is not valid.
    Failed = 1,
    /// The command line is not valid.
    Usage = 2,
    /// The object does not exist.
    NotFound = 3,
    /// No credential was found.
    NotSignedIn = 4,
    /// The credential lacks the permission, or a rule blocks the call.
    Forbidden = 5,
    /// A person denied it, or nobody answered in time.
    Denied = 6,
    /// A conflict: with a file, another decision, or a later state.
    Conflict = 7,
    /// Not finished yet.
    Pending = 8,
    /// Verification failed.
    NotVerified = 9,
    /// The gateway does not accept the credential.
    CredentialRefused = 10,
    /// No gateway responds.
    Unreachable = 11,
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: CommandExit,
    pub(crate) message: String,
    pub(crate) why: Option<String>,
    pub(crate) hint: Option<String>,
    /// Where to read more, and the gateway's id of this request.
    pub(crate) docs: Option<String>,
    /// The reader of our output closed it.
    pub(crate) closed: bool,
    /// The gateway's problem document, if it refused.
    pub(crate) problem: Option<Box<serde_json::Value>>,
}

impl CliError {
    pub(crate) fn new(exit: CommandExit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), why: None, hint: None, docs: None, closed: false, problem: None }
    }

    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn docs(mut self, docs: impl Into<String>) -> Self {
        self.docs = Some(docs.into());
        self
    }
}

/// The result of printing when the reader may be gone. If the exit code is the answer, the command continues without
/// a reader.
pub(crate) fn ignore_closed_output(printed: Result<(), CliError>) -> Result<(), CliError> {
    match printed {
        Err(CliError { closed: true, .. }) => Ok(()),
        other => other,
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        Self {
            closed,
            ..Self::new(CommandExit::Failed, "the output could not be written").why(describe_io_error(&error))
        }
    }
}

/// An error of the operating system, in a few words.
pub(crate) fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        io::ErrorKind::NotADirectory => "a part of the path is not a directory".into(),
        io::ErrorKind::AlreadyExists => "it already exists".into(),
        io::ErrorKind::StorageFull => "the disk is full".into(),
        _ => error.to_string().to_lowercase(),
    }
}
