//! `sluice mounts`: third-party MCP servers behind the gate.

mod add;
mod connect;
mod differences;
mod file;
mod import;
mod install;
mod launch;
mod logs;
mod reload;
mod set;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_config::MountConfig;
use sluice_core::Millis;

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::watch::{self, ListArgs};

/// List, add, remove, test, describe and accept third-party MCP servers behind the gate.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice mounts add examples/mounts/time.yaml --set installed=/opt/mcp --set python=/usr\n  sluice mounts list\n  sluice mounts test time\n  sluice mounts diff time\n  sluice mounts accept time get_current_time"
)]
pub(crate) struct MountsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: MountsSubcommand,
}

#[derive(Debug, Subcommand)]
enum MountsSubcommand {
    /// List servers and their state
    #[command(before_help = "Examples:\n  sluice mounts list\n  sluice mounts list --watch")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one server and its tools
    #[command(before_help = "Examples:\n  sluice mounts show git")]
    Show {
        #[command(flatten)]
        one: MountsNameArgs,
    },
    /// Add a server to sluice.yaml, from a recipe or from options; a running gateway loads it immediately
    #[command(
        before_help = "Examples:\n  sluice mounts add examples/mounts/git.yaml --set installed=/opt/mcp --set folder=/srv/repo\n  sluice mounts add weather --at https://mcp.weather.example/mcp --secret weather/key\n  sluice mounts add notes --write /srv/notes -- /opt/mcp/bin/notes-server --root /srv/notes\n  sluice mounts add memory -- npx -y @modelcontextprotocol/server-memory"
    )]
    Add(add::MountsAddArgs),
    /// Import servers from a README block or the `mcpServers` of a client; packages are installed into folders of their own
    #[command(
        before_help = "Examples:\n  sluice mounts import ~/.config/claude/mcp.json\n  echo 'npx -y @modelcontextprotocol/server-memory' | sluice mounts import - --name memory"
    )]
    Import(import::MountsImportArgs),
    /// Remove a server from sluice.yaml; a running gateway stops it immediately and cancels the writes held for it
    #[command(before_help = "Examples:\n  sluice mounts remove git")]
    Remove {
        /// Name of the server
        name: String,
    },
    /// Sign in to a server that wants OAuth: opens a consent link; the tokens stay in the vault
    #[command(
        before_help = "Examples:\n  sluice mounts connect linear\n  sluice mounts connect linear --paste\n  sluice mounts connect github --client-id Iv1.abc --client-secret-file secret.txt"
    )]
    Connect(connect::MountsConnectArgs),
    /// Give up the access to a server: revokes it and destroys its tokens
    #[command(before_help = "Examples:\n  sluice mounts disconnect linear")]
    Disconnect(connect::MountsDisconnectArgs),
    /// Make the gateway reload `mounts` from sluice.yaml
    #[command(before_help = "Examples:\n  sluice mounts reload")]
    Reload {
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Test a server now: start it if it is down, and list its tools again
    #[command(before_help = "Examples:\n  sluice mounts test git")]
    Test {
        #[command(flatten)]
        one: MountsNameArgs,
    },
    /// Show the error output of a server, with lines of the gateway about it
    #[command(before_help = "Examples:\n  sluice mounts logs git\n  sluice mounts logs git --lines 50 --follow")]
    Logs(logs::MountsLogsArgs),
    /// State facts about a tool in sluice.yaml: whether it reads, its delay, its tier, its targets, or that it is hidden
    #[command(
        before_help = "Examples:\n  sluice mounts set git git_log read\n  sluice mounts set notes delete_note tier=approval_required delay=10m\n  sluice mounts set notes export targets.webhook=url\n  sluice mounts set notes debug hide\n  sluice mounts set notes --proposed"
    )]
    Set(set::MountsSetArgs),
    /// Show what changed in tools that wait for a person
    #[command(before_help = "Examples:\n  sluice mounts diff git\n  sluice mounts diff git git_commit")]
    Diff {
        #[command(flatten)]
        one: MountsNameArgs,
        /// Only these tools
        tools: Vec<String>,
    },
    /// Accept changed, new or suspicious tools, after showing the difference; or mark tools as read-only
    #[command(
        before_help = "Examples:\n  sluice mounts accept git git_commit\n  sluice mounts accept git --all --yes\n  sluice mounts accept git git_status git_log --read-only\n  sluice mounts accept git git_status --write"
    )]
    Accept {
        #[command(flatten)]
        one: MountsNameArgs,
        /// Tools to accept
        #[arg(required_unless_present = "all")]
        tools: Vec<String>,
        /// Every tool that waits; with --read-only, every tool that its server declares as read-only
        #[arg(long, conflicts_with = "tools")]
        all: bool,
        /// Mark as read-only: answered immediately and judged as reads. Until then, a tool counts as a write
        #[arg(long, conflicts_with = "write")]
        read_only: bool,
        /// Mark as writes, whatever was accepted before
        #[arg(long)]
        write: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct MountsNameArgs {
    /// Name of the server
    name: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl MountsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let reach = self.reach;
        match self.verb {
            MountsSubcommand::Add(add) => add.run(&reach, screen),
            MountsSubcommand::Remove { name } => remove(&reach, screen, &name),
            MountsSubcommand::Set(set) => set.run(&reach, screen),
            MountsSubcommand::Import(import) => import.run(&reach, screen),
            verb => verb.ask(&reach.open_operator_client()?, screen),
        }
    }
}

