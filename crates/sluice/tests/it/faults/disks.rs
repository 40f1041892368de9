//! Faults of the disk under a running gateway: full, or gone as in a power cut.
//!
//! Both need root and a loop device; where that is not allowed the scenario says so and does nothing.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_testkit::depth::repetitions;

use super::load::{AgentLoad, CONFIG, RULES, declare};
use super::oracle::{EffectOracle, OracleBehavior, next};
use crate::running::{TestInstallation, ask, pause};

/// An ext4 of one's own in a file, mounted over a loop device.
struct LoopDisk {
    _folder: tempfile::TempDir,
    image: PathBuf,
    at: PathBuf,
}

/// Ends an ext4 at once, as a power cut does: what was not written by then never is (`EXT4_IOC_SHUTDOWN` without a flush).
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))\n";

impl LoopDisk {
    /// Nothing where this machine does not allow one; that is said aloud.
    fn of(megabytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (image, at) = (folder.path().join("image"), folder.path().join("disk"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).output();
        let disk = Self { _folder: folder, image, at };
        if made.is_ok_and(|ran| ran.status.success()) && disk.mount() {
            return Some(disk);
        }
        sluice_testkit::skip("no file system of one's own here (needs root, mkfs.ext4 and a loop device)");
        None
    }

    fn mount(&self) -> bool {
        let ran = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at).output();
        ran.is_ok_and(|ran| ran.status.success())
    }

    /// The power goes: nothing that is not on the disk by now will be.
    fn lose_power(&self) -> bool {
        let ran = Command::new("python3").args(["-c", SHUTDOWN]).arg(&self.at).output();
        ran.is_ok_and(|ran| ran.status.success())
    }

    /// The power is back: the disk as it was left.
    fn come_back(&self) {
        // Workers of the killed gateway have a view of the mounts of their own; until they are gone the old disk is.
        let is_back = (0..1_000).any(|_| {
            pause(Duration::from_millis(10));
            drop(Command::new("umount").arg(&self.at).output());
            self.mount() && fs::write(self.at.join("probe"), "x").is_ok()
        });
        assert!(is_back, "the disk does not come back");
    }

    /// Leaves no room at all.
    fn fill(&self) {
        let mut file = fs::File::options().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.at).output());
    }
}

fn place_on(disk: &LoopDisk, oracle: &EffectOracle) -> Arc<TestInstallation> {
    let place = TestInstallation::within(tempfile::tempdir_in(disk.path()).unwrap(), CONFIG, RULES, None);
    declare(&place, oracle);
    // What was set up is on the disk, as it is on a machine that was set up yesterday.
    assert!(Command::new("sync").arg("-f").arg(disk.path()).status().is_ok_and(|status| status.success()));
    Arc::new(place)
}

/// Freezes one service, or lifts that.
fn stop_lane(place: &TestInstallation, method: &str) -> u16 {
    let body = json!({"service": "custom.opaque", "reason": "the disk"});
    let (path, body) = match method {
        "POST" => ("/v1/freezes", Some(&body)),
        _ => ("/v1/freezes?service=custom.opaque", None),
    };
    ask(place.main, method, path, &place.operator_token, body).map_or(0, |answer| answer.status)
}

#[test]
fn full_disks() {
    let Some(disk) = LoopDisk::of(128) else { return };
    let oracle = EffectOracle::open();
    oracle.behave(OracleBehavior { late: 300, ..OracleBehavior::default() });
    let place = place_on(&disk, &oracle);
    let mut running = place.start();
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    let mut random = 11;
    for _ in 0..repetitions(3, 60) {
        load.goes_on(15);
        disk.fill();
        let happened = oracle.count();
        // A stop is taken all the same.
        let frozen = stop_lane(&place, "POST");
        assert_eq!(frozen, 201, "no freeze on a full disk, and none whose log is on it");
        random = next(random);
        pause(Duration::from_millis(random >> 55));
        assert!(oracle.count() <= happened + 64, "it goes on sending on a full disk");
        disk.empty();
        // A gateway may end when the disk under it fails; its keeper starts it again.
        if running.0.try_wait().unwrap().is_some() {
            running = place.start();
        }
        let lifted = (0..600).any(|_| {
            pause(Duration::from_millis(50));
            stop_lane(&place, "DELETE") == 204
        });
        assert!(lifted, "the freeze is not lifted");
    }
    load.goes_on(15);
    oracle.behave(OracleBehavior::default());
    load.settle("full disks", true).assert_as_promised();
    drop(running);
}

#[test]
fn power_cuts() {
    let Some(disk) = LoopDisk::of(128) else { return };
    let oracle = EffectOracle::open();
    oracle.behave(OracleBehavior { late: 500, ..OracleBehavior::default() });
    let place = place_on(&disk, &oracle);
    let mut running = place.start();
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    let mut random = 13;
    for _ in 0..repetitions(3, 100) {
        load.goes_on(15);
        random = next(random);
        pause(Duration::from_millis(random >> 56));
        if !disk.lose_power() {
            sluice_testkit::skip("this disk cannot be cut off (needs python3 and EXT4_IOC_SHUTDOWN)");
            return;
        }
        running.kill();
        disk.come_back();
        running = place.start();
    }
    oracle.behave(OracleBehavior::default());
    load.goes_on(15);
    load.settle("power cuts", true).assert_as_promised();
    drop(running);
}
