//! `sluice screen outbound`: what the leak scan finds in texts.
//!
//! Promise: the same scan as in the corridor, with the terms of the configuration; no finding contains the text found.
//! Only secrets of the vault are not searched for, because the vault is not opened here.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sluice_content::leak::{self, LeakReport, LeakWeight, LiveSecrets, OutboundPart, Scanner};

use super::{ScreenInputArgs, ScreenItem};
use crate::console::CommandConsole as Terminal;
use crate::failure::{CliError, CommandExit};
use crate::settings::ConfigFileArgs;

/// Check outgoing content: secrets, internal terms, personal data.
///
/// Uses `leak.own`, `leak.terms`, `leak.patterns` and `leak.people` of the configuration, if there is one. Secrets of
/// the vault are not searched for here.
#[derive(Debug, Args)]
pub(crate) struct ScreenOutboundArgs {
    #[command(flatten)]
    which: ConfigFileArgs,
    #[command(flatten)]
    input: ScreenInputArgs,
    /// Destination of the text
    #[arg(long, value_enum, default_value = "service")]
    scope: OutboundScreenScope,
}

/// The values of `--scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutboundScreenScope {
    /// Connected mail and chat: personal data of many people is flagged
    Service,
    /// An untrusted service: any personal data is blocked
    Proxy,
}

impl ScreenOutboundArgs {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<CommandExit, CliError> {
        let (config, _) = self.which.load(Vec::new())?.or_fail(terminal)?;
        let scanner = Scanner::new(&config.leak.settings()).map_err(|error| {
            CliError::new(CommandExit::Failed, "the leak scan cannot be prepared").why(error.to_string())
        })?;
        let scope = match self.scope {
            OutboundScreenScope::Service => leak::LeakScope::Service,
            OutboundScreenScope::Proxy => leak::LeakScope::Proxy,
        };
        self.input.answer(terminal, |item: &ScreenItem<'_>| {
            let text = String::from_utf8_lossy(item.text);
            let report = scanner.scan(&[OutboundPart::new("text", text)], scope, &LiveSecrets::default());
            as_json(&report, item.explain)
        })
    }
}

fn as_json(report: &LeakReport, explain: bool) -> Value {
    let (verdict, score) = match report.weight() {
        Some(LeakWeight::Block) => ("block", 1.0),
        Some(LeakWeight::Flag) => ("flag", 0.5),
        Some(LeakWeight::Note) => ("pass", 0.1),
        None => ("pass", 0.0),
    };
    let findings = report.findings.iter().map(|finding| {
        let mut shown = json!({
            "rule": finding.pattern, "weight": finding.weight.as_str(), "field": finding.field, "view": finding.view,
            "length": finding.length, "hash": finding.hash,
        });
        if let (true, Some(map)) = (explain, shown.as_object_mut()) {
            map.insert("means".into(), json!(leak::describe(&finding.pattern)));
        }
        shown
    });
    json!({"verdict": verdict, "score": score, "findings": findings.collect::<Vec<_>>()})
}
