//! `sluice services`: accounts behind the gate, from the first yes to the receipt of their end.

mod browser;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{ServiceName, Span};

use crate::client::{Ask, Client, Reach, encode, entries, shown, text};
use crate::commands::policy::counted;
use crate::commands::secrets;
use crate::failing;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;
use crate::table::Table;
use crate::watch::{self, Listing};

/// Connect services, see how they are, end them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice services list\n  sluice services connect gmail --client-secret-file client.txt\n  sluice services show gmail\n  sluice services sync gmail\n  sluice services disconnect gmail"
)]
pub(crate) struct Services {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List services and how they stand
    #[command(before_help = "Examples:\n  sluice services list --watch")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one: state, copy, writes, errors
    #[command(before_help = "Examples:\n  sluice services show gmail")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Connect a service: a link to say yes at, then its copy begins
    #[command(
        before_help = "Examples:\n  sluice services connect gmail --client-secret-file client.txt\n  sluice services connect gmail --paste"
    )]
    Connect {
        #[command(flatten)]
        knock: Knock,
    },
    /// Sign in again to a service that is connected; its copy stays
    #[command(before_help = "Examples:\n  sluice services reconnect gmail")]
    Reconnect {
        #[command(flatten)]
        knock: Knock,
    },
    /// End a connection and print what is left of it
    #[command(before_help = "Examples:\n  sluice services disconnect gmail --yes > receipt.txt")]
    Disconnect {
        #[command(flatten)]
        end: End,
    },
    /// Bring its copy up to date now
    #[command(before_help = "Examples:\n  sluice services sync gmail\n  sluice services sync gmail --afresh")]
    Sync {
        #[command(flatten)]
        one: One,
        /// Make the copy anew, also where its key is gone
        #[arg(long)]
        afresh: bool,
    },
    /// Stop copying and sending for a while
    #[command(before_help = "Examples:\n  sluice services pause gmail")]
    Pause {
        #[command(flatten)]
        one: One,
    },
    /// Go on copying and sending
    #[command(before_help = "Examples:\n  sluice services resume gmail")]
    Resume {
        #[command(flatten)]
        one: One,
    },
    /// Ask the service whether it is there and takes our credential
    #[command(before_help = "Examples:\n  sluice services test gmail")]
    Test {
        #[command(flatten)]
        one: One,
    },
    /// List what agents can ask of it
    #[command(before_help = "Examples:\n  sluice services capabilities gmail")]
    Capabilities {
        #[command(flatten)]
        one: One,
    },
}

#[derive(Debug, Args)]
struct One {
    /// Its name
    name: ServiceName,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// How to connect.
#[derive(Debug, Args)]
pub(crate) struct Knock {
    /// Its name, as configured
    name: ServiceName,
    /// The adapter, if it is called otherwise
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// As what we are known at the provider; otherwise as configured
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// File with the secret that goes with it; it is kept in the vault
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<std::path::PathBuf>,
    /// File with a token made at the service by hand: no browser is needed, and it is kept in the vault
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paste", "no_browser", "client_id", "client_secret_file", "adapter"])]
    token_file: Option<std::path::PathBuf>,
    /// For a machine without a browser: say yes elsewhere, and paste where that led
    #[arg(long)]
    paste: bool,
    /// Only print the link
    #[arg(long)]
    no_browser: bool,
    /// The port the browser comes back to; any free one unless said
    #[arg(long, value_name = "PORT", default_value = "0")]
    port: u16,
    /// How long to wait for the person
    #[arg(long, value_parser = span, default_value = "10m")]
    timeout: Span,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// How to end.
#[derive(Debug, Args)]
pub(crate) struct End {
    /// Its name
    name: ServiceName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// Connect a service: a link to say yes at, then its copy begins.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice connect gmail --client-secret-file client.txt\n  sluice connect gmail --paste"
)]
pub(crate) struct Connect {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    knock: Knock,
}

/// End a connection and print what is left of it.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice disconnect gmail --yes > receipt.txt")]
pub(crate) struct Disconnect {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    end: End,
}

impl Connect {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        self.knock.run(&self.reach.operator()?, screen)
    }
}

