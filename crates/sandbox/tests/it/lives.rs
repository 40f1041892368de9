//! Ordinary lifetimes of workers: many of them leave nothing behind.

use std::path::Path;

use serde_json::json;
use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_protocol::{ExchangeReply, WorkerExchange, WorkerItem, WorkerJob};
use sluice_sandbox::parent::{
    NamespacesMode, RefusingWorkerHost, Spawner, WorkerCancel, WorkerEnd, WorkerHost, WorkerProgram, WorkerStartError,
};
use sluice_sandbox::{JailLayerName, JailMode};

use crate::test_sandbox::{AnsweringTestHost, MachineTestClock, TestSandbox, value};

#[test]
fn a_job_goes_in_and_a_report_comes_out() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let mut task = house.task("echo", None);
    task.job = WorkerJob { kind: "echo".into(), payload: json!({"a": [1, "ü"]}), attachments: vec![vec![7; 3 << 20]] };
    let WorkerEnd::Clean(done) = house.try_run(task).unwrap() else { panic!("no end") };
    assert_eq!(value(&done), json!({"a": [1, "ü"]}));
    assert_eq!(done.report.attachments, [vec![7; 3 << 20]]);
    assert!(done.usage.frames == 2 && done.usage.bytes > 3 << 20);
}

#[test]
fn exchanges_and_items_reach_the_host() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let mut host = AnsweringTestHost::default();
    let WorkerEnd::Clean(done) = house.spawner.run(house.task("ask", None), &mut host, &house.cancel()).unwrap() else {
        panic!("no end")
    };
    assert!(value(&done).as_str().unwrap().starts_with("Answer { status: 200"));
    assert_eq!((host.asked, done.usage.exchanges), (1, 1));
    let WorkerEnd::Clean(_) = house.spawner.run(house.task("items", None), &mut host, &house.cancel()).unwrap() else {
        panic!("no end")
    };
    assert_eq!(host.items.len(), 3);
    let alone = house.spawner.run(house.task("items", None), &mut RefusingWorkerHost, &house.cancel()).unwrap();
    let WorkerEnd::Crashed(crash) = alone else { panic!("items nobody asked for") };
    assert_eq!(crash.cause, CrashCause::MalformedFrame);
}

#[test]
fn a_worker_keeps_its_own_files_and_no_others() {
    for namespaces in [NamespacesMode::WhereAllowed, NamespacesMode::Off] {
        let house = TestSandbox::new(namespaces);
        let end = house.run_with_scratch("keep_a_draft");
        let WorkerEnd::Clean(done) = &end else { panic!("{end:?}") };
        assert_eq!(value(done), json!(["dear all", true, true]));
        assert_eq!(std::fs::read(house.path("scratch/letter.md")).unwrap(), b"kept");
        house.is_untouched();
    }
}

#[test]
fn every_layer_is_on_and_says_so() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let WorkerEnd::Clean(done) = house.run("echo") else { panic!("no end") };
    assert_eq!(done.layers.missing_mandatory(), [], "{:?}", done.layers);
    let off = TestSandbox::new(NamespacesMode::Off);
    let WorkerEnd::Clean(done) = off.run("echo") else { panic!("no end") };
    assert_eq!(done.layers.missing(), [JailLayerName::Namespaces, JailLayerName::EmptyRoot]);
}

#[test]
fn the_kernel_agrees_about_a_worker_that_runs() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let cancel = house.cancel();
    let status = std::thread::scope(|scope| {
        scope.spawn(|| house.run_until(&cancel, "half_a_frame_and_hang"));
        let status = until(|| {
            let ours = children().into_iter().filter_map(|pid| read(&format!("/proc/{pid}/status")));
            ours.into_iter().find(|status| status.contains("Seccomp:\t2") && status.contains("evil-worker"))
        });
        cancel.cancel();
        status
    });
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(line("NoNewPrivs:"), "1");
    assert_eq!(line("Threads:"), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
}

#[test]
fn a_program_that_is_no_worker_is_not_given_a_job() {
    let spawner = |path| {
        Spawner::new(WorkerProgram::at(Path::new(path)).unwrap(), std::sync::Arc::new(MachineTestClock)).unwrap()
    };
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let run =
        |path| spawner(path).run(house.task("echo", None), &mut RefusingWorkerHost, &WorkerCancel::new().unwrap());
    assert!(matches!(run("/bin/true"), Err(WorkerStartError::NoWorker(_))));
    assert!(matches!(run("/etc/passwd"), Err(WorkerStartError::Spawn(_))));
    assert!(matches!(run("/tmp"), Err(WorkerStartError::Spawn(_))));
    let mut task = house.task("echo", None);
    task.job.kind = "../sh".into();
    assert!(matches!(house.try_run(task), Err(WorkerStartError::Job(_))));
    assert!(matches!(house.try_run(house.task("echo", Some(Path::new("/nowhere")))), Err(WorkerStartError::Spawn(_))));
}

