//! Tables about programs: which words are files they change, which options turn them into something else.
//!
//! Only tables; they decide nothing. A program that is not listed is judged by the patterns of a rule alone.

use super::wrappers::find_roots;
use super::{BaseFolders, ShellAnalysisError, ShellCommand, ShellWord, WordCertainty};

/// Variables that programs read and that run nothing.
const HARMLESS: [&str; 18] = [
    "CI",
    "CLICOLOR",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOG_LEVEL",
    "NODE_ENV",
    "NO_COLOR",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
    "TERM",
    "TZ",
];
/// Lower-case names that a shell or a program reacts to.
const ACTED_ON: [&str; 14] = [
    "path",
    "fpath",
    "cdpath",
    "manpath",
    "mailpath",
    "module_path",
    "fignore",
    "watch",
    "psvar",
    "argv",
    "status",
    "pipestatus",
    "signals",
    "histchars",
];

/// Whether setting a variable changes nothing about which programs run.
pub(crate) fn is_harmless_variable(name: &str) -> bool {
    let small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let own = name.bytes().all(small) && !ACTED_ON.contains(&name) && !name.ends_with("_proxy");
    HARMLESS.contains(&name) || name.starts_with("LC_") || (own && !name.is_empty())
}

/// Options and words that make a program do something else than its name says: run a program, write a file, read
/// settings. A pattern must spell them; `*` does not stand for them.
const SPELLED: [(&str, &str, &[&str]); 27] = [
    (
        "git",
        "cxO",
        &[
            "--config-env",
            "--exec-path",
            "--exec",
            "--upload-pack",
            "--receive-pack",
            "--ext-diff",
            "--textconv",
            "--open-files-in-pager",
            "--output",
            "--extcmd",
            "--template",
            "--git-dir",
            "--work-tree",
            "foreach",
            "run",
            "--force",
            "--force-with-lease",
            "--hard",
            "--delete",
            "--mirror",
            "--no-verify",
            "--global",
            "--system",
        ],
    ),
    ("rm", "rRd", &["--recursive", "--dir", "--no-preserve-root"]),
    ("chmod", "R", &["--recursive"]),
    ("chown", "R", &["--recursive"]),
    ("cargo", "Z", &["--config"]),
    ("rg", "", &["--pre", "--hostname-bin"]),
    ("fd", "xX", &["--exec", "--exec-batch"]),
    ("sort", "oT", &["--output", "--compress-program", "--temporary-directory"]),
    ("tree", "o", &[]),
    ("tar", "IF", &["--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command", "--info-script"]),
    ("make", "f", &["--eval", "--file", "--makefile"]),
    ("python", "cm", &[]),
    ("python3", "cm", &[]),
    ("node", "eprc", &["--eval", "--print", "--require", "--import", "--check"]),
    ("perl", "eEiMm", &[]),
    ("ruby", "er", &[]),
    ("php", "rB", &["--run"]),
    ("go", "", &["-exec", "-toolexec", "-o"]),
    ("npm", "c", &["--call", "--script-shell", "--prefix", "--global"]),
    ("npx", "c", &["--call"]),
    ("pip", "", &["--target", "--prefix", "--root"]),
    (
        "curl",
        "oOKTdFxE",
        &[
            "--output",
            "--config",
            "--upload-file",
            "--data",
            "--data-binary",
            "--data-raw",
            "--form",
            "--json",
            "--remote-name",
            "--proxy",
            "--preproxy",
            "--resolve",
            "--connect-to",
            "--socks5",
            "--unix-socket",
            "--location",
            "--engine",
        ],
    ),
    ("wget", "OiP", &["--output-document", "--post-data", "--post-file", "--execute"]),
    ("ssh", "oFE", &[]),
    ("rsync", "e", &["--rsh", "--rsync-path", "--delete"]),
    ("date", "s", &["--set"]),
    ("yq", "i", &["--inplace"]),
];

