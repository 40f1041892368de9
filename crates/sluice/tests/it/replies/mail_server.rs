//! The post office of others, as the tests use it: put a mail into a mailbox, look at what is in one, sign, publish.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Where it is.
pub struct TestMailServer {
    pub about: Value,
    folder: PathBuf,
    signer: Mutex<DkimSignerProcess>,
}

struct DkimSignerProcess {
    process: Child,
    wishes: ChildStdin,
    signed: BufReader<ChildStdout>,
}

impl Drop for DkimSignerProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The post office, or nothing where none was started.
#[expect(clippy::disallowed_methods, reason = "a test: where its counterpart is comes from outside")]
pub fn post() -> Option<Arc<TestMailServer>> {
    let Ok(file) = std::env::var("SLUICE_TEST_MAIL") else {
        assert!(std::env::var("SLUICE_TEST_STRICT").is_err(), "SLUICE_TEST_MAIL is not set");
        eprintln!("skipped: SLUICE_TEST_MAIL is not set (cargo xtask mail starts a post office)");
        return None;
    };
    let about: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/counterparts/mail/sign.py");
    let mut process = Command::new(about["python"].as_str().unwrap())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (wishes, signed) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
    let folder = Path::new(&file).parent().unwrap().to_owned();
    Some(Arc::new(TestMailServer { about, folder, signer: Mutex::new(DkimSignerProcess { process, wishes, signed }) }))
}

/// A name nobody else has: mailboxes of earlier tests are still there.
pub fn fresh(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let started = fs::metadata("/proc/self").unwrap().modified().unwrap();
    let started = started.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    format!("{name}{}-{}-{}", NEXT.fetch_add(1, Ordering::Relaxed), std::process::id(), started % 1_000_000)
}

impl TestMailServer {
    pub fn port(&self, name: &str) -> u16 {
        u16::try_from(self.about[name].as_u64().unwrap()).unwrap()
    }

    pub fn word(&self, name: &str) -> &str {
        self.about[name].as_str().unwrap()
    }

    /// Puts a mail into a mailbox, as a server that received it does.
    pub fn deliver(&self, from: &str, to: &str, mail: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port("lmtp"))).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut said = |good: &str| {
            let mut line = String::new();
            while !line.starts_with(good) || line.as_bytes().get(3) == Some(&b'-') {
                line.clear();
                assert!(answers.read_line(&mut line).unwrap() > 0, "the line ended");
                assert!(line.starts_with(good), "{line}");
            }
        };
        said("220");
        for (line, good) in [
            ("LHLO test".to_owned(), "250"),
            (format!("MAIL FROM:<{from}>"), "250"),
            (format!("RCPT TO:<{to}>"), "250"),
            ("DATA".to_owned(), "354"),
        ] {
            stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
            said(good);
        }
        let mut body = Vec::new();
        for line in mail.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b".") {
                body.push(b'.');
            }
            body.extend_from_slice(line);
        }
        stream.write_all(&body).unwrap();
        stream.write_all(b"\r\n.\r\n").unwrap();
        said("250");
    }

    /// What lies in the inbox of a user, oldest first: whether it was seen, and the mail.
    pub fn inbox(&self, user: &str) -> Vec<(bool, String)> {
        self.lies_in(&self.folder.join("mail").join(user))
    }

    /// What lies in another folder.
    pub fn done(&self, user: &str) -> Vec<(bool, String)> {
        self.lies_in(&self.folder.join("mail").join(user).join(".Done"))
    }

    fn lies_in(&self, folder: &Path) -> Vec<(bool, String)> {
        let mut all = Vec::new();
        for part in ["new", "cur"] {
            for entry in fs::read_dir(folder.join(part)).into_iter().flatten() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let mut text = String::new();
                fs::File::open(entry.path()).unwrap().read_to_string(&mut text).unwrap();
                let seen = name.split(":2,").nth(1).is_some_and(|flags| flags.contains('S'));
                all.push((arrived(&name), name, seen, text));
            }
        }
        all.sort();
        all.into_iter().map(|(_, _, seen, text)| (seen, text)).collect()
    }

    /// What dkimpy makes of a mail.
    pub fn signed(&self, mail: &str, mut wish: Value) -> Vec<u8> {
        wish["mail"] = json!(STANDARD.encode(mail.replace('\n', "\r\n")));
        let mut signer = self.signer.lock().unwrap();
        writeln!(signer.wishes, "{wish}").unwrap();
        let mut line = String::new();
        signer.signed.read_line(&mut line).unwrap();
        STANDARD.decode(line.trim()).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// A wish for a signature of a domain over everything that matters.
    pub fn dkim(&self, domain: &str) -> Value {
        json!({
            "domain": domain, "selector": "sel", "key": self.about["domains"][domain]["key"],
            "headers": ["From", "To", "Subject", "Date", "Message-ID", "In-Reply-To"],
        })
    }

    /// Serves what the owners of the domains publish, over DNS.
    pub fn dns(&self) -> TxtNameServer {
        let domains = self.about["domains"].as_object().unwrap();
        let records = domains
            .iter()
            .map(|(domain, about)| (format!("sel._domainkey.{domain}"), about["record"].as_str().unwrap().to_owned()));
        TxtNameServer::serve(records.collect())
    }
}

/// When a file of a mailbox was made: seconds and microseconds, as its name says.
fn arrived(name: &str) -> (u64, u64) {
    let (seconds, rest) = name.split_once(".M").unwrap_or((name, ""));
    let micros: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (seconds.parse().unwrap_or(0), micros.parse().unwrap_or(0))
}

/// A name server for TXT records.
pub struct TxtNameServer {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl TxtNameServer {
    fn serve(records: Vec<(String, String)>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        // It ends with the test.
        std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if let Some((name, answer)) = answered(&packet[..length], &records) {
                    seen.lock().unwrap().push(name);
                    drop(socket.send_to(&answer, from));
                }
            }
        });
        Self { address, asked }
    }
}

/// The answer to a question of one name.
fn answered(packet: &[u8], records: &[(String, String)]) -> Option<(String, Vec<u8>)> {
    let (mut at, mut labels) = (12, Vec::new());
    while *packet.get(at)? != 0 {
        let length = usize::from(packet[at]);
        labels.push(String::from_utf8(packet.get(at + 1..at + 1 + length)?.to_vec()).ok()?.to_lowercase());
        at += length + 1;
    }
    let end = at + 5;
    let name = labels.join(".");
    let found = records.iter().find(|(known, _)| *known == name);
    let mut answer = packet.get(..2)?.to_vec();
    // A response, recursion available; "no such name" where there is none.
    answer.extend([0x81, if found.is_some() { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]);
    answer.extend(packet.get(12..end)?);
    if let Some((_, text)) = found {
        let mut data = Vec::new();
        for part in text.as_bytes().chunks(255) {
            data.push(u8::try_from(part.len()).unwrap());
            data.extend(part);
        }
        answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
        answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend(data);
    }
    Some((name, answer))
}
