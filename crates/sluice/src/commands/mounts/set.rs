//! `sluice mounts set`: what the operator states about tools of a mounted server.
//!
//! Takes facts as words, or the proposals of the gateway; gives lines of `sluice.yaml`, and the gateway loads them.
//! Promise: only the facts of the named tool change; a proposal is shown with its reasons and written only after a
//! person agreed.

use std::io::{self, IsTerminal as _};

use clap::Args;
use serde_json::Value;
use sluice_config::{MountConfig, MountTargetKind, MountToolFacts};
use sluice_core::{Millis, Tier};

use super::{file, list, path, reload};
use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;

/// State facts about a tool.
#[derive(Debug, Args)]
pub(super) struct MountsSetArgs {
    /// Name of the server
    name: String,
    /// The server's name for the tool
    #[arg(required_unless_present = "proposed")]
    tool: Option<String>,
    /// `read`, `write`, `hide`, `show`, `delay=10m`, `tier=notify`, `targets.ARGUMENT=path|url|recipients|name|none`; with `=default`, the fact is removed
    #[arg(required_unless_present_any = ["proposed", "clear"], value_name = "FACT")]
    facts: Vec<String>,
    /// Remove every fact about the tool
    #[arg(long, conflicts_with_all = ["facts", "proposed"])]
    clear: bool,
    /// State what the gateway proposes for all tools, from annotations and names; shown first
    #[arg(long, conflicts_with_all = ["tool", "facts"])]
    proposed: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// What happens with proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProposalAnswer {
    /// They are written.
    Accept,
    /// A person is asked; without a terminal, they are only shown.
    Ask,
    /// A person must be asked.
    Confirm,
}

impl MountsSetArgs {
    pub(super) fn run(&self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        if self.proposed {
            let answer = if self.yes { ProposalAnswer::Accept } else { ProposalAnswer::Confirm };
            return propose(reach, screen, &self.name, answer);
        }
        let tool = self.tool.as_deref().unwrap_or_default();
        let mut facts = if self.clear { MountToolFacts::default() } else { configured(reach, &self.name, tool)? };
        for word in &self.facts {
            state(&mut facts, word).map_err(|why| {
                CliError::new(CommandExit::Usage, format!("`{}` is not a fact: {why}", escape::escape_line(word)))
                    .hint("facts: read, write, hide, show, delay=10m, tier=notify, targets.ARGUMENT=path")
            })?;
        }
        write(reach, screen, &self.name, &[(tool.to_owned(), facts)])
    }
}

/// The facts about a tool that the file has now.
fn configured(reach: &GatewayArgs, mount: &str, tool: &str) -> Result<MountToolFacts, CliError> {
    let loaded = reach.which().load(Vec::new())?.loaded.ok();
    let mounts = loaded.map(|(config, _)| config.mounts.0).unwrap_or_default();
    let found = mounts.iter().find(|one| one.name == mount).and_then(|one| one.facts.get(tool));
    Ok(found.cloned().unwrap_or_default())
}

/// Adds one fact, given as a word.
fn state(facts: &mut MountToolFacts, word: &str) -> Result<(), String> {
    let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
    let is_default = value == Some("default");
    match (key, value) {
        ("read", None | Some("true")) => facts.read = Some(true),
        ("write", None) | ("read", Some("false")) => facts.read = Some(false),
        ("read" | "write", _) if is_default => facts.read = None,
        ("hide", None | Some("true")) => facts.hide = true,
        ("show", None) | ("hide", Some("false" | "default")) => facts.hide = false,
        ("delay", Some(_)) if is_default => facts.delay = None,
        ("delay", Some(value)) => {
            facts.delay = Some(Millis::from_words(value).ok_or("a delay is a duration such as `30s`")?);
        }
        ("tier", Some(_)) if is_default => facts.tier = None,
        ("tier", Some(value)) => facts.tier = Some(value.parse::<Tier>().map_err(|error| error.to_string())?),
        (key, Some(value)) => {
            let argument = key.strip_prefix("targets.").ok_or("there is no such fact")?;
            if is_default {
                facts.targets.remove(argument);
                return Ok(());
            }
            let words = || MountTargetKind::ALL.map(MountTargetKind::as_str).join(", ");
            let kind = MountTargetKind::from_word(value).ok_or_else(|| format!("a target is one of {}", words()))?;
            facts.targets.insert(argument.to_owned(), kind);
        }
        (_, None) => return Err("there is no such fact".into()),
    }
    Ok(())
}

/// Writes facts about tools of one mount, and makes the gateway load them.
fn write(
    reach: &GatewayArgs,
    screen: &CommandConsole,
    mount: &str,
    facts: &[(String, MountToolFacts)],
) -> Result<CommandExit, CliError> {
    let unwritable = || {
        let shown = escape::escape_line(mount);
        CliError::new(CommandExit::NotFound, format!("sluice.yaml has no mount `{shown}` on separate lines"))
            .hint("write `facts` by hand, then: sluice mounts reload")
    };
    let changed = file::change(reach.which(), screen, |text| {
        facts.iter().try_fold(text.to_owned(), |text, (tool, facts)| {
            let line = (!facts.is_empty()).then(|| in_file(&facts.shown()));
            match (file::with_facts(&text, mount, tool, line.as_deref()), line) {
                (Some(next), _) => Ok(next),
                // There was nothing to remove.
                (None, None) => Ok(text),
                (None, Some(_)) => Err(unwritable()),
            }
        })
    })?;
    let fits = |after: &MountConfig, before: &MountConfig| {
        let mut wanted = before.clone();
        for (tool, facts) in facts.iter().filter(|_| before.name == mount) {
            wanted.facts.remove(tool);
            wanted.facts.extend((!facts.is_empty()).then(|| (tool.clone(), facts.clone())));
        }
        *after == wanted
    };
    let is_as_wanted = changed.before.as_ref().is_none_or(|before| {
        before.len() == changed.after.len()
            && changed.after.iter().zip(before).all(|(after, before)| fits(after, before))
    });
    if !is_as_wanted {
        return Err(changed.put_back("the change would have changed something else too"));
    }
    reload::reload_and_show(reach, screen, &changed.file, Vec::new())
}