/// The options of a command that a pattern must spell, or why they are unknown.
pub(crate) fn spelled_options(command: &ShellCommand) -> Result<Vec<&str>, ShellAnalysisError> {
    let Some((_, letters, words)) = SPELLED.iter().find(|(name, _, _)| *name == command.name()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for (before, word) in command.words.iter().zip(command.words.iter().skip(1)) {
        if is_message(command, before, word) {
            continue;
        }
        if word.certainty == WordCertainty::Unknown && word.may_be_option() {
            return Err(ShellAnalysisError("an option may be hidden in a variable"));
        }
        let text = word.text.as_str();
        let bare = text.split_once('=').map_or(text, |(name, _)| name);
        // Programs accept the beginning of a long option for the whole.
        let is_long = bare.starts_with("--") && bare.len() > 3 && words.iter().any(|long| long.starts_with(bare));
        let is_short = text.starts_with('-') && !text.starts_with("--") && text.contains(|c| letters.contains(c));
        if words.contains(&bare) || is_long || is_short {
            found.push(text);
        }
    }
    Ok(found)
}

/// Whether a word is a commit message, which is one word whatever it contains.
fn is_message(command: &ShellCommand, before: &ShellWord, word: &ShellWord) -> bool {
    command.name() == "git" && !word.splits && matches!(before.as_literal(), Some("-m" | "-am" | "--message"))
}

/// A file that a command changes, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandFileChange<'c> {
    /// `None` if the file is unknown.
    pub(crate) word: Option<ShellWord>,
    pub(crate) bases: &'c BaseFolders,
    /// The file is removed, with everything below it.
    pub(crate) removes: bool,
}

/// Files that a command changes by its words. Redirections are handled elsewhere.
pub(crate) fn changed_files(command: &ShellCommand) -> Vec<CommandFileChange<'_>> {
    let words = command.words.get(1..).unwrap_or_default();
    let target = |word: ShellWord, removes| CommandFileChange { word: Some(word), bases: &command.bases, removes };
    let unknown = || CommandFileChange { word: None, bases: &command.bases, removes: false };
    match command.name() {
        name @ ("rm" | "rmdir" | "unlink" | "shred" | "mv" | "touch" | "mkdir" | "truncate" | "tee") => {
            let removes = matches!(name, "rm" | "rmdir" | "unlink" | "shred" | "mv");
            operands(words).into_iter().map(|word| target(word, removes)).collect()
        }
        "chmod" | "chown" | "chgrp" => operands(words).into_iter().skip(1).map(|word| target(word, false)).collect(),
        "cp" | "ln" | "install" => {
            let simple = |word: &ShellWord| {
                let text = word.text.as_str();
                !word.may_be_option()
                    || (word.certainty == WordCertainty::Literal
                        && (text == "--" || text.bytes().skip(1).all(|b| b"rRapfvniudLPHlsTxbD".contains(&b))))
            };
            if !words.iter().all(simple) {
                return vec![unknown()];
            }
            operands(words).pop().map_or_else(|| vec![unknown()], |last| vec![target(last, false)])
        }
        "sed" if words.iter().any(|word| word.may_be_option() && (word.text.contains('i') || word.known == 0)) => {
            operands(words).into_iter().skip(1).map(|word| target(word, false)).collect()
        }
        "dd" => words
            .iter()
            .filter_map(|word| {
                if word.known < 3 {
                    return Some(unknown());
                }
                word.text.starts_with("of=").then(|| target(word.tail(3), false))
            })
            .collect(),
        "find" => {
            let after = |name: &str| words.iter().zip(words.iter().skip(1)).find(|(word, _)| word.text == name);
            let named = ["-fprint", "-fprint0", "-fls", "-fprintf"].into_iter().filter_map(after);
            let mut found: Vec<CommandFileChange<'_>> = named.map(|(_, word)| target(word.clone(), false)).collect();
            if words.iter().any(|word| word.text == "-delete") {
                found.extend(find_roots(words).into_iter().map(|root| target(root, true)));
            }
            found
        }
        "uniq" | "xxd" => operands(words).into_iter().skip(1).map(|word| target(word, false)).collect(),
        "split" | "csplit" | "patch" | "unzip" | "tar" | "rsync" | "scp" => vec![unknown()],
        _ => Vec::new(),
    }
}

/// Words that are no options, and the values that options carry with them.
pub(crate) fn operands(words: &[ShellWord]) -> Vec<ShellWord> {
    let mut found = Vec::new();
    let mut only_operands = false;
    for word in words {
        let text = word.text.as_str();
        if only_operands || !text.starts_with('-') || text == "-" {
            found.push(word.clone());
        } else if text == "--" && word.certainty == WordCertainty::Literal {
            only_operands = true;
        } else if let Some(at) = text.find('=').map(|at| at + 1).or_else(|| text.find(['/', '~'])) {
            found.push(word.tail(at));
        } else if word.certainty == WordCertainty::Unknown {
            found.push(word.clone());
        }
    }
    found
}

/// Programs whose words are text and name no files.
const TEXT: [&str; 12] =
    ["echo", "printf", "true", "false", "sleep", "exit", "return", "break", "continue", "seq", "expr", "kill"];
