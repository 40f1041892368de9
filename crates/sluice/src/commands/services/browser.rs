//! The consent in the browser: sends a link out and receives one request back.
//!
//! Takes the state of a link; gives the provider's answer. Promise: listens on loopback only, accepts one answer
//! with that state; every other request gets an error page and changes nothing.

use std::io::{BufRead as _, IsTerminal as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use percent_encoding::percent_decode_str;
use sluice_core::Millis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// An address where nothing listens: the person pastes the address of the browser instead.
const NOWHERE: &str = "http://127.0.0.1:7429/";
/// Longest request that is read.
const LONGEST: usize = 16 << 10;
/// Timeout of one request.
const SOON: Millis = Millis::from_secs(5);

/// How the answer is received.
pub(crate) enum OauthRedirectReceiver {
    /// On a port of this machine.
    Here(std::net::TcpListener),
    /// Pasted by the person.
    Paste,
}

/// The parameters the provider sent through the browser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OauthRedirectParams {
    pub(crate) state: String,
    pub(crate) code: String,
    pub(crate) issuer: Option<String>,
}

impl OauthRedirectReceiver {
    /// Opens a port.
    pub(crate) fn listen(port: u16) -> Result<Self, CliError> {
        let bound = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        bound.map(Self::Here).map_err(|error| {
            CliError::new(CommandExit::Failed, "cannot open a port for the browser to return to")
                .why(describe_io_error(&error))
                .hint("--paste")
        })
    }

    /// The redirect address for the provider.
    pub(crate) fn redirect(&self) -> Result<String, CliError> {
        match self {
            Self::Here(listener) => Ok(format!("http://{}/", listener.local_addr()?)),
            Self::Paste => Ok(NOWHERE.to_owned()),
        }
    }

    /// Waits for the answer.
    pub(crate) fn answer(
        self,
        state: &str,
        patience: Millis,
        screen: &CommandConsole,
    ) -> Result<OauthRedirectParams, CliError> {
        match self {
            Self::Here(listener) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let late = || {
                    CliError::new(CommandExit::Pending, "no consent was given in time")
                        .hint("start again, or use --paste")
                };
                runtime.block_on(async {
                    listener.set_nonblocking(true)?;
                    let listener = TcpListener::from_std(listener)?;
                    timeout(patience.as_duration(), wait_for_redirect(&listener, state)).await.map_err(|_| late())?
                })
            }
            Self::Paste => pasted(state, screen),
        }
    }
}

/// The first request that answers the link.
async fn wait_for_redirect(listener: &TcpListener, state: &str) -> Result<OauthRedirectParams, CliError> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        // A silent or broken connection is not the one we wait for.
        let Ok(Some(query)) = timeout(SOON.as_duration(), request(&mut stream)).await else { continue };
        let read = read(&query, state);
        let (status, words) = match &read {
            None => ("404 Not Found", "There is nothing here."),
            Some(Ok(_)) => ("200 OK", "Thank you. You can close this window and go back to the terminal."),
            Some(Err(_)) => ("200 OK", "Nothing was connected. You can close this window."),
        };
        let page = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             referrer-policy: no-referrer\r\nconnection: close\r\n\r\n{words}",
            words.len()
        );
        // The answer counts even if the page cannot be sent.
        let _shown = stream.write_all(page.as_bytes()).await;
        let _closed = stream.shutdown().await;
        if let Some(answer) = read {
            return answer;
        }
    }
}

/// The query of a GET request to our only page.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let length = stream.read(&mut piece).await.ok().filter(|length| *length > 0)?;
        head.extend_from_slice(piece.get(..length)?);
        if head.len() > LONGEST {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head);
    let target = text.strip_prefix("GET ")?.split(' ').next()?;
    target.strip_prefix("/?").map(str::to_owned)
}

/// Parses a query; `None` if it is not the answer to this link.
fn read(query: &str, state: &str) -> Option<Result<OauthRedirectParams, CliError>> {
    let pairs: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let get = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    // SECURITY: any page can send a browser here; only the answer to our link knows its state.
    let said = get("state").filter(|said| said == state)?;
    if let Some(error) = get("error") {
        let shown: String = error.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(40).collect();
        return Some(Err(CliError::new(CommandExit::Denied, "the provider denied access").why(shown)));
    }
    Some(Ok(OauthRedirectParams { state: said, code: get("code")?, issuer: get("iss") }))
}

