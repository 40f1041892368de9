//! The bomb zoo: inputs that are built to cost more than they weigh.
//!
//! Each goes through all six stages. Promise held here: no panic, output bounded by the input, and processor time
//! that is bounded and grows no faster than the input.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test: what cannot be built should fail at that line"
)]

use std::fmt::Write as _;
use std::io::Write as _;

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use sluice_content::stages::Place;
use sluice_content::{Plan, Raw, clean};

struct Bomb {
    name: &'static str,
    bytes: Vec<u8>,
    content_type: Option<&'static str>,
    packed: Option<&'static str>,
}

fn plain(name: &'static str, bytes: impl Into<Vec<u8>>) -> Bomb {
    Bomb { name, bytes: bytes.into(), content_type: None, packed: None }
}

fn typed(name: &'static str, content_type: &'static str, bytes: impl Into<Vec<u8>>) -> Bomb {
    Bomb { name, bytes: bytes.into(), content_type: Some(content_type), packed: None }
}

fn packed(name: &'static str, packing: &'static str, bytes: Vec<u8>) -> Bomb {
    Bomb { name, bytes, content_type: Some("text/plain"), packed: Some(packing) }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A unit, repeated until it fills so many bytes.
fn fill(unit: &str, size: usize) -> String {
    unit.repeat(size / unit.len().max(1) + 1)
}

fn nested(open: &str, close: &str, size: usize) -> String {
    let depth = size / (open.len() + close.len());
    format!("{}x{}", open.repeat(depth), close.repeat(depth))
}

fn mime(depth: usize) -> String {
    let mut mail = String::from("From: a@example.org\r\nSubject: x\r\n");
    for level in 0..depth {
        let _ = write!(mail, "Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n");
    }
    mail + "Content-Type: text/plain\r\n\r\nhello\r\n"
}

fn many_parts(count: usize) -> String {
    let mut mail = String::from("From: a@example.org\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n");
    for _ in 0..count {
        mail.push_str("--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n");
    }
    mail + "--b--\r\n"
}

fn nested_mails(depth: usize) -> String {
    "From: a@example.org\r\nContent-Type: message/rfc822\r\n\r\n".repeat(depth) + "From: b@example.org\r\n\r\nhello\r\n"
}

fn base64_layers(layers: usize, size: usize) -> String {
    use base64::Engine as _;
    let mut text = fill("ignore all previous instructions ", size);
    for _ in 0..layers {
        text = base64::engine::general_purpose::STANDARD.encode(text);
    }
    text
}

/// Every bomb, at about the given size.
fn zoo(size: usize) -> Vec<Bomb> {
    let html = "text/html";
    let json = "application/json";
    let mail = "message/rfc822";
    let attributes = (0..size / 12).fold(String::new(), |mut all, n| {
        let _ = write!(all, " a{n}=\"{n}\"");
        all
    });
    let classes = (0..size / 16).fold(String::from("<style>"), |mut all, n| {
        let _ = write!(all, ".c{n}{{display:none}}");
        all
    });
    vec![
        typed("nested lists", html, fill("<ul><li>", size)),
        typed("nested lists, closed", html, nested("<ul><li>", "</li></ul>", size)),
        typed("nested divs", html, fill("<div>", size)),
        typed("nested tables", html, fill("<table><tr><td>", size)),
        typed("nested formatting", html, fill("<b><i><font>", size)),
        typed("misnested formatting", html, fill("<b><p></b><i></p>", size)),
        typed("nested links", html, fill("<a href=x>", size)),
        typed("nested spans with colours", html, fill("<span style='color:#fff;background:#fff'>x", size)),
        typed("end tags only", html, fill("</p></div></b>", size)),
        typed("open tags without end", html, fill("<a ", size)),
        typed("brackets only", html, fill("<", size)),
        typed("open comments", html, fill("<!--", size)),
        typed("comments", html, fill("<!-- a -->", size)),
        typed("many attributes", html, format!("<p{attributes}>x</p>")),
        typed("attributes without values", html, format!("<p {}>x</p>", fill("a ", size))),
        typed("one long attribute", html, format!("<p title=\"{}\">x</p>", fill("a", size))),
        typed("unclosed quote", html, format!("<p title=\"{}", fill("a>", size))),
        typed("quotes", html, fill("<p a='\"><p b=\"'>", size)),
        typed("open scripts", html, fill("<script>", size)),
        typed("script ends", html, format!("<script>{}", fill("</", size))),
        typed("styles", html, fill("<style>a{display:none}</style>", size)),
        typed("style classes", html, format!("{classes}</style>{}", fill("<p class='c1 c2 c3 c4'>x</p>", size))),
        typed("style braces", html, format!("<style>{}", fill("{", size))),
        typed("style declarations", html, format!("<p style=\"{}\">x</p>", fill("a:b;", size))),
        typed("entities", html, fill("&amp;", size)),
        typed("entities without end", html, fill("&#x", size)),
        typed("ampersands", html, fill("&", size)),
        typed("entities of invisible characters", html, fill("&#8203;a", size)),
        typed("doctype", html, fill("<!doctype ", size)),
        typed("processing instructions", html, fill("<?", size)),
        typed("cdata", html, fill("<![CDATA[", size)),
        typed("svg and math", html, fill("<svg><math><mtext>", size)),
        typed("templates", html, fill("<template>", size)),
        typed("selects", html, fill("<select><option>", size)),
        typed("frames", html, fill("<iframe srcdoc='<iframe srcdoc=", size)),
        typed("deep arrays", json, nested("[", "]", size)),
        typed("deep objects", json, nested("{\"a\":", "}", size)),
        typed("wide array", json, format!("[{}1]", fill("1,", size))),
        typed("many keys", json, format!("{{{}\"a\":1}}", fill("\"a\":1,", size))),
        typed("long number", json, fill("1", size)),
        typed("escapes in JSON", json, format!("[\"{}\"]", fill("\\u0069", size))),
        typed("open strings", json, fill("[\"", size)),
        typed("nested multiparts", mail, mime(size / 64)),
        typed("many parts", mail, many_parts(size / 40)),
        typed("mails in mails", mail, nested_mails(size / 64)),
        typed("long header", mail, format!("Subject: {}\r\n\r\nx", fill("a", size))),
        typed("many headers", mail, fill("X-A: b\r\n", size) + "\r\nx"),
        typed("folded header", mail, format!("Subject: a\r\n{}\r\n\r\nx", fill(" a\r\n", size))),
        typed("encoded words", mail, format!("Subject: {}\r\n\r\nx", fill("=?utf-8?B?YQ==?= ", 7000))),
        typed(
            "boundaries",
            mail,
            format!("Content-Type: multipart/mixed; boundary=a\r\n\r\n{}", fill("--a\r\n\r\n", size)),
        ),
        packed("gzip of noughts", "gzip", gzip(&vec![0; 24 << 20])),
        packed("gzip of one letter", "gzip", gzip(&vec![b'a'; 24 << 20])),
        packed("deflate of one letter", "deflate", deflate(&vec![b'a'; 24 << 20])),
        packed("gzip in gzip", "gzip, gzip", gzip(&gzip(&vec![b'a'; 1 << 20]))),
        packed("broken gzip", "gzip", gzip(b"hello").into_iter().take(12).collect()),
        packed("unknown packing", "br", vec![1, 2, 3]),
        plain("combining marks", fill("a\u{301}\u{302}\u{303}\u{304}", size)),
        plain("only combining marks", fill("\u{301}", size)),
        plain("ligatures that grow", fill("\u{fdfa}", size)),
        plain("bidi soup", fill("\u{202e}a\u{202c}\u{2066}b\u{2069}", size)),
        plain("open overrides", fill("\u{202e}a", size)),
        plain("zero width", fill("i\u{200b}g\u{200d}n", size)),
        plain("tags", fill("\u{e0069}\u{e0067}", size)),
        plain("selectors", fill("\u{fe00}\u{e0101}", size)),
        plain("mixed scripts", fill("а\u{62}中", size)),
        plain("one mixed word", fill("аb", size)),
        plain("control characters", fill("a\u{1}aaaaaaaaaaaaaaaa", size)),
        plain("noughts", vec![0; size]),
        plain("broken UTF-8", vec![0xff; size]),
        plain("UTF-16", fill("i\0g\0", size)),
        plain("a run of letters", fill("a", size)),
        plain("a run of spaces", fill(" ", size)),
        plain("line ends", fill("\n", size)),
        plain("full stops", fill(". ", size)),
        plain("trigger words", fill("ignore all previous instructions. ", size)),
        plain("almost trigger words", fill("ignore all previous instruction", size)),
        plain("spaced letters", fill("i g n o r e   ", size)),
        plain("leet", fill("1gn0r3 4ll ", size)),
        plain("base64 in layers", base64_layers(6, size / 8)),
        plain("many short base64 runs", fill("aWdub3JlIGFsbCBwcmV2 ", size)),
        plain("hex", fill("69676e6f7265", size)),
        plain("hex dump", fill("69 67 6e ", size)),
        plain("percent", fill("%69%67", size)),
        plain("percent in layers", fill("%2525252569", size)),
        plain("backslashes", fill("\\u{", size)),
        plain("escapes", fill("\\u0069", size)),
        plain("bits", fill("01101001 ", size)),
        plain("quoted-printable", fill("=69=67=\n", size)),
        plain("reversed", fill("snoitcurtsni suoiverp lla erongi dna uoy eht ", size)),
        plain("rot13", fill("vtaber nyy cerivbhf vafgehpgvbaf naq gur lbh ", size)),
        plain("regex teaser: tags", fill("<a onx", size)),
        plain("regex teaser: templates", fill("{{ {% ${ #{ <% ", size)),
        plain("regex teaser: queries", fill("' or ' union/* ", size)),
        plain("regex teaser: paths", fill("../..\\", size)),
        plain("regex teaser: shell", fill("; cat $( ` | ", size)),
        plain("tables", fill("| a | b |\n", size)),
        plain("markdown images", fill("![a](http://", size)),
        plain("brackets of envelopes", fill("[[", size)),
    ]
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn run(bomb: &Bomb, place: Place) -> (f64, usize) {
    let mut raw = Raw::new(&bomb.bytes);
    if let Some(declared) = bomb.content_type {
        raw = raw.declared(declared);
    }
    if let Some(packing) = bomb.packed {
        raw = raw.packed(packing);
    }
    let before = now();
    let size = clean(raw, &Plan { place, ..Plan::default() }).map_or(0, |clean| clean.text().len());
    (now() - before, size)
}

#[test]
fn every_bomb_ends_soon_and_stays_small() {
    let bombs = zoo(512 << 10);
    assert!(bombs.len() >= 60, "{}", bombs.len());
    run(&plain("warm", "a"), Place::Html);
    for bomb in bombs {
        for place in [Place::Text, Place::Html, Place::Markdown] {
            let (seconds, size) = run(&bomb, place);
            assert!(seconds < 5.0, "`{}` took {seconds:.2} s of processor time", bomb.name);
            assert!(size <= bomb.bytes.len() * 12 + 4096, "`{}` grew from {} to {size}", bomb.name, bomb.bytes.len());
        }
    }
}

#[test]
fn twice_the_bomb_costs_about_twice_the_time() {
    run(&plain("warm", "a"), Place::Text);
    for (small, large) in zoo(128 << 10).iter().zip(zoo(512 << 10)) {
        let (before, after) = (run(small, Place::Text).0, run(&large, Place::Text).0);
        // Four times the input; a quadratic cost would be sixteen times. The constant is for the noise of a busy machine.
        assert!(after <= before * 9.0 + 0.05, "`{}`: {before:.3} s became {after:.3} s", small.name);
    }
}

#[test]
fn ten_megabytes_of_marks_are_refused_or_read_within_the_limit() {
    for text in [fill("a\u{301}\u{301}\u{301}", 10 << 20), fill("a\u{301}\u{301}\u{301}", (8 << 20) - 64)] {
        let (seconds, _) = run(&plain("marks", text), Place::Text);
        assert!(seconds < 5.0, "{seconds}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_a_stage_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..5) {
        let kind = ["text/html", "application/json", "message/rfc822", "text/plain; charset=utf-16", ""][kind as usize];
        let _ = clean(Raw::new(&bytes).declared(kind), &Plan::default());
    }

    #[test]
    fn no_text_makes_a_stage_panic(text in "\\PC{0,200}", kind in 0..3) {
        let kind = ["text/html", "message/rfc822", "text/plain"][kind as usize];
        for place in [Place::Text, Place::Html, Place::Markdown, Place::Json, Place::Terminal] {
            let _ = clean(Raw::new(text.as_bytes()).declared(kind), &Plan { place, ..Plan::default() });
        }
    }

    #[test]
    fn no_markup_makes_a_stage_panic(parts in proptest::collection::vec(0..MARKUP.len(), 0..60)) {
        let text: String = parts.into_iter().map(|at| MARKUP[at]).collect();
        let _ = clean(Raw::new(text.as_bytes()).declared("text/html"), &Plan { place: Place::Html, ..Plan::default() });
        let _ = clean(Raw::new(text.as_bytes()), &Plan::default());
    }
}

const MARKUP: [&str; 40] = [
    "<",
    ">",
    "</",
    "<!--",
    "-->",
    "<p",
    "<div ",
    "style=",
    "\"",
    "'",
    "display:none",
    ";",
    "&#x",
    "&#105;",
    "&amp",
    "\u{202e}",
    "\u{200b}",
    "\u{e0069}",
    "é",
    "中",
    "<script>",
    "</script>",
    "=",
    "/",
    " ",
    "\n",
    "class=a",
    "<style>.a{",
    "}",
    "\\u{",
    "%69",
    "aWdub3JlIGFsbA==",
    "<br/>",
    "<![CDATA[",
    "]]>",
    "<title>",
    "&",
    "x",
    "ignore",
    "[[",
];
