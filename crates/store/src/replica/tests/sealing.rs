//! The replica on disk: encrypted, not encrypted, converted from one to the other, and killed while doing so.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Words that must not be readable on disk: of a subject, a text, an address, a name, a label, a file and a cursor.
const CANARIES: [&str; 7] = [
    "Kingfisher4711",
    "marmalade0815",
    "otter@river.example",
    "Ottoline Brackwater",
    "Toplabel99",
    "ledger-row-77",
    "cur5or-canary",
];
/// Those that can be read in an unencrypted replica: texts and files are compressed, words are shortened.
const READABLE: [&str; 5] = ["Kingfisher4711", "marmalade0815", "Ottoline Brackwater", "Toplabel99", "cur5or-canary"];

fn key(n: u8) -> SealKey {
    SealKey::new([n; 32])
}

fn telling(n: i64) -> Mail {
    Mail {
        from: Some(MailAddress { name: Some("Ottoline Brackwater".into()), address: "otter@river.example".into() }),
        subject: format!("Kingfisher4711 {n}"),
        text: format!("marmalade0815 stands in shelf {n}\n"),
        ..holding(n, "aa")
    }
}

fn everything(from: i64, cursor: &str) -> ReplicaBatch {
    let mut changes = put((from..from + 60).map(telling));
    changes.push(file("aa", b"ledger-row-77 and no more"));
    changes.push(ReplicaChange::LabelNames(vec![("L1".into(), "Toplabel99".into())]));
    batch(changes, cursor)
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// The canaries that are readable in any file.
fn shown(folder: &Path) -> Vec<&'static str> {
    let all = files(folder);
    let there = |word: &str| all.values().any(|bytes| bytes.windows(word.len()).any(|seen| seen == word.as_bytes()));
    CANARIES.into_iter().filter(|word| there(word)).collect()
}

/// All files and what they show: with a log, in the middle of a transaction, with a rebuild beside, and at the end.
fn looked_at_all_along(folder: &Path, keeping: &ReplicaEncryption) -> Vec<(Vec<String>, Vec<&'static str>)> {
    let mut seen = Vec::new();
    let mut look = || seen.push((files(folder).into_keys().collect(), shown(folder)));
    let replica = Replica::open(folder, keeping).unwrap();
    replica.apply(&everything(0, "cur5or-canary 1")).unwrap();
    look();
    {
        let copy = replica.copy();
        let writer = copy.writer();
        writer
            .connection
            .execute_batch("PRAGMA cache_size = 3; BEGIN; UPDATE messages SET preview = preview || '!'")
            .unwrap();
        look();
        writer.connection.execute_batch("ROLLBACK").unwrap();
    }
    let shadow = replica.shadow().unwrap();
    shadow.apply(&everything(100, "cur5or-canary 2")).unwrap();
    look();
    replica.swap(shadow).unwrap();
    assert_eq!(search(&replica, "marmalade0815").len(), 20);
    drop(replica);
    look();
    seen
}

#[test]
fn no_byte_of_a_sealed_copy_shows_what_is_in_it_and_in_the_clear_it_does() {
    let folder = TempDir::new().unwrap();
    let (sealed, clear) = (folder.path().join("sealed"), folder.path().join("clear"));
    let looks = looked_at_all_along(&sealed, &ReplicaEncryption::Sealed(key(1)));
    for (files, shown) in &looks {
        assert!(shown.is_empty(), "{shown:?} in {files:?}");
    }
    assert!(
        looks[1].0.contains(&"copy-1.sealed-wal".to_owned()) && looks[2].0.contains(&"copy-2.sealed-wal".to_owned())
    );
    for (files, shown) in &looked_at_all_along(&clear, &ReplicaEncryption::Clear(None)) {
        assert!(READABLE.iter().all(|word| shown.contains(word)), "{shown:?} in {files:?}");
    }
}

#[test]
fn every_other_test_of_the_copy_holds_for_a_sealed_one() {
    SEALED.set(true);
    let all = [
        super::a_message_comes_out_as_it_went_in,
        super::every_filter_finds_what_it_names_and_nothing_else,
        super::the_newest_come_first_and_pages_join_without_a_gap,
        super::a_batch_applied_twice_is_as_if_applied_once,
        super::rows_and_cursor_move_together_or_not_at_all,
        super::what_is_withheld_says_nothing_to_an_agent_until_a_person_releases_it,
        super::the_old_copy_answers_until_the_new_one_is_whole,
        super::readers_go_on_while_the_copy_is_swapped_under_them,
        super::the_better_match_comes_first_even_when_it_is_older,
        super::a_short_list_of_the_best_is_the_beginning_of_the_long_one,
        super::where_too_many_texts_had_to_be_looked_at_the_answer_says_so,
        super::no_page_is_too_far_down_to_be_asked_for,
        super::a_dictionary_is_learnt_and_old_and_new_bodies_both_open,
        super::progress_and_freshness_are_kept,
        super::no_text_that_was_typed_is_an_error_of_the_database,
        super::a_content_is_kept_once_and_goes_with_the_last_message_that_holds_it,
        super::what_only_withheld_messages_hold_is_not_there_for_agents,
        super::what_was_set_aside_is_counted_until_it_could_be_opened,
    ];
    assert_eq!(all.len(), include_str!("../tests.rs").matches("#[test]\n").count(), "one is missing here");
    for test in all {
        test();
    }
}

