//! The protocol between gateway and zygote once the zygote is locked in: one request, one answer, in turns.
//!
//! Records of a fixed size, numbers little-endian; the descriptors that belong to them travel with them. Promise: a
//! record of another size or kind is rejected.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Length of a request.
pub(crate) const WISH: usize = 9;
/// Length of an answer.
pub(crate) const ANSWER: usize = 17;

/// A request of the gateway to a zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZygoteRequest {
    /// Make a fork that uses the attached socket and may use this much processor time.
    Copy {
        /// In seconds.
        cpu_seconds: u64,
    },
    /// How the fork with this number ended. Requested once the fork has ended or was killed.
    Bury {
        /// The process number, as the zygote counts.
        number: i32,
    },
}

/// The answer of a zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZygoteResponse {
    /// The fork was made; its descriptor is attached.
    Copied {
        /// The process number, as the zygote counts.
        number: i32,
    },
    /// It has ended and is reaped.
    Buried {
        /// The reason code of `waitid`.
        code: i32,
        /// The exit code or the signal.
        status: i32,
        /// Processor time.
        millis: u64,
    },
    /// The system refused with this error.
    Failed {
        /// The system's error number.
        errno: i32,
    },
}

impl ZygoteRequest {
    pub(crate) fn encode(self) -> [u8; WISH] {
        let (kind, number) = match self {
            Self::Copy { cpu_seconds } => (1, cpu_seconds),
            Self::Bury { number } => (2, u64::from(number.unsigned_abs())),
        };
        let mut bytes = [kind; WISH];
        if let Some(rest) = bytes.last_chunk_mut() {
            *rest = number.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = u64::from_le_bytes(rest.try_into().ok()?);
        match kind {
            1 => Some(Self::Copy { cpu_seconds: number }),
            2 => Some(Self::Bury { number: i32::try_from(number).ok().filter(|number| *number > 0)? }),
            _ => None,
        }
    }
}

impl ZygoteResponse {
    pub(crate) fn encode(self) -> [u8; ANSWER] {
        let (kind, first, second, third) = match self {
            Self::Copied { number } => (1, number, 0, 0),
            Self::Buried { code, status, millis } => (2, code, status, millis),
            Self::Failed { errno } => (3, errno, 0, 0),
        };
        let mut bytes = [kind; ANSWER];
        let numbers = first.to_le_bytes().into_iter().chain(second.to_le_bytes()).chain(third.to_le_bytes());
        bytes.iter_mut().skip(1).zip(numbers).for_each(|(place, byte)| *place = byte);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk()?;
        let (first, second) = (i32::from_le_bytes(*first), i32::from_le_bytes(*second));
        let third = u64::from_le_bytes(rest.try_into().ok()?);
        match kind {
            1 => Some(Self::Copied { number: first }),
            2 => Some(Self::Buried { code: first, status: second, millis: third }),
            3 => Some(Self::Failed { errno: first }),
            _ => None,
        }
    }
}

/// Sends one record, with an optional descriptor.
pub(crate) fn send(socket: BorrowedFd<'_>, record: &[u8], with: Option<&OwnedFd>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    let handed = with.map(|fd| [fd.as_fd()]);
    if let Some(handed) = &handed {
        beside.push(SendAncillaryMessage::ScmRights(handed));
    }
    let sent =
        rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(record)], &mut beside, SendFlags::NOSIGNAL))?;
    if sent == record.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one complete record, with its descriptor.
pub(crate) fn receive<const LENGTH: usize>(socket: BorrowedFd<'_>) -> io::Result<([u8; LENGTH], Option<OwnedFd>)> {
    let mut bytes = [0; LENGTH];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let count = rustix::io::retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        recvmsg(socket, into, &mut beside, RecvFlags::CMSG_CLOEXEC).map(|received| received.bytes)
    })?;
    let handed = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handed) => handed.next(),
        _ => None,
    });
    if count == LENGTH { Ok((bytes, handed)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_and_others_are_none() {
        for wish in [ZygoteRequest::Copy { cpu_seconds: 5 }, ZygoteRequest::Bury { number: 7 }] {
            assert_eq!(ZygoteRequest::decode(&wish.encode()), Some(wish));
        }
        let answers = [
            ZygoteResponse::Copied { number: 2 },
            ZygoteResponse::Buried { code: 1, status: -9, millis: 1 << 40 },
            ZygoteResponse::Failed { errno: 11 },
        ];
        for answer in answers {
            assert_eq!(ZygoteResponse::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(ZygoteRequest::decode(&[9; WISH]), None);
        assert_eq!(ZygoteRequest::decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]), None, "no process has the number 0");
        assert_eq!(ZygoteRequest::decode(&ZygoteRequest::Copy { cpu_seconds: 1 }.encode()[..8]), None);
        assert_eq!(ZygoteResponse::decode(&[4; ANSWER]), None);
        assert_eq!(ZygoteResponse::decode(&[1; ANSWER + 1]), None);
    }
}
