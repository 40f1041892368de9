//! Checks of the channels to people: every token file is read, every channel is tested. No message is sent.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_config::Config;
use sluice_gateway::channels::email::EmailChannel;
use sluice_gateway::channels::telegram::TelegramChannel;

use super::{DoctorCheckStatus, DoctorFinding};
use crate::failure::describe_io_error;

/// How long a channel may take to respond.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest file with a token.
const LONGEST: u64 = 16 * 1024;

/// Checks that every token file can be read, is not empty, and is closed to other users.
pub(super) fn token_files(config: &Config) -> Vec<DoctorFinding> {
    let mut files: Vec<(&'static str, PathBuf)> = Vec::new();
    let named = [
        ("telegram.token_file", config.telegram.token_file.clone()),
        ("email.smtp_password_file", config.email.smtp_password_file.clone()),
    ];
    files.extend(named.into_iter().filter_map(|(key, path)| Some((key, path?))));
    let token = config.data.join("operator.token");
    files.extend(token.exists().then_some(("operator token", token)));
    let keys = fs::read_dir(config.data.join("agents")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut keys: Vec<PathBuf> = keys.filter(|path| path.extension().is_some_and(|end| end == "key")).collect();
    keys.sort();
    files.extend(keys.into_iter().map(|path| ("agent key", path)));
    let findings: Vec<DoctorFinding> = files.iter().filter_map(|(what, path)| wrong(what, path)).collect();
    match (findings.is_empty(), files.len()) {
        (true, 0) => Vec::new(),
        (true, count) => {
            let words = crate::commands::policy::counted(count, "token file");
            vec![DoctorFinding::new("tokens", DoctorCheckStatus::Ok, format!("{words} can be read, only by you"))]
        }
        (false, _) => findings,
    }
}

/// The problem with a token file, if there is one. Its content is never shown.
fn wrong(what: &str, path: &Path) -> Option<DoctorFinding> {
    let fail = |message: String| {
        DoctorFinding::new("tokens", DoctorCheckStatus::Fail, format!("{what}: {}: {message}", path.display()))
    };
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) => {
            return Some(fail(describe_io_error(&error)).hint("create the file, or correct its path in sluice.yaml"));
        }
    };
    if !about.is_file() || about.len() > LONGEST {
        return Some(fail("it is not a small regular file".to_owned()));
    }
    match fs::read_to_string(path) {
        Err(error) => {
            Some(fail(describe_io_error(&error)).hint("the user that runs the gateway must be able to read it"))
        }
        Ok(text) if text.trim().is_empty() => Some(fail("it is empty".to_owned())),
        Ok(_) if about.mode() & 0o077 != 0 => {
            let message = format!("other users can access it (mode {:04o})", about.mode() & 0o7777);
            Some(fail(message).hint(format!("chmod 600 {}", path.display())))
        }
        Ok(_) => None,
    }
}

/// Checks whether each channel would accept a message. Without a channel, nobody is asked.
pub(super) fn channels(config: &Config) -> Vec<DoctorFinding> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    // The mail client keeps connections and needs a runtime for them.
    let _inside = runtime.enter();
    let mut findings = Vec::new();
    let said = |name: &str, outcome: Result<String, String>| match outcome {
        Ok(words) => DoctorFinding::new("channels", DoctorCheckStatus::Ok, format!("{name} works: {words}")),
        Err(why) => DoctorFinding::new("channels", DoctorCheckStatus::Fail, format!("{name} does not work: {why}"))
            .hint(format!("check `{name}` in sluice.yaml and the file that holds its token or password")),
    };
    match TelegramChannel::configured(config) {
        Ok(None) => {}
        Ok(Some(bot)) => findings.push(said("telegram", in_time(&runtime, bot.who_am_i()))),
        Err(why) => findings.push(said("telegram", Err(why))),
    }
    if config.email.smtp_host.is_some() {
        findings.push(said(
            "email",
            EmailChannel::new(&config.email).and_then(|mail| in_time(&runtime, mail.check_login())),
        ));
    }
    if findings.is_empty() {
        let message = "no channel to people is set up: approvals wait only in `sluice approvals list`";
        findings.push(
            DoctorFinding::new("channels", DoctorCheckStatus::Warn, message)
                .hint("set up `telegram` or `email` in sluice.yaml, and `approvals.people`"),
        );
    } else if config.approvals.people.is_empty() {
        findings.push(DoctorFinding::new(
            "channels",
            DoctorCheckStatus::Warn,
            "a channel is set up, but `approvals.people` is empty",
        ));
    }
    findings
}

fn in_time<E: std::fmt::Display>(
    runtime: &tokio::runtime::Runtime,
    work: impl Future<Output = Result<String, E>>,
) -> Result<String, String> {
    match runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await }) {
        Ok(Ok(words)) => Ok(words),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err("it did not respond in 5 s".to_owned()),
    }
}
