//! Console output: data on stdout, remarks on stderr, colour only where it is wanted.

mod progress;

use std::fmt::Display;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;
use sluice_core::Tier;
use sluice_core::policy::{FaultSeverity, FileFault};

use crate::failure::{CliError, CommandExit};
use crate::output_format;
use crate::pager;

pub(crate) use progress::TaskProgress;

/// The values of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorMode {
    /// Colour on a terminal, unless NO_COLOR or TERM=dumb is set
    Auto,
    /// Always use colour
    Always,
    /// Never use colour
    Never,
}

/// The values of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Columns, fitted to the terminal
    Table,
    /// Columns, nothing shortened
    Wide,
    /// The API response as JSON
    Json,
    /// One line of JSON per entry
    Jsonl,
    /// The API response as YAML
    Yaml,
    /// Only the ids
    Id,
}

impl OutputFormat {
    /// Whether it is the API response in some format, not a layout for people.
    pub(crate) const fn is_data(self) -> bool {
        !matches!(self, Self::Table | Self::Wide)
    }
}

/// The console of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandConsole {
    quiet: bool,
    output: OutputFormat,
    /// Whether a person reads the output, directly or through a pager.
    terminal: bool,
    width: Option<u16>,
    /// The field with the id of what the command prints.
    id: Option<&'static str>,
}

impl CommandConsole {
    pub(crate) fn new(color: ColorMode, quiet: bool, output: OutputFormat) -> Self {
        // With `Auto` the stream checks NO_COLOR, CLICOLOR_FORCE and TERM.
        match color {
            ColorMode::Auto => {}
            ColorMode::Always => anstream::ColorChoice::Always.write_global(),
            ColorMode::Never => anstream::ColorChoice::Never.write_global(),
        }
        let terminal = io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let width = size.map(|size| size.ws_col).filter(|width| terminal && *width > 0);
        Self { quiet, output, terminal, width, id: None }
    }

    /// Sets the field that contains the id of an entry, for `-o id`.
    pub(crate) fn naming(&self, id: &'static str) -> Self {
        Self { id: Some(id), ..*self }
    }

    /// Prints a line of data.
    pub(crate) fn line(&self, text: impl Display) -> io::Result<()> {
        pager::print(format_args!("{text}\n")).unwrap_or_else(|| writeln!(anstream::stdout().lock(), "{text}"))
    }

    /// Prints data unchanged, without a line end.
    pub(crate) fn raw(&self, text: &[u8]) -> io::Result<()> {
        let paged = std::str::from_utf8(text).ok().and_then(|text| pager::print(format_args!("{text}")));
        paged.unwrap_or_else(|| io::stdout().lock().write_all(text))
    }

    /// Prints data as JSON.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        let value = serde_json::to_value(value).map_err(io::Error::other)?;
        self.raw(output_format::of(&value, self.output, self.id)?.as_bytes())
    }

    /// Whether a person reads the output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The width of the terminal; `None` if the output goes elsewhere or must not be shortened.
    pub(crate) fn width(&self) -> Option<u16> {
        self.width.filter(|_| self.output != OutputFormat::Wide)
    }

    /// Starts a new screen: at the top of a terminal, elsewhere after an empty line.
    pub(crate) fn redraw(&self) -> io::Result<()> {
        if self.is_terminal() { self.raw(b"\x1b[H\x1b[2J") } else { self.line("") }
    }

    /// Asks for confirmation on a terminal. Without a terminal it fails and names the flag that confirms.
    pub(crate) fn confirm(&self, question: &str, flag: &str) -> Result<(), CliError> {
        if !io::stdin().is_terminal() {
            return Err(CliError::new(CommandExit::Usage, "confirmation needed, but stdin is not a terminal")
                .why("this command asks before it changes anything")
                .hint(format!("add {flag}")));
        }
        write!(io::stderr().lock(), "{question} [y/N] ")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::new(CommandExit::Failed, "not confirmed; nothing was done")),
        }
    }

    /// Prints a remark.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet {
            // A remark that cannot be written is no reason to fail.
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Prints what a person must see, which is not data: on stderr, even with --quiet.
    pub(crate) fn print_required(&self, text: impl Display) -> io::Result<()> {
        writeln!(anstream::stderr().lock(), "{text}")
    }

    /// Prints a problem in a policy file.
    pub(crate) fn fault(&self, fault: &FileFault) {
        if self.quiet && fault.severity == FaultSeverity::Warning {
            return;
        }
        let text = fault.to_string();
        let (word, rest) = text.split_once(':').unwrap_or(("", &text));
        let style = match fault.severity {
            FaultSeverity::Error => Style::new().red().bold(),
            FaultSeverity::Warning => Style::new().yellow().bold(),
        };
        let _ = writeln!(anstream::stderr().lock(), "{}:{rest}\n", word.style(style));
    }

    /// Prints why the command failed.
    pub(crate) fn failure(&self, failure: &CliError) {
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(stderr, "{}: {}", "error".red().bold(), failure.message);
        if let Some(why) = &failure.why {
            let _ = writeln!(stderr, "  why:  {why}");
        }
        if let Some(hint) = &failure.hint {
            let _ = writeln!(stderr, "  hint: {hint}");
        }
        if let Some(docs) = &failure.docs {
            let _ = writeln!(stderr, "  docs: {docs}");
        }
    }
}

/// A tier in its colour.
pub(crate) fn tier(tier: Tier) -> String {
    let style = match tier {
        Tier::Autonomous => Style::new().green(),
        Tier::Notify => Style::new().cyan(),
        Tier::ApprovalRequired => Style::new().yellow(),
        Tier::Blocked => Style::new().red(),
    };
    tier.style(style).to_string()
}
