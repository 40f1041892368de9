//! What this kernel offers: safe opening of files, and the layers that lock workers in.

use std::fs;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::{Finding, State};

/// Releases since which each version of Landlock is there, newest first.
const LANDLOCK: [((u32, u32), u32); 6] =
    [((6, 12), 6), ((6, 10), 5), ((6, 7), 4), ((6, 2), 3), ((5, 19), 2), ((5, 13), 1)];

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

/// What workers can be locked in with. Reported only: nothing depends on it yet.
pub(super) fn layers() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    vec![
        landlock(read("/sys/kernel/security/lsm").as_deref(), read("/proc/sys/kernel/osrelease").as_deref()),
        seccomp(read("/proc/sys/kernel/seccomp/actions_avail").as_deref()),
        namespaces(
            read("/proc/sys/user/max_user_namespaces").as_deref(),
            read("/proc/sys/kernel/unprivileged_userns_clone").as_deref(),
            read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref(),
        ),
    ]
}

fn landlock(modules: Option<&str>, release: Option<&str>) -> Finding {
    let version = release.and_then(|release| {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    let abi = version.and_then(|version| LANDLOCK.iter().find(|(since, _)| version >= *since)).map(|(_, abi)| abi);
    let message = match (modules.map(|list| list.split(',').any(|name| name == "landlock")), abi) {
        (_, None) => "this kernel has none".to_owned(),
        (Some(true), Some(abi)) => format!("on; this kernel has version {abi} or newer"),
        (Some(false), Some(_)) => "this kernel has it, and it is off (boot with lsm=landlock,…)".to_owned(),
        (None, Some(abi)) => format!("this kernel may have version {abi}; /sys/kernel/security cannot be read"),
    };
    Finding::new("landlock", State::Info, message)
}

fn seccomp(actions: Option<&str>) -> Finding {
    let message = match actions {
        Some(actions) => format!("on: {actions}"),
        None => "off, or /proc cannot be read".to_owned(),
    };
    Finding::new("seccomp", State::Info, message)
}

fn namespaces(most: Option<&str>, debian: Option<&str>, apparmor: Option<&str>) -> Finding {
    let message = match (most, debian, apparmor) {
        (None, _, _) => "cannot be told",
        (Some("0"), _, _) | (_, Some("0"), _) => "off for users",
        (_, _, Some("1")) => "on, restricted by AppArmor",
        (Some(_), _, _) => "on",
    };
    Finding::new("userns", State::Info, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landlock_is_told_by_the_list_of_modules_and_the_release() {
        let says = |modules, release| landlock(modules, release).message;
        assert_eq!(
            says(Some("capability,landlock,yama"), Some("6.12.3-1-amd64")),
            "on; this kernel has version 6 or newer"
        );
        assert_eq!(says(Some("landlock"), Some("5.15.0")), "on; this kernel has version 1 or newer");
        assert!(says(Some("capability,yama"), Some("6.1.0")).contains("off"));
        assert!(says(None, Some("6.8.0")).contains("version 4"));
        assert_eq!(says(Some("landlock"), Some("5.4.0")), "this kernel has none");
        assert_eq!(says(None, None), "this kernel has none");
    }

    #[test]
    fn namespaces_are_on_only_if_nothing_turns_them_off() {
        assert_eq!(namespaces(Some("15000"), None, None).message, "on");
        assert_eq!(namespaces(Some("0"), None, None).message, "off for users");
        assert_eq!(namespaces(Some("15000"), Some("0"), None).message, "off for users");
        assert_eq!(namespaces(Some("15000"), Some("1"), Some("1")).message, "on, restricted by AppArmor");
        assert_eq!(namespaces(None, None, None).message, "cannot be told");
    }
}
