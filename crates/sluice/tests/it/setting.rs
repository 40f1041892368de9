//! `sluice setup` in the homes people have: files with comments and other servers, links, spaces, and broken ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::policy::{SluiceRunOutput, TestFolder};

const CLIENTS: [&str; 6] = ["claude-code", "claude-desktop", "codex", "gemini", "cursor", "vscode"];
const VSCODE: &str = "{\n  // mine\n  \"servers\": {\n    \"other\": {\"command\": \"x\"}, // keep\n  },\n}\n";

struct SetupTestHome {
    bench: TestFolder,
}

impl SetupTestHome {
    /// Somebody who has configured every client already, in a folder with a space.
    fn new() -> Self {
        let bench = TestFolder::new();
        bench
            .file("a home/the key", "sga_x")
            .file("a home/.gemini/settings.json", "/* theme */ {\n\t\"ui\": {\"theme\": \"x\"}\n}\n")
            .file("a home/.codex/config.toml", "model = \"o\"\n[mcp_servers.other]\ncommand = \"z\"")
            .file(
                "a home/.cursor/hooks.json",
                "{\"hooks\": {\"beforeShellExecution\": [{\"command\": \"./a.sh\"}]}, \"version\": 1}",
            )
            .file("dotfiles/desktop.json", "{\"mcpServers\": {\"mine\": {\"command\": \"y\"}}}")
            .file(".vscode/mcp.json", VSCODE)
            .file(".claude/settings.json", "{ \"permissions\": {\"allow\": [\"Read\"]} }\r\n");
        fs::create_dir_all(bench.path("a home/.config/Claude")).unwrap();
        let link = bench.path("a home/.config/Claude/claude_desktop_config.json");
        std::os::unix::fs::symlink(bench.path("dotfiles/desktop.json"), link).unwrap();
        Self { bench }
    }

    fn setup(&self, client: &str, further: &[&str]) -> SluiceRunOutput {
        let home = self.bench.path("a home").display().to_string();
        let key = self.bench.path("a home/the key").display().to_string();
        let words = [&["setup", client, "--key-file", &key], further].concat();
        self.bench.run_with(&words, "", &[("HOME", &home)])
    }

    /// Every file and what it says; links with where they lead.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        walk(&self.bench.path("."), &mut found);
        found
    }
}

fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_symlink() {
            found.insert(path.clone(), format!("-> {}", fs::read_link(&path).unwrap().display()));
        } else if path.is_dir() {
            walk(&path, found);
        } else {
            found.insert(path.clone(), fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_client_is_set_up_beside_what_was_there_and_taken_back_to_the_byte() {
    let home = SetupTestHome::new();
    let before = home.files();
    for client in CLIENTS {
        for look in ["--print", "--diff"] {
            let run = home.setup(client, &["--hooks", look]);
            assert_eq!(run.code, 0, "{client} {look}: {}", run.stderr);
            assert!(run.stdout.contains("sluice"), "{client} {look}");
        }
        assert_eq!(home.files(), before, "{client}: looking changes nothing");
        let run = home.setup(client, &["--hooks"]);
        assert_eq!(run.code, 0, "{client}: {}", run.stderr);
        let set = home.files();
        assert_ne!(set, before, "{client}");
        assert_eq!(home.setup(client, &["--hooks"]).code, 0);
        assert_eq!(home.files(), set, "{client}: again changes nothing");
        let undone = home.setup(client, &["--undo"]);
        assert_eq!(undone.code, 0, "{client}: {}", undone.stderr);
        assert_eq!(home.files(), before, "{client}: undone to the byte");
    }
}

#[test]
fn comments_other_servers_and_spaces_are_kept_and_quoted() {
    let home = SetupTestHome::new();
    for client in ["vscode", "claude-desktop", "cursor"] {
        let run = home.setup(client, &["--hooks"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let files = home.files();
    let text = |name: &str| files.iter().find(|(path, _)| path.ends_with(name)).unwrap().1.as_str();
    let vscode = text(".vscode/mcp.json");
    assert!(vscode.contains("// mine\n") && vscode.contains("\"other\": {\"command\": \"x\"}, // keep\n"), "{vscode}");
    assert!(text("dotfiles/desktop.json").contains("sluice"), "what the link leads to was written");
    assert!(text("claude_desktop_config.json").starts_with("-> "), "the link is still one");
    let hooks = text(".cursor/hooks.json");
    assert!(hooks.contains("./a.sh") && hooks.contains("/a home/the key'"), "{hooks}");
}

#[test]
fn one_file_that_cannot_be_changed_leaves_all_as_they_are() {
    let home = SetupTestHome::new();
    home.bench.file(".claude/settings.json", "{ \"permissions\": ");
    home.bench.file("a home/.codex/config.toml", "[mcp_servers.\"sluice\"]\ncommand = \"theirs\"\n");
    let before = home.files();
    for client in ["claude-code", "codex"] {
        let run = home.setup(client, &["--hooks"]);
        assert_eq!(run.code, 7, "{client}: {}", run.stderr);
        assert!(run.stderr.contains("was not changed") && run.stderr.contains("nothing was written"), "{}", run.stderr);
        assert_eq!(home.files(), before, "{client}");
    }
    let nothing = home.setup("claude-code", &["--undo"]);
    assert_eq!(nothing.code, 0, "nothing to take back is no failure: {}", nothing.stderr);
    // Somebody went on writing after us: theirs is not thrown away.
    assert_eq!(home.setup("vscode", &[]).code, 0);
    let changed = VSCODE.replace("mine", "mine, changed");
    home.bench.file(".vscode/mcp.json", &changed);
    let run = home.setup("vscode", &["--undo"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(fs::read_to_string(home.bench.path(".vscode/mcp.json")).unwrap(), changed);
    home.bench.file(".vscode/mcp.json", VSCODE);
    assert_eq!(home.files(), before);
    // And beside ours: only ours goes.
    assert_eq!(home.setup("vscode", &[]).code, 0);
    let ours = fs::read_to_string(home.bench.path(".vscode/mcp.json")).unwrap();
    home.bench.file(".vscode/mcp.json", ours.replace("mine", "mine, changed"));
    assert_eq!(home.setup("vscode", &["--undo"]).code, 0);
    assert_eq!(fs::read_to_string(home.bench.path(".vscode/mcp.json")).unwrap(), changed);
}
