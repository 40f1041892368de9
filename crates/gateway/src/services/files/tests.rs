//! What the filesystem service promises, on real folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_core::capability::Catalogue;
use sluice_core::hold::{Claim, HoldState, Phase};
use sluice_core::{CallId, CapabilityName, HoldId, NodeName, Span, Tier};
use sluice_testkit::clock::ManualClock;
use tempfile::TempDir;

use super::*;

mod paths;
mod reads;
mod undoing;
mod writes;

/// A root of its own, a canary outside of it, and the service.
struct World {
    /// Above the root.
    top: TempDir,
    root: PathBuf,
    files: Files,
    clock: ManualClock,
    next: std::cell::Cell<u128>,
    runtime: tokio::runtime::Runtime,
}

/// A write on its way.
#[derive(Debug)]
struct Write {
    hold: Hold,
    before: Option<Vec<u8>>,
    /// The print of the object before.
    print: Option<Fingerprint>,
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::builtin().unwrap());
const CANARY: &str = "the canary must never be read or written";

impl World {
    fn new() -> Self {
        Self::with(|root| Root { path: root, agents: Agents::All, read_only: false, trusted: false }, false)
    }

    fn with(root_of: impl Fn(String) -> Root, allow_hard_links: bool) -> Self {
        // In memory where that is possible: what is tested here is not the disk.
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = top.path().join("books");
        fs::create_dir(&root).unwrap();
        fs::create_dir(top.path().join("outside")).unwrap();
        fs::write(top.path().join("outside/canary"), CANARY).unwrap();
        let list = vec![root_of(root.to_str().unwrap().to_owned())];
        let clock = ManualClock::default();
        let files = Files::new(Roots { list, allow_hard_links }, Arc::new(clock.clone())).unwrap();
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
        let ask =
            Ask { call, action: self.action(capability, arguments), session: None, now: self.clock.now(), notes: None };
        self.runtime.block_on(self.files.read(&ask)).map_err(|refusal| refusal.code())
    }

    fn hold(&self, capability: &str, arguments: Value) -> Hold {
        let action = self.action(capability, arguments);
        let claim = Claim {
            node: NodeName::new("n").unwrap(),
            life: 1,
            epoch: 1,
            lease_until: self.clock.now() + Span::from_mins(1),
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
            delay: Span::ZERO,
            admitted_at: self.clock.now(),
            state: HoldState::Executing { claim, phase: Phase::Prepare },
            version: 3,
            epoch: 1,
            attempts: 0,
            consent: None,
            handle: None,
            reverses: None,
        }
    }

    fn prepare(&self, capability: &str, arguments: Value) -> Result<Write, Trouble> {
        let hold = self.hold(capability, arguments);
        let prepared = self.runtime.block_on(self.files.prepare(&hold))?;
        let (before, print) = prepared.before.unzip();
        Ok(Write { hold, before, print })
    }

    fn perform(&self, write: &Write) -> Result<Performed, Trouble> {
        let wire = write.hold.action.digest();
        let (hold, permit) = write.hold.clone().arm(wire, None).unwrap();
        self.runtime.block_on(self.files.perform(permit, &hold, write.before.as_deref()))
    }

    /// Prepares and performs.
    fn write(&self, capability: &str, arguments: Value) -> Result<(Write, Performed), Trouble> {
        let write = self.prepare(capability, arguments)?;
        let performed = self.perform(&write)?;
        Ok((write, performed))
    }

    /// Prepares and performs, and is refused.
    fn refused(&self, capability: &str, arguments: Value) -> Code {
        code(self.write(capability, arguments).map(|(_, performed)| performed))
    }

    fn look_up(&self, write: &Write) -> Found {
        self.runtime.block_on(self.files.look_up(&write.hold, write.before.as_deref()))
    }

    fn present(&self, write: &Write) -> Fingerprint {
        self.runtime.block_on(self.files.present(&write.hold, write.before.as_deref().unwrap())).unwrap()
    }

    fn undo(&self, write: &Write) -> Result<Performed, Trouble> {
        let mut reversing = self.hold("write", json!({"path": self.path("x"), "content": ""}));
        reversing.reverses = Some(write.hold.id);
        let wire = reversing.action.digest();
        let (_, permit) = reversing.arm(wire, None).unwrap();
        self.runtime.block_on(self.files.undo(permit, &write.hold, write.before.as_deref().unwrap()))
    }

    fn forget(&self, write: &Write) {
        self.runtime.block_on(self.files.forget(write.before.as_deref().unwrap()));
    }

    /// Every name below the root that is ours, apart from the trash itself.
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

fn code(answer: Result<Performed, Trouble>) -> Code {
    match answer {
        Err(Trouble::Refused(refusal) | Trouble::NotDone(refusal)) => refusal.code(),
        other => panic!("{other:?} is no refusal"),
    }
}

fn applied(found: Found) -> Performed {
    match found {
        Found::Applied(performed) => performed,
        other => panic!("{other:?} is not applied"),
    }
}
