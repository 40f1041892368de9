//! Checks of the ways to people: every token file is read, every channel is tried. Nobody is written to.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_gateway::channels::email::Email;
use sluice_gateway::channels::telegram::Telegram;
use sluice_gateway::config::Config;

use super::{Finding, State};
use crate::failure::io_words;

/// How long a channel may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest file that holds a token.
const LONGEST: u64 = 16 * 1024;

/// Whether every file that holds a token can be read, holds something, and is closed to others.
pub(super) fn token_files(config: &Config) -> Vec<Finding> {
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
    let findings: Vec<Finding> = files.iter().filter_map(|(what, path)| wrong(what, path)).collect();
    match (findings.is_empty(), files.len()) {
        (true, 0) => Vec::new(),
        (true, count) => {
            let words = crate::commands::policy::counted(count, "token file");
            vec![Finding::new("tokens", State::Ok, format!("{words} can be read, by you alone"))]
        }
        (false, _) => findings,
    }
}

/// What is wrong with a token file, if something is. Nothing of it is shown.
fn wrong(what: &str, path: &Path) -> Option<Finding> {
    let fail = |message: String| Finding::new("tokens", State::Fail, format!("{what}: {}: {message}", path.display()));
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) => return Some(fail(io_words(&error)).hint("make the file, or correct its name in sluice.yaml")),
    };
    if !about.is_file() || about.len() > LONGEST {
        return Some(fail("it is no small regular file".to_owned()));
    }
    match fs::read_to_string(path) {
        Err(error) => Some(fail(io_words(&error)).hint("the user that runs the gateway must be able to read it")),
        Ok(text) if text.trim().is_empty() => Some(fail("it is empty".to_owned())),
        Ok(_) if about.mode() & 0o077 != 0 => {
            let message = format!("others can use it (mode {:04o})", about.mode() & 0o7777);
            Some(fail(message).hint(format!("chmod 600 {}", path.display())))
        }
        Ok(_) => None,
    }
}

/// Whether each channel to people takes what we would send. Without one, nobody is asked.
pub(super) fn channels(config: &Config) -> Vec<Finding> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    // A mail account keeps connections, and needs somebody to keep them with.
    let _inside = runtime.enter();
    let mut findings = Vec::new();
    let said = |name: &str, outcome: Result<String, String>| match outcome {
        Ok(words) => Finding::new("channels", State::Ok, format!("{name} works: {words}")),
        Err(why) => Finding::new("channels", State::Fail, format!("{name} does not work: {why}"))
            .hint(format!("check `{name}` in sluice.yaml and the file that holds its token or password")),
    };
    match Telegram::configured(config) {
        Ok(None) => {}
        Ok(Some(bot)) => findings.push(said("telegram", in_time(&runtime, bot.who_am_i()))),
        Err(why) => findings.push(said("telegram", Err(why))),
    }
    if config.email.smtp_host.is_some() {
        findings.push(said("email", Email::new(&config.email).and_then(|mail| in_time(&runtime, mail.signs_in()))));
    }
    if findings.is_empty() {
        let message = "there is no channel to people: questions wait in `sluice approvals list` only";
        findings.push(
            Finding::new("channels", State::Warn, message)
                .hint("set up `telegram` or `email` in sluice.yaml, and `approvals.people`"),
        );
    } else if config.approvals.people.is_empty() {
        findings.push(Finding::new(
            "channels",
            State::Warn,
            "a channel is set up, and `approvals.people` names nobody",
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
        Err(_) => Err("it did not answer in 5 s".to_owned()),
    }
}
