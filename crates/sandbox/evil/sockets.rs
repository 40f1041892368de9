//! Attacks of a third-party program that looks for a way out of its network: every family, kind, protocol, flag and
//! option.
//!
//! Takes targets to reach; prints what it could open and do. The test observes from outside which targets were reached.

use std::io::Write as _;
use std::mem::size_of;

use libc::{c_int, c_void, socklen_t};

/// One more than the last family of the kernel.
const FAMILIES: c_int = 48;
/// Every kind: stream, datagram, raw, reliable, sequenced packets, DCCP, link-level packets.
const KINDS: [c_int; 7] = [1, 2, 3, 4, 5, 6, 10];
/// One more than the last protocol (MPTCP is 262).
const PROTOCOLS: c_int = 264;
/// Options of TCP and of the layers above it.
const OPTIONS: c_int = 64;

/// `sockets PORT-TO-TRY SOCKET-FILE-TO-TRY`.
pub fn look_for_a_way_out(mut arguments: impl Iterator<Item = String>) -> ! {
    let port: u16 = arguments.next().and_then(|port| port.parse().ok()).unwrap();
    let file = arguments.next().unwrap();
    let network = std::fs::read_link("/proc/self/ns/net").map_or_else(|_| "?".into(), |at| at.display().to_string());
    println!("network {network}");
    let mut opened = Vec::new();
    for family in 0..FAMILIES {
        for kind in KINDS {
            for protocol in 0..PROTOCOLS {
                if let Some(socket) = open(family, kind, protocol) {
                    println!("socket {family} {kind} {protocol}");
                    drop(socket);
                    opened.push((family, kind, protocol));
                }
            }
            let mut pair = [0; 2];
            if unsafe { libc::socketpair(family, kind, 0, pair.as_mut_ptr()) } == 0 {
                println!("pair {family} {kind}");
                send_to_file(pair[0], &file);
            }
        }
    }
    for (family, kind, protocol) in opened {
        for to in addresses(family, port) {
            try_everything(|| open(family, kind, protocol), &to);
        }
        let Some(socket) = open(family, kind, protocol) else { continue };
        if unsafe { libc::listen(socket.0, 1) } == 0 {
            println!("listen {family} {kind} {protocol}");
        }
    }
    // The same call by its number with short pointers (x32).
    #[cfg(target_arch = "x86_64")]
    if unsafe { libc::syscall(0x4000_0000 | libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0) } >= 0 {
        println!("x32");
    }
    if unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, [0_u64; 64].as_mut_ptr()) } >= 0 {
        println!("io_uring");
    }
    println!("over");
    std::io::stdout().flush().unwrap();
    sluice_sandbox::child::exit(0)
}

/// `reach PORT`: connects to a listener at a loopback port, as an honest program does.
pub fn reach(mut arguments: impl Iterator<Item = String>) -> ! {
    let port: u16 = arguments.next().and_then(|port| port.parse().ok()).unwrap();
    let mut line = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    line.write_all(b"hello").unwrap();
    let mut heard = String::new();
    std::io::Read::read_to_string(&mut line, &mut heard).unwrap();
    println!("{heard}");
    sluice_sandbox::child::exit(0)
}

struct RawProbeSocket(c_int);

impl Drop for RawProbeSocket {
    fn drop(&mut self) {
        unsafe { libc::close(self.0) };
    }
}

fn open(family: c_int, kind: c_int, protocol: c_int) -> Option<RawProbeSocket> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let socket = unsafe { libc::socket(family, kind | flags, protocol) };
    (socket >= 0).then_some(RawProbeSocket(socket))
}

/// The loopback address of a family; both forms for IPv6.
fn addresses(family: c_int, port: u16) -> Vec<Vec<u8>> {
    let port = port.to_be_bytes();
    let head = |family: c_int| [&u16::try_from(family).unwrap().to_ne_bytes()[..], &port].concat();
    let (one, mapped) = ([&[0; 15][..], &[1]].concat(), [&[0; 10][..], &[255, 255, 127, 0, 0, 1]].concat());
    match family {
        libc::AF_INET6 => [one, mapped].map(|host| [head(family), vec![0; 4], host, vec![0; 4]].concat()).to_vec(),
        _ => vec![[head(family), vec![127, 0, 0, 1], vec![0; 8]].concat()],
    }
}

/// Tries every way to send to an address, each with a fresh socket.
fn try_everything(fresh: impl Fn() -> Option<RawProbeSocket>, to: &[u8]) {
    let address = (to.as_ptr().cast::<libc::sockaddr>(), to.len() as socklen_t);
    if let Some(socket) = fresh() {
        unsafe { libc::connect(socket.0, address.0, address.1) };
    }
    let flags = (0..31).map(|bit| 1 << bit).chain([0]);
    for flag in flags.flat_map(|flag| [flag, flag | libc::MSG_FASTOPEN]) {
        let flag = flag | libc::MSG_NOSIGNAL;
        let data = b"out";
        if let Some(socket) = fresh() {
            unsafe { libc::sendto(socket.0, data.as_ptr().cast(), data.len(), flag, address.0, address.1) };
        }
        let mut piece = libc::iovec { iov_base: data.as_ptr() as *mut c_void, iov_len: data.len() };
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_name, message.msg_namelen) = (address.0 as *mut c_void, address.1);
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        if let Some(socket) = fresh() {
            unsafe { libc::sendmsg(socket.0, &raw const message, flag) };
        }
        if let Some(socket) = fresh() {
            let mut many = libc::mmsghdr { msg_hdr: message, msg_len: 0 };
            unsafe { libc::syscall(libc::SYS_sendmmsg, socket.0, &raw mut many, 1, flag) };
        }
    }
    for option in 0..OPTIONS {
        for value in [1_i32.to_ne_bytes().as_slice(), b"smc\0", b"mptcp\0"] {
            let Some(socket) = fresh() else { continue };
            let length = value.len() as socklen_t;
            let set = unsafe { libc::setsockopt(socket.0, libc::IPPROTO_TCP, option, value.as_ptr().cast(), length) };
            if set == 0 {
                unsafe { libc::connect(socket.0, address.0, address.1) };
                unsafe { libc::send(socket.0, b"out".as_ptr().cast(), 3, libc::MSG_NOSIGNAL) };
                if [libc::TCP_FASTOPEN_CONNECT, libc::TCP_FASTOPEN].contains(&option) {
                    println!("option {option}");
                }
            }
        }
    }
}

/// Sends to a socket of the file system, which a pair of datagram sockets can.
fn send_to_file(socket: c_int, file: &str) {
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (at, byte) in address.sun_path.iter_mut().zip(file.bytes()) {
        *at = byte as libc::c_char;
    }
    let (to, length) = ((&raw const address).cast(), size_of::<libc::sockaddr_un>() as socklen_t);
    unsafe { libc::sendto(socket, b"out".as_ptr().cast(), 3, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL, to, length) };
}
