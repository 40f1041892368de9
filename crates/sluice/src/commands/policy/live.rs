//! `apply`, `history`, `revert` and the replay of `diff`: the policy of a running gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_services::policies::to_send;

use super::{counted, folder_of, load, load_or_fail};
use crate::client::{ApiRequest, GatewayArgs, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::files;
use crate::table::{TextTable, short_ids};
use crate::watch::{self, ListArgs};

/// Apply policy files to the running gateway, all of them or none.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy apply\n  sluice policy apply policies.new --if-version sha256:91ab…"
)]
pub(crate) struct PolicyApplyArgs {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Policy directory; default: that of the configuration
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Apply only if this version is in force now
    #[arg(long, value_name = "VERSION")]
    if_version: Option<String>,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// List earlier policies, the latest first.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy history")]
pub(crate) struct PolicyHistoryArgs {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    listing: ListArgs,
}

/// Apply an earlier policy again.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy history\n  sluice policy revert 91ab")]
pub(crate) struct PolicyRevertArgs {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Policy version, or its first characters
    #[arg(value_name = "VERSION")]
    wanted: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl PolicyApplyArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("version");
        let dir = folder_of(self.dir.clone(), self.reach.which())?;
        if !dir.is_dir() {
            return Err(CliError::new(CommandExit::Usage, format!("`{}` is not a directory", dir.display()))
                .why("all files of a policy are applied together"));
        }
        let operator = self.reach.open_operator_client();
        let body = |files: Value| json!({"files": files, "if_version": self.if_version});
        let put = |files: Value| ApiRequest::put("/v1/policy").body(body(files));
        // The gateway knows the mounts and connections, this program does not: rules that only the gateway knows are
        // sent anyway. If the gateway refuses them too, the places are shown. A file that cannot be read or would be
        // ignored is never left out: its rules would be lost.
        if load(&dir)?.is_err()
            && let (Ok(to), Ok(files)) = (&operator, to_send(&dir))
            && let Ok(applied) = to.send(&put(files.into()))
        {
            return say(&applied, self.json, screen);
        }
        let files = checked(&dir, screen)?;
        say(&operator?.send(&put(files))?, self.json, screen)
    }
}

impl PolicyHistoryArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("version");
        let client = self.reach.open_operator_client()?;
        let fetch = || client.list(&ApiRequest::get("/v1/policy/history"), self.listing.limit);
        watch::show(&client, screen, self.listing, fetch, |list| {
            let versions: Vec<String> =
                entries(list).iter().map(|entry| text_field(entry, "version").to_owned()).collect();
            let mut table = TextTable::new(&["version", "by", "at"]);
            for (entry, version) in entries(list).iter().zip(short_ids(screen, &versions)) {
                table.row(&[version, display_field(entry, "by"), display_field(entry, "at")]);
            }
            table.print(screen, "no earlier policies")
        })
    }
}

impl PolicyRevertArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("version");
        let body = json!({"version": self.wanted});
        let applied = self.reach.open_operator_client()?.send(&ApiRequest::post("/v1/policy/revert").body(body))?;
        say(&applied, self.json, screen)
    }
}

fn say(applied: &Value, json: bool, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    if json {
        screen.json(applied)?;
    } else if applied.get("version") != applied.get("before") {
        screen.line(format_args!("in force  {}", display_field(applied, "version")))?;
        screen.line(format_args!("before    {}", display_field(applied, "before")))?;
        screen.note("to undo it: sluice policy revert VERSION");
    } else {
        screen.line(format_args!("in force  {}, unchanged", display_field(applied, "version")))?;
    }
    Ok(CommandExit::Ok)
}

/// The files of a directory for the API, after they loaded and passed their tests here.
fn checked(dir: &Path, screen: &CommandConsole) -> Result<Value, CliError> {
    load_or_fail(dir, screen)?;
    let files = if dir.is_dir() { to_send(dir).map(Value::from) } else { Ok(one_file(dir)?) };
    files.map_err(|errors| CliError::new(CommandExit::Failed, "the files cannot be sent").why(errors.to_string()))
}

/// One file for the API, for a comparison.
fn one_file(path: &Path) -> Result<Value, CliError> {
    let found = files::read(path)?;
    serde_json::from_str(&sluice_services::policies::as_json(&found.sources))
        .map_err(|error| CliError::new(CommandExit::Failed, "the file cannot be sent").why(error.to_string()))
}

/// The verdicts that recent writes of a running gateway would have got under this policy.
pub(super) fn replay(
    reach: &GatewayArgs,
    dir: &Path,
    span: Millis,
    json: bool,
    screen: &CommandConsole,
) -> Result<usize, CliError> {
    let body = json!({"files": checked(dir, screen)?, "seconds": span.as_secs()});
    let found = reach.open_operator_client()?.send(&ApiRequest::post("/v1/policy/replay").body(body))?;
    let looser = found.get("looser").and_then(Value::as_u64).unwrap_or(0);
    let looser = usize::try_from(looser).unwrap_or(usize::MAX);
    if json {
        screen.json(&found)?;
        return Ok(looser);
    }
    let differences = found.get("differences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ids: Vec<String> = differences.iter().map(|entry| text_field(entry, "call_id").to_owned()).collect();
    let mut table = TextTable::new(&["call", "agent", "capability", "now", "new", "rule"]);
    for (entry, id) in differences.iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(entry, name);
        table.row(&[id, cell("agent"), cell("capability"), cell("now"), cell("then"), cell("rule")]);
    }
    table.print(screen, "no write would have got a different verdict")?;
    let writes = found.get("writes").and_then(Value::as_u64).unwrap_or(0);
    let writes = counted(usize::try_from(writes).unwrap_or(usize::MAX), "write");
    let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
    let refused = |number: u64| counted(usize::try_from(number).unwrap_or(usize::MAX), "refused call");
    let replayed = refused(number("refused_replayed"));
    screen
        .note(format_args!("{writes} and {replayed}: {} stricter, {looser} looser", display_field(&found, "stricter")));
    let unknown = number("refused").saturating_sub(number("refused_replayed"));
    let all = found.get("refused_all") == Some(&Value::Bool(true));
    if unknown > 0 || !all {
        let least = if all { "" } else { "at least " };
        screen.print_required(format_args!(
            "warning: {least}{} not replayed, because the arguments are not stored; some may be allowed now: sluice \
             calls list --state blocked",
            refused(unknown)
        ))?;
    }
    Ok(looser)
}
