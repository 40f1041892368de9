//! The service that counts: it writes down each effect it carries out, whatever the gateway believes of it.
//!
//! Takes requests of the declared capabilities, one path for each class of effect; gives the list of effects. Promise: an
//! effect is on the list before its answer leaves, and a request that was refused or cut before is not on it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::running::pause;

/// How the service behaves, each in requests of a thousand. What is left is answered at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct OracleBehavior {
    /// Carried out, and answered late.
    pub late: u64,
    /// Carried out, and not answered until the caller gives up.
    pub hang: u64,
    /// Carried out, and the connection cut before the answer.
    pub cut: u64,
    /// Not carried out, and said so.
    pub refuse: u64,
    /// Not carried out, and the connection cut without a word.
    pub down: u64,
}

/// How late an answer is.
const LATE: Duration = Duration::from_millis(300);

/// The service.
#[derive(Clone)]
pub struct EffectOracle {
    pub address: SocketAddr,
    books: Arc<Mutex<OracleRecords>>,
}

#[derive(Default)]
struct OracleRecords {
    manners: OracleBehavior,
    random: u64,
    /// How often each mark was carried out.
    effects: BTreeMap<String, usize>,
    /// The keys of what was carried out: class B takes each once, class C is looked up by them.
    keys: BTreeSet<String>,
    /// Marks of requests that came in whole, carried out or not.
    arrived: BTreeSet<String>,
}

impl EffectOracle {
    pub fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let oracle = Self { address: listener.local_addr().unwrap(), books: Arc::default() };
        let serving = oracle.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let oracle = serving.clone();
                // A caller that went away is no concern of the service.
                std::thread::spawn(move || drop(oracle.answer(stream)));
            }
        });
        oracle
    }

    /// Behaves like this from now on.
    pub fn behave(&self, manners: OracleBehavior) {
        self.books.lock().unwrap().manners = manners;
    }

    /// How often each mark was carried out.
    pub fn effects(&self) -> BTreeMap<String, usize> {
        self.books.lock().unwrap().effects.clone()
    }

    /// Everything that was ever carried out.
    pub fn count(&self) -> usize {
        self.books.lock().unwrap().effects.values().sum()
    }

    /// Marks of requests that came in whole.
    pub fn arrived(&self) -> BTreeSet<String> {
        self.books.lock().unwrap().arrived.clone()
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let fate = self.fate();
        let Some(request) = OracleRequest::read(&stream)? else { return Ok(()) };
        if request.is_lookup && fate != OracleReplyFate::Down {
            let items: Vec<&str> = request.key.iter().map(String::as_str).filter(|key| self.has(key)).collect();
            return say(&stream, 200, &json!({"items": items}));
        }
        self.books.lock().unwrap().arrived.insert(request.mark.clone());
        if fate == OracleReplyFate::Down {
            return Ok(());
        }
        if fate == OracleReplyFate::Refuse {
            return say(&stream, 422, &json!({"refused": true}));
        }
        self.carry_out(&request);
        match fate {
            OracleReplyFate::Cut => return Ok(()),
            // Until the caller closes its end.
            OracleReplyFate::Hang => return (&stream).read(&mut [0; 1]).map(drop),
            OracleReplyFate::Late => pause(LATE),
            OracleReplyFate::Answer | OracleReplyFate::Down | OracleReplyFate::Refuse => {}
        }
        say(&stream, 200, &json!({"ok": true}))
    }

    fn has(&self, key: &str) -> bool {
        self.books.lock().unwrap().keys.contains(key)
    }

    fn carry_out(&self, request: &OracleRequest) {
        let mut books = self.books.lock().unwrap();
        let is_new = request.key.as_ref().is_none_or(|key| books.keys.insert(key.clone()));
        match request.class.as_str() {
            // The same end state, however often.
            "absolute" => *books.effects.entry(request.mark.clone()).or_default() = 1,
            "consume_once" if !is_new => {}
            _ => *books.effects.entry(request.mark.clone()).or_default() += 1,
        }
    }

    fn fate(&self) -> OracleReplyFate {
        let mut books = self.books.lock().unwrap();
        books.random = next(books.random);
        let OracleBehavior { late, hang, cut, refuse, down } = books.manners;
        let mut drawn = (books.random >> 33) % 1000;
        for (share, fate) in [
            (late, OracleReplyFate::Late),
            (hang, OracleReplyFate::Hang),
            (cut, OracleReplyFate::Cut),
            (refuse, OracleReplyFate::Refuse),
            (down, OracleReplyFate::Down),
        ] {
            if drawn < share {
                return fate;
            }
            drawn -= share;
        }
        OracleReplyFate::Answer
    }
}

/// The next of a row of numbers that repeats from its first.
pub fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OracleReplyFate {
    Answer,
    Late,
    Hang,
    Cut,
    Refuse,
    Down,
}

struct OracleRequest {
    class: String,
    mark: String,
    key: Option<String>,
    is_lookup: bool,
}

impl OracleRequest {
    /// A whole request, or nothing if the caller went away in the middle.
    fn read(stream: &TcpStream) -> std::io::Result<Option<Self>> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
        let (class, query) = path.split_once('?').unwrap_or((&path, ""));
        let (is_lookup, mut length) = (line.starts_with("GET "), 0);
        let mut key = query.split('&').find_map(|pair| pair.strip_prefix("key=")).map(str::to_owned);
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 {
                return Ok(None);
            }
            let header = header.trim().to_ascii_lowercase();
            match header.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("idempotency-key", value)) => key = Some(value.to_owned()),
                Some(_) => {}
                None if header.is_empty() => break,
                None => return Ok(None),
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let key = key.or_else(|| body["key"].as_str().map(str::to_ascii_lowercase));
        let mark = body["mark"].as_str().unwrap_or_default().to_owned();
        Ok(Some(Self { class: class.to_owned(), mark, key: key.map(|key| key.to_ascii_lowercase()), is_lookup }))
    }
}

fn say(mut stream: &TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
