//! A mailbox over IMAP: lists new mail, fetches one mail at a time, and waits for more.
//!
//! Takes a host, an account and a folder; gives mails above a number. Promise: nothing travels unencrypted except to
//! this machine; every command ends within its time and reads no more than its limit; a mail larger than allowed
//! is never fetched; nothing is ever deleted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use async_imap::extensions::idle::IdleResponse;
use async_imap::types::Uid;
use async_imap::{Client, Session};
use futures_util::TryStreamExt as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sluice_config::Security;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ChannelError;

/// Longest time that one command may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes that a command may answer in addition to the mail it fetches.
const CHATTER: u64 = 1 << 20;
/// Most new mails that are listed at once.
const PAGE: usize = 200;

/// The address of the mailbox.
#[derive(Clone)]
pub(super) struct ImapEndpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) folder: String,
}

impl fmt::Debug for ImapEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An open folder.
pub(super) struct ImapFolder {
    session: Session<ImapConnection>,
    /// The server's UIDVALIDITY. When it changes, all mail numbers change.
    pub(super) validity: u32,
    /// The number that the next mail will have.
    pub(super) next: Uid,
    tells: bool,
}

impl fmt::Debug for ImapFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.validity)
    }
}

/// A new mail: its number and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewImapMail {
    pub(super) uid: Uid,
    pub(super) size: u64,
}

impl ImapFolder {
    /// Connects, signs in and opens the folder.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses the account.
    pub(super) async fn open(place: &ImapEndpoint, user: &str, password: &str) -> Result<Self, ChannelError> {
        let line = in_time(connect(place)).await?;
        let mut client = Client::new(line);
        in_time(greeted(&mut client)).await?;
        if place.security == Security::Starttls {
            in_time(async { client.run_command_and_check_ok("STARTTLS", None).await.map_err(fault) }).await?;
            // Bytes that arrived before the upgrade stay with the old client: none of them is taken for an answer.
            let line = client.into_inner();
            client = Client::new(in_time(upgraded(place, line.stream)).await?);
        }
        let login = async {
            client.login(user, password).await.map_err(|(error, _)| match error {
                // The server's text may repeat what was sent to it.
                async_imap::error::Error::No(_) => {
                    ChannelError::Broken { why: "mail: the mailbox refuses the account".into() }
                }
                other => fault(other),
            })
        };
        let mut session = in_time(login).await?;
        let tells = in_time(async { session.capabilities().await.map_err(fault) }).await?.has_str("IDLE");
        let chosen = in_time(async { session.select(&place.folder).await.map_err(fault) }).await?;
        let validity =
            chosen.uid_validity.ok_or_else(|| later("the server does not number its mail (no UIDVALIDITY)"))?;
        Ok(Self { session, validity, next: chosen.uid_next.unwrap_or(1), tells })
    }

    /// Asks the server for what arrived since the last request: a search alone sees only what the session knows.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn refresh(&mut self) -> Result<(), ChannelError> {
        self.allow(CHATTER);
        in_time(async { self.session.noop().await.map_err(fault) }).await
    }

    /// The mails above a number, oldest first; at most one page.
    ///
    /// # Errors
    /// When the server does not follow the protocol.
    pub(super) async fn mails_above(&mut self, last: Uid) -> Result<Vec<NewImapMail>, ChannelError> {
        let query = format!("UID {}:*", last.saturating_add(1));
        self.allow(CHATTER);
        let found = in_time(async { self.session.uid_search(&query).await.map_err(fault) }).await?;
        self.still_there()?;
        // `n:*` names the newest mail even if its number is below `n`.
        let mut uids: Vec<Uid> = found.into_iter().filter(|uid| *uid > last).collect();
        uids.sort_unstable();
        uids.truncate(PAGE);
        self.sizes(&uids).await
    }

    /// The number before the first mail since a date, in IMAP format.
    ///
    /// # Errors
    /// When the server does not follow the protocol.
    pub(super) async fn uid_before_day(&mut self, day: &str) -> Result<Uid, ChannelError> {
        self.allow(CHATTER);
        let query = format!("SINCE {day}");
        let found = in_time(async { self.session.uid_search(&query).await.map_err(fault) }).await?;
        self.still_there()?;
        Ok(found.into_iter().min().unwrap_or(self.next).saturating_sub(1))
    }

    async fn sizes(&mut self, uids: &[Uid]) -> Result<Vec<NewImapMail>, ChannelError> {
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
        let of = |one: &async_imap::types::Fetch| Some(NewImapMail { uid: one.uid?, size: u64::from(one.size?) });
        let mut new: Vec<NewImapMail> = fetched.iter().filter_map(of).filter(|one| uids.contains(&one.uid)).collect();
        new.sort_unstable_by_key(|one| one.uid);
        new.dedup_by_key(|one| one.uid);
        Ok(new)
    }

    /// The bytes of a mail; `None` if it was removed meanwhile. The mail stays unread.
    ///
    /// # Errors
    /// When the server does not follow the protocol, or sends more than it announced.
    pub(super) async fn fetch(&mut self, new: NewImapMail) -> Result<Option<Vec<u8>>, ChannelError> {
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

    /// Moves a mail to another folder, or marks it as seen.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) async fn put_aside(&mut self, uid: Uid, folder: Option<&str>) -> Result<(), ChannelError> {
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

    /// Waits until the server reports something new, or until the time is up.
    ///
    /// # Errors
    /// When the connection ends.
    pub(super) async fn wait(mut self, most: Duration) -> Result<Self, ChannelError> {
        self.allow(CHATTER);
        if !self.tells {
            sluice_services::timer::pause(most).await;
            in_time(async { self.session.noop().await.map_err(fault) }).await?;
            return Ok(self);
        }
        let Self { session, validity, next, tells } = self;
        let mut idle = session.idle();
        in_time(async { idle.init().await.map_err(fault) }).await?;
        let ended = {
            let (waiting, _interrupt) = idle.wait_with_timeout(most);
            // The IDLE timeout starts again with each message of the server; this one does not.
            tokio::time::timeout(most, waiting).await
        };
        match ended {
            Err(_) | Ok(Ok(IdleResponse::Timeout | IdleResponse::NewData(_))) => {}
            // Nothing in this process interrupts it: this is how the end of the connection appears.
            Ok(Ok(IdleResponse::ManualInterrupt)) => return Err(later("the server closed the connection")),
            Ok(Err(error)) => return Err(fault(error)),
        }
        let session = in_time(async { idle.done().await.map_err(fault) }).await?;
        Ok(Self { session, validity, next, tells })
    }

    /// The client takes the end of a connection for the end of a list: an incomplete list would look complete, and the
    /// mail missing from it would be lost.
    fn still_there(&mut self) -> Result<(), ChannelError> {
        let line: &mut ImapConnection = self.session.as_mut();
        if line.ended { Err(later("the connection to the mailbox ended")) } else { Ok(()) }
    }

    fn allow(&mut self, bytes: u64) {
        let line: &mut ImapConnection = self.session.as_mut();
        line.left = bytes;
        // Nothing reads these responses, and the channel that holds them is small.
        while self.session.unsolicited_responses.try_recv().is_ok() {}
    }
}