/// Facts as they are written in the file, on one line.
fn in_file(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let key = |key: &str| if file::is_plain(key) { key.to_owned() } else { Value::from(key).to_string() };
            let entries: Vec<String> =
                map.iter().map(|(name, value)| format!("{}: {}", key(name), in_file(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Facts for a person, on one line.
pub(super) fn display_facts(facts: &Value) -> String {
    let one = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("read", Value::Bool(true)) => "read".to_owned(),
        ("read", Value::Bool(false)) => "write".to_owned(),
        ("hide", _) => "hide".to_owned(),
        ("targets", Value::Object(targets)) => {
            let each =
                |(name, kind): (&String, &Value)| format!("targets.{name}={}", kind.as_str().unwrap_or_default());
            targets.iter().map(each).collect::<Vec<_>>().join(" ")
        }
        (name, value) => format!("{name}={}", value.as_str().unwrap_or_default()),
    };
    escape::escape_line(&facts.as_object().into_iter().flatten().map(one).collect::<Vec<_>>().join(" "))
}

/// Shows what may be stated about the tools of a mount, and writes it if a person agrees.
pub(super) fn propose(
    reach: &GatewayArgs,
    screen: &CommandConsole,
    name: &str,
    answer: ProposalAnswer,
) -> Result<CommandExit, CliError> {
    let asked = reach.open_operator_client().and_then(|client| client.send(&ApiRequest::get(path(name, ""))));
    let mount = match asked {
        // The file was changed, and nobody can be asked about tools here.
        Err(failure) if answer != ProposalAnswer::Confirm && is_away(&failure) => return Ok(CommandExit::Ok),
        asked => asked?,
    };
    let proposed: Vec<&Value> = list(&mount, "tools").iter().filter(|tool| tool.get("proposed").is_some()).collect();
    if proposed.is_empty() {
        if answer == ProposalAnswer::Confirm {
            screen.note(format_args!("nothing is proposed for `{}`", escape::escape_line(name)));
        }
        return Ok(CommandExit::Ok);
    }
    let mut table = TextTable::new(&["tool", "proposed", "because"]);
    for tool in &proposed {
        let proposal = tool.get("proposed").unwrap_or(&Value::Null);
        let facts = proposal.get("facts").map(display_facts).unwrap_or_default();
        let because = list(proposal, "because").iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
        table.row(&[display_field(tool, "tool"), facts, escape::escape_line(&because)]);
    }
    table.print(screen, "nothing is proposed")?;
    match answer {
        ProposalAnswer::Accept => {}
        ProposalAnswer::Ask if !io::stdin().is_terminal() => {
            screen.note(format_args!(
                "to state these facts: sluice mounts set {0} --proposed, or one by one: sluice mounts set {0} TOOL FACT",
                escape::escape_line(name)
            ));
            return Ok(CommandExit::Ok);
        }
        ProposalAnswer::Ask | ProposalAnswer::Confirm => {
            let question = "Are these facts true? A tool that only reads is answered without a hold.";
            match screen.confirm(question, "--yes") {
                Err(failure) if answer == ProposalAnswer::Ask && failure.exit == CommandExit::Failed => {
                    return Ok(CommandExit::Ok);
                }
                asked => asked?,
            }
        }
    }
    let mut facts = Vec::new();
    for tool in proposed {
        let name_of_tool = text_field(tool, "tool").to_owned();
        let mut now = configured(reach, name, &name_of_tool)?;
        let said = tool.get("proposed").and_then(|proposal| proposal.get("facts")).unwrap_or(&Value::Null);
        if said.get("read") == Some(&Value::Bool(true)) {
            now.read = Some(true);
        }
        for (argument, kind) in said.get("targets").and_then(Value::as_object).into_iter().flatten() {
            let kind = kind.as_str().and_then(MountTargetKind::from_word);
            now.targets.extend(kind.map(|kind| (argument.clone(), kind)));
        }
        facts.push((name_of_tool, now));
    }
    write(reach, screen, name, &facts)
}

fn is_away(failure: &CliError) -> bool {
    [CommandExit::Unreachable, CommandExit::NotSignedIn, CommandExit::NotFound].contains(&failure.exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_words_and_can_be_taken_back() {
        let mut facts = MountToolFacts::default();
        for word in ["read", "delay=90s", "tier=notify", "targets.to=recipients", "targets.a b=url", "hide"] {
            state(&mut facts, word).unwrap();
        }
        let line = in_file(&facts.shown());
        assert!(line.contains("read: true") && line.contains("delay: 90s") && line.contains("\"a b\": url"), "{line}");
        assert_eq!(
            display_facts(&facts.shown()).split(' ').filter(|word| !word.is_empty()).count(),
            "read hide delay=90s tier=notify targets.a b=url targets.to=recipients".split(' ').count()
        );
        for word in ["write", "show", "delay=default", "tier=default", "targets.to=default", "targets.a b=default"] {
            state(&mut facts, word).unwrap();
        }
        assert_eq!(facts, MountToolFacts { read: Some(false), ..MountToolFacts::default() });
        state(&mut facts, "read=default").unwrap();
        assert!(facts.is_empty());
        for word in ["reads", "delay=soon", "tier=low", "targets.to=people", "targets", "colour=red", ""] {
            assert!(state(&mut facts, word).is_err(), "{word}");
        }
    }
}
