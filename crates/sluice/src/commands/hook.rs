//! `sluice hook`: a coding agent asks before it uses one of its own tools.
//!
//! Takes what the client says on standard input; gives the decision in exactly that client's shape. Promise: whatever
//! goes wrong (no gateway, no key, bad input, no answer in time) stops the tool: exit code 2 and, where the client reads
//! one, a no on standard output. A tool that is done is reported, so that its files can be taken back. A prompt of the user is stated as the task of the session, with the task key; if that
//! fails the prompt goes on, and the gate asks about more.

mod ask;
mod guard;
mod prompt;
mod servers;
mod shapes;

use std::io::Read as _;

use clap::{Args, ValueEnum};

use self::ask::Decision;
use crate::client::Reach;
use crate::commands::setup::For;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;
use sluice_core::Span;

/// Largest input that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// Coding agents with hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code: PreToolUse, PermissionRequest, PostToolUse and UserPromptSubmit
    ClaudeCode,
    /// Codex: PreToolUse, PermissionRequest, PostToolUse and UserPromptSubmit
    Codex,
    /// Gemini CLI: BeforeTool, AfterTool and BeforeAgent
    Gemini,
    /// Cursor: beforeShellExecution, beforeMCPExecution, preToolUse, their counterparts after, and beforeSubmitPrompt
    Cursor,
}

impl Agent {
    /// As the gateway and the configuration call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// As a client that can be set up.
    pub(crate) const fn client(self) -> For {
        match self {
            Self::ClaudeCode => For::ClaudeCode,
            Self::Codex => For::Codex,
            Self::Gemini => For::Gemini,
            Self::Cursor => For::Cursor,
        }
    }
}

/// Answer a coding agent's hook: may it use this tool now.
///
/// Reads the hook's input on standard input and prints the decision as the client wants it. Ends with 2, which stops the
/// tool, when anything goes wrong.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice setup claude-code --key-file FILE --hooks\n  sluice hook claude-code < input.json"
)]
pub(crate) struct Hook {
    /// Which client asks
    #[arg(value_enum)]
    agent: Agent,
    #[command(flatten)]
    reach: Reach,
    /// How long to wait for a person before the tool is stopped
    #[arg(long, value_parser = span, default_value = "9m")]
    wait: Span,
}

impl Hook {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let text = input();
        if let Some(prompt) = text.as_deref().ok().and_then(|text| shapes::prompt(self.agent, text)) {
            return Ok(prompt::state(&self.reach, self.agent, &prompt, screen));
        }
        if let Some(done) = text.as_deref().ok().and_then(|text| shapes::done(self.agent, text)) {
            return Ok(self.report(&done, screen));
        }
        let (asked, decided) = self.decide(text);
        let answer = shapes::answer(self.agent, asked.as_ref(), &decided);
        if let Some(line) = &answer.stdout {
            // Nobody reads it: then nobody may take silence for a yes.
            if screen.line(line).is_err() {
                return Ok(Exit::Usage);
            }
        }
        if let Some(reason) = &answer.stderr {
            screen.note(reason);
        }
        // Clients take exit code 2, and no other, for a no.
        Ok(if answer.stops { Exit::Usage } else { Exit::Ok })
    }

    /// A tool is done: the gate looks at the files it left. Nothing can be stopped any more.
    fn report(&self, done: &shapes::Asked, screen: &Screen) -> Exit {
        match ask::report(&self.reach, self.agent, done) {
            Ok(()) => Exit::Ok,
            Err(failure) => {
                let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
                screen.note(format_args!(
                    "sluice was not told that this tool is done, so taking it back asks for more: {}{why}",
                    failure.message
                ));
                Exit::Failed
            }
        }
    }

    /// What was asked, as far as it could be read, and the decision or why there is none.
    fn decide(&self, text: Result<String, String>) -> (Option<shapes::Asked>, Result<Decision, String>) {
        let text = match text {
            Ok(text) => text,
            Err(why) => return (None, Err(why)),
        };
        let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
        let asked = match shapes::asked(self.agent, &text, home) {
            Ok(asked) => asked,
            Err(why) => return (None, Err(why)),
        };
        let decided = ask::decide(&self.reach, self.agent, &asked, self.wait).map_err(|failure| {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            format!("the gate could not be asked: {}{why}", failure.message)
        });
        (Some(asked), decided)
    }
}

/// What the client says.
fn input() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(LARGEST).read_to_string(&mut text);
    read.map(|_| text).map_err(|_| "the hook's input could not be read".to_owned())
}
