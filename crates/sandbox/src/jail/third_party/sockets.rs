//! The sockets that a third-party program may open, and what it may do with them.
//!
//! Takes whether it has a network; gives rules for seccomp, each of which refuses. Promise: the only sockets are TCP
//! over IPv4 and IPv6, and every connection is made by `connect`, which is the call that Landlock's port rules check.

use seccompiler::{SeccompCmpOp, SeccompRule};

use super::{SyscallRules, ThirdPartyJailError, bits, rule};

/// Options of TCP that connect without `connect`, or turn the socket into another protocol.
const OPTIONS: [i32; 5] = [
    libc::TCP_FASTOPEN,
    libc::TCP_FASTOPEN_CONNECT,
    libc::TCP_FASTOPEN_KEY,
    libc::TCP_FASTOPEN_NO_COOKIE,
    libc::TCP_ULP,
];
/// Kinds of socket pairs that a program may create. Datagram pairs are not included: each end can send to any socket
/// file of the machine.
const PAIRED: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// The kind of a socket is in its lowest four bits; flags are above them.
const KIND: u64 = 0xf;
/// The calls that send, with the position of their flags argument.
const SENDS: [(i64, u8); 3] = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

/// All refusals for sockets.
pub(super) fn rules(with_network: bool) -> Result<SyscallRules, ThirdPartyJailError> {
    let mut rules = SyscallRules::new();
    let opened = if with_network { tcp_only()? } else { Vec::new() };
    rules.insert(libc::SYS_socket, opened);
    let mut pairs = kinds_but(&PAIRED)?;
    pairs.push(rule(&[(0, SeccompCmpOp::Ne, libc::AF_UNIX)])?);
    rules.insert(libc::SYS_socketpair, pairs);
    // A socket that listens without a bind gets a port that no rule has checked.
    rules.insert(libc::SYS_listen, Vec::new());
    let fast_open = (SeccompCmpOp::MaskedEq(bits(libc::MSG_FASTOPEN)), libc::MSG_FASTOPEN);
    for (call, flags) in SENDS {
        rules.insert(call, vec![rule(&[(flags, fast_open.0.clone(), fast_open.1)])?]);
    }
    let option = |name: &i32| rule(&[(1, SeccompCmpOp::Eq, libc::IPPROTO_TCP), (2, SeccompCmpOp::Eq, *name)]);
    rules.insert(libc::SYS_setsockopt, OPTIONS.iter().map(option).collect::<Result<_, _>>()?);
    Ok(rules)
}

/// File sockets lead to services of this machine, and datagram and raw sockets bypass the one port. So do protocols
/// that carry streams without being TCP (MPTCP, SCTP, SMC): Landlock sees none of them.
fn tcp_only() -> Result<Vec<SeccompRule>, ThirdPartyJailError> {
    let mut rules = kinds_but(&[libc::SOCK_STREAM])?;
    rules.push(rule(&[(0, SeccompCmpOp::Ne, libc::AF_INET), (0, SeccompCmpOp::Ne, libc::AF_INET6)])?);
    rules.push(rule(&[(2, SeccompCmpOp::Ne, 0), (2, SeccompCmpOp::Ne, libc::IPPROTO_TCP)])?);
    Ok(rules)
}

fn kinds_but(allowed: &[i32]) -> Result<Vec<SeccompRule>, ThirdPartyJailError> {
    let others = (0..16).filter(|kind| !allowed.contains(kind));
    others.map(|kind| rule(&[(1, SeccompCmpOp::MaskedEq(KIND), kind)])).collect()
}
