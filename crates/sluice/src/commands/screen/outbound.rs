//! `sluice screen outbound`: what the leak scan says about texts.
//!
//! Promise: the same scan as in the corridor, with what the configuration adds to it, and no finding shows what was found.
//! Only the secrets of the vault are not looked for: they are not opened here.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sluice_content::leak::{self, LiveSecrets, Part, Report, Scanner, Weight};

use super::{Input, Item};
use crate::failure::{Exit, Failure};
use crate::screen::Screen as Terminal;
use crate::settings::Which;

/// Look for what must not leave.
///
/// `leak.own`, `leak.terms`, `leak.patterns` and `leak.people` of the configuration are used, where there is one. The
/// secrets of the vault are not looked for here.
#[derive(Debug, Args)]
pub(crate) struct Outbound {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    input: Input,
    /// Where the text would go
    #[arg(long, value_enum, default_value = "service")]
    scope: Scope,
}

/// `--scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// Connected mail and chat: personal data of many people is flagged
    Service,
    /// An untrusted service: any personal data blocks
    Proxy,
}

impl Outbound {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Exit, Failure> {
        let (config, _) = self.which.load(Vec::new())?.or_fail(terminal)?;
        let scanner = Scanner::new(&config.leak.settings())
            .map_err(|error| Failure::new(Exit::Failed, "the leak scan cannot be prepared").why(error.to_string()))?;
        let scope = match self.scope {
            Scope::Service => leak::Scope::Service,
            Scope::Proxy => leak::Scope::Proxy,
        };
        self.input.answer(terminal, |item: &Item<'_>| {
            let text = String::from_utf8_lossy(item.text);
            let report = scanner.scan(&[Part::new("text", text)], scope, &LiveSecrets::default());
            as_json(&report, item.explain)
        })
    }
}

fn as_json(report: &Report, explain: bool) -> Value {
    let (verdict, score) = match report.weight() {
        Some(Weight::Block) => ("block", 1.0),
        Some(Weight::Flag) => ("flag", 0.5),
        Some(Weight::Note) => ("pass", 0.1),
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
