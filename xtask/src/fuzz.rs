//! `cargo xtask fuzz`: libFuzzer on every parser of untrusted bytes, with the cost counted.
//!
//! Takes a target and a duration, or `--quick` for a minute per target; gives what was run and found. Promise: the
//! toolchain of this repository is enough (a C++ compiler builds libFuzzer, once); a finding is shown, written to
//! `target/fuzz`, and makes the recipe fail; the inputs in `fuzz/corpus` are replayed first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::command::CommandLine;
use crate::packages::{command_output, need};

const MANIFEST: &str = "fuzz/Cargo.toml";
const CORPUS: &str = "fuzz/corpus";
/// Coverage of edges for the fuzzer, of comparisons for its guesses, of loads for the cost.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-trace-loads";
/// Longest input; the program extends its input on its own.
const LONGEST: &str = "-max_len=4096";
const QUICK: u32 = 60;
/// Targets that link the mail parsers, which take longer to build than everything else: fuzzed only when named.
const MAILS: [&str; 2] = ["mime", "reply"];

/// The parsed arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum FuzzRun {
    /// Every target, for this many seconds each.
    All(u32),
    /// One target, for this many seconds.
    One(String, u32),
    /// Only the stored inputs of all targets, with the cost of each if requested.
    Replay { costs: bool },
    /// Adds new inputs to `fuzz/corpus`, minimised to the same coverage.
    Keep,
}

impl FuzzRun {
    /// Parses the words after `fuzz`.
    pub fn read(words: &[&str]) -> Result<Self, String> {
        let seconds = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number of seconds"));
        match words {
            ["--quick"] => Ok(Self::All(QUICK)),
            ["--seconds", n] => Ok(Self::All(seconds(n)?)),
            ["--replay"] => Ok(Self::Replay { costs: false }),
            ["--costs"] => Ok(Self::Replay { costs: true }),
            ["--keep"] => Ok(Self::Keep),
            [target] if !target.starts_with('-') => Ok(Self::One((*target).to_owned(), QUICK)),
            [target, "--seconds", n] if !target.starts_with('-') => Ok(Self::One((*target).to_owned(), seconds(n)?)),
            _ => Err(format!("`fuzz` does not know `{}`", words.join(" "))),
        }
    }
}

