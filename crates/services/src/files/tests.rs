//! Tests of the promises of the filesystem service, on real folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_core::capability::Catalogue;
use sluice_core::hold::{AttemptPhase, HoldClaim, HoldState};
use sluice_core::{CallId, CapabilityName, HoldId, Millis, NodeName, Tier};
use sluice_testkit::clock::ManualClock;
use tempfile::TempDir;

use super::*;

mod paths;
mod reads;
mod undoing;
mod writes;

/// A root, a canary outside of it, and the service.
struct TestFilesystem {
    /// The parent folder of the root.
    top: TempDir,
    root: PathBuf,
    files: FilesystemService,
    clock: ManualClock,
    next: std::cell::Cell<u128>,
    runtime: tokio::runtime::Runtime,
}

/// A write in progress.
#[derive(Debug)]
struct TestFileWrite {
    hold: Hold,
    before: Option<Vec<u8>>,
    /// The fingerprint of the object before.
    print: Option<ObjectFingerprint>,
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::builtin().unwrap());
const CANARY: &str = "the canary must never be read or written";

impl TestFilesystem {
    fn new() -> Self {
        Self::with(|root| AgentRoot { path: root, agents: RootAgents::All, read_only: false, trusted: false }, false)
    }

    fn with(root_of: impl Fn(String) -> AgentRoot, allow_hard_links: bool) -> Self {
        // In memory if possible: the disk is not what is tested here.
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = top.path().join("books");
        fs::create_dir(&root).unwrap();
        fs::create_dir(top.path().join("outside")).unwrap();
        fs::write(top.path().join("outside/canary"), CANARY).unwrap();
        let list = vec![root_of(root.to_str().unwrap().to_owned())];
        let clock = ManualClock::default();
        let files = FilesystemService::new(AgentRoots { list, allow_hard_links }, Arc::new(clock.clone())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { top, root, files, clock, next: 1.into(), runtime }
    }

    fn path(&self, way: &str) -> String {
        if way.is_empty() { self.root.to_str().unwrap().to_owned() } else { format!("{}/{way}", self.root.display()) }
    }

    fn put(&self, way: &str, content: impl AsRef<[u8]>) {
        fs::write(self.root.join(way), content).unwrap();
    }

    fn text(&self, way: &str) -> String {
        fs::read_to_string(self.root.join(way)).unwrap()
    }

    fn is_there(&self, way: &str) -> bool {
        fs::symlink_metadata(self.root.join(way)).is_ok()
    }

    fn action(&self, capability: &str, arguments: Value) -> Action {
        let name = CapabilityName::new(format!("filesystem.{capability}")).unwrap();
        Action::new(CATALOGUE.get(&name).unwrap(), AgentName::new("clerk").unwrap(), None, arguments).unwrap()
    }

    fn id(&self) -> u128 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn read(&self, capability: &str, arguments: Value) -> Result<Value, Code> {
        let call = CallId::from_bits(self.id());
        let ask = ServiceRead {
            call,
            action: self.action(capability, arguments),
            session: None,
            now: self.clock.now(),
            notes: None,
        };
        self.runtime.block_on(self.files.read(&ask)).map_err(|refusal| refusal.code())
    }

    fn hold(&self, capability: &str, arguments: Value) -> Hold {
        let action = self.action(capability, arguments);
        let claim = HoldClaim {
            node: NodeName::new("n").unwrap(),
            life: 1,
            epoch: 1,
            lease_until: self.clock.now() + Millis::from_mins(1),
        };
        let known = CATALOGUE.get(action.capability()).unwrap();
        Hold {
            id: HoldId::from_bits(self.id()),
            call: CallId::from_bits(self.id()),
            session: None,
            service: known.service(),
            class: known.class.unwrap(),
            action,
            tier: Tier::Notify,
            policy: "p".into(),
            object_key: None,
            weight: 1,
            delay: Millis::ZERO,
            admitted_at: self.clock.now(),
            state: HoldState::Executing { claim, phase: AttemptPhase::Prepare },
            version: 3,
            epoch: 1,
            attempts: 0,
            consent: None,
            handle: None,
            reverses: None,
        }
    }

    fn prepare(&self, capability: &str, arguments: Value) -> Result<TestFileWrite, WriteError> {
        let hold = self.hold(capability, arguments);
        let prepared = self.runtime.block_on(self.files.prepare(&hold))?;
        let (before, print) = prepared.before.unzip();
        Ok(TestFileWrite { hold, before, print })
    }

    fn perform(&self, write: &TestFileWrite) -> Result<CompletedWrite, WriteError> {
        let wire = write.hold.action.digest();
        let (hold, permit) = write.hold.clone().arm(wire, None).unwrap();
        self.runtime.block_on(self.files.perform(permit, &hold, write.before.as_deref()))
    }

    /// Prepares and performs.
    fn write(&self, capability: &str, arguments: Value) -> Result<(TestFileWrite, CompletedWrite), WriteError> {
        let write = self.prepare(capability, arguments)?;
        let performed = self.perform(&write)?;
        Ok((write, performed))
    }

    /// Prepares and performs, and expects a refusal.
    fn refused(&self, capability: &str, arguments: Value) -> Code {
        code(self.write(capability, arguments).map(|(_, performed)| performed))
    }

    fn look_up(&self, write: &TestFileWrite) -> LookupOutcome {
        self.runtime.block_on(self.files.look_up(&write.hold, write.before.as_deref()))
    }

    fn present(&self, write: &TestFileWrite) -> ObjectFingerprint {
        self.runtime.block_on(self.files.current_fingerprint(&write.hold, write.before.as_deref().unwrap())).unwrap()
    }

    fn undo(&self, write: &TestFileWrite) -> Result<CompletedWrite, WriteError> {
        let mut reversing = self.hold("write", json!({"path": self.path("x"), "content": ""}));
        reversing.reverses = Some(write.hold.id);
        let wire = reversing.action.digest();
        let (_, permit) = reversing.arm(wire, None).unwrap();
        self.runtime.block_on(self.files.undo(permit, &write.hold, write.before.as_deref().unwrap()))
    }

    fn forget(&self, write: &TestFileWrite) {
        self.runtime.block_on(self.files.discard_undo_data(write.before.as_deref().unwrap()));
    }

    /// Every name inside the root that belongs to the gateway, except the trash itself.
    fn litter(&self) -> Vec<PathBuf> {
        fn below(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                let name = entry.file_name().into_string().unwrap();
                if entry.file_type().unwrap().is_dir() && name != trash::TRASH {
                    below(&entry.path(), found);
                }
                if roots::is_own(&name) && name != trash::TRASH {
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        below(&self.root, &mut found);
        found
    }

    fn canary_is_untouched(&self) {
        let outside = self.top.path().join("outside");
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), CANARY);
        let names: Vec<_> = fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["canary"]);
    }
}

fn code(answer: Result<CompletedWrite, WriteError>) -> Code {
    match answer {
        Err(WriteError::Refused(refusal) | WriteError::NotDone(refusal)) => refusal.code(),
        other => panic!("{other:?} is no refusal"),
    }
}

fn applied(found: LookupOutcome) -> CompletedWrite {
    match found {
        LookupOutcome::Applied(performed) => performed,
        other => panic!("{other:?} is not applied"),
    }
}
