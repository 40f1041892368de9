//! Hostile repositories: whatever their configuration, attributes and hooks say, no program of theirs runs.
//!
//! The table is walked twice: with plain git, to see that an entry can bite at all, and through the gateway, where nothing
//! may happen. The jail alone would keep the canary from running; that the configuration is not even read is seen by
//! settings that change what git says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::test_gateway::{GitTestGateway, git, has_git, repository};

/// One way to have a program run by whoever touches the repository. `RUN` stands for the canary.
struct RepositoryTrap {
    name: &'static str,
    /// Lines for `.git/config`.
    config: &'static str,
    /// Further files: where, and what.
    files: &'static [(&'static str, &'static str)],
    /// What a careless person runs, and whether plain git falls for it.
    careless: &'static [&'static str],
}

const TRAPS: &[RepositoryTrap] = &[
    RepositoryTrap { name: "fsmonitor", config: "[core]\n\tfsmonitor = RUN\n", files: &[], careless: &["status"] },
    RepositoryTrap { name: "external diff", config: "[diff]\n\texternal = RUN\n", files: &[], careless: &["diff"] },
    RepositoryTrap {
        name: "textconv",
        config: "[diff \"x\"]\n\ttextconv = RUN\n",
        files: &[(".gitattributes", "*.txt diff=x\n")],
        careless: &["diff"],
    },
    RepositoryTrap {
        name: "diff command",
        config: "[diff \"x\"]\n\tcommand = RUN\n",
        files: &[(".gitattributes", "*.txt diff=x\n")],
        careless: &["diff"],
    },
    RepositoryTrap {
        name: "clean filter",
        config: "[filter \"x\"]\n\tclean = RUN\n",
        files: &[(".gitattributes", "*.txt filter=x\n")],
        careless: &["add", "a.txt"],
    },
    RepositoryTrap {
        name: "process filter",
        config: "[filter \"x\"]\n\tprocess = RUN\n\trequired = true\n",
        files: &[(".gitattributes", "*.txt filter=x\n")],
        careless: &["add", "a.txt"],
    },
    RepositoryTrap {
        name: "smudge filter",
        config: "[filter \"x\"]\n\tsmudge = RUN\n",
        files: &[(".gitattributes", "*.txt filter=x\n")],
        careless: &["checkout", "other"],
    },
    RepositoryTrap {
        name: "attributes of the repository",
        config: "[filter \"x\"]\n\tclean = RUN\n",
        files: &[(".git/info/attributes", "*.txt filter=x\n")],
        careless: &["add", "a.txt"],
    },
    RepositoryTrap {
        name: "pre-commit hook",
        config: "",
        files: &[(".git/hooks/pre-commit", "")],
        careless: &["commit", "-am", "m"],
    },
    RepositoryTrap {
        name: "hooks path",
        config: "[core]\n\thooksPath = traps\n",
        files: &[("traps/reference-transaction", ""), ("traps/post-index-change", ""), ("traps/pre-push", "")],
        careless: &["branch", "made"],
    },
    RepositoryTrap {
        name: "included configuration",
        config: "[include]\n\tpath = ../traps/more\n",
        files: &[("traps/more", "[core]\n\tfsmonitor = RUN\n")],
        careless: &["status"],
    },
    RepositoryTrap {
        name: "configuration of the working tree",
        config: "[extensions]\n\tworktreeConfig = true\n",
        files: &[(".git/config.worktree", "[core]\n\tfsmonitor = RUN\n")],
        careless: &["status"],
    },
    RepositoryTrap { name: "alias", config: "[alias]\n\tstatus = !RUN\n\tx = !RUN\n", files: &[], careless: &["x"] },
    RepositoryTrap {
        name: "editor",
        config: "[core]\n\teditor = RUN\n[sequence]\n\teditor = RUN\n",
        files: &[],
        careless: &["commit", "-a"],
    },
    RepositoryTrap {
        name: "signing program",
        config: "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = RUN\n[user]\n\tsigningKey = x\n",
        files: &[],
        careless: &["commit", "-am", "m"],
    },
    RepositoryTrap {
        name: "ssh command",
        config: "[core]\n\tsshCommand = RUN\n[remote \"origin\"]\n\turl = ssh://127.0.0.1/x\n",
        files: &[],
        careless: &["fetch"],
    },
    RepositoryTrap {
        name: "ext protocol",
        config: "[protocol \"ext\"]\n\tallow = always\n[remote \"origin\"]\n\turl = ext::RUN\n",
        files: &[],
        careless: &["fetch"],
    },
    RepositoryTrap {
        name: "upload pack",
        config: "[remote \"origin\"]\n\turl = .\n\tuploadpack = RUN\n\treceivepack = RUN\n",
        files: &[],
        careless: &["fetch"],
    },
    RepositoryTrap {
        name: "rewritten address",
        config: "[url \"ext::RUN \"]\n\tinsteadOf = https://\n[protocol \"ext\"]\n\tallow = always\n\
                 [remote \"origin\"]\n\turl = https://example.com/x\n",
        files: &[],
        careless: &["fetch"],
    },
    RepositoryTrap {
        name: "merge driver",
        config: "[merge \"x\"]\n\tdriver = RUN\n",
        files: &[(".gitattributes", "*.txt merge=x\n")],
        careless: &[],
    },
    RepositoryTrap {
        name: "pager",
        config: "[core]\n\tpager = RUN\n[pager]\n\tlog = RUN\n\tdiff = RUN\n\tstatus = RUN\n",
        files: &[],
        careless: &["--paginate", "log"],
    },
    RepositoryTrap {
        name: "a repository inside",
        config: "",
        files: &[
            ("inner/.git/HEAD", "ref: refs/heads/main\n"),
            ("inner/.git/objects/x", ""),
            ("inner/.git/refs/x", ""),
            ("inner/.git/config", "[core]\n\tfsmonitor = RUN\n"),
        ],
        careless: &[],
    },
    RepositoryTrap {
        name: "alternate refs",
        config: "[core]\n\talternateRefsCommand = RUN\n",
        files: &[(".git/objects/info/alternates", "/tmp\n")],
        careless: &[],
    },
];

