//! `sluice capabilities`: what agents can ask of a gateway, and the declarations of custom capabilities.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_gateway::custom;

use crate::client::{Ask, Client, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;
use crate::watch::{self, Listing};

/// List what agents can ask, and check declarations of custom capabilities.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice capabilities list\n  sluice capabilities show deploy\n  sluice capabilities check capabilities/deploy.yaml"
)]
pub(crate) struct Capabilities {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List what agents can ask of this gateway
    #[command(before_help = "Examples:\n  sluice capabilities list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one capability with its arguments
    #[command(before_help = "Examples:\n  sluice capabilities show deploy")]
    Show {
        /// Its name
        name: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Look for flaws in declarations of custom capabilities; needs no gateway
    #[command(
        before_help = "Examples:\n  sluice capabilities check\n  sluice capabilities check capabilities/deploy.yaml --json"
    )]
    Check {
        /// Files or folders
        #[arg(default_value = "capabilities")]
        paths: Vec<PathBuf>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of a declaration, for editors
    #[command(before_help = "Examples:\n  sluice capabilities schema > capability.schema.json")]
    Schema,
}

impl Capabilities {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Check { paths, json } => check(screen, &paths, json),
            Verb::Schema => {
                screen.json(&sluice_core::custom::schema::schema())?;
                Ok(Exit::Ok)
            }
            Verb::List { listing } => {
                let client = self.reach.operator()?;
                let fetch = || client.ask(&Ask::get("/v1/capabilities"));
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { name, json } => show(&self.reach.operator()?, screen, &name, json),
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["capability", "service", "effect", "waits", "can be taken back", "does"]);
    for one in entries(list) {
        let cell = |name| shown(one, name);
        let waits = one.get("delay_s").and_then(Value::as_u64).filter(|delay| *delay > 0);
        let waits = waits.map(|delay| format!("{delay} s")).unwrap_or_default();
        let back = if one.get("reversible") == Some(&Value::Bool(true)) { "yes" } else { "" };
        table.row(&[cell("name"), cell("service"), cell("effect"), waits, back.to_owned(), cell("summary")]);
    }
    table.print(screen, "this gateway offers nothing")
}

fn show(client: &Client, screen: &Screen, name: &str, as_json: bool) -> Result<Exit, Failure> {
    let list = client.ask(&Ask::get("/v1/capabilities"))?;
    let Some(one) = entries(&list).iter().find(|one| text(one, "name") == name) else {
        let failure = Failure::new(Exit::NotFound, format!("this gateway offers no `{name}`"));
        return Err(failure.hint("`sluice capabilities list` names what it offers"));
    };
    if as_json {
        screen.json(one)?;
        return Ok(Exit::Ok);
    }
    for (label, field) in [("capability", "name"), ("does", "summary"), ("service", "service"), ("effect", "effect")] {
        screen.line(format_args!("{label:<13} {}", shown(one, field)))?;
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
    Ok(Exit::Ok)
}

/// Reads declarations and says what is wrong with them.
fn check(screen: &Screen, paths: &[PathBuf], as_json: bool) -> Result<Exit, Failure> {
    let scan = sluice_gateway::rooms::leak::of_formats()
        .map_err(|error| Failure::new(Exit::Failed, "the leak scan cannot be prepared").why(error.to_string()))?;
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
            screen.line(format_args!("{}: fine", one.path.display()))?;
        }
        for warning in &warnings {
            let (code, place, what) = (text(warning, "code"), text(warning, "place"), text(warning, "text"));
            screen.line(format_args!("{}: warning: {code} at `{place}`: {what}", one.path.display()))?;
        }
        for flaw in &flaws {
            let (code, place, what) = (text(flaw, "code"), text(flaw, "place"), text(flaw, "text"));
            screen.line(format_args!("{}: {code} at `{place}`: {what}", one.path.display()))?;
        }
    }
    if as_json {
        screen.json(&json!({"data": list}))?;
    } else if found.is_empty() {
        screen.note(format_args!("there are no declarations"));
    }
    Ok(if fine { Exit::Ok } else { Exit::Failed })
}
