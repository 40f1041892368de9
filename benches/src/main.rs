//! Measurements: our performance compared with what the machine can reach at all, in the same run.
//!
//! Takes the name of a section (`store`, `audit`, `queue`, `policy`, `spawn`, `egress`, `leak`, `content`, `gateway`,
//! `approvals`, `mcp`, `mail`, `steady`, or `all`); prints its table, and with `--report FILE` replaces the older table in that
//! file. Promise: every claim is a ratio between two things measured in turns, round by round, and each claim's basis
//! was checked. Absolute figures are information about this machine at that moment.
#![expect(clippy::disallowed_methods, reason = "a tool that measures: real time and environment")]

mod approvals;
mod audit;
mod content;
mod content_leak;
mod egress;
mod floor;
mod gateway;
mod load;
mod machine;
mod mail;
mod mcp;
#[cfg(feature = "peers")]
mod policy;
mod queue;
mod report;
mod rounds;
mod spawn;
mod steady;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use report::ReportSection;

const USAGE: &str = "bench [store | audit | queue | policy | spawn | egress | leak | content | gateway | approvals | mcp | mail | steady | all] [--report FILE]";

fn main() -> ExitCode {
    // A measured gateway may have workers, and where our own program is not built, this program is the worker.
    if std::env::args_os().nth(1).is_some_and(|role| role == "worker") {
        return sluice_worker::run();
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        // A figure below its target is a finding, not a failure of the measurement; it is printed and kept.
        Ok(false) => {
            println!("\nsome rows are below their targets");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<bool> {
    // A measured server is this program too, in a process of its own.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "role"
    {
        return gateway::role(rest).map(|()| true);
    }
    let (names, report) = asked(std::env::args().skip(1))?;
    let machine = machine::facts()?;
    let mut all_met = true;
    for name in names {
        let section = measure(name).with_context(|| format!("section `{name}`"))?;
        println!("\n{section}");
        all_met &= section.is_met();
        // Each section is kept as soon as it is done: a later failure loses nothing.
        if let Some(path) = &report {
            report::keep(path, &machine, &section)?;
        }
    }
    Ok(all_met)
}

const SECTIONS: [&str; 13] = [
    "store",
    "audit",
    "queue",
    "policy",
    "spawn",
    "egress",
    "leak",
    "content",
    "gateway",
    "approvals",
    "mcp",
    "mail",
    "steady",
];

fn asked(words: impl Iterator<Item = String>) -> anyhow::Result<(Vec<&'static str>, Option<PathBuf>)> {
    let (mut names, mut report) = (Vec::new(), None);
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--report" => report = Some(PathBuf::from(words.next().context("--report needs a file")?)),
            "all" => names.extend(SECTIONS),
            name => match SECTIONS.into_iter().find(|known| *known == name) {
                Some(known) => names.push(known),
                None => bail!("there is no section `{name}`\n\n{USAGE}"),
            },
        }
    }
    if names.is_empty() {
        names.extend(SECTIONS);
    }
    Ok((names, report))
}

fn measure(name: &str) -> anyhow::Result<ReportSection> {
    match name {
        "store" => store::measure(),
        "audit" => audit::measure(),
        "queue" => queue::measure(),
        "spawn" => spawn::measure(),
        "egress" => egress::measure(),
        "leak" => content_leak::measure(),
        "content" => content::measure(),
        "mail" => mail::measure(),
        "steady" => steady::measure(),
        "gateway" => gateway::measure(),
        "approvals" => approvals::measure(),
        "mcp" => mcp::measure(),
        #[cfg(feature = "peers")]
        "policy" => policy::measure(),
        other => bail!("`{other}` was not built: it needs the feature `peers`"),
    }
}
