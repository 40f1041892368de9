//! `sluice capabilities`: what agents can call, and the declarations of custom capabilities.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_services::custom;

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::watch::{self, ListArgs};

/// List what agents can call, check custom capabilities.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice capabilities list\n  sluice capabilities show deploy\n  sluice capabilities check capabilities/deploy.yaml"
)]
pub(crate) struct CapabilitiesCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: CapabilitiesSubcommand,
}

#[derive(Debug, Subcommand)]
enum CapabilitiesSubcommand {
    /// List what agents can call at this gateway
    #[command(before_help = "Examples:\n  sluice capabilities list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one capability with its arguments
    #[command(before_help = "Examples:\n  sluice capabilities show deploy")]
    Show {
        /// Name of the capability
        name: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check declarations of custom capabilities for errors; needs no gateway
    #[command(
        before_help = "Examples:\n  sluice capabilities check\n  sluice capabilities check capabilities/deploy.yaml --json"
    )]
    Check {
        /// Files or folders
        #[arg(default_value = "capabilities")]
        paths: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of a declaration, for editors
    #[command(before_help = "Examples:\n  sluice capabilities schema > capability.schema.json")]
    Schema,
}

impl CapabilitiesCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        match self.verb {
            CapabilitiesSubcommand::Check { paths, json } => check(screen, &paths, json),
            CapabilitiesSubcommand::Schema => {
                screen.json(&sluice_core::custom::schema::schema())?;
                Ok(CommandExit::Ok)
            }
            CapabilitiesSubcommand::List { listing } => {
                let client = self.reach.open_operator_client()?;
                let fetch = || client.send(&ApiRequest::get("/v1/capabilities"));
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            CapabilitiesSubcommand::Show { name, json } => {
                show(&self.reach.open_operator_client()?, screen, &name, json)
            }
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["capability", "service", "effect", "delay", "reversible", "description"]);
    for one in entries(list) {
        let cell = |name| display_field(one, name);
        let waits = one.get("delay_s").and_then(Value::as_u64).filter(|delay| *delay > 0);
        let waits = waits.map(|delay| format!("{delay} s")).unwrap_or_default();
        let back = if one.get("reversible") == Some(&Value::Bool(true)) { "yes" } else { "" };
        table.row(&[cell("name"), cell("service"), cell("effect"), waits, back.to_owned(), cell("summary")]);
    }
    table.print(screen, "this gateway offers no capabilities")
}

fn show(client: &GatewayClient, screen: &CommandConsole, name: &str, as_json: bool) -> Result<CommandExit, CliError> {
    let list = client.send(&ApiRequest::get("/v1/capabilities"))?;
    let Some(one) = entries(&list).iter().find(|one| text_field(one, "name") == name) else {
        let failure = CliError::new(CommandExit::NotFound, format!("this gateway has no capability `{name}`"));
        return Err(failure.hint("see all capabilities: sluice capabilities list"));
    };
    if as_json {
        screen.json(one)?;
        return Ok(CommandExit::Ok);
    }
    for (label, field) in [("capability", "name"), ("summary", "summary"), ("service", "service"), ("effect", "effect")]
    {
        screen.line(format_args!("{label:<13} {}", display_field(one, field)))?;
    }
    let schema = one.get("input_schema").cloned().unwrap_or(Value::Null);
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (argument, about) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let must = if required.contains(&argument.as_str()) { ", required" } else { "" };
        let shape = about.get("type").and_then(Value::as_str).unwrap_or("one of a list");
        let meaning = about.get("description").and_then(Value::as_str).unwrap_or_default();
        screen.line(format_args!("argument      {argument} ({shape}{must}) {meaning}"))?;
    }
    Ok(CommandExit::Ok)
}

/// Reads declarations and prints their errors.
fn check(screen: &CommandConsole, paths: &[PathBuf], as_json: bool) -> Result<CommandExit, CliError> {
    let scan = sluice_egress::leak::of_formats().map_err(|error| {
        CliError::new(CommandExit::Failed, "the leak scan cannot be prepared").why(error.to_string())
    })?;
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(custom::find(path, &scan));
        } else {
            found.push(custom::read(path.clone(), &scan));
        }
    }
    let (mut fine, mut list) = (true, Vec::new());
    for one in &found {
        fine &= one.usable().is_some();
        let mut flaws: Vec<Value> =
            one.flaws.iter().map(|flaw| json!({"code": flaw.code, "place": flaw.place, "text": flaw.text})).collect();
        let unreadable = one.declared.as_ref().err();
        flaws.extend(unreadable.map(|why| json!({"code": "custom.unreadable", "place": "", "text": why.0})));
        let known = one.usable().map(sluice_core::custom::CustomCapability::warnings).unwrap_or_default();
        let warnings = known.into_iter().chain(custom::missing_programs(one));
        let warnings: Vec<Value> =
            warnings.map(|flaw| json!({"code": flaw.code, "place": flaw.place, "text": flaw.text})).collect();
        if as_json {
            list.push(json!({"capability": one.name, "file": one.path, "flaws": flaws, "warnings": warnings}));
            continue;
        }
        if one.usable().is_some() {
            screen.line(format_args!("{}: ok", one.path.display()))?;
        }
        for warning in &warnings {
            let (code, place, what) =
                (text_field(warning, "code"), text_field(warning, "place"), text_field(warning, "text"));
            screen.line(format_args!("{}: warning: {code} at `{place}`: {what}", one.path.display()))?;
        }
        for flaw in &flaws {
            let (code, place, what) = (text_field(flaw, "code"), text_field(flaw, "place"), text_field(flaw, "text"));
            screen.line(format_args!("{}: {code} at `{place}`: {what}", one.path.display()))?;
        }
    }
    if as_json {
        screen.json(&json!({"data": list}))?;
    } else if found.is_empty() {
        screen.note(format_args!("no declarations found"));
    }
    Ok(if fine { CommandExit::Ok } else { CommandExit::Failed })
}
