//! `sluice services`: connected accounts, from the consent to the receipt of their disconnection.

pub(crate) mod browser;
mod copying;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{Millis, ServiceName};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, encode, entries, text_field};
use crate::commands::policy::counted;
use crate::commands::secrets;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::time_args::span;
use crate::watch::{self, ListArgs};
use crate::write_failure;

/// Connect services, show their state, disconnect them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice services list\n  sluice services connect gmail --client-secret-file client.txt\n  sluice services show gmail\n  sluice services sync gmail\n  sluice services disconnect gmail"
)]
pub(crate) struct ServicesCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: ServicesSubcommand,
}

#[derive(Debug, Subcommand)]
enum ServicesSubcommand {
    /// List services and their state
    #[command(before_help = "Examples:\n  sluice services list --watch")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one service: state, replica, writes, errors
    #[command(before_help = "Examples:\n  sluice services show gmail")]
    Show {
        #[command(flatten)]
        one: ServicesNameArgs,
    },
    /// Connect a service: opens a consent link, then copies the account
    #[command(
        before_help = "Examples:\n  sluice services connect gmail --client-secret-file client.txt\n  sluice services connect gmail --paste"
    )]
    Connect {
        #[command(flatten)]
        knock: ServicesConnectArgs,
    },
    /// Sign in again to a connected service; its replica stays
    #[command(before_help = "Examples:\n  sluice services reconnect gmail")]
    Reconnect {
        #[command(flatten)]
        knock: ServicesConnectArgs,
    },
    /// Disconnect a service and print a receipt
    #[command(before_help = "Examples:\n  sluice services disconnect gmail --yes > receipt.txt")]
    Disconnect {
        #[command(flatten)]
        end: ServicesDisconnectArgs,
    },
    /// Sync the replica of a service now
    #[command(before_help = "Examples:\n  sluice services sync gmail\n  sluice services sync gmail --afresh")]
    Sync {
        #[command(flatten)]
        one: ServicesNameArgs,
        /// Build the replica again, also if its key is lost
        #[arg(long)]
        afresh: bool,
    },
    /// Pause syncing and sending
    #[command(before_help = "Examples:\n  sluice services pause gmail")]
    Pause {
        #[command(flatten)]
        one: ServicesNameArgs,
    },
    /// Resume syncing and sending
    #[command(before_help = "Examples:\n  sluice services resume gmail")]
    Resume {
        #[command(flatten)]
        one: ServicesNameArgs,
    },
    /// Test whether the service responds and accepts the gateway's credential
    #[command(before_help = "Examples:\n  sluice services test gmail")]
    Test {
        #[command(flatten)]
        one: ServicesNameArgs,
    },
    /// List what agents can call at a service
    #[command(before_help = "Examples:\n  sluice services capabilities gmail")]
    Capabilities {
        #[command(flatten)]
        one: ServicesNameArgs,
    },
}

#[derive(Debug, Args)]
struct ServicesNameArgs {
    /// Name of the service
    name: ServiceName,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Options for connecting a service.
#[derive(Debug, Args)]
pub(crate) struct ServicesConnectArgs {
    /// Name of the service, as configured
    name: ServiceName,
    /// Adapter, if its name differs from the service
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// Client ID at the provider; default: the configured one
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// File with the client secret; it is stored in the vault
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<std::path::PathBuf>,
    /// File with a token that was created at the service; no browser is needed, and it is stored in the vault
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paste", "no_browser", "client_id", "client_secret_file", "adapter"])]
    token_file: Option<std::path::PathBuf>,
    /// For a machine without a browser: give consent elsewhere, and paste the address you were sent to
    #[arg(long)]
    paste: bool,
    /// Only print the link, do not open a browser
    #[arg(long)]
    no_browser: bool,
    /// Port that the browser returns to; default: any free port
    #[arg(long, value_name = "PORT", default_value = "0")]
    port: u16,
    /// How long to wait for the consent
    #[arg(long, value_parser = span, default_value = "10m")]
    timeout: Millis,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Options for disconnecting a service.
#[derive(Debug, Args)]
pub(crate) struct ServicesDisconnectArgs {
    /// Name of the service
    name: ServiceName,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Connect a service: opens a consent link, then copies the account.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice connect gmail --client-secret-file client.txt\n  sluice connect gmail --paste"
)]
pub(crate) struct ConnectCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    knock: ServicesConnectArgs,
}