/// Programs whose first word is an expression.
const EXPRESSION_FIRST: [&str; 8] = ["grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "jq"];

/// Words of a command that may name a file it opens.
pub(crate) fn possible_files(command: &ShellCommand) -> Vec<ShellWord> {
    let words = command.words.get(1..).unwrap_or_default();
    let name = command.name();
    if TEXT.contains(&name) {
        return Vec::new();
    }
    if name == "git" {
        let pairs = command.words.iter().zip(words);
        let kept: Vec<ShellWord> = pairs.filter(|(b, w)| !is_message(command, b, w)).map(|(_, w)| w.clone()).collect();
        return operands(&kept);
    }
    let given = |word: &ShellWord| matches!(word.text.as_str(), "-e" | "-f" | "--regexp" | "--file");
    let skipped = usize::from(EXPRESSION_FIRST.contains(&name) && !words.iter().any(given));
    operands(words).into_iter().skip(skipped).collect()
}

/// Why a command that matches a pattern may still do something else: programs inside its words.
pub(crate) fn hidden_program(command: &ShellCommand) -> Option<ShellAnalysisError> {
    let words = command.words.get(1..).unwrap_or_default();
    let unknown = |word: &ShellWord| word.certainty == WordCertainty::Unknown;
    match command.name() {
        "sed" => {
            let scripted = |word: &ShellWord| {
                word.text.starts_with("--") || (word.text.starts_with('-') && word.text.contains(['f', 'e']))
            };
            let script = operands(words).into_iter().next();
            let plain =
                script.is_some_and(|script| script.certainty != WordCertainty::Unknown && is_plain_sed(&script.text));
            (words.iter().any(|word| scripted(word) || unknown(word) && word.may_be_option()) || !plain)
                .then_some(ShellAnalysisError("an editing script that is not judged"))
        }
        "awk" | "gawk" | "mawk" => {
            let loads = |word: &ShellWord| {
                unknown(word) || ["-f", "-i", "-l", "-E", "-e", "--"].iter().any(|start| word.text.starts_with(start))
            };
            let acts = |word: &ShellWord| {
                ["system", "getline", "|", ">", "@", "ENVIRON"].iter().any(|sign| word.text.contains(sign))
                    && !word.text.starts_with("-F")
            };
            words
                .iter()
                .any(|word| loads(word) || acts(word))
                .then_some(ShellAnalysisError("a script that is not judged"))
        }
        // `printf -v PATH …` sets a variable.
        "printf" if words.first().is_some_and(ShellWord::may_be_option) => {
            Some(ShellAnalysisError("it changes what later commands mean"))
        }
        // SECURITY: bash evaluates the index of a variable that these are given, commands included.
        "test" | "[" | "printf" | "read" | "unset" | "export" | "declare" | "typeset" | "local" | "readonly"
        | "mapfile" => {
            let evaluates = |word: &ShellWord| word.text.contains('[') && word.text.contains(['$', '`']);
            words.iter().any(evaluates).then_some(ShellAnalysisError("an index that a shell would evaluate"))
        }
        "let" | "alias" | "enable" | "hash" => Some(ShellAnalysisError("it changes what later commands mean")),
        _ => None,
    }
}

/// Whether an editing script only prints, deletes or replaces: no files, no programs.
fn is_plain_sed(script: &str) -> bool {
    script.split([';', '\n']).all(|part| {
        let part = part.trim();
        if part.is_empty() {
            return true;
        }
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || "$,!~+ ".contains(c));
        match rest.chars().next() {
            Some('p' | 'd' | 'q' | '=' | 'n') => rest.len() == 1,
            Some('s') => {
                let mut signs = rest.chars().skip(1);
                let Some(limit) = signs.next().filter(|c| !c.is_alphanumeric() && *c != '\\') else { return false };
                let parts: Vec<&str> = rest.split(limit).collect();
                matches!(parts.as_slice(), [_, from, _, flags]
                    if !from.ends_with('\\') && flags.chars().all(|c| "gpiI".contains(c) || c.is_ascii_digit()))
            }
            Some('/') => {
                let mut parts = rest.splitn(3, '/').skip(1);
                let (Some(_), Some(end)) = (parts.next(), parts.next()) else { return false };
                matches!(end.trim(), "p" | "d" | "q" | "=")
            }
            _ => false,
        }
    })
}

