//! What a person sees: data on stdout, remarks on stderr, colour only where it is wanted.

use std::fmt::Display;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;
use sluice_core::Tier;
use sluice_core::policy::{Fault, Severity};

use crate::failure::{Exit, Failure};
use crate::pager;
use crate::shape;

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR or TERM=dumb says otherwise
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Columns, as wide as the terminal
    Table,
    /// Columns, nothing shortened
    Wide,
    /// The answer of the API
    Json,
    /// One line of JSON for each entry
    Jsonl,
    /// The answer of the API, as YAML
    Yaml,
    /// Only the ids
    Id,
}

impl Output {
    /// Whether it is the API's answer in some shape, not something drawn for people.
    pub(crate) const fn is_data(self) -> bool {
        !matches!(self, Self::Table | Self::Wide)
    }
}

/// Where a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    quiet: bool,
    output: Output,
    /// Whether a person reads the data as it comes, through a pager or not.
    terminal: bool,
    width: Option<u16>,
    /// The field that names what the command prints.
    id: Option<&'static str>,
}

impl Screen {
    pub(crate) fn new(color: Color, quiet: bool, output: Output) -> Self {
        // `Auto` leaves NO_COLOR, CLICOLOR_FORCE and TERM to the stream.
        match color {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
        let terminal = io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let width = size.map(|size| size.ws_col).filter(|width| terminal && *width > 0);
        Self { quiet, output, terminal, width, id: None }
    }

    /// For a command whose entries are named by this field: what `-o id` prints.
    pub(crate) fn naming(&self, id: &'static str) -> Self {
        Self { id: Some(id), ..*self }
    }

    /// A line of data.
    pub(crate) fn line(&self, text: impl Display) -> io::Result<()> {
        pager::print(format_args!("{text}\n")).unwrap_or_else(|| writeln!(anstream::stdout().lock(), "{text}"))
    }

    /// Data as it is, without a line end.
    pub(crate) fn raw(&self, text: &[u8]) -> io::Result<()> {
        let paged = std::str::from_utf8(text).ok().and_then(|text| pager::print(format_args!("{text}")));
        paged.unwrap_or_else(|| io::stdout().lock().write_all(text))
    }

    /// Data for machines.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        let value = serde_json::to_value(value).map_err(io::Error::other)?;
        self.raw(shape::of(&value, self.output, self.id)?.as_bytes())
    }

    /// Whether a person reads the data as it comes.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// How wide the terminal is; nothing where the data goes elsewhere or must not be shortened.
    pub(crate) fn width(&self) -> Option<u16> {
        self.width.filter(|_| self.output != Output::Wide)
    }

    /// Begins anew: on a terminal at its top, elsewhere after an empty line.
    pub(crate) fn again(&self) -> io::Result<()> {
        if self.is_terminal() { self.raw(b"\x1b[H\x1b[2J") } else { self.line("") }
    }

    /// Asks for a yes on a terminal. Without one nobody can answer: the flag that answers is named.
    pub(crate) fn ask(&self, question: &str, flag: &str) -> Result<(), Failure> {
        if !io::stdin().is_terminal() {
            return Err(Failure::new(Exit::Usage, "there is nobody to ask")
                .why("standard input is not a terminal")
                .hint(format!("add {flag}")));
        }
        write!(io::stderr().lock(), "{question} [y/N] ")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::new(Exit::Failed, "nothing was done")),
        }
    }

    /// A remark.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet {
            // A remark nobody can read is not worth failing over.
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Something a person must have, which is no data: on stderr, quiet or not.
    pub(crate) fn hand(&self, text: impl Display) -> io::Result<()> {
        writeln!(anstream::stderr().lock(), "{text}")
    }

    /// A problem of a policy file.
    pub(crate) fn fault(&self, fault: &Fault) {
        if self.quiet && fault.severity == Severity::Warning {
            return;
        }
        let text = fault.to_string();
        let (word, rest) = text.split_once(':').unwrap_or(("", &text));
        let style = match fault.severity {
            Severity::Error => Style::new().red().bold(),
            Severity::Warning => Style::new().yellow().bold(),
        };
        let _ = writeln!(anstream::stderr().lock(), "{}:{rest}\n", word.style(style));
    }

    /// How the command failed.
    pub(crate) fn failure(&self, failure: &Failure) {
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
