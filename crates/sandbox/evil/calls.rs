//! Attacks on the system: calls that a worker must not make.

use std::ffi::CString;

use libc::c_long;
use serde_json::Value;

use crate::EvilActResult;

/// Waits forever, with a call that is allowed.
pub fn hang() -> ! {
    let mut byte = 0_u8;
    loop {
        // The gateway sends nothing more, so this never returns while it lives.
        let count = unsafe { libc::read(3, (&raw mut byte).cast(), 1) };
        if count == 0 {
            sluice_sandbox::child::exit(73);
        }
    }
}

fn call(number: c_long, a: [i64; 6]) -> EvilActResult {
    got(unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) })
}

fn got(result: c_long) -> EvilActResult {
    if result >= 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().map_or(-1, i64::from)) }
}

fn text(words: &str) -> CString {
    CString::new(words).unwrap()
}

fn open(folder: i32, path: &str, flags: i32) -> EvilActResult {
    let path = text(path);
    got(c_long::from(unsafe { libc::openat(folder, path.as_ptr(), flags, 0o600) }))
}

/// Runs the act, if it is one of these. The payload names targets outside the jail.
pub fn act(name: &str, payload: &Value) -> Option<EvilActResult> {
    let word = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or("/etc/passwd");
    let parent = payload.get("parent").and_then(Value::as_i64).unwrap_or(1);
    let here = libc::AT_FDCWD;
    let path = |words: &str| text(words).into_raw() as i64;
    let own = i64::from(std::process::id());
    Some(match name {
        // Files.
        "open_the_database" => open(here, word("database"), libc::O_RDWR),
        "read_shadow" => open(here, "/etc/shadow", libc::O_RDONLY),
        "read_own_environ" => open(here, "/proc/self/environ", libc::O_RDONLY),
        "read_parent_memory_file" => open(here, &format!("/proc/{parent}/mem"), libc::O_RDWR),
        "write_outside" => open(here, word("outside"), libc::O_WRONLY | libc::O_CREAT),
        "open_by_the_old_call" => call(libc::SYS_open, [path("/etc/passwd"), 0, 0, 0, 0, 0]),
        "openat2" => {
            let how = Box::leak(Box::new([0_u64; 3])).as_ptr() as i64;
            call(libc::SYS_openat2, [i64::from(here), path("/etc/passwd"), how, 24, 0, 0])
        }
        "open_by_handle" => call(libc::SYS_open_by_handle_at, [3, 0, 0, 0, 0, 0]),
        "stat" => {
            let room = Box::leak(Box::new([0_u64; 32])).as_mut_ptr() as i64;
            call(libc::SYS_newfstatat, [i64::from(here), path("/etc/passwd"), room, 0, 0, 0])
        }
        "readlink" => {
            let room = Box::leak(Box::new([0_u8; 256])).as_mut_ptr() as i64;
            call(libc::SYS_readlink, [path("/proc/self/exe"), room, 256, 0, 0, 0])
        }
        "make_a_link" => call(libc::SYS_symlinkat, [path("/etc"), 4, path("x"), 0, 0, 0]),
        "make_a_hard_link" => call(libc::SYS_linkat, [i64::from(here), path("/etc/passwd"), 4, path("x"), 0, 0]),
        "make_a_device" => call(libc::SYS_mknodat, [4, path("x"), 0o20600, 0x501, 0, 0]),
        "chmod" => call(libc::SYS_chmod, [path(word("outside")), 0o777, 0, 0, 0, 0]),
        "rename" => call(libc::SYS_rename, [path(word("outside")), path("x"), 0, 0, 0, 0]),
        "inotify" => call(libc::SYS_inotify_init1, [0; 6]),
        // Through the scratch folder.
        "absolute_through_scratch" => open(4, word("outside"), libc::O_RDONLY),
        "up_and_out_of_scratch" => open(4, "../outside.txt", libc::O_RDONLY),
        "write_up_and_out_of_scratch" => open(4, "../new.txt", libc::O_WRONLY | libc::O_CREAT),
        "follow_a_link_out_of_scratch" => open(4, "way-out", libc::O_RDONLY),
        "list_above_scratch" => open(4, "..", libc::O_RDONLY | libc::O_DIRECTORY),
        "remove_outside" => call(libc::SYS_unlinkat, [4, path("../outside.txt"), 0, 0, 0, 0]),
        "parent_environ_through_scratch" => open(4, &format!("/proc/{parent}/environ"), libc::O_RDONLY),
        "shadow_through_scratch" => open(4, "/etc/shadow", libc::O_RDONLY),
        "fill_the_scratch_file" => fill(),
        "close_the_pipe_and_stay" => {
            unsafe { libc::close(3) };
            loop {
                std::hint::spin_loop();
            }
        }
        "another_file_as_the_pipe" => {
            unsafe { libc::close(3) };
            // The lowest free number is the socket's: a file takes the place where frames are written.
            open(4, "draft", libc::O_RDWR | libc::O_CREAT).unwrap();
            unsafe { libc::write(3, b"x".as_ptr().cast(), 1) };
            sluice_sandbox::child::exit(0)
        }
        // Network.
        "socket_inet" => call(libc::SYS_socket, [2, 1, 0, 0, 0, 0]),
        "socket_unix" => call(libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
        "socket_netlink" => call(libc::SYS_socket, [16, 3, 0, 0, 0, 0]),
        "socketpair" => {
            let room = Box::leak(Box::new([0_i32; 2])).as_mut_ptr() as i64;
            call(libc::SYS_socketpair, [1, 1, 0, room, 0, 0])
        }
        "connect" => call(libc::SYS_connect, [3, address(), 16, 0, 0, 0]),
        "bind" => call(libc::SYS_bind, [3, address(), 16, 0, 0, 0]),
        "listen" => call(libc::SYS_listen, [3, 1, 0, 0, 0, 0]),
        "send_a_descriptor" => call(libc::SYS_sendmsg, [3, address(), 0, 0, 0, 0]),
        "receive_a_descriptor" => call(libc::SYS_recvmsg, [3, address(), 0, 0, 0, 0]),
        // Processes.
        "fork" => call(libc::SYS_fork, [0; 6]),
        "vfork" => call(libc::SYS_vfork, [0; 6]),
        "fork_bomb" => loop {
            let _ = call(libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0, 0, 0]);
        },
        "thread" => std::thread::Builder::new().spawn(|| ()).map(drop).map_err(|_| 1),
        "clone3" => call(libc::SYS_clone3, [address(), 64, 0, 0, 0, 0]),
        "execve" => call(libc::SYS_execve, [path("/bin/sh"), 0, 0, 0, 0, 0]),
        "execveat" => call(libc::SYS_execveat, [3, path(""), 0, 0, i64::from(libc::AT_EMPTY_PATH), 0]),
        "memfd" => call(libc::SYS_memfd_create, [path("x"), 0, 0, 0, 0, 0]),
        "ptrace_the_parent" => call(libc::SYS_ptrace, [16, parent, 0, 0, 0, 0]),
        "read_the_parents_memory" => call(libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0, 0]),
        "write_the_parents_memory" => call(libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0, 0]),
        "kill_the_parent" => call(libc::SYS_kill, [parent, 9, 0, 0, 0, 0]),
        "kill_everyone" => call(libc::SYS_kill, [-1, 9, 0, 0, 0, 0]),
        "signal_a_thread_of_the_parent" => call(libc::SYS_tgkill, [parent, parent, 9, 0, 0, 0]),
        "hold_the_parent" => call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
        "stop_itself" => {
            let _ = call(libc::SYS_tgkill, [own, own, i64::from(libc::SIGSTOP), 0, 0, 0]);
            hang()
        }
        "fault" => {
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            Ok(())
        }
        // What a zygote may do and its forks may not.
        "a_copy_of_the_copy" => {
            let flags = i64::from(libc::CLONE_PIDFD | libc::SIGCHLD);
            call(libc::SYS_clone, [flags, 0, address(), 0, 0, 0])
        }
        "bury_another" => call(libc::SYS_waitid, [0, 0, address(), i64::from(libc::WEXITED), 0, 0]),
        "nothing_as_the_pipe" => call(libc::SYS_dup3, [0, 3, 0, 0, 0, 0]),
        "signal_the_mould" => call(libc::SYS_tgkill, [1, 1, 9, 0, 0, 0]),
        "outlive_the_mould" => call(libc::SYS_prctl, [1, 0, 0, 0, 0, 0]),
        // Kernel interfaces.
        "io_uring" => call(libc::SYS_io_uring_setup, [8, address(), 0, 0, 0, 0]),
        "bpf" => call(libc::SYS_bpf, [0, address(), 64, 0, 0, 0]),
        "perf" => call(libc::SYS_perf_event_open, [address(), 0, -1, -1, 0, 0]),
        "userfaultfd" => call(libc::SYS_userfaultfd, [0; 6]),
        "keyctl" => call(libc::SYS_keyctl, [0, -3, 1, 0, 0, 0]),
        "add_key" => call(libc::SYS_add_key, [path("user"), path("x"), path("y"), 1, -3, 0]),
        "mount" => call(libc::SYS_mount, [path("none"), path("/"), path("tmpfs"), 0, 0, 0]),
        "unmount" => call(libc::SYS_umount2, [path("/"), 2, 0, 0, 0, 0]),
        "chroot" => call(libc::SYS_chroot, [path("/"), 0, 0, 0, 0, 0]),
        "new_namespace" => call(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0]),
        "other_namespace" => call(libc::SYS_setns, [3, 0, 0, 0, 0, 0]),
        "personality" => call(libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0, 0]),
        "ioctl" => call(libc::SYS_ioctl, [0, 0x5412, path("x"), 0, 0, 0]),
        "set_the_clock" => call(libc::SYS_clock_settime, [0, address(), 0, 0, 0, 0]),
        "reboot" => call(libc::SYS_reboot, [0xfee1_dead, 672_274_793, 0x0123_4567, 0, 0, 0]),
        "load_a_module" => call(libc::SYS_init_module, [address(), 0, path(""), 0, 0, 0]),
        "shared_memory" => call(libc::SYS_shmget, [0, 4096, 0o600, 0, 0, 0]),
        "message_queue" => call(libc::SYS_msgget, [0, 0o600, 0, 0, 0, 0]),
        "int_80" => int_80(),
        "x32" => call(0x4000_0000 | libc::SYS_open, [path("/etc/passwd"), 0, 0, 0, 0, 0]),
        // Out of the jail itself.
        "executable_memory" => call(libc::SYS_mmap, [0, 4096, 7, 0x22, -1, 0]),
        "memory_made_executable" => {
            let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, 3, 0x22, -1, 0) };
            call(libc::SYS_mprotect, [page as i64, 4096, 5, 0, 0, 0])
        }
        "dumpable_again" => call(libc::SYS_prctl, [4, 1, 0, 0, 0, 0]),
        "another_filter" => call(libc::SYS_seccomp, [1, 0, address(), 0, 0, 0]),
        "another_ruleset" => call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]),
        "raise_a_limit" => call(libc::SYS_prlimit64, [0, 7, address(), 0, 0, 0]),
        "capabilities_again" => call(libc::SYS_capset, [address(), address(), 0, 0, 0, 0]),
        "become_root" => call(libc::SYS_setuid, [0; 6]),
        "copy_the_pipe" => call(libc::SYS_dup, [3, 0, 0, 0, 0, 0]),
        "realtime" => call(libc::SYS_sched_setscheduler, [0, 1, address(), 0, 0, 0]),
        "timer" => call(libc::SYS_timer_create, [0, 0, address(), 0, 0, 0]),
        "long_sleep" => call(libc::SYS_clock_nanosleep, [1, 0, address(), 0, 0, 0]),
        _ => return None,
    })
}

/// A page of zeros to point at.
fn address() -> i64 {
    Box::leak(Box::new([0_u64; 64])).as_mut_ptr() as i64
}

/// Writes into a file of the scratch folder until it is refused.
fn fill() -> EvilActResult {
    let name = text("draft");
    let file = unsafe { libc::openat(4, name.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600) };
    assert!(file >= 0, "a draft can be made");
    let block = [7_u8; 64 << 10];
    for _ in 0..1024 {
        got(unsafe { libc::write(file, block.as_ptr().cast(), block.len()) } as c_long)?;
    }
    Ok(())
}

/// `open` through the gate for 32-bit programs, whose numbers mean other calls.
#[cfg(target_arch = "x86_64")]
fn int_80() -> EvilActResult {
    let result: i64;
    unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => result) };
    if result >= 0 { Ok(()) } else { Err(-result) }
}

#[cfg(not(target_arch = "x86_64"))]
fn int_80() -> EvilActResult {
    Err(0)
}
