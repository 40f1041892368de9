//! Answers by mail from end to end: letters go out through aiosmtpd into Dovecot, replies are signed by dkimpy, put
//! into a mailbox over LMTP, fetched over IMAP, read by real workers, and decide, or do not.
//!
//! `SLUICE_TEST_MAIL` names the file in which `crates/testkit/counterparts/mail/post.py` says where they are.

mod faults;
mod mail_server;
mod matrix;
mod serving;
mod test_gateway;
mod walk;
mod whole;
mod words;