impl Disconnect {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        self.end.run(&self.reach.operator()?, screen)
    }
}

impl Services {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { listing } => {
                let fetch = || client.whole("/v1/services");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { one } => say(&client.ask(&Ask::get(path(&one.name, "")))?, one.json, screen),
            Verb::Connect { knock } | Verb::Reconnect { knock } => knock.run(&client, screen),
            Verb::Disconnect { end } => end.run(&client, screen),
            Verb::Sync { one, afresh } => {
                let what = if afresh { "/sync?afresh=true" } else { "/sync" };
                let synced = client.ask(&Ask::post(path(&one.name, what)).waits(Span::from_mins(30)))?;
                if one.json {
                    screen.json(&synced)?;
                    return Ok(Exit::Ok);
                }
                let anew = if synced.get("made_anew") == Some(&Value::Bool(true)) { ", made anew" } else { "" };
                let many =
                    |name: &str| usize::try_from(synced.get(name).and_then(Value::as_u64).unwrap_or(0)).unwrap_or(0);
                let (changes, pages) = (counted(many("changes"), "change"), counted(many("pages"), "page"));
                screen.line(format_args!("{changes} in {pages}{anew}"))?;
                for (name, words) in [("set_aside", "set aside"), ("recovered", "could be opened again")] {
                    if many(name) > 0 {
                        screen.line(format_args!("{} {words}", counted(many(name), "message")))?;
                    }
                }
                Ok(Exit::Ok)
            }
            Verb::Pause { one } => say(&client.ask(&Ask::post(path(&one.name, "/pause")))?, one.json, screen),
            Verb::Resume { one } => say(&client.ask(&Ask::post(path(&one.name, "/resume")))?, one.json, screen),
            Verb::Test { one } => tested(&client.ask(&Ask::post(path(&one.name, "/test")))?, one.json, screen),
            Verb::Capabilities { one } => {
                let list = client.ask(&Ask::get(path(&one.name, "/capabilities")))?;
                if one.json {
                    screen.json(&list)?;
                    return Ok(Exit::Ok);
                }
                let mut table = Table::new(&["capability", "effect", "can be undone", "what"]);
                for spec in entries(&list) {
                    let cell = |name| shown(spec, name);
                    table.row(&[cell("name"), cell("effect"), cell("reversible"), cell("summary")]);
                }
                table.print(screen, "nothing: the service is not connected")?;
                Ok(Exit::Ok)
            }
        }
    }
}

fn path(name: &ServiceName, rest: &str) -> String {
    format!("/v1/services/{}{rest}", encode(name.as_str()))
}

impl Knock {
    fn run(&self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        if let Some(file) = &self.token_file {
            let body = json!({"token": secrets::value(Some(file))?});
            let ask = Ask::post(path(&self.name, "/token")).body(body).waits(Span::from_mins(2));
            return self.connected(&client.ask(&ask)?, screen);
        }
        let secret = self.client_secret_file.as_deref().map(|file| secrets::value(Some(file))).transpose()?;
        let waiting = if self.paste { browser::Waiting::Paste } else { browser::Waiting::listen(self.port)? };
        let body = json!({
            "redirect": waiting.redirect()?, "adapter": self.adapter, "client_id": self.client_id, "client_secret": secret,
        });
        let begun = client.ask(&Ask::post(path(&self.name, "/connect")).body(body))?;
        let (link, state) = (text(&begun, "link"), text(&begun, "state"));
        screen.note("Open this link, sign in and say yes:");
        // The link is what a person has to have, quiet or not.
        screen.hand(link)?;
        if !self.paste && !self.no_browser && browser::open(link) {
            screen.note("A browser was opened.");
        }
        let back = waiting.answer(state, self.timeout, screen)?;
        let body = json!({"state": back.state, "code": back.code, "issuer": back.issuer});
        let granted = client.ask(&Ask::post(path(&self.name, "/finish")).body(body).waits(Span::from_mins(2)))?;
        self.connected(&granted, screen)
    }