/// Disconnect a service and print a receipt.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice disconnect gmail --yes > receipt.txt")]
pub(crate) struct DisconnectCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    end: ServicesDisconnectArgs,
}

impl ConnectCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        self.knock.run(&self.reach.open_operator_client()?, screen)
    }
}

impl DisconnectCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        self.end.run(&self.reach.open_operator_client()?, screen)
    }
}

impl ServicesCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        match self.verb {
            ServicesSubcommand::List { listing } => {
                let fetch = || client.get_all("/v1/services");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            ServicesSubcommand::Show { one } => {
                say(&client.send(&ApiRequest::get(path(&one.name, "")))?, one.json, screen)
            }
            ServicesSubcommand::Connect { knock } | ServicesSubcommand::Reconnect { knock } => {
                knock.run(&client, screen)
            }
            ServicesSubcommand::Disconnect { end } => end.run(&client, screen),
            ServicesSubcommand::Sync { one, afresh } => {
                let what = if afresh { "/sync?afresh=true" } else { "/sync" };
                let request = ApiRequest::post(path(&one.name, what)).with_wait(Millis::from_mins(30));
                let synced = copying::show_during(&client, screen, &one.name, || client.send(&request))?;
                if one.json {
                    screen.json(&synced)?;
                    return Ok(CommandExit::Ok);
                }
                let anew = if synced.get("made_anew") == Some(&Value::Bool(true)) { ", built again" } else { "" };
                let many =
                    |name: &str| usize::try_from(synced.get(name).and_then(Value::as_u64).unwrap_or(0)).unwrap_or(0);
                let (changes, pages) = (counted(many("changes"), "change"), counted(many("pages"), "page"));
                screen.line(format_args!("{changes} in {pages}{anew}"))?;
                for (name, words) in [("set_aside", "set aside"), ("recovered", "recovered")] {
                    if many(name) > 0 {
                        screen.line(format_args!("{} {words}", counted(many(name), "message")))?;
                    }
                }
                Ok(CommandExit::Ok)
            }
            ServicesSubcommand::Pause { one } => {
                say(&client.send(&ApiRequest::post(path(&one.name, "/pause")))?, one.json, screen)
            }
            ServicesSubcommand::Resume { one } => {
                say(&client.send(&ApiRequest::post(path(&one.name, "/resume")))?, one.json, screen)
            }
            ServicesSubcommand::Test { one } => {
                tested(&client.send(&ApiRequest::post(path(&one.name, "/test")))?, one.json, screen)
            }
            ServicesSubcommand::Capabilities { one } => {
                let list = client.send(&ApiRequest::get(path(&one.name, "/capabilities")))?;
                if one.json {
                    screen.json(&list)?;
                    return Ok(CommandExit::Ok);
                }
                let mut table = TextTable::new(&["capability", "effect", "reversible", "description"]);
                for spec in entries(&list) {
                    let cell = |name| display_field(spec, name);
                    table.row(&[cell("name"), cell("effect"), cell("reversible"), cell("summary")]);
                }
                table.print(screen, "no capabilities: the service is not connected")?;
                Ok(CommandExit::Ok)
            }
        }
    }
}

fn path(name: &ServiceName, rest: &str) -> String {
    format!("/v1/services/{}{rest}", encode(name.as_str()))
}

impl ServicesConnectArgs {
    fn run(&self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        if let Some(file) = &self.token_file {
            let body = json!({"token": secrets::value(Some(file))?});
            let ask = ApiRequest::post(path(&self.name, "/token")).body(body).with_wait(Millis::from_mins(2));
            return self.connected(client, &client.send(&ask)?, screen);
        }
        let secret = self.client_secret_file.as_deref().map(|file| secrets::value(Some(file))).transpose()?;
        let waiting = if self.paste {
            browser::OauthRedirectReceiver::Paste
        } else {
            browser::OauthRedirectReceiver::listen(self.port)?
        };
        let body = json!({
            "redirect": waiting.redirect()?, "adapter": self.adapter, "client_id": self.client_id, "client_secret": secret,
        });
        let begun = client.send(&ApiRequest::post(path(&self.name, "/connect")).body(body))?;
        let (link, state) = (text_field(&begun, "link"), text_field(&begun, "state"));
        screen.note("Open this link, sign in and give consent:");
        // The person needs the link, even with --quiet.
        screen.print_required(link)?;
        if !self.paste && !self.no_browser && browser::open(link) {
            screen.note("A browser was opened.");
        }
        let back = waiting.answer(state, self.timeout, screen)?;
        let body = json!({"state": back.state, "code": back.code, "issuer": back.issuer});
        let granted =
            client.send(&ApiRequest::post(path(&self.name, "/finish")).body(body).with_wait(Millis::from_mins(2)))?;
        self.connected(client, &granted, screen)
    }

