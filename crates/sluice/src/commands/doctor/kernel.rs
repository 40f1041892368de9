//! What this kernel offers: safe opening of files, and the layers that lock workers in.

use std::fs;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use sluice_gateway::config::{Config, Sandbox, Way};
use sluice_gateway::workers::{self, Layer, LayerName, Layers, Limits, Program, Spawner, WorkersError};

use super::{Finding, State};
use crate::system::SystemClock;

/// Files of agents are opened in a way that cannot be led out of their folder.
pub(super) fn openat2(needed: bool) -> Finding {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
        Ok(_) => Finding::new("openat2", State::Ok, "files can be opened without leaving their folder"),
        Err(error) => {
            let state = if needed { State::Fail } else { State::Warn };
            Finding::new("openat2", state, format!("the kernel refuses it ({error}): no files for agents"))
                .hint("Linux 5.6 or newer, and a container that allows the call openat2")
        }
    }
}

/// How well this system locks workers in: one worker is started to see.
pub(super) fn layers(sandbox: Sandbox, config: Option<&Config>) -> Vec<Finding> {
    match locked() {
        Ok(layers) => {
            let mut findings: Vec<Finding> = layers.iter().map(|layer| row(layer, sandbox)).collect();
            if !layers.has(LayerName::Namespaces) {
                findings.extend(config.into_iter().flat_map(without_namespaces));
            }
            findings
        }
        Err(error) => {
            let state = if sandbox == Sandbox::Required { State::Fail } else { State::Warn };
            vec![
                Finding::new("sandbox", state, format!("no worker can be started ({}): {error}", error.code()))
                    .hint("/proc and /dev/null must be there, and the program must be allowed to start itself"),
            ]
        }
    }
}

/// What becomes of mounted programs with hosts where the system allows no namespaces.
fn without_namespaces(config: &Config) -> Vec<Finding> {
    let networked = config.mounts.0.iter().filter(|mount| match &mount.way {
        Way::Program(program) => !program.network.is_empty(),
        Way::Address(_) => false,
    });
    let finding = |name: &str| match config.sandbox {
        Sandbox::Required => {
            let text = format!("`{name}` has `network`, which needs a network namespace: it is not started");
            Finding::new("mounts", State::Fail, text)
                .hint("allow user namespaces, or set `sandbox: degraded` to keep it to its hosts by filters alone")
        }
        Sandbox::Degraded => {
            let text = format!("`{name}` shares this machine's network; filters alone keep it to its hosts");
            Finding::new("mounts", State::Warn, text).hint("allow user namespaces")
        }
    };
    networked.map(|mount| finding(&mount.name)).collect()
}

/// Degraded, so that every layer is tried and told about.
fn locked() -> Result<Layers, WorkersError> {
    let spawner = Spawner::new(Program::own()?, Arc::new(SystemClock))?;
    workers::probe(&spawner, Limits::default(), workers::Mode::Degraded)
}

fn row(layer: &Layer, sandbox: Sandbox) -> Finding {
    let state = match (layer.on, layer.name.is_mandatory(), sandbox) {
        (true, ..) => State::Ok,
        (false, true, Sandbox::Required) => State::Fail,
        (false, true, Sandbox::Degraded) | (false, false, _) => State::Warn,
    };
    let word = if layer.on { "on" } else { "off" };
    let mut message = format!("{word}: {}", layer.detail);
    if let Some(offer) = offer(layer.name) {
        message = format!("{message}; the kernel offers {offer}");
    }
    let finding = Finding::new(layer.name.as_str(), state, message);
    match hint(layer.name).filter(|_| !layer.on) {
        Some(hint) => finding.hint(hint),
        None => finding,
    }
}

/// What the kernel says it has, where it says so.
fn offer(layer: LayerName) -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    match layer {
        LayerName::Landlock => {
            Some(workers::landlock_version().map_or_else(|| "none".to_owned(), |version| format!("version {version}")))
        }
        LayerName::Seccomp => read("/proc/sys/kernel/seccomp/actions_avail"),
        LayerName::Namespaces => Some(
            namespaces(
                read("/proc/sys/user/max_user_namespaces").as_deref(),
                read("/proc/sys/kernel/unprivileged_userns_clone").as_deref(),
                read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref(),
            )
            .to_owned(),
        ),
        LayerName::Descriptors
        | LayerName::Environment
        | LayerName::Limits
        | LayerName::Privileges
        | LayerName::Dumpable
        | LayerName::EmptyRoot => None,
    }
}

fn hint(layer: LayerName) -> Option<&'static str> {
    match layer {
        LayerName::Landlock => {
            Some("Linux 5.13 or newer, booted with landlock among lsm=…, in a container that allows it")
        }
        LayerName::Seccomp => Some("x86_64, and a kernel with CONFIG_SECCOMP_FILTER"),
        LayerName::Namespaces | LayerName::EmptyRoot => {
            Some("allow user namespaces (sysctl user.max_user_namespaces, AppArmor, the container's seccomp profile)")
        }
        LayerName::Descriptors => Some("Linux 5.11 or newer, and a container that allows the call close_range"),
        LayerName::Environment | LayerName::Limits | LayerName::Privileges | LayerName::Dumpable => None,
    }
}

fn namespaces(most: Option<&str>, debian: Option<&str>, apparmor: Option<&str>) -> &'static str {
    match (most, debian, apparmor) {
        (None, _, _) => "nobody knows what",
        (Some("0"), _, _) | (_, Some("0"), _) => "none to users",
        (_, _, Some("1")) => "them, restricted by AppArmor",
        (Some(_), _, _) => "them to users",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_on_only_if_nothing_turns_them_off() {
        assert_eq!(namespaces(Some("15000"), None, None), "them to users");
        assert_eq!(namespaces(Some("0"), None, None), "none to users");
        assert_eq!(namespaces(Some("15000"), Some("0"), None), "none to users");
        assert_eq!(namespaces(Some("15000"), Some("1"), Some("1")), "them, restricted by AppArmor");
        assert_eq!(namespaces(None, None, None), "nobody knows what");
    }

    #[test]
    fn a_missing_layer_fails_only_where_it_is_required() {
        let layer = |name, on| Layer { name, on, detail: "d".into() };
        let state = |name, on, sandbox| row(&layer(name, on), sandbox).state;
        assert_eq!(state(LayerName::Seccomp, true, Sandbox::Required), State::Ok);
        assert_eq!(state(LayerName::Seccomp, false, Sandbox::Required), State::Fail);
        assert_eq!(state(LayerName::Seccomp, false, Sandbox::Degraded), State::Warn);
        assert_eq!(state(LayerName::Namespaces, false, Sandbox::Required), State::Warn);
        assert!(row(&layer(LayerName::Landlock, false), Sandbox::Required).hint.is_some());
    }
}
