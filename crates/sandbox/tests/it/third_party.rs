//! Third-party programs behind the looser profile: what they reach, and how they end.

use std::io::{Read as _, Write as _};
use std::path::Path;

use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_protocol::WorkerJob;
use sluice_sandbox::JailMode;
use sluice_sandbox::parent::third_party::{ProgramExit, ProgramSignal, ThirdPartyProcess};
use sluice_sandbox::parent::{NamespacesMode, RefusingWorkerHost, WorkerCancel, WorkerEnd, WorkerLimits, WorkerTask};
use sluice_sandbox::third_party::{PinnedFolder, ThirdPartyNetwork, ThirdPartyProfile, ThirdPartyTerms};

use crate::test_sandbox::TestSandbox;

const BOTH: [NamespacesMode; 2] = [NamespacesMode::WhereAllowed, NamespacesMode::Off];

pub fn terms(script: &str, folder: &Path) -> ThirdPartyTerms {
    ThirdPartyTerms {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("GIVEN".into(), "yes".into()), ("PATH".into(), "/usr/bin:/bin".into())],
        folder: folder.to_path_buf(),
        read: Vec::new(),
        look: Vec::new(),
        pinned: Vec::new(),
        write: vec![folder.to_path_buf()],
        network: ThirdPartyNetwork::None,
        memory: 512 << 20,
        file_bytes: 1 << 20,
        processes: 128,
        profile: ThirdPartyProfile::Server,
        mode: JailMode::Required,
        namespaces: Ok(()),
    }
}

/// The output of a script.
pub fn said(house: &TestSandbox, terms: ThirdPartyTerms) -> String {
    let mut stranger = house.spawner.start_third_party(terms).unwrap();
    drop(stranger.input.take());
    let mut text = String::new();
    let output = stranger.output.take().unwrap();
    std::fs::File::from(output).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_stranger_speaks_over_its_pipes_and_has_the_environment_it_was_given() {
    for namespaces in BOTH {
        let (house, folder) = (TestSandbox::new(namespaces), tempfile::tempdir().unwrap());
        let mut stranger: ThirdPartyProcess = house
            .spawner
            .start_third_party(terms("read line; echo \"$line $GIVEN $HOME\"; env | wc -l", folder.path()))
            .unwrap();
        std::fs::File::from(stranger.input.take().unwrap()).write_all(b"hello\n").unwrap();
        let mut text = String::new();
        std::fs::File::from(stranger.output.take().unwrap()).read_to_string(&mut text).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("hello yes "), "{text}");
        // GIVEN, PATH, and what the shell adds itself (PWD, _, SHLVL, OLDPWD).
        assert!(lines.next().unwrap().trim().parse::<u32>().unwrap() <= 6, "{text}");
    }
}

#[test]
fn files_beyond_those_named_cannot_be_read_or_changed() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("secret"), "x").unwrap();
        let script = format!(
            "try() {{ if eval \"$1\" >/dev/null 2>&1; then echo \"$1: yes\"; else echo \"$1: no\"; fi; }}\n\
             try 'echo a > own'\ntry 'cat own'\ntry 'cat {0}/secret'\ntry 'ls {0}'\ntry 'echo a > {0}/new'\n\
             try 'cat /etc/shadow'\ntry 'ls /root'\ntry 'echo x > /usr/x'\ntry 'cp /bin/true mine && chmod +x mine && ./mine'\n\
             try 'cat /proc/1/environ'\ntry 'ls /usr/bin'",
            other.path().display()
        );
        let text = said(&house, terms(&script, own.path()));
        let allowed: Vec<&str> = text.lines().filter(|line| line.ends_with(": yes")).collect();
        assert_eq!(allowed, ["echo a > own: yes", "cat own: yes", "ls /usr/bin: yes"], "{namespaces:?} {text}");
        assert_eq!(text.lines().count(), 11, "{text}");
    }
}

