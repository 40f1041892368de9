//! `sluice hook`: a coding agent asks the gate before it uses one of its own tools.
//!
//! Takes the client's input on standard input; gives the decision in exactly that client's format. Promise: any error
//! (no gateway, no key, bad input, no answer in time) stops the tool: exit code 2 and, where the client reads it, a
//! denial on standard output. A finished tool is reported, so that its file changes can be undone. A prompt of the user
//! is stated as the task of the session, with the task key; if that fails, the prompt continues, and the gate asks for
//! more approvals.

mod ask;
mod client_formats;
mod guard;
mod prompt;
mod servers;

use std::io::Read as _;

use clap::{Args, ValueEnum};

use self::ask::HookDecision;
use crate::client::GatewayArgs;
use crate::commands::setup::SetupClient;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::time_args::span;
use sluice_core::Millis;

/// Largest input that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// Coding agents with hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    /// Claude Code: PreToolUse, PermissionRequest, PostToolUse and UserPromptSubmit
    ClaudeCode,
    /// Codex: PreToolUse, PermissionRequest, PostToolUse and UserPromptSubmit
    Codex,
    /// Gemini CLI: BeforeTool, AfterTool and BeforeAgent
    Gemini,
    /// Cursor: beforeShellExecution, beforeMCPExecution, preToolUse, their counterparts after, and beforeSubmitPrompt
    Cursor,
}

impl HookAgent {
    /// The name used by the gateway and the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// The client that `sluice setup` configures.
    pub(crate) const fn client(self) -> SetupClient {
        match self {
            Self::ClaudeCode => SetupClient::ClaudeCode,
            Self::Codex => SetupClient::Codex,
            Self::Gemini => SetupClient::Gemini,
            Self::Cursor => SetupClient::Cursor,
        }
    }
}

/// Answer a coding agent's hook: may it use this tool now.
///
/// Reads the hook's input on standard input and prints the decision in the client's format. On any error the exit code
/// is 2, which stops the tool.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice setup claude-code --key-file FILE --hooks\n  sluice hook claude-code < input.json"
)]
pub(crate) struct HookCommand {
    /// Client that runs this hook
    #[arg(value_enum)]
    agent: HookAgent,
    #[command(flatten)]
    reach: GatewayArgs,
    /// How long to wait for a person before the tool is stopped
    #[arg(long, value_parser = span, default_value = "9m")]
    wait: Millis,
}

impl HookCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let text = input();
        if let Some(prompt) = text.as_deref().ok().and_then(|text| client_formats::prompt(self.agent, text)) {
            return Ok(prompt::state(&self.reach, self.agent, &prompt, screen));
        }
        if let Some(done) = text.as_deref().ok().and_then(|text| client_formats::parse_finished_tool(self.agent, text))
        {
            return Ok(self.report(&done, screen));
        }
        let (asked, decided) = self.decide(text);
        let answer = client_formats::answer(self.agent, asked.as_ref(), &decided);
        if let Some(line) = &answer.stdout {
            // The answer cannot be printed: the client must not take silence for an approval.
            if screen.line(line).is_err() {
                return Ok(CommandExit::Usage);
            }
        }
        if let Some(reason) = &answer.stderr {
            screen.note(reason);
        }
        // Clients take exit code 2, and no other, for a denial.
        Ok(if answer.stops { CommandExit::Usage } else { CommandExit::Ok })
    }

    /// Reports a finished tool: the gate checks the files it changed. Nothing can be stopped any more.
    fn report(&self, done: &client_formats::HookToolRequest, screen: &CommandConsole) -> CommandExit {
        match ask::report(&self.reach, self.agent, done) {
            Ok(()) => CommandExit::Ok,
            Err(failure) => {
                let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
                screen.note(format_args!(
                    "sluice could not be notified that this tool is done, so undoing its changes needs a person: {}{why}",
                    failure.message
                ));
                CommandExit::Failed
            }
        }
    }

    /// The tool call as far as it could be read, and the decision or the reason why there is none.
    fn decide(
        &self,
        text: Result<String, String>,
    ) -> (Option<client_formats::HookToolRequest>, Result<HookDecision, String>) {
        let text = match text {
            Ok(text) => text,
            Err(why) => return (None, Err(why)),
        };
        let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
        let asked = match client_formats::parse_tool_request(self.agent, &text, home) {
            Ok(asked) => asked,
            Err(why) => return (None, Err(why)),
        };
        let decided = ask::decide(&self.reach, self.agent, &asked, self.wait).map_err(|failure| {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            format!("the gate could not be reached: {}{why}", failure.message)
        });
        (Some(asked), decided)
    }
}

/// Reads the client's input.
fn input() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(LARGEST).read_to_string(&mut text);
    read.map(|_| text).map_err(|_| "the hook's input could not be read".to_owned())
}
