//! Programs of the machine that the gateway runs for agents: whether they are there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sluice_gateway::config::Config;

use super::{Finding, State};

/// Git and the listed programs, as far as they are switched on.
pub(super) fn installed(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.git.enabled {
        let named = config.git.program.as_ref().map_or_else(|| "git".to_owned(), |path| path.display().to_string());
        findings.push(match found(&named) {
            Some(path) => Finding::new("git", State::Ok, format!("{path} is there")),
            None => {
                Finding::new("git", State::Warn, format!("`git.enabled` is true, and there is no program `{named}`"))
                    .hint("install git, name it as `git.program`, or set `git.enabled: false`")
            }
        });
        for name in &config.git.connections {
            let known = config.egress.connections.0.iter().any(|one| one.name.as_str() == name.as_str());
            if !known {
                let message =
                    format!("`git.connections` names `{}`, which `egress.connections` has not", name.as_str());
                findings
                    .push(Finding::new("git", State::Fail, message).hint("correct the name, or add the connection"));
            }
        }
    }
    for name in &config.process.programs {
        if found(name.as_str()).is_none() {
            let message = format!("`process.programs` names `{}`, and there is no such program", name.as_str());
            findings.push(Finding::new("process", State::Warn, message).hint("install it, or take it from the list"));
        }
    }
    let off = config.filesystem.roots.is_empty() && (config.git.enabled || !config.process.programs.is_empty());
    if off {
        let message = "`git` and `process` do nothing without a folder in `filesystem.roots`";
        findings.push(Finding::new("programs", State::Warn, message).hint("open a folder to agents"));
    }
    findings
}

/// The path of a program, looked for where the gateway looks.
fn found(name: &str) -> Option<String> {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let candidates: Vec<String> = if name.starts_with('/') {
        vec![name.to_owned()]
    } else {
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().map(|folder| format!("{folder}/{name}")).collect()
    };
    candidates.into_iter().find(|path| runs(Path::new(path)))
}