/// Every capability that touches a repository, in an order in which each has something to do.
fn calls(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("git.status", json!({"path": path})),
        ("git.log", json!({"path": path})),
        ("git.diff", json!({"path": path})),
        ("git.diff", json!({"path": path, "cached": true, "commit": "HEAD"})),
        ("git.branch", json!({"path": path, "action": "list"})),
        ("git.branch", json!({"path": path, "action": "create", "name": "made"})),
        ("git.commit", json!({"path": path, "message": "m", "author_name": "A", "author_email": "a@example.com"})),
        ("git.branch", json!({"path": path, "action": "switch", "name": "other"})),
        ("git.branch", json!({"path": path, "action": "delete", "name": "made"})),
        ("git.pull", json!({"path": path})),
        ("git.push", json!({"path": path})),
    ]
}

/// A program that leaves a file behind when it runs, beside the folder of the trap.
fn canary(folder: &Path) -> String {
    let program = folder.join("canary");
    // Wherever it may write: beside itself, and in the folder that it is run in.
    let text = format!("#!/bin/sh\ntouch \"{0}/RAN\" RAN\n", folder.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

/// A repository with the trap in it. The canary lies in the repository itself, where an attacker can put it.
fn trapped(folder: &Path, trap: &RepositoryTrap) -> String {
    repository(folder);
    git(folder, &["branch", "other"]);
    git(folder, &["checkout", "-q", "other"]);
    fs::write(folder.join("a.txt"), "other\n").unwrap();
    git(folder, &["commit", "-q", "-am", "other"]);
    git(folder, &["checkout", "-q", "main"]);
    let run = canary(folder);
    for (name, text) in trap.files {
        let place = folder.join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        let text = if text.is_empty() { fs::read_to_string(&run).unwrap() } else { text.replace("RUN", &run) };
        fs::write(&place, text).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if trap.careless != ["checkout", "other"] {
        fs::write(folder.join("a.txt"), "changed\n").unwrap();
    }
    let config = folder.join(".git/config");
    let text = fs::read_to_string(&config).unwrap() + &trap.config.replace("RUN", &run);
    fs::write(config, text).unwrap();
    run
}

fn has_run(folder: &Path) -> bool {
    ["RAN", "src/RAN", "inner/RAN", ".git/RAN"].iter().any(|name| folder.join(name).exists())
}

#[test]
fn each_trap_bites_whoever_runs_git_as_it_is() {
    if !has_git() {
        return;
    }
    for trap in TRAPS.iter().filter(|trap| !trap.careless.is_empty()) {
        let folder = tempfile::tempdir().unwrap();
        trapped(folder.path(), trap);
        let mut command = Command::new("git");
        command.current_dir(folder.path()).args(trap.careless).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_DIR").stdin(std::process::Stdio::null());
        let _outcome = command.output().unwrap();
        // The pager runs only at a terminal.
        assert!(has_run(folder.path()) || trap.name == "pager", "{} is no trap", trap.name);
    }
}

#[tokio::test]
async fn no_trap_bites_through_any_capability() {
    if !has_git() {
        return;
    }
    let mut house = GitTestGateway::with_git().await;
    for (n, trap) in TRAPS.iter().enumerate() {
        let name = format!("r{n}");
        let folder = house.work().join(&name);
        trapped(&folder, trap);
        let mut carried = 0;
        for (capability, arguments) in calls(&house.path(&name)) {
            let place = format!("{} × {capability} {arguments}", trap.name);
            let answer = house.call(capability, arguments).await;
            for _ in 0..5 {
                house.pass(sluice_core::Millis::from_secs(10)).await;
            }
            assert!(!has_run(&folder), "{place}: the canary ran");
            match answer {
                Ok(_) => carried += 1,
                // No network is open, so that what needs a remote is refused.
                Err(no) => assert_eq!(no.refusal.code().as_str(), "git.remote_not_allowed", "{place}: {no:?}"),
            }
        }
        assert_eq!(carried, 9, "{}: everything else is carried out all the same", trap.name);
        assert_eq!(
            git(&folder, &["-c", "core.fsmonitor=false", "log", "-1", "--format=%s", "main"]),
            "m",
            "{}",
            trap.name
        );
    }
}

#[tokio::test]
async fn no_setting_of_a_repository_changes_what_git_does() {
    if !has_git() {
        return;
    }
    let house = GitTestGateway::with_git().await;
    let (folder, path) = (house.work().join("shop"), house.path("shop"));
    repository(&folder);
    fs::write(folder.join("a.txt"), "two\n").unwrap();
    let mut before = Vec::new();
    for (capability, arguments) in calls(&path).into_iter().take(4) {
        before.push(house.read(capability, arguments).await);
    }
    assert!(before[2].to_string().contains("a/a.txt"), "{}", before[2]);
    let config = folder.join(".git/config");
    let more = "[core]\n\tworktree = /usr\n\tbare = true\n\tabbrev = 40\n[diff]\n\tnoprefix = true\n\tcontext = 0\n\
                [log]\n\tdate = unix\n[i18n]\n\tlogOutputEncoding = utf-16\n[status]\n\tshowUntrackedFiles = no\n";
    fs::write(&config, fs::read_to_string(&config).unwrap() + more).unwrap();
    for ((capability, arguments), before) in calls(&path).into_iter().zip(before) {
        assert_eq!(house.read(capability, arguments).await, before, "{capability}");
    }
}