/// Parses what a person pastes: the whole address, or only the code.
fn pasted(state: &str, screen: &CommandConsole) -> Result<OauthRedirectParams, CliError> {
    screen.note(
        "Afterwards the browser shows a page that cannot be opened. Paste the whole address here and press Enter:",
    );
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed)?;
    understood(typed.trim(), state).unwrap_or_else(|| {
        Err(CliError::new(CommandExit::Usage, "this is not an answer to the link")
            .hint("paste the whole address, from http to the end"))
    })
}

fn understood(typed: &str, state: &str) -> Option<Result<OauthRedirectParams, CliError>> {
    if let Some((_, query)) = typed.split_once('?') {
        return read(query, state);
    }
    let is_code = !typed.is_empty() && typed.bytes().all(|b| b.is_ascii_graphic()) && !typed.contains("://");
    // As it is in an address; a plus sign there is a plus sign.
    let code = percent_decode_str(typed).decode_utf8_lossy().into_owned();
    is_code.then(|| Ok(OauthRedirectParams { state: state.to_owned(), code, issuer: None }))
}

/// Opens a browser if there is a display.
pub(crate) fn open(link: &str) -> bool {
    let seen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !std::io::stderr().is_terminal() || !(seen || cfg!(target_os = "macos")) {
        return false;
    }
    let mut command = Command::new(program);
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(answer: Option<Result<OauthRedirectParams, CliError>>) -> Option<String> {
        answer.and_then(Result::ok).map(|back| back.code)
    }

    #[test]
    fn only_the_answer_to_our_link_is_taken() {
        assert_eq!(code(read("state=s1&code=4%2F0A%2Bx&scope=a+b", "s1")).as_deref(), Some("4/0A+x"));
        for other in ["state=s2&code=x", "code=x", "state=s1", "", "state=&code=x"] {
            assert_eq!(code(read(other, "s1")), None, "{other}");
        }
        let back = read("iss=https%3A%2F%2Faccounts.example&state=s1&code=c", "s1").unwrap().unwrap();
        assert_eq!(back.issuer.as_deref(), Some("https://accounts.example"));
    }

    #[test]
    fn a_no_of_the_person_is_a_no_and_quotes_nothing_strange() {
        let failure = read("state=s1&error=access_denied%1b[31m", "s1").unwrap().unwrap_err();
        assert_eq!((failure.exit, failure.why.as_deref()), (CommandExit::Denied, Some("access_deniedm")));
    }

    #[test]
    fn an_address_or_a_code_can_be_pasted() {
        assert_eq!(code(understood("http://127.0.0.1:7429/?state=s1&code=c1", "s1")).as_deref(), Some("c1"));
        for alone in ["4/0A+bc", "4%2F0A%2Bbc"] {
            assert_eq!(code(understood(alone, "s1")).as_deref(), Some("4/0A+bc"));
        }
        for bad in ["", "two words", "http://127.0.0.1:7429/", "http://127.0.0.1:7429/?state=s2&code=c1"] {
            assert!(understood(bad, "s1").is_none(), "{bad}");
        }
    }

    #[test]
    fn percent_signs_that_mean_nothing_stay() {
        assert_eq!(code(read("state=s1&code=100%&a%2", "s1")).as_deref(), Some("100%"));
        assert_eq!(code(read("state=s1&code=%E2%82%AC", "s1")).as_deref(), Some("€"));
    }

    #[test]
    fn strangers_at_the_port_are_sent_away_and_the_answer_is_still_heard() {
        let waiting = OauthRedirectReceiver::listen(0).unwrap();
        let address = waiting.redirect().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let browser = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let mut said = Vec::new();
            for target in ["/favicon.ico", "/?state=wrong&code=evil", "/?state=s1&code=good"] {
                let mut stream = std::net::TcpStream::connect(&address).unwrap();
                write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                let mut page = String::new();
                stream.read_to_string(&mut page).unwrap_or_default();
                said.push(page.split(' ').nth(1).unwrap_or_default().to_owned());
            }
            said
        });
        let screen = CommandConsole::new(crate::console::ColorMode::Never, true, crate::console::OutputFormat::Table);
        let back = waiting.answer("s1", Millis::from_mins(1), &screen).unwrap();
        assert_eq!(back.code, "good");
        assert_eq!(browser.join().unwrap().last().map(String::as_str), Some("200"));
    }
}
