//! yara-python as a peer: a Python process that compiles our words as rules and times itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::rounds::RunTimes;

/// Names the Python that has `yara-python`.
const PYTHON: &str = "SLUICE_BENCH_PYTHON";
const SCRIPT: &str = r#"
import json, sys, time
import yara
setup = json.loads(sys.stdin.readline())
words, count = setup["words"], setup["rules"]
rules = []
for n in range(count):
    strings = "\n".join("$w%d = %s nocase" % (i, json.dumps(w)) for i, w in enumerate(words[n::count]))
    rules.append("rule r%d { strings:\n%s\ncondition: any of them }" % (n, strings))
compiled = yara.compile(source="\n".join(rules))
print("ready", flush=True)
for line in sys.stdin:
    ask = json.loads(line)
    data, passes = ask["text"].encode(), ask["passes"]
    start = time.thread_time_ns()
    for _ in range(passes):
        found = compiled.match(data=data)
    print(json.dumps({"nanos": time.thread_time_ns() - start, "found": len(found)}), flush=True)
"#;

/// The running peer.
#[derive(Debug)]
pub struct YaraProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl YaraProcess {
    /// Starts Python, if it has the package.
    pub fn start(words: &[String], rules: usize) -> anyhow::Result<Self> {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let mut child = Command::new(&python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("`{python}` could not be started"))?;
        let to = child.stdin.take().context("no way to write")?;
        let from = BufReader::new(child.stdout.take().context("no way to read")?);
        let mut peer = Self { child, to, from };
        // ASCII words only: `nocase` has another meaning for other characters.
        let words: Vec<&String> = words.iter().filter(|word| word.is_ascii() && word.len() > 1).collect();
        writeln!(peer.to, "{}", serde_json::json!({"words": words, "rules": rules}))?;
        let ready = peer.line().context("the Python package `yara-python` is not there")?;
        ensure!(ready.trim() == "ready", "yara-python did not start");
        Ok(peer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.from.read_line(&mut line)? > 0, "it ended");
        Ok(line)
    }

    fn ask(&mut self, text: &str, passes: u64) -> anyhow::Result<serde_json::Value> {
        writeln!(self.to, "{}", serde_json::json!({"text": text, "passes": passes}))?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Whether one of the rules matches.
    pub fn finds(&mut self, text: &str) -> anyhow::Result<bool> {
        Ok(self.ask(text, 1)?["found"].as_u64().is_some_and(|found| found > 0))
    }

    /// Times this many passes, by the peer's own processor clock.
    pub fn time(&mut self, text: &str, passes: u64) -> anyhow::Result<RunTimes> {
        let nanos = self.ask(text, passes)?["nanos"].as_u64().context("no time")?;
        let took = Duration::from_nanos(nanos);
        Ok(RunTimes { count: passes, wall: took, cpu: took })
    }
}

impl Drop for YaraProcess {
    fn drop(&mut self) {
        // It ends by itself with its input; this only keeps it from outliving us.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