#[test]
fn a_folder_that_was_named_to_read_is_read_and_executed_but_not_changed() {
    let (house, own, other) =
        (TestSandbox::new(NamespacesMode::Off), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::copy("/bin/true", other.path().join("run")).unwrap();
    let script = format!("{0}/run && echo ran; echo x > {0}/new || echo kept", other.path().display());
    let terms = ThirdPartyTerms { read: vec![other.path().to_path_buf()], ..terms(&script, own.path()) };
    assert_eq!(said(&house, terms), "ran\nkept\n");
}

#[test]
fn dropping_a_stranger_ends_what_it_started_too() {
    for namespaces in BOTH {
        let (house, folder) = (TestSandbox::new(namespaces), tempfile::tempdir().unwrap());
        let mut stranger =
            house.spawner.start_third_party(terms("sleep 1000 & sleep 1000 & echo up; wait", folder.path())).unwrap();
        let mut output = std::fs::File::from(stranger.output.take().unwrap());
        let mut word = [0; 3];
        output.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"up\n");
        drop(stranger);
        // The other ends of its pipe are closed once the last process is gone.
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
}

#[test]
fn what_cannot_be_started_says_why() {
    let (house, folder) = (TestSandbox::new(NamespacesMode::WhereAllowed), tempfile::tempdir().unwrap());
    let why = |terms: ThirdPartyTerms| house.spawner.start_third_party(terms).unwrap_err().to_string();
    let missing = ThirdPartyTerms { program: "/no/such/program".into(), ..terms("", folder.path()) };
    assert!(why(missing).contains("/no/such/program"));
    let closed = ThirdPartyTerms { read: vec!["/no/such/folder".into()], ..terms("", folder.path()) };
    assert!(why(closed).contains("/no/such/folder"));
}

#[test]
fn one_that_does_a_job_may_start_nothing_and_is_named_for_what_it_tried() {
    let limits = WorkerLimits { wall: Millis::from_secs(20), ..WorkerLimits::default() };
    for (script, wanted) in [
        ("exit 3", CrashCause::Exited { code: 3 }),
        ("exec /bin/true", CrashCause::Exited { code: 0 }),
        ("/bin/true; exit 0", CrashCause::Forbidden),
        ("printf '\\377\\377\\377\\377\\377'", CrashCause::MalformedFrame),
        ("printf ab", CrashCause::MalformedFrame),
    ] {
        for namespaces in BOTH {
            let (house, folder) = (TestSandbox::new(namespaces), tempfile::tempdir().unwrap());
            let terms = ThirdPartyTerms {
                profile: ThirdPartyProfile::Job { cpu_seconds: 10 },
                write: Vec::new(),
                file_bytes: 0,
                folder: "/".into(),
                ..terms(script, folder.path())
            };
            let job = WorkerJob {
                kind: "adapter.describe".into(),
                payload: serde_json::Value::Null,
                attachments: Vec::new(),
            };
            let task = WorkerTask { job, limits, mode: JailMode::Required, scratch: None };
            let end = house
                .spawner
                .run_third_party_job(task, terms, &mut RefusingWorkerHost, &WorkerCancel::new().unwrap())
                .unwrap();
            let WorkerEnd::Crashed(crash) = end else { panic!("{script}: {end:?}") };
            assert_eq!(crash.cause, wanted, "{script} {namespaces:?}");
        }
    }
}

#[test]
fn a_tool_executes_nothing_but_itself_and_what_was_named_for_it() {
    for namespaces in BOTH {
        let (house, own, other) =
            (TestSandbox::new(namespaces), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::copy("/bin/true", own.path().join("mine")).unwrap();
        std::fs::copy("/bin/true", other.path().join("named")).unwrap();
        std::fs::copy("/bin/true", other.path().join("seen")).unwrap();
        let script = format!(
            "{0}/named && echo named ran\n./mine && echo mine ran\n/bin/true && echo system ran\necho x > kept && echo wrote\n\
             read line < {1}/words && echo $line\necho x > {1}/words || echo only read\n{1}/look && echo look ran",
            other.path().display(),
            other.path().join("look").display()
        );
        let look = other.path().join("look");
        std::fs::create_dir(&look).unwrap();
        std::fs::write(look.join("words"), "words\n").unwrap();
        std::fs::copy("/bin/true", look.join("look")).unwrap();
        let terms = ThirdPartyTerms {
            profile: ThirdPartyProfile::Tool { cpu_seconds: 10 },
            read: vec![other.path().join("named")],
            look: vec![look],
            ..terms(&script, own.path())
        };
        assert_eq!(said(&house, terms), "named ran\nwrote\nwords\nonly read\n", "{namespaces:?}");
    }
}

#[test]
fn a_folder_that_was_swapped_after_it_was_checked_is_not_opened() {
    use std::os::unix::fs::MetadataExt as _;
    let (house, own, other) =
        (TestSandbox::new(NamespacesMode::Off), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |path: &Path| {
        let found = std::fs::metadata(path).unwrap();
        PinnedFolder { path: own.path().to_path_buf(), device: found.dev(), inode: found.ino() }
    };
    let right = ThirdPartyTerms { pinned: vec![at(own.path())], ..terms("echo up", own.path()) };
    assert_eq!(said(&house, right), "up\n");
    let wrong = ThirdPartyTerms { pinned: vec![at(other.path())], ..terms("echo up", own.path()) };
    let why = house.spawner.start_third_party(wrong).unwrap_err().to_string();
    assert!(why.contains("not the folder that was checked"), "{why}");
}

#[test]
fn how_a_program_ended_is_told_and_signals_reach_it() {
    for namespaces in BOTH {
        let (house, folder) = (TestSandbox::new(namespaces), tempfile::tempdir().unwrap());
        let cancel = WorkerCancel::new().unwrap();
        let ended = house.spawner.start_third_party(terms("exit 3", folder.path())).unwrap().wait_for_exit(&cancel);
        assert_eq!(ended.0, ProgramExit::Code(3));
        let script = "trap 'echo bye; exit 4' TERM; echo up; while :; do read line || :; done";
        let mut stranger = house.spawner.start_third_party(terms(script, folder.path())).unwrap();
        let mut output = std::fs::File::from(stranger.output.take().unwrap());
        let mut word = [0; 3];
        output.read_exact(&mut word).unwrap();
        let signals = stranger.signals().unwrap();
        assert!(signals.send(ProgramSignal::Terminate));
        assert_eq!(stranger.wait_for_exit(&cancel).0, ProgramExit::Code(4));
        assert!(!signals.send(ProgramSignal::Kill), "nobody is there any more");
    }
}
