//! A mailbox over IMAP: what is new in it, one mail at a time, and word when there is more.
//!
//! Takes a host, an account and a folder; gives mails above a number. Promise: nothing travels in the clear except to
//! this machine; every command ends within its time and reads no more than it was promised; a mail larger than allowed
//! is never fetched; nothing is ever deleted.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_imap::extensions::idle::IdleResponse;
use async_imap::types::Uid;
use async_imap::{Client, Session};
use futures_util::TryStreamExt as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Fault;
use crate::config::Security;

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a command may answer beside the mail it fetches, in bytes.
const CHATTER: u64 = 1 << 20;
/// Most numbers of new mails that are taken up at once.
const PAGE: usize = 200;

/// Where the mailbox is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) folder: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An open folder.
pub(super) struct Folder {
    session: Session<Line>,
    /// The numbering the server uses now. Another one means other numbers.
    pub(super) validity: u32,
    /// The number the next mail will have.
    pub(super) next: Uid,
    tells: bool,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.validity)
    }
}

/// A mail that is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct New {
    pub(super) uid: Uid,
    pub(super) size: u64,
}

impl Folder {
    /// Connects, signs in and opens the folder.
    ///
    /// # Errors
    /// When the server is not reached, or does not take the account.
    pub(super) async fn open(place: &Place, user: &str, password: &str) -> Result<Self, Fault> {
        let line = in_time(connect(place)).await?;
        let mut client = Client::new(line);
        in_time(greeted(&mut client)).await?;
        if place.security == Security::Starttls {
            in_time(async { client.run_command_and_check_ok("STARTTLS", None).await.map_err(fault) }).await?;
            // What was sent before the upgrade goes with the old client: nothing of it is taken for an answer.
            let line = client.into_inner();
            client = Client::new(in_time(upgraded(place, line.stream)).await?);
        }
        let login = async {
            client.login(user, password).await.map_err(|(error, _)| match error {
                // The server's own words may repeat what it was told.
                async_imap::error::Error::No(_) => {
                    Fault::Broken { why: "mail: the mailbox refuses the account".into() }
                }
                other => fault(other),
            })
        };
        let mut session = in_time(login).await?;
        let tells = in_time(async { session.capabilities().await.map_err(fault) }).await?.has_str("IDLE");
        let chosen = in_time(async { session.select(&place.folder).await.map_err(fault) }).await?;
        let validity = chosen.uid_validity.ok_or_else(|| later("the server does not number its mail"))?;
        Ok(Self { session, validity, next: chosen.uid_next.unwrap_or(1), tells })
    }