async fn greeted(client: &mut Client<ImapConnection>) -> Result<(), ChannelError> {
    match client.read_response().await {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => Err(later("the server sends no greeting")),
    }
}

async fn connect(place: &ImapEndpoint) -> Result<ImapConnection, ChannelError> {
    let unreached = |_| later("the server cannot be reached");
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await.map_err(unreached)?;
    stream.set_nodelay(true).map_err(unreached)?;
    match place.security {
        Security::Tls => upgraded(place, ImapTransport::Plain(stream)).await,
        Security::Starttls | Security::Off => Ok(ImapConnection::new(ImapTransport::Plain(stream))),
    }
}

async fn upgraded(place: &ImapEndpoint, stream: ImapTransport) -> Result<ImapConnection, ChannelError> {
    let ImapTransport::Plain(stream) = stream else { return Err(later("the connection is already encrypted")) };
    let name = ServerName::try_from(place.host.clone())
        .map_err(|_| later("the host is not a valid name for a certificate"))?;
    let stream = TlsConnector::from(Arc::clone(&place.tls)).connect(name, stream).await;
    let stream = stream.map_err(|_| later("the server's certificate is not trusted, or it does not support TLS"))?;
    Ok(ImapConnection::new(ImapTransport::Tls(Box::new(stream))))
}

/// Limits the time of a command.
async fn in_time<T>(work: impl Future<Output = Result<T, ChannelError>>) -> Result<T, ChannelError> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(later("the server took too long")))
}

fn later(why: &str) -> ChannelError {
    ChannelError::Later { after: None, why: format!("mail: {why}") }
}

/// SECURITY: the server's text may hold content or what was sent to it, so no word of it is passed on.
fn fault(error: async_imap::error::Error) -> ChannelError {
    use async_imap::error::Error;
    later(match error {
        Error::Io(_) | Error::ConnectionLost => "the connection to the mailbox ended",
        Error::No(_) | Error::Bad(_) => "the mailbox refuses a command",
        _ => "the mailbox server sent an answer that cannot be read",
    })
}

/// A connection that reads no more than its limit.
pub(super) struct ImapConnection {
    stream: ImapTransport,
    left: u64,
    /// Whether the other side closed the connection.
    ended: bool,
}

enum ImapTransport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ImapConnection {
    fn new(stream: ImapTransport) -> Self {
        Self { stream, left: CHATTER, ended: false }
    }
}

impl fmt::Debug for ImapConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl AsyncRead for ImapConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("more than was allowed")));
        }
        let before = buf.filled().len();
        let read = match &mut self.stream {
            ImapTransport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            ImapTransport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let got = buf.filled().len().saturating_sub(before);
        self.ended |= read.is_ready() && got == 0;
        self.left = self.left.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX));
        read
    }
}

impl AsyncWrite for ImapConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            ImapTransport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            ImapTransport::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            ImapTransport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ImapTransport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            ImapTransport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ImapTransport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