/// Programs that reach other machines, install from them, or run code that is not read here.
const LEAVES: [&str; 53] = [
    "ansible",
    "apk",
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "bun",
    "bunx",
    "conda",
    "deno",
    "dnf",
    "docker",
    "fly",
    "gcloud",
    "gem",
    "gh",
    "glab",
    "gsutil",
    "helm",
    "heroku",
    "http",
    "https",
    "irb",
    "kubectl",
    "mail",
    "mosh",
    "mysql",
    "node",
    "npx",
    "pacman",
    "perl",
    "php",
    "pip",
    "pip3",
    "pipx",
    "podman",
    "poetry",
    "psql",
    "python",
    "python3",
    "redis-cli",
    "rsync",
    "ruby",
    "scp",
    "sendmail",
    "socat",
    "sudo",
    "terraform",
    "uv",
    "vercel",
    "yum",
    "zypper",
];
/// Words after a program that make it reach other machines.
const LEAVING_WORDS: [(&str, &[&str]); 6] = [
    ("git", &["push", "pull", "fetch", "clone", "remote", "submodule", "ls-remote", "send-email", "svn", "lfs"]),
    ("cargo", &["install", "add", "publish", "update", "search", "login", "owner", "yank", "fetch", "vendor"]),
    ("npm", &["install", "i", "ci", "add", "publish", "update", "exec", "login", "audit", "view", "init", "x"]),
    ("pnpm", &["install", "i", "add", "publish", "update", "dlx", "exec"]),
    ("yarn", &["install", "add", "publish", "upgrade", "dlx"]),
    ("go", &["get", "install", "mod"]),
];

/// Whether a command may reach another machine, judged by its words.
pub(crate) fn may_reach_network(command: &ShellCommand) -> bool {
    let name = command.name();
    let has = |words: &[&str]| command.words.iter().skip(1).any(|word| words.contains(&word.text.as_str()));
    LEAVES.contains(&name)
        || super::wrappers::SHELLS.contains(&name)
        || matches!(name, "source" | ".")
        || name == "yarn" && command.words.len() == 1
        || LEAVING_WORDS.iter().any(|(program, words)| *program == name && has(words))
        || hidden_program(command).is_some()
        || named_hosts(command).map_or(true, |hosts| !hosts.is_empty())
}

/// Programs whose words are hosts.
const REACHES: [&str; 12] =
    ["ssh", "ping", "nc", "ncat", "telnet", "dig", "nslookup", "host", "ftp", "sftp", "traceroute", "whois"];
/// Programs that fetch an address.
const FETCHES: [&str; 4] = ["curl", "wget", "http", "https"];

/// Hosts that a command names; an error if it reaches other machines and the target is unknown.
pub(crate) fn named_hosts(command: &ShellCommand) -> Result<Vec<String>, ShellAnalysisError> {
    const UNCLEAR: ShellAnalysisError = ShellAnalysisError("it is not clear which host is meant");
    let words = command.words.get(1..).unwrap_or_default();
    let (reaches, fetches) = (REACHES.contains(&command.name()), FETCHES.contains(&command.name()));
    let mut found = Vec::new();
    for word in words {
        let text = word.text.as_str();
        if (reaches || fetches) && word.certainty != WordCertainty::Literal {
            return Err(UNCLEAR);
        }
        match host_of(text) {
            Some(host) if word.certainty == WordCertainty::Literal => found.push(host),
            Some(_) => return Err(UNCLEAR),
            None if text.contains("://") => return Err(UNCLEAR),
            // An operand without a scheme; values of options are taken for hosts too, and are not listed.
            None if (reaches || fetches) && !text.starts_with('-') => found.push(bare_host(text)),
            None => {}
        }
    }
    if (reaches || fetches) && found.is_empty() { Err(UNCLEAR) } else { Ok(found) }
}

fn bare_host(text: &str) -> String {
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    text.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase()
}

/// The host of `scheme://host/…` or `user@host:path`.
pub(crate) fn host_of(text: &str) -> Option<String> {
    // Some programs read a backslash as part of the host, others as its end.
    if text.contains('\\') {
        return None;
    }
    let text = text.split_once('=').filter(|(name, _)| name.starts_with('-')).map_or(text, |(_, value)| value);
    let authority = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => {
            rest.split(['/', '?', '#']).next()?
        }
        Some(_) => return None,
        None => {
            let (user, rest) = text.split_once('@')?;
            let (host, _) = rest.split_once(':')?;
            if user.is_empty() || user.contains('/') {
                return None;
            }
            host
        }
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(h, _)| h);
    let plain = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    plain.then(|| host.to_ascii_lowercase())
}