    /// Has the server show what has come since it was last asked: a search alone sees what the session knows.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn refresh(&mut self) -> Result<(), Fault> {
        self.allow(CHATTER);
        in_time(async { self.session.noop().await.map_err(fault) }).await
    }

    /// Mails above a number, the oldest first; not more than one page of them.
    ///
    /// # Errors
    /// When the server does not answer as it should.
    pub(super) async fn above(&mut self, last: Uid) -> Result<Vec<New>, Fault> {
        let query = format!("UID {}:*", last.saturating_add(1));
        self.allow(CHATTER);
        let found = in_time(async { self.session.uid_search(&query).await.map_err(fault) }).await?;
        self.still_there()?;
        // `n:*` names the newest mail even where its number lies below `n`.
        let mut uids: Vec<Uid> = found.into_iter().filter(|uid| *uid > last).collect();
        uids.sort_unstable();
        uids.truncate(PAGE);
        self.sizes(&uids).await
    }

    /// The number below the first mail since a day, written as IMAP writes days.
    ///
    /// # Errors
    /// When the server does not answer as it should.
    pub(super) async fn before(&mut self, day: &str) -> Result<Uid, Fault> {
        self.allow(CHATTER);
        let query = format!("SINCE {day}");
        let found = in_time(async { self.session.uid_search(&query).await.map_err(fault) }).await?;
        self.still_there()?;
        Ok(found.into_iter().min().unwrap_or(self.next).saturating_sub(1))
    }

    async fn sizes(&mut self, uids: &[Uid]) -> Result<Vec<New>, Fault> {
        let list: Vec<String> = uids.iter().map(ToString::to_string).collect();
        if list.is_empty() {
            return Ok(Vec::new());
        }
        self.allow(CHATTER);
        let fetching = async {
            let stream = self.session.uid_fetch(list.join(","), "(UID RFC822.SIZE)").await.map_err(fault)?;
            stream.try_collect::<Vec<_>>().await.map_err(fault)
        };
        let fetched = in_time(fetching).await?;
        self.still_there()?;
        let of = |one: &async_imap::types::Fetch| Some(New { uid: one.uid?, size: u64::from(one.size?) });
        let mut new: Vec<New> = fetched.iter().filter_map(of).filter(|one| uids.contains(&one.uid)).collect();
        new.sort_unstable_by_key(|one| one.uid);
        new.dedup_by_key(|one| one.uid);
        Ok(new)
    }

    /// The bytes of a mail; nothing if it has gone meanwhile. It stays unread.
    ///
    /// # Errors
    /// When the server does not answer as it should, or sends more than it said.
    pub(super) async fn fetch(&mut self, new: New) -> Result<Option<Vec<u8>>, Fault> {
        self.allow(new.size.saturating_add(CHATTER));
        let fetching = async {
            let stream = self.session.uid_fetch(new.uid.to_string(), "(UID BODY.PEEK[])").await.map_err(fault)?;
            stream.try_collect::<Vec<_>>().await.map_err(fault)
        };
        let fetched = in_time(fetching).await?;
        self.still_there()?;
        let mine = fetched.iter().find(|one| one.uid == Some(new.uid));
        Ok(mine.and_then(|one| one.body()).map(<[u8]>::to_vec))
    }

    /// Puts a mail aside: into another folder, or marked as seen.
    ///
    /// # Errors
    /// When the server does not do it.
    pub(super) async fn put_aside(&mut self, uid: Uid, folder: Option<&str>) -> Result<(), Fault> {
        self.allow(CHATTER);
        let uid = uid.to_string();
        match folder {
            Some(folder) => in_time(async { self.session.uid_mv(&uid, folder).await.map_err(fault) }).await,
            None => {
                let marking = async {
                    let stream = self.session.uid_store(&uid, "+FLAGS.SILENT (\\Seen)").await.map_err(fault)?;
                    stream.try_collect::<Vec<_>>().await.map_err(fault).map(drop)
                };
                in_time(marking).await
            }
        }
    }

    /// Waits until the server says that something is new, or for so long.
    ///
    /// # Errors
    /// When the connection ends.
    pub(super) async fn wait(mut self, most: Duration) -> Result<Self, Fault> {
        self.allow(CHATTER);
        if !self.tells {
            crate::loops::pause(most).await;
            in_time(async { self.session.noop().await.map_err(fault) }).await?;
            return Ok(self);
        }
        let Self { session, validity, next, tells } = self;
        let mut idle = session.idle();
        in_time(async { idle.init().await.map_err(fault) }).await?;
        let ended = {
            let (waiting, _interrupt) = idle.wait_with_timeout(most);
            // Its own limit begins anew with each sign of life; this one does not.
            tokio::time::timeout(most, waiting).await
        };
        match ended {
            Err(_) | Ok(Ok(IdleResponse::Timeout | IdleResponse::NewData(_))) => {}
            // Nobody interrupts it: this is how the end of the connection looks.
            Ok(Ok(IdleResponse::ManualInterrupt)) => return Err(later("the server has gone")),
            Ok(Err(error)) => return Err(fault(error)),
        }
        let session = in_time(async { idle.done().await.map_err(fault) }).await?;
        Ok(Self { session, validity, next, tells })
    }

    /// The client takes the end of a connection for the end of a list: half a list would pass for a whole one, and
    /// mail that was not on it would be lost.
    fn still_there(&mut self) -> Result<(), Fault> {
        let line: &mut Line = self.session.as_mut();
        if line.ended { Err(later("the connection to the mailbox ended")) } else { Ok(()) }
    }

    fn allow(&mut self, bytes: u64) {
        let line: &mut Line = self.session.as_mut();
        line.left = bytes;
        // Nobody reads them, and the channel they wait in is small.
        while self.session.unsolicited_responses.try_recv().is_ok() {}
    }
}

async fn greeted(client: &mut Client<Line>) -> Result<(), Fault> {
    match client.read_response().await {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => Err(later("the server does not greet")),
    }
}

async fn connect(place: &Place) -> Result<Line, Fault> {
    let unreached = |_| later("not reached");
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await.map_err(unreached)?;
    stream.set_nodelay(true).map_err(unreached)?;
    match place.security {
        Security::Tls => upgraded(place, Stream::Plain(stream)).await,
        Security::Starttls | Security::Off => Ok(Line::new(Stream::Plain(stream))),
    }
}

async fn upgraded(place: &Place, stream: Stream) -> Result<Line, Fault> {
    let Stream::Plain(stream) = stream else { return Err(later("it is encrypted already")) };
    let name = ServerName::try_from(place.host.clone()).map_err(|_| later("no name for a certificate"))?;
    let stream = TlsConnector::from(Arc::clone(&place.tls)).connect(name, stream).await;
    let stream = stream.map_err(|_| later("its certificate is not trusted, or it speaks no TLS"))?;
    Ok(Line::new(Stream::Tls(Box::new(stream))))
}

/// Every command has its time.
async fn in_time<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(later("the server took too long")))
}

fn later(why: &str) -> Fault {
    Fault::Later { after: None, why: format!("mail: {why}") }
}

/// SECURITY: what the server says may hold content or what it was told, so that no word of it is passed on.
fn fault(error: async_imap::error::Error) -> Fault {
    use async_imap::error::Error;
    later(match error {
        Error::Io(_) | Error::ConnectionLost => "the connection to the mailbox ended",
        Error::No(_) | Error::Bad(_) => "the mailbox refuses a command",
        _ => "the mailbox is not understood",
    })
}

/// A connection that reads no more than it is allowed.
pub(super) struct Line {
    stream: Stream,
    left: u64,
    /// The other side has ended it.
    ended: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Line {
    fn new(stream: Stream) -> Self {
        Self { stream, left: CHATTER, ended: false }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("more than was allowed")));
        }
        let before = buf.filled().len();
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let got = buf.filled().len().saturating_sub(before);
        self.ended |= read.is_ready() && got == 0;
        self.left = self.left.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX));
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
