//! The network namespace of a third-party program: loopback is up, one port has a listener, and nothing else is in it.
//!
//! Takes a port; gives the listening socket, from which the program's parent accepts. It needs the capability to
//! administer the namespace, and runs before capabilities are dropped and before Landlock refuses to bind.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Brings loopback up and listens on one of its ports.
pub(crate) fn open(port: u16) -> io::Result<TcpListener> {
    bring_loopback_up()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn bring_loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    #[expect(unsafe_code, reason = "interfaces are set up by requests that have no safe form")]
    // SAFETY: an all-zero `ifreq` is a valid value, its name ends with a zero, both requests read and write only that
    // structure, and the kernel has filled the flags before they are read.
    let up = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (at, byte) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
            *at = byte.cast_signed();
        }
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = i32::from(request.ifr_ifru.ifru_flags) | libc::IFF_UP;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    if up == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
