//! A browser without JavaScript: follows redirects when told, keeps cookies, and sends forms as a page's buttons do.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::cli_gateway::CliTestGateway;

/// What a page answered.
#[derive(Debug, Clone)]
pub struct DashboardTestPage {
    pub status: u16,
    pub head: String,
    pub html: String,
}

/// A browser.
pub struct DashboardTestBrowser {
    port: u16,
    pub cookies: BTreeMap<String, String>,
    pub origin: String,
}

impl DashboardTestPage {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| {
            line.split_once(": ").filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        })
    }

    /// The value of the first hidden field of a name.
    pub fn hidden(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let at = self.html.find(&start).unwrap_or_else(|| panic!("no field {name} in {}", self.html)) + start.len();
        let value = &self.html[at..];
        unescape(&value[..value.find('"').unwrap()])
    }

    pub fn has(&self, part: &str) -> bool {
        self.html.contains(part)
    }
}

/// What HTML shows for a text.
fn unescape(text: &str) -> String {
    let codes = [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

pub fn encoded(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        text.bytes().fold(String::new(), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
            out
        })
    };
    fields.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect::<Vec<_>>().join("&")
}

impl DashboardTestBrowser {
    pub fn new(gate: &CliTestGateway) -> Self {
        let port = gate.url.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { port, cookies: BTreeMap::new(), origin: gate.url.clone() }
    }

    /// Signed in with a code of this operator's token.
    pub fn signed_in(gate: &CliTestGateway) -> Self {
        let code = gate.json(&["login"])["code"].as_str().unwrap().to_owned();
        let mut browser = Self::new(gate);
        let page = browser.sign_in(&code);
        assert_eq!((page.status, page.header("location")), (303, Some("/ui")), "{}", page.html);
        browser
    }

    /// Opens the sign-in page and sends its form.
    pub fn sign_in(&mut self, secret: &str) -> DashboardTestPage {
        let form = self.get("/ui/login").hidden("form");
        self.send("/ui/login", &[("form", &form), ("secret", secret)], &[])
    }

    pub fn get(&mut self, path: &str) -> DashboardTestPage {
        self.request(&format!("GET {path} HTTP/1.1\r\naccept: text/html\r\n"), "")
    }

    /// Opens a page, which must be there.
    pub fn open(&mut self, path: &str) -> DashboardTestPage {
        let page = self.get(path);
        assert_eq!(page.status, 200, "{path}: {}\n{}", page.head, page.html);
        page
    }

    /// Sends a form as a page of the gateway does, with the token of the page.
    pub fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> DashboardTestPage {
        let csrf = self.open("/ui/freeze").hidden("csrf");
        self.send(path, &[fields, &[("csrf", csrf.as_str())]].concat(), &[])
    }

    /// Sends a form with exactly these fields and further headers; an `origin` among them replaces the browser's own.
    pub fn send(&mut self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> DashboardTestPage {
        let body = encoded(fields);
        let mut lines = String::new();
        for (name, value) in headers {
            lines.push_str(&format!("{name}: {value}\r\n"));
        }
        if !headers.iter().any(|(name, _)| ["origin", "no-origin"].contains(name)) {
            lines.push_str(&format!("origin: {}\r\n", self.origin));
        }
        let head = format!(
            "POST {path} HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n{lines}",
            body.len()
        );
        self.request(&head, &body)
    }

    fn request(&mut self, head: &str, body: &str) -> DashboardTestPage {
        let mut stream = self.raw(head, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, html) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        for cookie in head.lines().filter_map(|line| line.strip_prefix("set-cookie: ")) {
            let (pair, rest) = cookie.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if rest.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        DashboardTestPage { status, head: head.to_owned(), html: html.to_owned() }
    }

    /// Sends a request and leaves the connection open.
    pub fn raw(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = if cookies.is_empty() { String::new() } else { format!("cookie: {}\r\n", cookies.join("; ")) };
        let host = format!("host: 127.0.0.1:{}\r\n", self.port);
        let ends = if head.contains("connection:") { "" } else { "connection: close\r\n" };
        stream.write_all(format!("{head}{host}{cookies}{ends}\r\n{body}").as_bytes()).unwrap();
        stream
    }
}
