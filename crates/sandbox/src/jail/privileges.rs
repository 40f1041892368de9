//! Drops all capabilities, allows no new ones, closes the memory to other processes, and ends with the parent.

use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs};

/// Drops every capability permanently.
pub(crate) fn drop_all() -> rustix::io::Result<String> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    // Landlock and seccomp require this from processes without capabilities; it also makes setuid files ordinary files.
    set_no_new_privs(true)?;
    Ok("no capability, no new privileges".into())
}

/// Closes its memory to others and makes it end with the thread that watches it.
pub(crate) fn close_to_others() -> rustix::io::Result<String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // After the capabilities are dropped: a change of them clears this signal.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok("no core, no look inside, ends with the gateway".into())
}