#[test]
fn a_wrong_or_lost_key_is_called_that_and_costs_nothing() {
    let folder = TempDir::new().unwrap();
    let sealed = ReplicaEncryption::Sealed(key(1));
    Replica::open(folder.path(), &sealed).unwrap().apply(&everything(0, "1")).unwrap();
    let before = files(folder.path());
    assert!(Replica::is_sealed_on_disk(folder.path()));
    for wrong in
        [ReplicaEncryption::Sealed(key(2)), ReplicaEncryption::Clear(None), ReplicaEncryption::Clear(Some(key(2)))]
    {
        let error = Replica::open(folder.path(), &wrong).unwrap_err();
        assert_eq!(error.code(), "store.wrong_key");
        assert_eq!(files(folder.path()), before, "nothing was touched");
    }
    assert_eq!(Replica::open(folder.path(), &sealed).unwrap().count().unwrap(), 60);
    // Without the mark the reason cannot be determined: then the file counts as damaged.
    fs::remove_file(folder.path().join("seal")).unwrap();
    let error = Replica::open(folder.path(), &ReplicaEncryption::Sealed(key(2))).unwrap_err();
    assert_eq!(error.code(), "store.damaged");
}

#[test]
fn a_copy_is_sealed_and_opened_again_where_it_lies() {
    let folder = TempDir::new().unwrap();
    let answers = |replica: &Replica| {
        (
            found(replica, "marmalade0815", ReplicaSearchOrder::Ranked),
            replica.cursor().unwrap(),
            replica.content("aa").unwrap(),
        )
    };
    let replica = Replica::open(folder.path(), &ReplicaEncryption::Clear(None)).unwrap();
    replica.apply(&everything(0, "cur5or-canary")).unwrap();
    replica.shadow().unwrap().apply(&everything(100, "half a fresh one")).unwrap();
    let before = answers(&replica);
    drop(replica);
    assert!(!shown(folder.path()).is_empty());
    // The rest of an attempt that was interrupted.
    fs::write(folder.path().join("copy-2.sealed"), b"half of something").unwrap();
    let replica = Replica::open(folder.path(), &ReplicaEncryption::Sealed(key(1))).unwrap();
    assert!(replica.is_sealed());
    assert_eq!(answers(&replica), before);
    assert_eq!(shown(folder.path()), [""; 0], "what lay in the clear is deleted");
    assert_eq!(replica.shadow().unwrap().cursor().unwrap(), None, "and so is the fresh one that was begun");
    drop(replica);
    assert!(files(folder.path()).keys().all(|name| !name.contains(".db")), "{:?}", files(folder.path()).keys());
    let replica = Replica::open(folder.path(), &ReplicaEncryption::Clear(Some(key(1)))).unwrap();
    assert!(!replica.is_sealed() && !Replica::is_sealed_on_disk(folder.path()));
    assert_eq!(answers(&replica), before);
    drop(replica);
    let names: Vec<String> = files(folder.path()).into_keys().collect();
    assert!(names.iter().all(|name| !name.contains("seal")), "{names:?}");
}

/// The folder in which the process to be killed works, and what it does there.
const FOLDER: &str = "SLUICE_TEST_KILLED_IN";
const TURNING: &str = "SLUICE_TEST_KILLED_TURNING";

/// Not a test itself: the process that [`killed`] kills.
#[test]
#[ignore = "it is started, and killed, by other tests"]
fn works_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
    let turning = std::env::var_os(TURNING).is_some();
    let mut replica = Replica::open(&folder, &ReplicaEncryption::Sealed(key(1))).unwrap();
    let begun = i64::try_from(replica.count().unwrap()).unwrap() / 60;
    for n in begun.. {
        replica.apply(&everything(n * 60, &format!("cur5or-canary {}", n + 1))).unwrap();
        if turning {
            drop(replica);
            drop(Replica::open(&folder, &ReplicaEncryption::Clear(Some(key(1)))).unwrap());
            println!("in the clear");
            replica = Replica::open(&folder, &ReplicaEncryption::Sealed(key(1))).unwrap();
        }
        println!("applied {}", n + 1);
    }
}

/// Lets a process work on a replica, kills it after this many lines, and gives the batches that it had reported as
/// applied.
fn killed(folder: &Path, turning: bool, after: usize) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "replica::tests::sealing::works_until_it_is_killed", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder).stdout(Stdio::piped());
    if turning {
        command.env(TURNING, "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut said = 0;
    for line in lines.filter(|line| line.starts_with("applied") || line.starts_with("in the")).take(after) {
        said = line.strip_prefix("applied ").map_or(said, |n| n.parse().unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn a_process_killed_while_it_writes_leaves_a_copy_that_opens() {
    let folder = TempDir::new().unwrap();
    for round in 1..=6 {
        let said = killed(folder.path(), false, round * 3);
        assert_eq!(shown(folder.path()), [""; 0]);
        let replica = Replica::open(folder.path(), &ReplicaEncryption::Sealed(key(1))).unwrap();
        let count = replica.count().unwrap();
        assert!(count >= said * 60, "{count} messages, and {said} batches were said to be there");
        assert_eq!(
            replica.cursor().unwrap(),
            Some(format!("cur5or-canary {}", count / 60)),
            "rows and cursor go together"
        );
        let sound: String =
            replica.copy().writer().connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}

#[test]
fn a_process_killed_while_it_turns_the_copy_leaves_one_that_opens_in_either_form() {
    let folder = TempDir::new().unwrap();
    for round in 1..=6 {
        let said = killed(folder.path(), true, round);
        let keeping =
            if round % 2 == 0 { ReplicaEncryption::Sealed(key(1)) } else { ReplicaEncryption::Clear(Some(key(1))) };
        let replica = Replica::open(folder.path(), &keeping).unwrap();
        assert!(replica.count().unwrap() >= said * 60);
        assert_eq!(replica.is_sealed(), round % 2 == 0);
        assert_eq!(shown(folder.path()).is_empty(), round % 2 == 0);
    }
}
