//! Acknowledged means on disk: checked from outside, in the order of the system calls.
//!
//! A kill cannot show this, because the page cache outlives the process. `strace` can: between the write of an
//! admission to the log and its acknowledgement there must be a sync of that log.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sluice_testkit::crash_state::Workload;

use crate::environment::{CrashEnvironment, CrashRun};

const WORK: Workload = Workload { writes: 6, class: None };

/// What the trace shows about acknowledgements.
#[derive(Debug, Default, PartialEq, Eq)]
struct TracedAcks {
    /// Acknowledged with the write's own id in a part of the log that was synced.
    synced: u32,
    /// Acknowledged while its id was in no synced part of the log.
    hollow: u32,
}

/// Reads system calls in order. With several threads a call may be shown in two halves; it counts when it has returned.
/// Admissions that share a commit share its sync, so each is searched by its id.
fn read(trace: &str) -> TracedAcks {
    let mut seen = TracedAcks::default();
    let (mut written, mut synced): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut syncing: Vec<(&str, bool)> = Vec::new();
    for line in trace.lines() {
        let (thread, call) = line.trim_start().split_once(' ').unwrap_or_default();
        let call = call.trim_start();
        let on_log = call.contains("-wal>");
        let is_sync = call.starts_with("fdatasync(") || call.starts_with("fsync(");
        if call.starts_with("pwrite64(") && on_log {
            written.push(call);
        } else if is_sync && call.contains("<unfinished") {
            syncing.push((thread, on_log));
        } else if is_sync && on_log && call.ends_with("= 0") {
            synced.append(&mut written);
        } else if call.starts_with("<... f") && call.contains("sync resumed") {
            let at = syncing.iter().position(|(other, _)| *other == thread);
            if at.is_some_and(|at| syncing.swap_remove(at).1) && call.ends_with("= 0") {
                synced.append(&mut written);
            }
        } else if call.starts_with("write(") && call.contains("/acks>") && call.contains("\"admitted ") {
            let id = bytes_of_id(call);
            match id.is_some_and(|id| synced.iter().any(|write| write.contains(&id))) {
                true => seen.synced += 1,
                false => seen.hollow += 1,
            }
        }
    }
    seen
}

/// The bytes of the id in an acknowledgement, in the tracer's notation.
fn bytes_of_id(ack: &str) -> Option<String> {
    let digits = ack.split_once("buf_")?.1.get(..32)?;
    let pairs = (0..16).map(|place| digits.get(2 * place..2 * place + 2).map(|pair| format!("\\x{pair}")));
    pairs.collect()
}

/// Runs the driver under `strace`, one operation at a time, while it admits writes.
fn watch(plant: Option<&'static str>) -> Option<TracedAcks> {
    if !installed() {
        let reason = "strace is not installed";
        assert!(std::env::var_os("SLUICE_TEST_STRICT").is_none(), "{reason}");
        // Written directly to standard error: the test harness hides the output of a passing test.
        drop(writeln!(std::io::stderr(), "skipped: {reason}"));
        return None;
    }
    let environment = CrashEnvironment::sqlite();
    let run = CrashRun { environment: &environment, seed: 1, work: WORK, plant };
    let (driver, to) = (run.command(0), environment.folder().join("trace"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-x", "-s", "4096", "-e", "trace=fdatasync,fsync,pwrite64,write", "-o"]).arg(&to);
    strace.arg(driver.get_program()).args(driver.get_args()).arg("flight=1");
    let status = strace.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    Some(read(&std::fs::read_to_string(Path::new(&to)).unwrap()))
}

fn installed() -> bool {
    let asked = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

#[test]
fn no_admission_is_acknowledged_before_it_is_on_disk() {
    // The tracer reports the calls of two threads as it receives them, so on a busy machine one pair may be in the
    // wrong order. A store that does not sync fails each time, see the control below.
    let mut traces = Vec::new();
    for _ in 0..3 {
        let Some(seen) = watch(None) else { return };
        if seen.hollow == 0 && seen.synced >= WORK.writes {
            return;
        }
        traces.push(seen);
    }
    panic!("no trace shows a sync before every acknowledgement: {traces:?}");
}

#[test]
fn admissions_that_are_never_synced_are_caught() {
    let Some(seen) = watch(Some("sync_off")) else { return };
    assert_eq!(seen, TracedAcks { synced: 0, hollow: WORK.writes });
}

#[test]
fn a_sync_counts_when_it_has_returned_and_only_for_the_log() {
    let ack = "9 write(4</t/acks>, \"admitted 0 buf_000102030405060708090a0b0c0d0e0f\\n\", 48) = 48\n";
    let id: String = (0..16).map(|byte| format!("\\x{byte:02x}")).collect();
    let wal = format!("8 pwrite64(5</t/s.db-wal>, \"\\x0d{id}\\xff\", 24, 0) = 24\n");
    let count = |middle: &str| {
        let seen = read(&format!("{wal}{middle}{ack}"));
        (seen.synced, seen.hollow)
    };
    assert_eq!(count("8 fdatasync(5</t/s.db-wal>) = 0\n"), (1, 0));
    assert_eq!(count("8 fdatasync(6</t/s.db>) = 0\n"), (0, 1));
    assert_eq!(count("8 fdatasync(5</t/s.db-wal> <unfinished ...>\n"), (0, 1));
    let halves = "8 fdatasync(5</t/s.db-wal> <unfinished ...>\n8 <... fdatasync resumed>) = 0\n";
    assert_eq!(count(halves), (1, 0));
    assert_eq!(count("8 fdatasync(5</t/s.db-wal>) = -1 EIO (Input/output error)\n"), (0, 1));
    assert_eq!(read(ack), TracedAcks { synced: 0, hollow: 1 }, "nothing was written at all");
    let other = wal.replace("\\x00\\x01", "\\x00\\x02");
    let sync = "8 fdatasync(5</t/s.db-wal>) = 0\n";
    assert_eq!(read(&format!("{other}{sync}{ack}")), TracedAcks { synced: 0, hollow: 1 }, "another write was synced");
    assert_eq!(read(&format!("{sync}{wal}{ack}")), TracedAcks { synced: 0, hollow: 1 }, "the sync came before it");
    assert_eq!(
        read(&format!("{wal}{other}{sync}{ack}{ack}")),
        TracedAcks { synced: 2, hollow: 0 },
        "one sync for both"
    );
}
