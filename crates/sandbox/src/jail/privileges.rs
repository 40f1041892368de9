//! No capability, none to be had, nobody who looks in, and no life after the parent's.

use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs};

/// Gives up every capability for good.
pub(crate) fn drop_all() -> rustix::io::Result<String> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    // Landlock and seccomp ask for this from anyone without capabilities; it also makes setuid files plain files.
    set_no_new_privs(true)?;
    Ok("no capability, no new privileges".into())
}

/// Closes its memory to others and makes it end with the thread that watches it.
pub(crate) fn close_to_others() -> rustix::io::Result<String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // After the capabilities are gone: a change of those forgets the signal.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok("no core, no look inside, ends with the gateway".into())
}