    fn connected(
        &self,
        client: &GatewayClient,
        granted: &Value,
        screen: &CommandConsole,
    ) -> Result<CommandExit, CliError> {
        if self.json {
            screen.json(granted)?;
            return Ok(CommandExit::Ok);
        }
        let service = granted.get("service").cloned().unwrap_or_default();
        screen.line(format_args!("{} is connected: {}", self.name, display_field(&service, "account")))?;
        if service.get("messages").is_none_or(Value::is_null) {
            screen.note(format_args!(
                "it has no replica; see what agents can call: sluice services capabilities {}",
                self.name
            ));
            return Ok(CommandExit::Ok);
        }
        screen.note(format_args!("its replica is being built; see the progress: sluice services show {}", self.name));
        copying::follow(client, screen, &self.name)?;
        Ok(CommandExit::Ok)
    }
}

impl ServicesDisconnectArgs {
    fn run(&self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        if !self.yes {
            let service = client.send(&ApiRequest::get(path(&self.name, "")))?;
            let (messages, pending) = (display_field(&service, "messages"), display_field(&service, "pending"));
            let what = format!(
                "Disconnect {}? Its replica ({messages} messages) is deleted and {pending} held writes are cancelled.",
                self.name
            );
            screen.confirm(&what, "--yes")?;
        }
        let receipt = client.send(&ApiRequest::post(path(&self.name, "/disconnect")))?;
        if self.json {
            screen.json(&receipt)?;
            return Ok(CommandExit::Ok);
        }
        let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
        let many = |name: &str| receipt.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        line(
            "disconnected",
            format!("{} ({}) at {}", self.name, display_field(&receipt, "account"), display_field(&receipt, "at")),
        )?;
        line("grant", display_field(&receipt, "grant"))?;
        for hold in receipt.get("on_their_way").and_then(Value::as_array).into_iter().flatten() {
            line(
                "in flight",
                format!("{} (was sent, or may have been; it is not repeated)", crate::escape::value(hold)),
            )?;
        }
        line("cancelled", counted(many("cancelled"), "held write"))?;
        for hold in receipt.get("cancelled").and_then(Value::as_array).into_iter().flatten() {
            line("", crate::escape::value(hold))?;
        }
        let noise = match receipt.get("encrypted") {
            Some(Value::Bool(true)) => "; its key is destroyed, so backups of it cannot be read",
            _ => "",
        };
        line("replica", format!("{} messages deleted{noise}", display_field(&receipt, "messages")))?;
        for (name, noun, rest) in [
            ("withheld", "withheld message", "deleted with it"),
            ("findings", "finding", "cleared"),
            ("rollback_points", "rollback point", "cleared"),
            ("results", "stored result", "deleted"),
        ] {
            let count = receipt.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
            line("content", format!("{} {rest}", counted(count.unwrap_or(0), noun)))?;
        }
        for secret in receipt.get("secrets").and_then(Value::as_array).into_iter().flatten() {
            line("destroyed", crate::escape::value(secret))?;
        }
        for capability in receipt.get("capabilities").and_then(Value::as_array).into_iter().flatten() {
            line("removed", crate::escape::value(capability))?;
        }
        Ok(CommandExit::Ok)
    }
}

fn tested(result: &Value, json: bool, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    let works = result.get("works") == Some(&Value::Bool(true));
    if json {
        screen.json(result)?;
    } else if works {
        screen.line(format_args!(
            "{} works: {}",
            display_field(result, "connection"),
            display_field(result, "account")
        ))?;
    } else {
        screen.line(format_args!(
            "{} does not work: {}",
            display_field(result, "connection"),
            display_field(result, "error")
        ))?;
    }
    Ok(if works { CommandExit::Ok } else { CommandExit::Failed })
}

/// The age of a replica, for people.
fn age(service: &Value) -> String {
    match service.get("age_s").and_then(Value::as_u64) {
        Some(secs) => format!("{} ago", Millis::from_secs(secs)),
        None => "never".into(),
    }
}

