//! What gateway and mould say to each other once the mould is locked in: one wish, one answer, in turns.
//!
//! Records of a fixed size, numbers little-endian; the descriptors that belong to them travel beside them. Promise: a
//! record of another size or kind is none.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Length of a wish.
pub(crate) const WISH: usize = 9;
/// Length of an answer.
pub(crate) const ANSWER: usize = 17;

/// What the gateway wants of a mould.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A copy that speaks through the socket beside it and may use so much processor time.
    Copy {
        /// In seconds.
        cpu_seconds: u64,
    },
    /// How the copy of this number ended. It is asked once the copy has ended or was killed.
    Bury {
        /// As the mould counts processes.
        number: i32,
    },
}

/// What a mould answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There it is; its descriptor is beside it.
    Copied {
        /// As the mould counts processes.
        number: i32,
    },
    /// It has ended and is gone.
    Buried {
        /// As `waitid` says why.
        code: i32,
        /// The exit code or the signal.
        status: i32,
        /// Processor time.
        millis: u64,
    },
    /// The system refused, with this number.
    Failed {
        /// As the system numbers errors.
        errno: i32,
    },
}

impl Wish {
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

impl Answer {
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

/// Sends one record, and a descriptor beside it.
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

/// Receives one record, whole, and the descriptor beside it.
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
        for wish in [Wish::Copy { cpu_seconds: 5 }, Wish::Bury { number: 7 }] {
            assert_eq!(Wish::decode(&wish.encode()), Some(wish));
        }
        let answers = [
            Answer::Copied { number: 2 },
            Answer::Buried { code: 1, status: -9, millis: 1 << 40 },
            Answer::Failed { errno: 11 },
        ];
        for answer in answers {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(Wish::decode(&[9; WISH]), None);
        assert_eq!(Wish::decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]), None, "nobody is number nought");
        assert_eq!(Wish::decode(&Wish::Copy { cpu_seconds: 1 }.encode()[..8]), None);
        assert_eq!(Answer::decode(&[4; ANSWER]), None);
        assert_eq!(Answer::decode(&[1; ANSWER + 1]), None);
    }
}
