//! Tests of shell texts and what they run.

use super::pattern::{CommandPattern, is_listed};
use super::programs::{changed_files, named_hosts};
use super::{LENGTH, ShellScript};

/// The commands of a text as their words, `…` for a word that is not known.
fn commands(text: &str) -> Vec<String> {
    let script = ShellScript::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    let words = script.words();
    words.iter().map(|command| command.iter().map(|word| word.unwrap_or("…")).collect::<Vec<_>>().join(" ")).collect()
}

fn refused(text: &str) {
    assert!(ShellScript::parse(text).is_err(), "{text:?} was read as {:?}", ShellScript::parse(text));
}

#[test]
fn every_simple_command_of_a_text_counts_wherever_it_stands() {
    for (text, expected) in [
        ("ls", &["ls"][..]),
        ("ls -la src; pwd", &["ls -la src", "pwd"]),
        ("a && b || c & d", &["a", "b", "c", "d"]),
        ("a | b |& c", &["a", "b", "c"]),
        ("a\nb\n\nc", &["a", "b", "c"]),
        ("a $(b \"$(c)\") `d e`", &["b …", "c", "d e", "a … …"]),
        ("a <(b) >(c)", &["b", "c", "a … …"]),
        ("(a; b) > f", &["a", "b"]),
        ("{ a; b; }", &["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done", &["a", "b"]),
        ("for i in 1 2 3; do a \"$i\"; done", &["a …"]),
        ("case $x in a|b) c;; *) d;; esac", &["c", "d"]),
        ("f() { a; }; f", &["a", "f"]),
        ("function f { a; }\nf", &["a", "f"]),
        ("! a", &["a"]),
        ("a 'b c' \"d\\\"e\" f\\ g", &["a b c d\"e f g"]),
        ("a \\\n  b", &["a b"]),
        ("a # words only\nb", &["a", "b"]),
        ("a \"x\"#b; c", &["a x#b", "c"]),
        ("cat <<'END'\n$(rm x)\nEND\nb", &["cat", "b"]),
        ("cat <<END\n$(rm x)\nEND\nb", &["cat", "rm x", "b"]),
        ("git commit -m \"$(cat <<'EOF'\na message; with (signs)\nEOF\n)\"", &["cat", "git commit -m …"]),
        ("sh -c 'a; b'", &["a", "b"]),
        ("bash -lc \"a | b\"", &["a", "b"]),
        ("bash -euo pipefail -c 'a'", &["a"]),
        ("eval 'a;' b", &["a", "b"]),
        ("env X=1 a b", &["a b"]),
        ("nohup timeout -k 5 10s nice -n 5 a", &["a"]),
        ("a | xargs -0 -n 1 rm -f", &["a", "rm -f …"]),
        ("a | xargs -I{} cp {} d", &["a", "cp … d"]),
        ("find src -name '*.o' -exec rm -f {} \\;", &["rm -f …", "find src -name *.o -exec rm -f {} ;"]),
        ("sudo -u x a b", &["a b", "sudo -u x a b"]),
        ("watch -n 2 'a; b'", &["a", "b"]),
        ("trap 'a b' EXIT", &["a b"]),
        ("command -v a", &["command -v a"]),
        ("exec a", &["a"]),
        ("a stash@{0} {}", &["a stash@{0} {}"]),
        ("a {b,c}", &["a …"]),
        ("a *.rs", &["a …"]),
        ("a ~/x", &["a ~/x"]),
        ("a \"$HOME/x\"", &["a ~/x"]),
    ] {
        let mut found = commands(text);
        let mut expected: Vec<String> = expected.iter().map(|&command| command.to_owned()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn what_a_shell_could_read_otherwise_is_refused() {
    for text in [
        "$x",
        "$(a) b",
        "r?m x",
        "{a,b} c",
        "a 'b",
        "a \"b",
        "a $(b",
        "a `b",
        "a b\\",
        "(a",
        "a)",
        "if a; then b",
        "then",
        "a | ",
        "a &&",
        "((x=1))",
        "a $((x))",
        "a $[x]",
        "[[ -f x ]]",
        "select x in a; do b; done",
        "coproc a",
        "a=(b c)",
        "a[0]=b c",
        "a ${x@P}",
        "a ${!x}",
        "a ${x:$(b)}",
        "a $'b'",
        "a *(e:b:)",
        "a >!b",
        "a {fd}>b",
        "a <&x",
        "a # b; c",
        "a # $(b)",
        "cat <<END\nx",
        "cat <<$x\nx\n$x",
        "a\rb",
        "a\0b",
        "a\u{1b}b",
        "eval $x",
        "eval \"a $x\"",
        "sh -c \"$x\"",
        "sh -c",
        "bash --rcfile x -c a",
        "env -S 'a b'",
        "env $x a",
        "timeout $x a",
        "xargs -I rm rm x",
        "xargs $x",
        "find . $x",
        "find -files0-from x -delete",
        "i\\\nf a; then b; fi",
        "`a \\`b\\``",
        "path=/x ls; for PATH in a; do b; done",
    ] {
        refused(text);
    }
    refused(&"a".repeat(LENGTH + 1));
    refused(&format!("a {}", "$(b ".repeat(64)));
    refused(&"(".repeat(200));
    refused(&"a;".repeat(1000));
    refused(&format!("{}a", "eval ".repeat(100)));
}

#[test]
fn a_long_hostile_text_is_read_in_a_moment() {
    let pieces = ["$(", "\"", "`", "(", "a ", "{ ", "if ", "\\", "<<x\n", "'", "case a in ", "f() ", "$((1", "${a"];
    for one in pieces {
        for other in pieces {
            let text = [one, other].concat().repeat(LENGTH / (one.len() + other.len()));
            let _ = ShellScript::parse(&text);
        }
    }
}

#[test]
fn a_star_stands_for_words_and_never_for_an_option_that_makes_it_another_program() {
    let listed = |patterns: &[&str], text: &str| {
        let patterns: Vec<CommandPattern> = patterns.iter().map(|text| CommandPattern::new(text).unwrap()).collect();
        ShellScript::parse(text)
            .is_ok_and(|script| script.commands.iter().all(|command| is_listed(&patterns, command) == Ok(true)))
    };
    for (pattern, text, expected) in [
        ("git status", "git status", true),
        ("git status", "git status -s", false),
        ("git status *", "git status", true),
        ("git status *", "git status -s", true),
        ("git status *", "git statusx", false),
        ("git *", "git -c alias.x='!rm' x", false),
        ("git *", "git log --output=x", false),
        ("git *", "git grep -Orm x", false),
        ("git *", "git $x", false),
        ("git -c * log", "git -c a=b log", true),
        ("git commit *", "git commit -m \"$(date)\"", false),
        ("ls *", "/bin/ls x", false),
        ("ls *", "./ls x", false),
        ("ls *", "PATH=/evil ls x", false),
        ("ls *", "LD_PRELOAD=x ls", false),
        ("ls *", "export PATH=x; ls", false),
        ("ls *", "PATH=x; ls", false),
        ("ls *", "path=x; ls", false),
        ("ls *", "http_proxy=x ls", false),
        ("ls *", "x=1; ls \"$x\"", true),
        ("RUSTFLAGS=* cargo test *", "RUSTFLAGS=-g cargo test a", true),
        ("cargo test *", "RUSTFLAGS=-g cargo test a", false),
        ("cargo test *", "RUST_LOG=debug cargo test a", true),
        ("rm *", "rm a", true),
        ("rm *", "rm -rf a", false),
        ("rm *", "rm a -fr", false),
        ("rm *", "rm --recurs a", false),
        ("rm *", "rm $x a", false),
        ("rm -rf target", "rm -rf target", true),
        ("rm -rf target", "rm -rf target x", false),
        ("python *", "python -c 'x'", false),
        ("python3 *.py *", "python3 a.py b", true),
        ("sed *", "sed -n '1,5p' a", true),
        ("sed *", "sed 's/a/b/g' a", true),
        ("sed *", "sed 's/a/b/e' a", false),
        ("sed *", "sed 's/a/b/w x' a", false),
        ("sed *", "sed '1e rm x' a", false),
        ("sed *", "sed -f x a", false),
        ("awk *", "awk '{print $1}' a", true),
        ("awk *", "awk 'BEGIN{system(\"rm\")}'", false),
        ("awk *", "awk '{print > \"x\"}' a", false),
        ("rg *", "rg --pre=x y", false),
        ("sort *", "sort -o x y", false),
        ("find *", "find . -exec rm {} +", false),
        ("test *", "test -v 'a[$(rm)]'", false),
        ("alias *", "alias ls=rm", false),
        ("printf *", "printf '%s' \"$x\"", true),
        ("printf *", "printf -v PATH /evil", false),
        ("printf *", "printf $x", false),
        ("npm run *", "npm run build", true),
        ("ls *", "ls; rm x", false),
        ("ls *", "ls $(rm x)", false),
        ("ls *", "echo x | ls", false),
    ] {
        assert_eq!(listed(&[pattern], text), expected, "`{text}` under `{pattern}`");
    }
    assert!(listed(&["git commit *", "date"], "git commit -m \"$(date)\""));
    for bad in ["", "*", "a; b", "a | b", "a > b", "$x", "a $x", "a [b]", "a 'b"] {
        assert!(CommandPattern::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn files_a_command_changes_are_found_or_said_to_be_unknown() {
    let changed = |text: &str| -> Vec<String> {
        let script = ShellScript::parse(text).unwrap();
        let found = script.commands.iter().flat_map(changed_files);
        found.map(|one| one.word.map_or("?".into(), |word| word.text)).collect()
    };
    for (text, expected) in [
        ("rm a b", &["a", "b"][..]),
        ("rm -f -- -a", &["-a"]),
        ("cp a b c", &["c"]),
        ("cp -t c a", &["?"]),
        ("cp --target-directory=c a", &["?"]),
        ("mv a b", &["a", "b"]),
        ("mv -t/etc a", &["/etc", "a"]),
        ("tee -a x", &["x"]),
        ("chmod +x a", &["a"]),
        ("sed -i 's/a/b/' x y", &["x", "y"]),
        ("sed 's/a/b/' x", &[]),
        ("dd if=a of=/dev/sda", &["/dev/sda"]),
        ("find a -delete", &["a"]),
        ("find -fprint x", &["x"]),
        ("ls a", &[]),
    ] {
        assert_eq!(changed(text), expected, "{text}");
    }
}

#[test]
fn hosts_are_read_as_the_program_would() {
    let hosts = |text: &str| named_hosts(&ShellScript::parse(text).unwrap().commands[0]).ok();
    let list = |hosts: &[&str]| Some(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>());
    assert_eq!(hosts("curl http://localhost:3000/x"), list(&["localhost"]));
    assert_eq!(hosts("curl http://localhost@evil.example/"), list(&["evil.example"]));
    assert_eq!(hosts("curl -x evil.example:80 http://localhost/"), list(&["evil.example", "localhost"]));
    assert_eq!(hosts("git clone git@github.com:a/b"), list(&["github.com"]));
    assert_eq!(hosts("git clone https://GitHub.com/a/b"), list(&["github.com"]));
    assert_eq!(hosts("ssh me@host.example ls"), list(&["host.example", "ls"]));
    for unclear in
        ["curl $x", "curl", "curl 'http://localhost\\@evil/'", "curl 'http://{a,b}/'", "git clone http://$x/"]
    {
        assert_eq!(hosts(unclear), None, "{unclear}");
    }
}