/// Removes a server from the file, and makes the gateway stop it.
fn remove(reach: &GatewayArgs, screen: &CommandConsole, name: &str) -> Result<CommandExit, CliError> {
    let unknown = || {
        CliError::new(
            CommandExit::NotFound,
            format!("sluice.yaml has no mount `{}` on separate lines", escape::escape_line(name)),
        )
        .hint("see the mounts: sluice mounts list; remove one in another form by hand, then: sluice mounts reload")
    };
    let changed = file::change(reach.which(), screen, |text| file::without(text, name).ok_or_else(unknown))?;
    let left =
        |before: &Vec<_>| changed.after.iter().eq(before.iter().filter(|mount: &&MountConfig| mount.name != name));
    let only_that = changed.before.as_ref().is_none_or(left);
    if !only_that || changed.after.iter().any(|mount| mount.name == name) {
        return Err(changed.put_back("the change would have removed something else too"));
    }
    reload::reload_and_show(reach, screen, &changed.file, Vec::new())
}

impl MountsSubcommand {
    fn ask(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        match self {
            // These edit the file and were handled before.
            Self::Add(_) | Self::Remove { .. } | Self::Set(_) | Self::Import(_) => Ok(CommandExit::Ok),
            Self::Connect(connect) => connect.run(client, screen),
            Self::Disconnect(end) => end.run(client, screen),
            Self::Logs(logs) => logs.run(client, screen),
            Self::Reload { json } => {
                let done = client.send(&ApiRequest::post("/v1/mounts/reload").with_wait(Millis::from_mins(5)))?;
                if json {
                    screen.json(&done)?;
                } else {
                    reload::print_reload(screen, &done)?;
                }
                Ok(CommandExit::Ok)
            }
            Self::List { listing } => {
                let fetch = || client.get_all("/v1/mounts");
                watch::show(client, screen, listing, fetch, |list| table(list, screen))
            }
            Self::Show { one } => say(screen, &one, &client.send(&ApiRequest::get(path(&one.name, "")))?),
            Self::Test { one } => {
                let mount = client.send(&ApiRequest::post(path(&one.name, "/test")))?;
                say(screen, &one, &mount)?;
                Ok(if text_field(&mount, "state") == "open" { CommandExit::Ok } else { CommandExit::Failed })
            }
            Self::Diff { one, tools } => diff(client, screen, &one, &tools),
            Self::Accept { one, tools, all: _, read_only, write, yes } => {
                let effect = match (read_only, write) {
                    (true, _) => Some(StatedToolEffect::ReadOnly),
                    (false, true) => Some(StatedToolEffect::Write),
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

/// The waiting tools, of those named or of all.
fn waiting(client: &GatewayClient, one: &MountsNameArgs, tools: &[String]) -> Result<Vec<Value>, CliError> {
    let found = client.send(&ApiRequest::get(path(&one.name, "/waiting")))?;
    let list = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(missing) = tools.iter().find(|name| !list.iter().any(|tool| text_field(tool, "tool") == **name)) {
        return Err(CliError::new(CommandExit::NotFound, format!("`{}` has no tool `{missing}` that waits", one.name)));
    }
    Ok(list
        .into_iter()
        .filter(|tool| tools.is_empty() || tools.iter().any(|name| name == text_field(tool, "tool")))
        .collect())
}

fn diff(
    client: &GatewayClient,
    screen: &CommandConsole,
    one: &MountsNameArgs,
    tools: &[String],
) -> Result<CommandExit, CliError> {
    let found = waiting(client, one, tools)?;
    if one.json {
        screen.json(&json!({"data": found}))?;
        return Ok(CommandExit::Ok);
    }
    if found.is_empty() {
        screen.note(format_args!("no tool of `{}` waits for a person", one.name));
    }
    found.iter().try_for_each(|tool| show_difference(screen, tool))?;
    Ok(CommandExit::Ok)
}

fn show_difference(screen: &CommandConsole, tool: &Value) -> Result<(), CliError> {
    let because = match text_field(tool, "state") {
        "suspicious" => "it looks like an attack on agents; its description stays withheld even if accepted",
        "new" => "it did not exist when the other tools were accepted",
        "open" | "gone" => "its accepted definition",
        _ => "it differs from what was accepted",
    };
    screen.line(format_args!("{}: {} ({because})", display_field(tool, "tool"), display_field(tool, "state")))?;
    let nothing = Value::Null;
    let (accepted, waiting) = (tool.get("accepted").unwrap_or(&nothing), tool.get("waiting"));
    // If nothing waits, the accepted definition is shown in full.
    let (before, after) = waiting.map_or((&nothing, accepted), |waiting| (accepted, waiting));
    for line in differences::lines(before, after) {
        screen.line(format_args!("  {line}"))?;
    }
    Ok(())
}

/// What a person states about the effect of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatedToolEffect {
    ReadOnly,
    Write,
}

/// The tools that a statement about effects applies to: the named ones, or all to which it can apply.
fn select_tools(
    client: &GatewayClient,
    one: &MountsNameArgs,
    tools: &[String],
    said: StatedToolEffect,
) -> Result<Vec<Value>, CliError> {
    let found = client.send(&ApiRequest::get(path(&one.name, "/waiting")).with("all", Some(true)))?;
    let list = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(missing) = tools.iter().find(|name| !list.iter().any(|tool| text_field(tool, "tool") == **name)) {
        return Err(CliError::new(
            CommandExit::NotFound,
            format!("`{}` has no tool `{}`", one.name, escape::escape_line(missing)),
        ));
    }
    let is_read = |tool: &Value| tool.get("read_only_by").is_some();
    let fits = |tool: &Value| match said {
        StatedToolEffect::ReadOnly => tool.get("claims_to_read") == Some(&Value::Bool(true)) && !is_read(tool),
        StatedToolEffect::Write => is_read(tool),
    };
    let named = |tool: &Value| tools.iter().any(|name| name == text_field(tool, "tool"));
    Ok(list.into_iter().filter(|tool| if tools.is_empty() { fits(tool) } else { named(tool) }).collect())
}

fn accept(
    client: &GatewayClient,
    screen: &CommandConsole,
    one: &MountsNameArgs,
    (tools, said): (&[String], Option<StatedToolEffect>),
    yes: bool,
) -> Result<CommandExit, CliError> {
    let found = match said {
        None => waiting(client, one, tools)?,
        Some(said) => select_tools(client, one, tools, said)?,
    };
    if found.is_empty() {
        screen.note(format_args!("no tool of `{}` waits for a person", one.name));
        return Ok(CommandExit::Ok);
    }
    if !one.json {
        found.iter().try_for_each(|tool| show_difference(screen, tool))?;
    }
    if !yes {
        let them = if found.len() == 1 { "it" } else { "them" };
        let question = match said {
            None => format!("Let agents use {them} as shown?"),
            Some(StatedToolEffect::ReadOnly) => {
                format!("Do the calls shown change nothing, so that agents can use {them} without a hold?")
            }
            Some(StatedToolEffect::Write) => format!("Treat {them} as writes from now on?"),
        };
        screen.confirm(&question, "--yes")?;
    }
    let digest = |tool: &Value| match text_field(tool, "digest") {
        "" => text_field(tool, "accepted_digest").to_owned(),
        waiting => waiting.to_owned(),
    };
    let tools: Vec<Value> =
        found.iter().map(|tool| json!({"tool": text_field(tool, "tool"), "digest": digest(tool)})).collect();
    let body = match said {
        None => json!({"tools": tools}),
        Some(said) => json!({"tools": tools, "read_only": said == StatedToolEffect::ReadOnly}),
    };
    say(screen, one, &client.send(&ApiRequest::post(path(&one.name, "/accept")).body(body))?)
}

fn say(screen: &CommandConsole, one: &MountsNameArgs, mount: &Value) -> Result<CommandExit, CliError> {
    if one.json {
        screen.json(mount)?;
        return Ok(CommandExit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<10} {value}"));
    line("mount", format!("{} ({})", display_field(mount, "name"), display_field(mount, "way")))?;
    let why = mount.get("reason").map(|_| format!(": {}", display_field(mount, "reason"))).unwrap_or_default();
    line("state", format!("{} since {}{why}", display_field(mount, "state"), display_field(mount, "since")))?;
    if mount.get("server").is_some() {
        line("server", format!("{}, revision {}", display_field(mount, "server"), display_field(mount, "protocol")))?;
    }
    if let Some(access) = mount.get("sign_in") {
        connect::print_access(screen, mount, access)?;
    }
    line("restarts", display_field(mount, "restarts"))?;
    let missing: Vec<&str> = list(mount, "missing_layers").iter().filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        line("sandbox", format!("without {}", missing.join(", ")))?;
    }
    for refused in list(mount, "refused") {
        line("refused", format!("{}: {}", display_field(refused, "tool"), display_field(refused, "reason")))?;
    }
    for missing in list(mount, "facts_without_tool").iter().filter_map(Value::as_str) {
        line("facts", format!("`{}` is not a tool of this server", escape::escape_line(missing)))?;
    }
    let words = text_field(mount, "last_words");
    if text_field(mount, "state") != "open" && !words.is_empty() {
        let tail: Vec<String> = escape::lines(words.trim_end()).collect();
        for said in tail.iter().rev().take(5).rev() {
            line("output", said.clone())?;
        }
        if let Some(path) = refused_path(words) {
            line(
                "hint",
                format!(
                    "it may not reach `{0}`; if it needs it, add it: files: {{read: [\"{0}\"]}}",
                    escape::escape_line(path)
                ),
            )?;
        }
        screen.note(format_args!("all of its output: sluice mounts logs {}", display_field(mount, "name")));
    }
    let mut table = TextTable::new(&["tool", "capability", "effect", "state", "facts"]);
    let (mut claims, mut notes) = (0, Vec::new());
    for tool in list(mount, "tools") {
        let cell = |name: &str| tool.get(name).map(|_| display_field(tool, name)).unwrap_or_default();
        let facts = tool.get("facts").map(set::display_facts).unwrap_or_default();
        table.row(&[cell("tool"), cell("capability"), cell("effect"), cell("state"), facts]);
        if tool.get("note").is_some() {
            notes.push(format!("{}: {}", display_field(tool, "tool"), display_field(tool, "note")));
        }
        claims +=
            u32::from(tool.get("claims_to_read") == Some(&Value::Bool(true)) && tool.get("read_only_by").is_none());
    }
    table.print(screen, "no tools")?;
    notes.iter().for_each(|note| screen.note(note));
    if claims > 0 {
        screen.note(format_args!(
            "the server declares {claims} of them as read-only; they count as writes until you accept: sluice mounts accept {} --all --read-only",
            display_field(mount, "name")
        ));
    }
    Ok(CommandExit::Ok)
}

/// The path that a program was last refused, as Node.js, Python and others say it.
fn refused_path(words: &str) -> Option<&str> {
    let signs = ["EACCES", "Permission denied", "permission denied", "EPERM"];
    let line = words.lines().rev().find(|line| signs.iter().any(|sign| line.contains(sign)))?;
    let quoted = line.split(['\'', '"', '`']).find(|part| part.starts_with('/'));
    let bare = || line.split([' ', ':', ',']).find(|part| part.starts_with('/'));
    quoted.or_else(bare).map(|path| path.trim_end_matches(['.', ')'])).filter(|path| path.len() > 1)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn table(found: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["mount", "way", "state", "server", "tools", "waiting", "restarts", "reason"]);
    for mount in entries(found) {
        let cell = |name: &str| mount.get(name).map(|_| display_field(mount, name)).unwrap_or_default();
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
    table.print(screen, "no mounts; add one: sluice mounts add examples/mounts/time.yaml")
}

#[cfg(test)]
mod tests {
    use super::refused_path;

    #[test]
    fn the_path_that_a_program_was_refused_is_named() {
        for (words, path) in [
            ("Error: EACCES: permission denied, open '/srv/a b/x.json'\n    at open", Some("/srv/a b/x.json")),
            ("x\nPermissionError: [Errno 13] Permission denied: '/srv/x'\n", Some("/srv/x")),
            ("open /srv/y: permission denied", Some("/srv/y")),
            ("Error: EPERM: operation not permitted, mkdir '/srv/z'", Some("/srv/z")),
            ("all is well at '/srv/x'", None),
            ("EACCES", None),
        ] {
            assert_eq!(refused_path(words), path, "{words}");
        }
    }
}
