//! `apply`, `history`, `revert` and the replay of `diff`: the rules of a running gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use sluice_core::Span;
use sluice_gateway::policies::to_send;

use super::{counted, load, load_or_fail};
use crate::client::{Ask, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// Put policy files in force at the running gateway, all of them or none.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy apply\n  sluice policy apply policies.new --if-version sha256:91ab…"
)]
pub(crate) struct Apply {
    #[command(flatten)]
    reach: Reach,
    /// Policy directory
    #[arg(default_value = "policies", value_name = "DIR")]
    dir: PathBuf,
    /// Only if these rules are in force now
    #[arg(long, value_name = "VERSION")]
    if_version: Option<String>,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// List rules that were in force, the latest first.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy history")]
pub(crate) struct History {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    listing: Listing,
}

/// Put rules in force that were before.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy history\n  sluice policy revert 91ab")]
pub(crate) struct Revert {
    #[command(flatten)]
    reach: Reach,
    /// Their version, or the beginning of it
    #[arg(value_name = "VERSION")]
    wanted: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Apply {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("version");
        if !self.dir.is_dir() {
            return Err(Failure::new(Exit::Usage, format!("`{}` is no directory", self.dir.display()))
                .why("all files of a policy are put in force together"));
        }
        let operator = self.reach.operator();
        let body = |files: Value| json!({"files": files, "if_version": self.if_version});
        let put = |files: Value| Ask::put("/v1/policy").body(body(files));
        // The gateway knows what is mounted and connected, this program does not: what only the gateway understands is
        // taken, as it is from the folder. Where it says no as well, the places are shown. A file that cannot be read or
        // would not count is never left out: its rules would be lifted.
        if load(&self.dir)?.is_err()
            && let (Ok(to), Ok(files)) = (&operator, to_send(&self.dir))
            && let Ok(applied) = to.ask(&put(files.into()))
        {
            return say(&applied, self.json, screen);
        }
        let files = checked(&self.dir, screen)?;
        say(&operator?.ask(&put(files))?, self.json, screen)
    }
}

impl History {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("version");
        let client = self.reach.operator()?;
        let fetch = || client.list(&Ask::get("/v1/policy/history"), self.listing.limit);
        watch::show(&client, screen, self.listing, fetch, |list| {
            let versions: Vec<String> = entries(list).iter().map(|entry| text(entry, "version").to_owned()).collect();
            let mut table = Table::new(&["version", "by", "at"]);
            for (entry, version) in entries(list).iter().zip(short_ids(screen, &versions)) {
                table.row(&[version, shown(entry, "by"), shown(entry, "at")]);
            }
            table.print(screen, "no rules were in force yet")
        })
    }
}

impl Revert {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("version");
        let body = json!({"version": self.wanted});
        let applied = self.reach.operator()?.ask(&Ask::post("/v1/policy/revert").body(body))?;
        say(&applied, self.json, screen)
    }
}

fn say(applied: &Value, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    if json {
        screen.json(applied)?;
    } else if applied.get("version") != applied.get("before") {
        screen.line(format_args!("in force  {}", shown(applied, "version")))?;
        screen.line(format_args!("before    {}", shown(applied, "before")))?;
        screen.note("take it back: sluice policy revert VERSION");
    } else {
        screen.line(format_args!("in force  {}, as before", shown(applied, "version")))?;
    }
    Ok(Exit::Ok)
}

/// The files of a directory as the API takes them, once they load and pass their tests here.
fn checked(dir: &Path, screen: &Screen) -> Result<Value, Failure> {
    load_or_fail(dir, screen)?;
    let files = if dir.is_dir() { to_send(dir).map(Value::from) } else { Ok(one_file(dir)?) };
    files.map_err(|errors| Failure::new(Exit::Failed, "the files cannot be sent").why(errors.to_string()))
}

/// One file as it is sent, for a comparison.
fn one_file(path: &Path) -> Result<Value, Failure> {
    let found = files::read(path)?;
    serde_json::from_str(&sluice_gateway::policies::as_json(&found.sources))
        .map_err(|error| Failure::new(Exit::Failed, "the file cannot be sent").why(error.to_string()))
}

/// What a running gateway's writes of the past would have got under these rules.
pub(super) fn replay(reach: &Reach, dir: &Path, span: Span, json: bool, screen: &Screen) -> Result<usize, Failure> {
    let body = json!({"files": checked(dir, screen)?, "seconds": span.as_secs()});
    let found = reach.operator()?.ask(&Ask::post("/v1/policy/replay").body(body))?;
    let looser = found.get("looser").and_then(Value::as_u64).unwrap_or(0);
    let looser = usize::try_from(looser).unwrap_or(usize::MAX);
    if json {
        screen.json(&found)?;
        return Ok(looser);
    }
    let differences = found.get("differences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ids: Vec<String> = differences.iter().map(|entry| text(entry, "call_id").to_owned()).collect();
    let mut table = Table::new(&["call", "agent", "capability", "now", "then", "rule"]);
    for (entry, id) in differences.iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(entry, name);
        table.row(&[id, cell("agent"), cell("capability"), cell("now"), cell("then"), cell("rule")]);
    }
    table.print(screen, "nothing would have been treated otherwise")?;
    let writes = found.get("writes").and_then(Value::as_u64).unwrap_or(0);
    let writes = counted(usize::try_from(writes).unwrap_or(usize::MAX), "write");
    let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
    let refused = |number: u64| counted(usize::try_from(number).unwrap_or(usize::MAX), "refused call");
    let replayed = refused(number("refused_replayed"));
    screen.note(format_args!("{writes} and {replayed}: {} stricter, {looser} looser", shown(&found, "stricter")));
    let unknown = number("refused").saturating_sub(number("refused_replayed"));
    let all = found.get("refused_all") == Some(&Value::Bool(true));
    if unknown > 0 || !all {
        let least = if all { "" } else { "at least " };
        screen.hand(format_args!(
            "warning: {least}{} not replayed, because what it asked for is not kept; some of it may be allowed now: sluice \
             calls list --state blocked",
            refused(unknown)
        ))?;
    }
    Ok(looser)
}