#[test]
fn a_worker_may_be_run_degraded_and_tells_the_same_layers() {
    let house = TestSandbox::new(NamespacesMode::Off);
    let mut task = house.task("echo", None);
    task.mode = JailMode::Degraded;
    let WorkerEnd::Clean(done) = house.try_run(task).unwrap() else { panic!("no end") };
    assert!(done.layers.has(JailLayerName::Seccomp) && done.layers.has(JailLayerName::Landlock));
}

#[test]
fn a_host_that_panics_takes_its_worker_with_it() {
    struct Broken;
    impl WorkerHost for Broken {
        fn exchange(&mut self, _: WorkerExchange, _: Millis) -> Result<ExchangeReply, CrashCause> {
            panic!("a mistake of ours");
        }
        fn item(&mut self, _: WorkerItem) -> Result<(), CrashCause> {
            Ok(())
        }
    }
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let mine = || read("/proc/thread-self/children").unwrap();
    let run = || house.spawner.run(house.task("ask", None), &mut Broken, &house.cancel());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    assert_eq!(mine().trim(), "", "neither alive nor unburied");
    house.still_works();
}

#[test]
fn the_host_can_end_a_worker_and_say_for_what() {
    struct Strict;
    impl WorkerHost for Strict {
        fn exchange(&mut self, exchange: WorkerExchange, left: Millis) -> Result<ExchangeReply, CrashCause> {
            assert_eq!((exchange.method.as_str(), exchange.body.len()), ("GET", 100));
            assert!(left > Millis::from_secs(5));
            Err(CrashCause::Leak { findings: 2 })
        }
        fn item(&mut self, _: WorkerItem) -> Result<(), CrashCause> {
            Ok(())
        }
    }
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let end = house.spawner.run(house.task("ask", None), &mut Strict, &house.cancel()).unwrap();
    let WorkerEnd::Crashed(crash) = end else { panic!("{end:?}") };
    assert_eq!((crash.cause, crash.usage.exchanges), (CrashCause::Leak { findings: 2 }, 1));
}

#[test]
fn an_answer_or_job_that_fits_no_frame_is_not_blamed_on_the_worker() {
    struct Generous;
    impl WorkerHost for Generous {
        fn exchange(&mut self, _: WorkerExchange, _: Millis) -> Result<ExchangeReply, CrashCause> {
            Ok(ExchangeReply::Answer { status: 200, headers: Vec::new(), body: vec![0; 25 << 20] })
        }
        fn item(&mut self, _: WorkerItem) -> Result<(), CrashCause> {
            Ok(())
        }
    }
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let end = house.spawner.run(house.task("ask", None), &mut Generous, &house.cancel()).unwrap();
    let WorkerEnd::Clean(done) = end else { panic!("{end:?}") };
    assert!(value(&done).as_str().unwrap().contains("egress.too_large"));
    let mut task = house.task("echo", None);
    task.job.attachments = vec![vec![0; 25 << 20]];
    assert!(matches!(house.try_run(task), Err(WorkerStartError::Job(_))));
}

#[test]
fn five_hundred_lives_leave_nothing_behind() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let run = |n: usize| match n % 5 {
        0 => drop(house.run("socket_inet")),
        1 => drop(house.run("exit_three")),
        2 => drop(house.run("noise")),
        3 => drop(house.run_with_scratch("echo")),
        _ => house.still_works(),
    };
    (0..20).for_each(run);
    let (descriptors, memory) = (own_descriptors(), own_memory());
    (0..500).for_each(run);
    assert!(own_descriptors() <= descriptors + 8, "other tests of this process hold a few");
    assert!(own_memory() < memory + (24 << 20), "{} → {}", memory, own_memory());
    // Children of other tests may be alive; none of them may be dead and unreaped for long.
    until(|| zombies().is_empty().then_some(()));
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn zombies() -> Vec<u32> {
    let dead = |pid: &u32| read(&format!("/proc/{pid}/stat")).is_some_and(|stat| stat.contains(") Z "));
    children().into_iter().filter(dead).collect()
}

fn own_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn own_memory() -> u64 {
    let pages: u64 = read("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Polls until it appears, or until it certainly never will.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::yield_now();
        let _ = rustix::event::poll(&mut [], Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
    }
    panic!("it did not happen");
}
