//! How a command ends when it does not end well: a message, why, what to do, and an exit code.

use std::io;
use std::process::ExitCode;

/// Exit codes. Scripts rely on them; a code never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// It did not work, or what was checked is not in order.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// No credential was found.
    NotSignedIn = 4,
    /// Not for this credential, or a rule blocks it.
    Forbidden = 5,
    /// A person said no, or nobody answered in time.
    Denied = 6,
    /// Something is in the way already: a file, another decision, a later state.
    Conflict = 7,
    /// Not over yet.
    Pending = 8,
    /// What was checked is not what it claims to be.
    NotVerified = 9,
    /// The gateway does not accept the credential.
    CredentialRefused = 10,
    /// No gateway answers.
    Unreachable = 11,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) why: Option<String>,
    pub(crate) hint: Option<String>,
    /// Where to read more, and how the gateway calls this request.
    pub(crate) docs: Option<String>,
    /// The reader of our output went away.
    pub(crate) closed: bool,
    /// The gateway's own words, if it refused.
    pub(crate) problem: Option<Box<serde_json::Value>>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
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

/// What was printed for whoever may no longer read it. The exit code speaks to somebody else, so a command
/// whose answer it is goes on.
pub(crate) fn heard_or_not(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(Failure { closed: true, .. }) => Ok(()),
        other => other,
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        Self { closed, ..Self::new(Exit::Failed, "the output could not be written").why(io_words(&error)) }
    }
}

/// An error of the operating system in few words.
pub(crate) fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        io::ErrorKind::NotADirectory => "a part of the path is not a directory".into(),
        io::ErrorKind::AlreadyExists => "it exists already".into(),
        io::ErrorKind::StorageFull => "the disk is full".into(),
        _ => error.to_string().to_lowercase(),
    }
}
