//! Runs the stored inputs of the fuzzer through every target, without the fuzzer.
//!
//! `cargo xtask fuzz` measures their cost; here they only have to keep the promises of the code behind the targets, in
//! every build and in a few seconds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::drop_non_drop,
    dead_code,
    reason = "a test, and targets that the fuzzer shares with it"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/mails.rs"]
mod mails;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use targets::{CostMeter, FuzzTarget};

fn all() -> impl Iterator<Item = &'static FuzzTarget> {
    targets::TARGETS.iter().chain(&mails::TARGETS)
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn every_kept_input_of_the_fuzzer_keeps_the_promises() {
    for target in all() {
        let mut inputs = 0;
        for entry in fs::read_dir(folder().join(target.name)).unwrap() {
            let path = entry.unwrap().path();
            // If this fails, the input is known.
            eprintln!("{}", path.display());
            target.run(&fs::read(path).unwrap(), &mut CostMeter::new(|| 0));
            inputs += 1;
        }
        assert!(inputs > 0, "{} has no inputs", target.name);
    }
}

#[test]
fn every_target_has_its_folder_and_every_folder_its_target() {
    let folders: BTreeSet<String> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let names: BTreeSet<String> = all().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, names);
}

#[test]
fn the_kept_inputs_stay_small() {
    let files = all().flat_map(|target| fs::read_dir(folder().join(target.name)).unwrap());
    let bytes: u64 = files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
}
