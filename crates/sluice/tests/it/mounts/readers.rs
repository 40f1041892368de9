//! Who reads what a server answers: copies of a mould, one for each answer, or one reader for one conversation.

use std::fs;
use std::time::Duration;

use super::{FREE, MountTestGateway, stub};
use crate::running::pause;

/// A process of the gateway's that reads, or of which those are copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ReaderProcess {
    id: u32,
    parent: u32,
}

/// Processes that read for this gateway: its own children, and copies of them.
fn readers(scene: &MountTestGateway) -> Vec<ReaderProcess> {
    let gateway = scene.running.0.id();
    let mut workers = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        if let (Some(parent), Ok(id), true) =
            (parent, process.file_name().to_string_lossy().parse(), words == "sluice\0worker\0")
        {
            workers.push(ReaderProcess { id, parent });
        }
    }
    let of = |parent: u32| workers.iter().copied().filter(move |process| process.parent == parent);
    let mut found: Vec<ReaderProcess> = of(gateway).flat_map(|process| of(process.id).chain([process])).collect();
    found.sort();
    found
}

/// Looks until there are as many as that.
fn until_readers(scene: &MountTestGateway, fit: impl Fn(&[ReaderProcess]) -> bool) -> Vec<ReaderProcess> {
    for _ in 0..2_000 {
        let found = readers(scene);
        if fit(&found) {
            return found;
        }
        pause(Duration::from_millis(10));
    }
    panic!("{:?}", readers(scene));
}

/// A copy may have gone with its mould already.
fn kill(process: ReaderProcess) {
    let id = i32::try_from(process.id).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    let _killed = rustix::process::kill_process(id, rustix::process::Signal::KILL);
}

#[test]
fn a_kept_reader_reads_one_conversation_and_an_attack_is_withheld_by_it_as_by_any() {
    let kept = |name: &str, kind: &str| stub(name, kind, "").replace("delay: 0s", "delay: 0s\n    keep_reader: true");
    let scene = MountTestGateway::new(&(kept("good", "good") + &kept("bad", "injects")), FREE);
    scene.open("good");
    scene.open("bad");
    assert_eq!(scene.said("good.echo", "1"), "echo 1");
    // The reader, and a mould for those that come later.
    let first = until_readers(&scene, |found| found.len() == 2);
    for _ in 0..3 {
        assert_eq!(scene.said("good.echo", "2"), "echo 2");
    }
    assert_eq!(first, readers(&scene), "the same one read all, and nobody else was started");
    let withheld = scene.call("bad.echo", "x");
    assert!(withheld.body["result"]["data"]["withheld"].is_object(), "{withheld:?}");
    assert!(!withheld.body.to_string().contains("attacker@evil"), "{withheld:?}");
    let then = readers(&scene);
    assert!(then.len() > first.len(), "another server has another reader");
    assert_eq!(scene.said("good.echo", "3"), "echo 3");
    // One that is gone is missed by nobody: the next item is read all the same.
    then.into_iter().for_each(kill);
    assert_eq!(scene.said("good.echo", "4"), "echo 4");
}

#[test]
fn each_answer_is_read_by_a_copy_of_its_own_and_a_mould_that_died_is_missed_by_nobody() {
    let scene = MountTestGateway::new(&(stub("good", "good", "") + &stub("bad", "injects", "")), FREE);
    scene.open("good");
    scene.open("bad");
    assert_eq!(scene.said("good.echo", "1"), "echo 1");
    let moulds = |found: &[ReaderProcess]| {
        let ids: Vec<u32> = found.iter().map(|process| process.parent).collect();
        found.iter().copied().filter(|process| ids.contains(&process.id)).collect::<Vec<_>>()
    };
    assert_eq!(scene.said("good.echo", "2"), "echo 2");
    let before = until_readers(&scene, |found| moulds(found).len() == 1 && found.len() == 5);
    assert_eq!(scene.said("good.echo", "3"), "echo 3");
    let after = until_readers(&scene, |found| found.len() == 5);
    assert_eq!(moulds(&before), moulds(&after), "the mould stays");
    assert_eq!(before.iter().filter(|process| !after.contains(process)).count(), 1, "one copy is used up by an item");
    // A copy finds what any other reader finds.
    let withheld = scene.call("bad.echo", "x");
    assert!(withheld.body["result"]["data"]["withheld"].is_object(), "{withheld:?}");
    let died = moulds(&after)[0];
    kill(died);
    assert_eq!(scene.said("good.echo", "4"), "echo 4");
    assert_eq!(scene.said("good.echo", "5"), "echo 5");
    let again = until_readers(&scene, |found| moulds(found).len() == 1 && found.len() == 5);
    assert!(!again.contains(&died), "there is another mould");
}