/// The state of a service, in one line of `sluice status`.
pub(crate) fn summarize(service: &Value) -> String {
    let dead = service.get("dead").and_then(Value::as_u64).unwrap_or(0);
    let mut line = format!("{}, {}", display_field(service, "name"), display_field(service, "state"));
    if let Some(progress) = service.get("progress").filter(|progress| progress.is_object()) {
        line.push_str(&format!(", {}", far(progress)));
    } else if service.get("synced_at").is_some_and(|at| !at.is_null()) {
        line.push_str(&format!(", synced {}", age(service)));
    }
    line.push_str(&format!(
        ", {} pending, {} in doubt, {dead} dead",
        display_field(service, "pending"),
        display_field(service, "in_doubt")
    ));
    if service.get("retrying").and_then(Value::as_u64).is_some_and(|retrying| retrying > 0) {
        let next = service.get("next_retry").and_then(write_failure::describe_retry_and_error).unwrap_or_default();
        line.push_str(&format!(", {} retrying ({next})", display_field(service, "retrying")));
    }
    if let Some(aside) = service.get("set_aside").and_then(Value::as_u64).filter(|aside| *aside > 0) {
        line.push_str(&format!(", {aside} set aside"));
    }
    if let Some(error) = service.get("error").and_then(Value::as_str) {
        line.push_str(&format!(": {}", crate::escape::escape_line(error)));
    }
    line
}

fn far(progress: &Value) -> String {
    let mut text = display_field(progress, "done");
    if let Some(total) = progress.get("total").and_then(Value::as_u64) {
        text.push_str(&format!(" of {total}"));
    }
    text.push_str(" copied");
    if let Some(rate) = progress.get("per_s").and_then(Value::as_f64) {
        text.push_str(&format!(", {rate:.0} a second"));
    }
    if let Some(eta) = progress.get("eta_s").and_then(Value::as_u64) {
        text.push_str(&format!(", {} to go", Millis::from_secs(eta)));
    }
    text
}

fn say(service: &Value, json: bool, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    if json {
        screen.json(service)?;
        return Ok(CommandExit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
    let given = |name: &str| service.get(name).is_some_and(|value| !value.is_null());
    line("service", format!("{} (adapter {})", display_field(service, "name"), display_field(service, "adapter")))?;
    if given("account") {
        line("account", display_field(service, "account"))?;
    }
    line("state", format!("{} since {}", display_field(service, "state"), display_field(service, "since")))?;
    for (name, field) in [("because", "reason"), ("address", "endpoint")] {
        if given(field) {
            line(name, display_field(service, field))?;
        }
    }
    if given("messages") {
        let fresh = if given("age_s") { format!(", synced {}", age(service)) } else { " so far".into() };
        let how = if service.get("encrypted") == Some(&Value::Bool(true)) { "encrypted" } else { "not encrypted" };
        line("replica", format!("{} messages{fresh}, {how}", display_field(service, "messages")))?;
    }
    if let Some(progress) = service.get("progress").filter(|progress| progress.is_object()) {
        line("first sync", far(progress))?;
    }
    let writes = ["pending", "retrying", "in_doubt", "dead"]
        .map(|name| format!("{} {}", display_field(service, name), name.replace('_', " ")));
    line("writes", writes.join(", "))?;
    if let Some(next) = service.get("next_retry").filter(|next| next.is_object()) {
        line(
            "next retry",
            format!(
                "{}: {}",
                display_field(next, "buffer_id"),
                write_failure::describe_retry_and_error(next).unwrap_or_default()
            ),
        )?;
    }
    if let Some(aside) = service.get("set_aside").and_then(Value::as_u64).filter(|aside| *aside > 0) {
        let many = counted(usize::try_from(aside).unwrap_or(usize::MAX), "message");
        line("set aside", format!("{many} that crashed every worker; to try again: sluice services sync"))?;
    }
    if given("error") {
        line("last error", display_field(service, "error"))?;
    }
    let offered = service.get("capabilities").and_then(Value::as_array).map_or(0, Vec::len);
    line("provides", counted(offered, "capability").replace("capabilitys", "capabilities"))?;
    Ok(CommandExit::Ok)
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table =
        TextTable::new(&["service", "state", "account", "messages", "synced", "pending", "in doubt", "dead", "error"]);
    for service in entries(list) {
        let cell = |name: &str| match service.get(name) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(_) => display_field(service, name),
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
    table.print(screen, "no services; add one under `services` in sluice.yaml, then: sluice connect NAME")
}