    fn connected(&self, granted: &Value, screen: &Screen) -> Result<Exit, Failure> {
        if self.json {
            screen.json(granted)?;
            return Ok(Exit::Ok);
        }
        let service = granted.get("service").cloned().unwrap_or_default();
        screen.line(format_args!("{} is connected: {}", self.name, shown(&service, "account")))?;
        if service.get("messages").is_none_or(Value::is_null) {
            screen.note(format_args!(
                "no copy is kept of it; what agents can ask: sluice services capabilities {}",
                self.name
            ));
            return Ok(Exit::Ok);
        }
        screen.note(format_args!("its copy is being made; see how far it is: sluice services show {}", self.name));
        Ok(Exit::Ok)
    }
}

impl End {
    fn run(&self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        if !self.yes {
            let service = client.ask(&Ask::get(path(&self.name, "")))?;
            let (messages, pending) = (shown(&service, "messages"), shown(&service, "pending"));
            let what = format!(
                "Disconnect {}? Its copy ({messages} messages) is deleted, {pending} held writes are cancelled.",
                self.name
            );
            screen.ask(&what, "--yes")?;
        }
        let receipt = client.ask(&Ask::post(path(&self.name, "/disconnect")))?;
        if self.json {
            screen.json(&receipt)?;
            return Ok(Exit::Ok);
        }
        let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
        let many = |name: &str| receipt.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        line("disconnected", format!("{} ({}) at {}", self.name, shown(&receipt, "account"), shown(&receipt, "at")))?;
        line("grant", shown(&receipt, "grant"))?;
        for hold in receipt.get("on_their_way").and_then(Value::as_array).into_iter().flatten() {
            line(
                "on its way",
                format!("{} (had left, or may have; it is not tried again)", crate::visible::value(hold)),
            )?;
        }
        line("cancelled", counted(many("cancelled"), "held write"))?;
        for hold in receipt.get("cancelled").and_then(Value::as_array).into_iter().flatten() {
            line("", crate::visible::value(hold))?;
        }
        let noise = match receipt.get("encrypted") {
            Some(Value::Bool(true)) => "; its key is destroyed, so what backups hold of it is noise",
            _ => "",
        };
        line("copy", format!("{} messages deleted{noise}", shown(&receipt, "messages")))?;
        for (name, noun, rest) in [
            ("withheld", "withheld message", "deleted with it"),
            ("findings", "finding", "emptied"),
            ("rollback_points", "rollback point", "emptied"),
            ("results", "kept answer", "deleted"),
        ] {
            let count = receipt.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
            line("content", format!("{} {rest}", counted(count.unwrap_or(0), noun)))?;
        }
        for secret in receipt.get("secrets").and_then(Value::as_array).into_iter().flatten() {
            line("destroyed", crate::visible::value(secret))?;
        }
        for capability in receipt.get("capabilities").and_then(Value::as_array).into_iter().flatten() {
            line("withdrawn", crate::visible::value(capability))?;
        }
        Ok(Exit::Ok)
    }
}

fn tested(result: &Value, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    let works = result.get("works") == Some(&Value::Bool(true));
    if json {
        screen.json(result)?;
    } else if works {
        screen.line(format_args!("{} works: {}", shown(result, "connection"), shown(result, "account")))?;
    } else {
        screen.line(format_args!("{} does not work: {}", shown(result, "connection"), shown(result, "error")))?;
    }
    Ok(if works { Exit::Ok } else { Exit::Failed })
}

/// How old a copy is, for people.
fn age(service: &Value) -> String {
    match service.get("age_s").and_then(Value::as_u64) {
        Some(secs) => format!("{} ago", Span::from_secs(secs)),
        None => "never".into(),
    }
}

