//! Conditions about commands, files and hosts as a rule writes them.
//!
//! Takes the value of one condition; gives the checked condition. Promise: a pattern that is no command, a folder that
//! is not absolute, and a condition on a capability without such an argument are refused at load.

use super::RuleCondition;
use super::files::{PROJECT, RuleFolders};
use super::read::ConditionParser;
use crate::capability::ParamKind;
use crate::policy::fault::SourcePosition;
use crate::policy::path::{NormalPath, PathGlobPattern};
use crate::policy::pattern::CapabilityPattern;
use crate::policy::suggest::escape;
use crate::shell::pattern::CommandPattern;

/// Arguments that carry a command for a shell.
pub(crate) const COMMAND: [&str; 2] = ["command", "cmd"];
/// Tools of coding agents that are known to run no command.
const WITHOUT_COMMAND: [&str; 4] =
    ["custom:write_file", "custom:read_file", "custom:http_request", "custom:send_message"];

/// A rule about commands lets them write in the project unless it says where else.
pub(super) fn imply_project(conditions: &mut Vec<(SourcePosition, RuleCondition)>) {
    let commands = conditions.iter().find(|(_, condition)| matches!(condition, RuleCondition::Commands(_)));
    let says_where = conditions.iter().any(|(_, condition)| matches!(condition, RuleCondition::WritesWithin(_)));
    if let (Some((place, _)), false) = (commands, says_where) {
        let folders = RuleFolders { project: true, listed: Vec::new() };
        conditions.push((*place, RuleCondition::WritesWithin(folders)));
    }
}

impl ConditionParser<'_, '_, '_> {
    fn can_have_command(&self) -> bool {
        let named = |name: &str| self.scope.matched.iter().any(|capability| capability.param(name).is_some());
        let known_without =
            matches!(self.scope.pattern, CapabilityPattern::Name(name) if WITHOUT_COMMAND.contains(&&**name));
        (self.scope.is_open() && !known_without) || COMMAND.iter().any(|name| named(name))
    }

    fn report_lacking(&mut self, what: &str) {
        let message = format!("no capability matched by `{}` has {what}", self.scope.pattern);
        self.faults
            .error(self.key.place, "policy.no_such_argument", message)
            .why(format!("`{}` could never hold", self.key.text));
    }

    pub(super) fn commands(&mut self) -> Option<RuleCondition> {
        if !self.can_have_command() {
            self.report_lacking("a command");
            return None;
        }
        let mut patterns = Vec::new();
        for (place, text) in self.texts()? {
            match CommandPattern::new(&text) {
                Ok(pattern) => patterns.push(pattern),
                Err(why) => {
                    self.faults
                        .error(place, "policy.command", format!("`{}` is not a pattern of commands", escape(&text)))
                        .why(why)
                        .hint("for example `cargo test *`: a program, its words, and `*` for any further words");
                    return None;
                }
            }
        }
        Some(RuleCondition::Commands(patterns))
    }

    pub(super) fn folders(&mut self) -> Option<RuleFolders> {
        if !self.can_have_command() && !self.scope.has(ParamKind::Path) {
            self.report_lacking("a path or a command");
            return None;
        }
        let mut folders = RuleFolders::default();
        for (place, text) in self.texts()? {
            if text == PROJECT {
                folders.project = true;
                continue;
            }
            match NormalPath::new(&text) {
                Ok(path) => folders.listed.push(path.as_str().into()),
                Err(fault) => {
                    self.faults
                        .error(place, "policy.path", format!("`{}` cannot be a folder: {fault}", escape(&text)))
                        .hint(
                            "write an absolute path, or `project` for the folders that the file names as its project",
                        );
                    return None;
                }
            }
        }
        Some(folders)
    }

    pub(super) fn path_globs(&mut self) -> Option<Vec<PathGlobPattern>> {
        if !self.can_have_command() && !self.scope.has(ParamKind::Path) {
            self.report_lacking("a path or a command");
            return None;
        }
        self.glob_list()
    }

    pub(super) fn hosts(&mut self) -> Option<RuleCondition> {
        if !self.can_have_command() && !self.scope.has(ParamKind::Url) {
            self.report_lacking("an address or a command");
            return None;
        }
        let mut hosts = Vec::new();
        for (place, text) in self.texts()? {
            let bare = text.strip_prefix("*.").unwrap_or(&text);
            let plain = bare.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
            if !plain || bare.is_empty() || bare.starts_with('.') || bare.ends_with('.') {
                self.faults
                    .error(place, "policy.host", format!("`{}` is not a host", escape(&text)))
                    .hint("for example `github.com`, or `*.example.com` for every host below a domain");
                return None;
            }
            hosts.push(text.to_ascii_lowercase().into());
        }
        Some(RuleCondition::HostsWithin(hosts))
    }
}
