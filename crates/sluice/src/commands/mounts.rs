//! `sluice mounts`: servers of others behind the gate.

mod add;
mod differences;
mod file;
mod taking;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::Span;
use sluice_gateway::config::Mount;

use crate::client::{Ask, Client, Reach, encode, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;
use crate::visible;
use crate::watch::{self, Listing};

/// List, add, remove, test and accept servers of others behind the gate.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice mounts add examples/mounts/time.yaml --set installed=/opt/mcp --set python=/usr\n  sluice mounts list\n  sluice mounts test time\n  sluice mounts diff time\n  sluice mounts accept time get_current_time"
)]
pub(crate) struct Mounts {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List servers and how they are
    #[command(before_help = "Examples:\n  sluice mounts list\n  sluice mounts list --watch")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one server and its tools
    #[command(before_help = "Examples:\n  sluice mounts show git")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Put a server into sluice.yaml, from a recipe or by hand; a running gateway takes it up at once
    #[command(
        before_help = "Examples:\n  sluice mounts add examples/mounts/git.yaml --set installed=/opt/mcp --set folder=/srv/repo\n  sluice mounts add weather --at https://mcp.weather.example/mcp --secret weather/key\n  sluice mounts add notes --write /srv/notes -- /opt/mcp/bin/notes-server --root /srv/notes"
    )]
    Add(add::Add),
    /// Take a server out of sluice.yaml; a running gateway ends it at once and cancels what is held for it
    #[command(before_help = "Examples:\n  sluice mounts remove git")]
    Remove {
        /// Its name
        name: String,
    },
    /// Have the gateway take up what sluice.yaml says of the mounts now
    #[command(before_help = "Examples:\n  sluice mounts reload")]
    Reload {
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Look at a server now: start it if it is down, list its tools again
    #[command(before_help = "Examples:\n  sluice mounts test git")]
    Test {
        #[command(flatten)]
        one: One,
    },
    /// Show what has changed about tools that wait for a person
    #[command(before_help = "Examples:\n  sluice mounts diff git\n  sluice mounts diff git git_commit")]
    Diff {
        #[command(flatten)]
        one: One,
        /// Only these
        tools: Vec<String>,
    },
    /// Accept changed, new or suspicious tools, after showing the difference; or that tools only read
    #[command(
        before_help = "Examples:\n  sluice mounts accept git git_commit\n  sluice mounts accept git --all --yes\n  sluice mounts accept git git_status git_log --read-only\n  sluice mounts accept git git_status --write"
    )]
    Accept {
        #[command(flatten)]
        one: One,
        /// These tools
        #[arg(required_unless_present = "all")]
        tools: Vec<String>,
        /// Every tool that waits; with --read-only every tool whose server says that it only reads
        #[arg(long, conflicts_with = "tools")]
        all: bool,
        /// They only read: they are answered at once and count as reads for rules. Until this is said, a tool is a write
        #[arg(long, conflicts_with = "write")]
        read_only: bool,
        /// They write, whatever was accepted before
        #[arg(long)]
        write: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct One {
    /// Its name
    name: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Mounts {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let reach = self.reach;
        match self.verb {
            Verb::Add(add) => add.run(&reach, screen),
            Verb::Remove { name } => remove(&reach, screen, &name),
            verb => verb.ask(&reach.operator()?, screen),
        }
    }
}

/// Takes a server out of the file, and has the gateway end it.
fn remove(reach: &Reach, screen: &Screen, name: &str) -> Result<Exit, Failure> {
    let unknown = || {
        Failure::new(Exit::NotFound, format!("sluice.yaml has no mount `{}` on lines of its own", visible::line(name)))
            .hint("sluice mounts list; one that is written otherwise is taken out by hand, then: sluice mounts reload")
    };
    let changed = file::change(reach.which(), screen, |text| file::without(text, name).ok_or_else(unknown))?;
    let left = |before: &Vec<_>| changed.after.iter().eq(before.iter().filter(|mount: &&Mount| mount.name != name));
    let only_that = changed.before.as_ref().is_none_or(left);
    if !only_that || changed.after.iter().any(|mount| mount.name == name) {
        return Err(changed.put_back("something else would have gone with it"));
    }
    taking::up(reach, screen, &changed.file, Vec::new())
}

impl Verb {
    fn ask(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        match self {
            // Both begin with the file and were dealt with before.
            Self::Add(_) | Self::Remove { .. } => Ok(Exit::Ok),
            Self::Reload { json } => {
                let done = client.ask(&Ask::post("/v1/mounts/reload").waits(Span::from_mins(5)))?;
                if json {
                    screen.json(&done)?;
                } else {
                    taking::tell(screen, &done)?;
                }
                Ok(Exit::Ok)
            }
            Self::List { listing } => {
                let fetch = || client.whole("/v1/mounts");
                watch::show(client, screen, listing, fetch, |list| table(list, screen))
            }
            Self::Show { one } => say(screen, &one, &client.ask(&Ask::get(path(&one.name, "")))?),
            Self::Test { one } => {
                let mount = client.ask(&Ask::post(path(&one.name, "/test")))?;
                say(screen, &one, &mount)?;
                Ok(if text(&mount, "state") == "open" { Exit::Ok } else { Exit::Failed })
            }
            Self::Diff { one, tools } => diff(client, screen, &one, &tools),
            Self::Accept { one, tools, all: _, read_only, write, yes } => {
                let effect = match (read_only, write) {
                    (true, _) => Some(Said::ReadOnly),
                    (false, true) => Some(Said::Write),
                    (false, false) => None,
                };
                accept(client, screen, &one, (&tools, effect), yes)
            }
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/mounts/{}{rest}", encode(name))
}

/// What waits, of these tools or of all.
fn waiting(client: &Client, one: &One, tools: &[String]) -> Result<Vec<Value>, Failure> {
    let found = client.ask(&Ask::get(path(&one.name, "/waiting")))?;
    let list = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(missing) = tools.iter().find(|name| !list.iter().any(|tool| text(tool, "tool") == **name)) {
        return Err(Failure::new(Exit::NotFound, format!("`{}` has no tool `{missing}` that waits", one.name)));
    }
    Ok(list
        .into_iter()
        .filter(|tool| tools.is_empty() || tools.iter().any(|name| name == text(tool, "tool")))
        .collect())
}

fn diff(client: &Client, screen: &Screen, one: &One, tools: &[String]) -> Result<Exit, Failure> {
    let found = waiting(client, one, tools)?;
    if one.json {
        screen.json(&json!({"data": found}))?;
        return Ok(Exit::Ok);
    }
    if found.is_empty() {
        screen.note(format_args!("nothing of `{}` waits for a person", one.name));
    }
    found.iter().try_for_each(|tool| show_difference(screen, tool))?;
    Ok(Exit::Ok)
}

fn show_difference(screen: &Screen, tool: &Value) -> Result<(), Failure> {
    let because = match text(tool, "state") {
        "suspicious" => "it looks like an attack on agents; if accepted, its description stays withheld",
        "new" => "it was not there when the others were accepted",
        "open" | "gone" => "its accepted definition",
        _ => "it is not what was accepted",
    };
    screen.line(format_args!("{}: {} ({because})", shown(tool, "tool"), shown(tool, "state")))?;
    let nothing = Value::Null;
    let (accepted, waiting) = (tool.get("accepted").unwrap_or(&nothing), tool.get("waiting"));
    // Where nothing waits, the accepted definition is shown whole.
    let (before, after) = waiting.map_or((&nothing, accepted), |waiting| (accepted, waiting));
    for line in differences::lines(before, after) {
        screen.line(format_args!("  {line}"))?;
    }
    Ok(())
}

/// What a person says about the effect of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    ReadOnly,
    Write,
}

/// The tools a word about their effect is about: the named ones, or all to which it can be said.
fn meant(client: &Client, one: &One, tools: &[String], said: Said) -> Result<Vec<Value>, Failure> {
    let found = client.ask(&Ask::get(path(&one.name, "/waiting")).with("all", Some(true)))?;
    let list = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(missing) = tools.iter().find(|name| !list.iter().any(|tool| text(tool, "tool") == **name)) {
        return Err(Failure::new(Exit::NotFound, format!("`{}` has no tool `{}`", one.name, visible::line(missing))));
    }
    let is_read = |tool: &Value| tool.get("read_only_by").is_some();
    let fits = |tool: &Value| match said {
        Said::ReadOnly => tool.get("claims_to_read") == Some(&Value::Bool(true)) && !is_read(tool),
        Said::Write => is_read(tool),
    };
    let named = |tool: &Value| tools.iter().any(|name| name == text(tool, "tool"));
    Ok(list.into_iter().filter(|tool| if tools.is_empty() { fits(tool) } else { named(tool) }).collect())
}

fn accept(
    client: &Client,
    screen: &Screen,
    one: &One,
    (tools, said): (&[String], Option<Said>),
    yes: bool,
) -> Result<Exit, Failure> {
    let found = match said {
        None => waiting(client, one, tools)?,
        Some(said) => meant(client, one, tools, said)?,
    };
    if found.is_empty() {
        screen.note(format_args!("nothing of `{}` waits for a person", one.name));
        return Ok(Exit::Ok);
    }
    if !one.json {
        found.iter().try_for_each(|tool| show_difference(screen, tool))?;
    }
    if !yes {
        let them = if found.len() == 1 { "it" } else { "them" };
        let question = match said {
            None => format!("Let agents use {them} as shown?"),
            Some(Said::ReadOnly) => {
                format!("Does reading as shown change nothing, so that agents use {them} without a hold?")
            }
            Some(Said::Write) => format!("Treat {them} as writes from now on?"),
        };
        screen.ask(&question, "--yes")?;
    }
    let digest = |tool: &Value| match text(tool, "digest") {
        "" => text(tool, "accepted_digest").to_owned(),
        waiting => waiting.to_owned(),
    };
    let tools: Vec<Value> =
        found.iter().map(|tool| json!({"tool": text(tool, "tool"), "digest": digest(tool)})).collect();
    let body = match said {
        None => json!({"tools": tools}),
        Some(said) => json!({"tools": tools, "read_only": said == Said::ReadOnly}),
    };
    say(screen, one, &client.ask(&Ask::post(path(&one.name, "/accept")).body(body))?)
}

fn say(screen: &Screen, one: &One, mount: &Value) -> Result<Exit, Failure> {
    if one.json {
        screen.json(mount)?;
        return Ok(Exit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<10} {value}"));
    line("mount", format!("{}, a {}", shown(mount, "name"), shown(mount, "way")))?;
    let why = mount.get("reason").map(|_| format!(": {}", shown(mount, "reason"))).unwrap_or_default();
    line("state", format!("{} since {}{why}", shown(mount, "state"), shown(mount, "since")))?;
    if mount.get("server").is_some() {
        line("server", format!("{}, revision {}", shown(mount, "server"), shown(mount, "protocol")))?;
    }
    line("restarts", shown(mount, "restarts"))?;
    let missing: Vec<&str> = list(mount, "missing_layers").iter().filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        line("sandbox", format!("without {}", missing.join(", ")))?;
    }
    for refused in list(mount, "refused") {
        line("refused", format!("{}: {}", shown(refused, "tool"), shown(refused, "reason")))?;
    }
    let words = text(mount, "last_words");
    if text(mount, "state") != "open" && !words.is_empty() {
        let tail: Vec<String> = visible::lines(words.trim_end()).collect();
        for said in tail.iter().rev().take(5).rev() {
            line("it said", said.clone())?;
        }
    }
    let mut table = Table::new(&["tool", "capability", "effect", "state"]);
    let mut claims = 0;
    for tool in list(mount, "tools") {
        let cell = |name: &str| tool.get(name).map(|_| shown(tool, name)).unwrap_or_default();
        table.row(&[cell("tool"), cell("capability"), cell("effect"), cell("state")]);
        claims +=
            u32::from(tool.get("claims_to_read") == Some(&Value::Bool(true)) && tool.get("read_only_by").is_none());
    }
    table.print(screen, "it has no tools")?;
    if claims > 0 {
        screen.note(format_args!(
            "{claims} of them only read, says the server; until you accept that they are writes: sluice mounts accept {} --all --read-only",
            shown(mount, "name")
        ));
    }
    Ok(Exit::Ok)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn table(found: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["mount", "way", "state", "server", "tools", "waiting", "restarts", "because"]);
    for mount in entries(found) {
        let cell = |name: &str| mount.get(name).map(|_| shown(mount, name)).unwrap_or_default();
        table.row(&[
            cell("name"),
            cell("way"),
            cell("state"),
            cell("server"),
            cell("open_tools"),
            cell("waiting_tools"),
            cell("restarts"),
            cell("reason"),
        ]);
    }
    table.print(screen, "there are no mounts: sluice mounts add examples/mounts/time.yaml")
}
