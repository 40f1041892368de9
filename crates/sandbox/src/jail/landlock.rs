//! Landlock: no file except those in the scratch folder, no port, no abstract socket, no signal to other processes.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

/// What every kernel with Landlock refuses; without these there is no layer.
const LEAST: ABI = ABI::V1;
/// What newer kernels refuse as well.
const MOST: ABI = ABI::V6;

/// Why Landlock is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LandlockError {
    /// The kernel refused.
    #[error("{0}")]
    Refused(#[from] RulesetError),
    /// The kernel did not enforce it.
    #[error("this kernel does not enforce it")]
    NotEnforced,
}

/// Restricts this thread, the only one. With a scratch folder, regular files in it can be read, written, created and
/// removed; nothing can be executed, linked, or created except regular files.
pub(crate) fn restrict(scratch: Option<&OwnedFd>) -> Result<String, LandlockError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))?
        .handle_access(AccessNet::from_all(MOST))?
        .scope(Scope::from_all(MOST))?;
    let mut created = ruleset.create()?;
    if let Some(folder) = scratch {
        created = created.add_rule(PathBeneath::new(folder, in_scratch()))?;
    }
    let status = created.restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(LandlockError::NotEnforced);
    }
    let files = if scratch.is_some() { "its scratch folder" } else { "no file" };
    let rest = match status.ruleset {
        RulesetStatus::FullyEnforced => "no port, no abstract socket, no signal",
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => "as much of the rest as this kernel knows",
    };
    Ok(format!("{files}, {rest}"))
}

/// The version of Landlock that this kernel offers; `None` if it has none or it is off.
pub(crate) fn version() -> Option<u32> {
    const ASK_FOR_VERSION: u32 = 1;
    #[expect(unsafe_code, reason = "the library does not say the number")]
    // SAFETY: with this flag the kernel reads no memory and answers with a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_FOR_VERSION)
    };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

fn in_scratch() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Truncate
}
