//! `sluice hook`: a coding agent asks before it uses one of its own tools.
//!
//! Takes what the client says on standard input; gives the decision in exactly that client's shape. Promise: whatever
//! goes wrong (no gateway, no key, bad input, no answer in time) stops the tool: exit code 2 and, where the client reads
//! one, a no on standard output.

mod ask;
mod guard;
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
    /// Claude Code: PreToolUse and PermissionRequest
    ClaudeCode,
    /// Codex: PreToolUse and PermissionRequest
    Codex,
    /// Gemini CLI: BeforeTool
    Gemini,
    /// Cursor: beforeShellExecution, beforeMCPExecution and preToolUse
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
        let (asked, decided) = self.decide();
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

    /// What was asked, as far as it could be read, and the decision or why there is none.
    fn decide(&self) -> (Option<shapes::Asked>, Result<Decision, String>) {
        let mut text = String::new();
        if std::io::stdin().lock().take(LARGEST).read_to_string(&mut text).is_err() {
            return (None, Err("the hook's input could not be read".to_owned()));
        }
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