/// Runs it.
pub fn run(asked: &FuzzRun) -> ExitCode {
    match try_run(asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

fn try_run(asked: &FuzzRun) -> Result<bool, String> {
    let mails = matches!(asked, FuzzRun::One(target, _) if MAILS.contains(&target.as_str()));
    let program = build(mails)?;
    let targets: Vec<String> =
        targets()?.into_iter().filter(|target| mails || !MAILS.contains(&target.as_str())).collect();
    let all = |each: &dyn Fn(&str) -> Result<bool, String>| {
        targets.iter().try_fold(true, |fine, target| Ok::<_, String>(each(target)? && fine))
    };
    match asked {
        FuzzRun::All(seconds) => all(&|target| fuzz(&program, target, *seconds)),
        FuzzRun::One(target, seconds) if targets.contains(target) => fuzz(&program, target, *seconds),
        FuzzRun::One(target, _) => Err(format!("there is no target `{target}`: {}", targets.join(", "))),
        FuzzRun::Replay { costs } => all(&|target| replay(&program, target, *costs)),
        FuzzRun::Keep => all(&|target| keep(&program, target)),
    }
}

/// The targets: the names of the corpus folders.
fn targets() -> Result<Vec<String>, String> {
    let words = |error: std::io::Error| format!("{CORPUS}: {error}");
    let mut names = Vec::new();
    for entry in fs::read_dir(CORPUS).map_err(words)? {
        names.push(entry.map_err(words)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Builds the program with coverage instrumentation, except for build scripts.
fn build(mails: bool) -> Result<PathBuf, String> {
    need("g++", "g++")?;
    let host = command_output(&CommandLine::new(&["rustc", "--print", "host-tuple"]))?;
    let folder = "target/fuzz/build";
    let line = CommandLine::cargo(&["build", "--release", "--manifest-path", MANIFEST, "--target", &host])
        .args(&["--target-dir", folder])
        .args(if mails { &["--features", "mail"] } else { &[] })
        .env("RUSTFLAGS", FLAGS);
    println!("$ {line}");
    match line.status() {
        Ok(status) if status.success() => Ok(Path::new(folder).join(host).join("release/fuzz")),
        Ok(status) => Err(format!("the fuzzer could not be built: {status}")),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}

fn program(program: &Path, target: &str) -> CommandLine {
    CommandLine::new(&[&program.display().to_string()]).env("SLUICE_FUZZ", target)
}

/// The folder of inputs found on this machine.
fn grown(target: &str) -> Result<String, String> {
    let folder = format!("target/fuzz/corpus/{target}");
    fs::create_dir_all(&folder).map_err(|error| format!("{folder}: {error}"))?;
    Ok(folder)
}

fn fuzz(binary: &Path, target: &str, seconds: u32) -> Result<bool, String> {
    let (grown, kept) = (grown(target)?, format!("{CORPUS}/{target}"));
    let findings = format!("target/fuzz/findings/{target}-");
    fs::create_dir_all("target/fuzz/findings").map_err(|error| error.to_string())?;
    let time = format!("-max_total_time={seconds}");
    let place = format!("-artifact_prefix={findings}");
    let line = program(binary, target).args(&[&grown, &kept, LONGEST, &time, &place]).args(&[
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=0",
        "-use_value_profile=1",
    ]);
    let output = line.output().map_err(|error| format!("the fuzzer could not be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let count = count.map_or("?", str::trim);
    if output.status.success() {
        println!("{target:14} {count:>9} inputs in {seconds} s, nothing found");
        return Ok(true);
    }
    println!("{target:14} {count:>9} inputs, FOUND:\n$ {line}\n{}", last(&said, 30));
    Ok(false)
}

fn replay(binary: &Path, target: &str, costs: bool) -> Result<bool, String> {
    let kept = format!("{CORPUS}/{target}");
    let mut line = program(binary, target).args(&[&kept, "-runs=0", "-timeout=20"]);
    if costs {
        line = line.env("SLUICE_FUZZ_COSTS", "1");
    }
    let output = line.output().map_err(|error| format!("the fuzzer could not be started: {error}"))?;
    if !output.status.success() {
        println!("{target:14} FAILS:\n$ {line}\n{}", last(&String::from_utf8_lossy(&output.stderr), 30));
        return Ok(false);
    }
    let files = fs::read_dir(&kept).map_err(|error| error.to_string())?.count();
    match costs.then(|| dearest(&String::from_utf8_lossy(&output.stdout))) {
        None => println!("{target:14} {files:4} inputs, within their limits"),
        Some((base, slope)) => {
            println!(
                "{target:14} {files:4} inputs, most expensive: {base} loads below 512 bytes, then {slope} per byte"
            )
        }
    }
    Ok(true)
}

/// The cost of the most expensive short input, and the highest cost per byte of longer ones.
fn dearest(printed: &str) -> (u64, u64) {
    let (mut base, mut slope) = (0, 0);
    for line in printed.lines() {
        let mut words = line.split_whitespace();
        let (Some("cost"), _, Some(size), Some(spent)) = (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(size), Ok(spent)) = (size.parse::<u64>(), spent.parse::<u64>()) else { continue };
        if size < 512 {
            base = base.max(spent);
        } else {
            slope = slope.max(spent.checked_div(size).unwrap_or(0));
        }
    }
    (base, slope)
}

/// libFuzzer's merge: the fewest and smallest inputs with the coverage of all of them.
fn keep(binary: &Path, target: &str) -> Result<bool, String> {
    let (grown, kept) = (grown(target)?, format!("{CORPUS}/{target}"));
    let line = program(binary, target).args(&["-merge=1", "-timeout=20", "-max_len=2048", &kept, &grown]);
    let output = line.output().map_err(|error| format!("the fuzzer could not be started: {error}"))?;
    if !output.status.success() {
        println!("{target:14} FAILS:\n$ {line}\n{}", last(&String::from_utf8_lossy(&output.stderr), 30));
        return Ok(false);
    }
    println!("{target:14} {} inputs kept", fs::read_dir(&kept).map_err(|error| error.to_string())?.count());
    Ok(true)
}

fn last(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_takes_its_time_and_quick_takes_all_of_them() {
        assert_eq!(FuzzRun::read(&["--quick"]), Ok(FuzzRun::All(60)));
        assert_eq!(FuzzRun::read(&["html"]), Ok(FuzzRun::One("html".into(), 60)));
        assert_eq!(FuzzRun::read(&["html", "--seconds", "5"]), Ok(FuzzRun::One("html".into(), 5)));
        assert!(FuzzRun::read(&["--fast"]).is_err());
        assert!(FuzzRun::read(&["html", "--seconds", "long"]).is_err());
    }

    #[test]
    fn the_dearest_byte_is_told_from_the_dearest_short_input() {
        assert_eq!(dearest("cost html 10 700 5\nx\ncost html 1000 9000 5\ncost html 2000 4000 5"), (700, 9));
    }
}
