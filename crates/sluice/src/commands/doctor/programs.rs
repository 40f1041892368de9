//! Checks of the programs that the gateway runs for agents: whether they are installed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sluice_config::Config;

use super::{DoctorCheckStatus, DoctorFinding};

/// Git and the listed programs, as far as they are enabled.
pub(super) fn installed(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    if config.git.enabled {
        let named = config.git.program.as_ref().map_or_else(|| "git".to_owned(), |path| path.display().to_string());
        findings.push(match found(&named) {
            Some(path) => DoctorFinding::new("git", DoctorCheckStatus::Ok, format!("{path} exists")),
            None => DoctorFinding::new(
                "git",
                DoctorCheckStatus::Warn,
                format!("`git.enabled` is true, but the program `{named}` does not exist"),
            )
            .hint("install git, set its path as `git.program`, or set `git.enabled: false`"),
        });
        for name in &config.git.connections {
            let known = config.egress.connections.0.iter().any(|one| one.name.as_str() == name.as_str());
            if !known {
                let message =
                    format!("`git.connections` names `{}`, which is not in `egress.connections`", name.as_str());
                findings.push(
                    DoctorFinding::new("git", DoctorCheckStatus::Fail, message)
                        .hint("correct the name, or add the connection"),
                );
            }
        }
    }
    for name in &config.process.programs {
        if found(name.as_str()).is_none() {
            let message = format!("`process.programs` names `{}`, which does not exist", name.as_str());
            findings.push(
                DoctorFinding::new("process", DoctorCheckStatus::Warn, message)
                    .hint("install it, or remove it from the list"),
            );
        }
    }
    let off = config.filesystem.roots.is_empty() && (config.git.enabled || !config.process.programs.is_empty());
    if off {
        let message = "`git` and `process` need a folder in `filesystem.roots`";
        findings.push(DoctorFinding::new("programs", DoctorCheckStatus::Warn, message).hint("add a folder for agents"));
    }
    findings
}

/// The path of a program, searched where the gateway searches.
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