/// How a service stands, in a line of `sluice status`.
pub(crate) fn brief(service: &Value) -> String {
    let dead = service.get("dead").and_then(Value::as_u64).unwrap_or(0);
    let mut line = format!("{}, {}", shown(service, "name"), shown(service, "state"));
    if let Some(progress) = service.get("progress").filter(|progress| progress.is_object()) {
        line.push_str(&format!(", {}", far(progress)));
    } else if service.get("synced_at").is_some_and(|at| !at.is_null()) {
        line.push_str(&format!(", copied {}", age(service)));
    }
    line.push_str(&format!(
        ", {} pending, {} in doubt, {dead} dead",
        shown(service, "pending"),
        shown(service, "in_doubt")
    ));
    if service.get("retrying").and_then(Value::as_u64).is_some_and(|retrying| retrying > 0) {
        let next = service.get("next_retry").and_then(failing::line).unwrap_or_default();
        line.push_str(&format!(", {} retrying ({next})", shown(service, "retrying")));
    }
    if let Some(aside) = service.get("set_aside").and_then(Value::as_u64).filter(|aside| *aside > 0) {
        line.push_str(&format!(", {aside} set aside"));
    }
    if let Some(error) = service.get("error").and_then(Value::as_str) {
        line.push_str(&format!(": {}", crate::visible::line(error)));
    }
    line
}

fn far(progress: &Value) -> String {
    let mut text = shown(progress, "done");
    if let Some(total) = progress.get("total").and_then(Value::as_u64) {
        text.push_str(&format!(" of {total}"));
    }
    text.push_str(" copied");
    if let Some(rate) = progress.get("per_s").and_then(Value::as_f64) {
        text.push_str(&format!(", {rate:.0} a second"));
    }
    if let Some(eta) = progress.get("eta_s").and_then(Value::as_u64) {
        text.push_str(&format!(", {} to go", Span::from_secs(eta)));
    }
    text
}

fn say(service: &Value, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    if json {
        screen.json(service)?;
        return Ok(Exit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
    let given = |name: &str| service.get(name).is_some_and(|value| !value.is_null());
    line("service", format!("{} (adapter {})", shown(service, "name"), shown(service, "adapter")))?;
    if given("account") {
        line("account", shown(service, "account"))?;
    }
    line("state", format!("{} since {}", shown(service, "state"), shown(service, "since")))?;
    for (name, field) in [("because", "reason"), ("address", "endpoint")] {
        if given(field) {
            line(name, shown(service, field))?;
        }
    }
    if given("messages") {
        let fresh = if given("age_s") { format!(", as the service was {}", age(service)) } else { " so far".into() };
        let how = if service.get("encrypted") == Some(&Value::Bool(true)) { "encrypted" } else { "not encrypted" };
        line("copy", format!("{} messages{fresh}, {how}", shown(service, "messages")))?;
    }
    if let Some(progress) = service.get("progress").filter(|progress| progress.is_object()) {
        line("first copy", far(progress))?;
    }
    let writes = ["pending", "retrying", "in_doubt", "dead"]
        .map(|name| format!("{} {}", shown(service, name), name.replace('_', " ")));
    line("writes", writes.join(", "))?;
    if let Some(next) = service.get("next_retry").filter(|next| next.is_object()) {
        line("next retry", format!("{}: {}", shown(next, "buffer_id"), failing::line(next).unwrap_or_default()))?;
    }
    if let Some(aside) = service.get("set_aside").and_then(Value::as_u64).filter(|aside| *aside > 0) {
        let many = counted(usize::try_from(aside).unwrap_or(usize::MAX), "message");
        line("set aside", format!("{many} that broke every worker; `sluice services sync` tries again"))?;
    }
    if given("error") {
        line("last error", shown(service, "error"))?;
    }
    let offered = service.get("capabilities").and_then(Value::as_array).map_or(0, Vec::len);
    line("offers", counted(offered, "capability").replace("capabilitys", "capabilities"))?;
    Ok(Exit::Ok)
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table =
        Table::new(&["service", "state", "account", "messages", "copied", "pending", "in doubt", "dead", "error"]);
    for service in entries(list) {
        let cell = |name: &str| match service.get(name) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(_) => shown(service, name),
        };
        let copied = match service.get("progress").filter(|progress| progress.is_object()) {
            Some(progress) => far(progress),
            None => age(service),
        };
        table.row(&[
            cell("name"),
            cell("state"),
            cell("account"),
            cell("messages"),
            copied,
            cell("pending"),
            cell("in_doubt"),
            cell("dead"),
            cell("error"),
        ]);
    }
    table.print(screen, "no services: describe one under `services` in sluice.yaml, then `sluice connect NAME`")
}
