//! Odd mails, combined from tables: every sender with every head, every body with every line end.

/// A sender that appears only in bodies: it must never be shown to anyone.
pub const FROM_IN_BODY: &str = "evil@elsewhere.example";

const SENDERS: [&str; 40] = [
    "From: ana@bank.example\n",
    "From: Ana <ana@bank.example>\n",
    "From: \"Doe, A. (x)\" <ana@bank.example>\n",
    "From: ana@bank.example (Ana \\) Doe)\n",
    "from:ana@bank.example\n",
    "FROM:  Ana\n <ana@bank.example>\n",
    "From: Ana\n\tDoe\n <ana@bank.example>\n",
    "From:\n ana@bank.example\n",
    "From: ana@bank.example\nFrom: eve@other.example\n",
    "From: ana@bank.example\nFrom: ana@bank.example\n",
    "From: ana@bank.example\nFROM: Eve <eve@other.example>\n",
    "From : ana@bank.example\n",
    "From: ana@bank.example, eve@other.example\n",
    "From: team: ana@bank.example;\n",
    "From: team: ana@bank.example, eve@other.example;\n",
    "From: undisclosed:;\n",
    "From: ana@bank.example <eve@other.example>\n",
    "From: ana@bank.example <ana@bank.example>\n",
    "From: \"eve@other.example\" <ana@bank.example>\n",
    "From: <eve@other.example> <ana@bank.example>\n",
    "From: =?utf-8?q?Zo=C3=AB?= <ana@bank.example>\n",
    "From: =?utf-8?q?eve=40other.example?= <ana@bank.example>\n",
    "From: =?utf-8?q?eve=40other.example=3E?= <ana@bank.example>\n",
    "From: =?utf-8?b?ZXZlQG90aGVyLmV4YW1wbGU=?=\n",
    "From: \"=?utf-8?q?Zo=C3=AB?=\" <ana@bank.example>\n",
    "From: Zo\u{eb} <ana@bank.example>\n",
    "From: zo\u{eb}@b\u{fc}cher.example\n",
    "From: \"ana doe\"@bank.example\n",
    "From: \"ana@other.example\"@bank.example\n",
    "From: <@relay.example:ana@bank.example>\n",
    "From: ana (c1 (nested)) @ (c2) bank.example\n",
    "From: ana@bank.example(c)\n",
    "From: ana@[192.0.2.1]\n",
    "From: ana\n",
    "From: <>\n",
    "From:\n",
    "",
    "From: [list] <ana@bank.example>\n",
    "From: ana@bank.example\nReply-To: eve@other.example\nSender: eve@other.example\n",
    "From: \"unclosed <ana@bank.example>\n",
];

const SUBJECTS: [&str; 24] = [
    "Subject: roof survey\n",
    "subject:roof\n\tsurvey\n",
    "Subject: one\nSubject: two\n",
    "Subject: same\nSubject: same\n",
    "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= =?utf-8?b?IGF1cyBLw7Zsbg==?=\n",
    "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n =?utf-8?q?_aus?= town\n",
    "Subject: a=?utf-8?q?b?=\n",
    "Subject: =?utf-8?q?b?=c\n",
    "Subject: =?utf-8?q?a b?=\n",
    "Subject: =?nobody?q?a?=\n",
    "Subject: =?utf-8?b?a?=\n",
    "Subject: =?utf-8?q?=zz?=\n",
    "Subject: =?utf-8?q?a=0D=0AFrom:_x?=\n",
    "Subject: =?iso-8859-1?q?caf=E9?= =?koi8-r?b?8NLJ18XU?=\n",
    "Subject: =?iso-2022-jp?b?GyRCRnxLXBsoQg==?=\n",
    "Subject: =?gb2312?b?xOO6ww==?=\n",
    "Subject: \u{65e5}\u{672c}\n",
    "Subject: =?utf-8*en?q?x?=\n",
    "Subject: tab\there and =? there\n",
    "Subject: 1 + 1 = 2?=\n",
    "Subject:\n",
    "",
    "Subject:  \n folded\n",
    "Subject: a (comment) \"quoted\" <b@c.example>\n",
];

const DATES: [&str; 14] = [
    "Date: Tue, 17 Nov 2026 10:00:00 +0000\n",
    "Date: Tue, 17 Nov 2026 10:00:00 Z\n",
    "Date: Tue, 17 Nov 2026 10:00:00 UT\n",
    "Date: 17 Nov 2026 10:00 AM\n",
    "Date: 17 Nov 2026 10:00 PM\n",
    "Date: Z\n",
    "Date: A\n",
    "Date: (\n",
    "Date: 2026-11-17T10:00:00Z\n",
    "Date: yesterday\n",
    "Date:\n",
    "Date: Tue, 17 Nov 2026 10:00:00 +0000 (comment\n",
    "Date: Tue, 17 Nov\n 2026 10:00:00 EST\n",
    "",
];

/// Lines between the sender and the date.
const EXTRAS: [&str; 22] = [
    "",
    "To: li@x.example\n",
    "To: li@x.example\nTo: mo@y.example\n",
    "Cc: \"Li, Wen\" <li@x.example>, mo@y.example\n",
    "Received: from a (b [192.0.2.1]) by c with SMTP id x\n for <d@e.example>; Tue, 17 Nov 2026 10:00:00 Z\n",
    "Received: from (\n",
    "Message-ID: <a@b.example>\nReferences: <c@d.example>\n <e@f.example>\n",
    "Message-ID: <a@b\n",
    "List-Id: \"x <list.example>\n",
    "Return-Path: <ana@bank.example\n",
    "Keywords: a, \"b\n",
    "X-Odd: \"(<\n",
    "X-Long: 0123456789 0123456789 0123456789\n\t0123456789\n",
    "X-Blank:\n \n",
    "not a field\n",
    " continues nothing\n",
    ": no name\n",
    "X-Return: a\rFrom: evil@elsewhere.example\n",
    "X-Zero: a\0b\n",
    "Content-Disposition: inline\nContent-Type: text/plain\n",
    "Content-Language: (\nContent-ID: <x\n",
    "Comments: =?utf-8?q?x\n",
];

/// Content fields and a body. Bodies look like the start of a head.
const BODIES: [(&str, &str); 44] = [
    ("", "From: evil@elsewhere.example\nSubject: other\n\nhello there\n"),
    ("", "hello there\n"),
    ("", ""),
    ("", "\n\n\nhello\n"),
    ("MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n", "caf\u{e9} gr\u{fc}\u{df}e\n"),
    ("Content-Type: text/plain; charset=us-ascii\n", "plain words\n"),
    ("Content-Type: text/plain; charset=nobody\n", "plain words\n"),
    (
        "Content-Type: text/plain; charset=\"iso-8859-1\"\nContent-Transfer-Encoding: quoted-printable\n",
        "caf=E9 =\nnext=20=3D\n",
    ),
    ("Content-Transfer-Encoding: quoted-printable\n", "odd =zz and = and a=3Db\n"),
    ("Content-Transfer-Encoding: base64\n", "aGVsbG8gdGhlcmU=\n"),
    ("Content-Transfer-Encoding: BASE64\nContent-Type: text/html\n", "PHA+aGVsbG88L3A+\n"),
    ("Content-Transfer-Encoding: base64\n", "aGVsbG8gdGhlcmU=\n-- \nlist footer\n"),
    ("Content-Transfer-Encoding: base64\nContent-Transfer-Encoding: 7bit\n", "aGVsbG8=\n"),
    ("Content-Transfer-Encoding: x-odd\n", "hello\n"),
    ("Content-Type: text/html\n", "<p>hello &amp; there</p>\n"),
    ("Content-Type: text\n", "hello\n"),
    ("Content-Type: \n", "hello\n"),
    ("Content-Type: text/plain\nContent-Type: text/html\n", "<p>hello</p>\n"),
    (
        "Content-Type: multipart/mixed; boundary=b\n",
        "pre\n--b\n\none\n--b\nContent-Type: text/plain\n\ntwo\n--b--\nFrom: evil@elsewhere.example\n",
    ),
    (
        "Content-Type: multipart/alternative; boundary=\"b b\"\n",
        "--b b\nContent-Type: text/plain\n\none\n--b b\nContent-Type: text/html\n\n<p>one</p>\n--b b--\n",
    ),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\n\none\n--b \t\n\ntwo\n--b--  \n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\n\none\n--bx\n\ntwo\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\n\none x--b y\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\n--b\n\ntwo\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\nno head at all\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\nContent-Type: text/plain\n--b\n\ntwo\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "--c\n\none\n--c--\n"),
    ("Content-Type: multipart/mixed; boundary=b\n", "one\r--b\r\rtwo\r--b--\r\n"),
    ("Content-Type: multipart/mixed; boundary=a; boundary=b\n", "--a\n\none\n--a--\n--b\n\ntwo\n--b--\n"),
    ("Content-Type: multipart/mixed; boundary*0=a; boundary*1=b\n", "--ab\n\none\n--ab--\n"),
    ("Content-Type: multipart/mixed; boundary=\"a\\b\"\n", "--ab\n\none\n--ab--\n"),
    ("Content-Type: multipart/mixed; boundary=a (c)\n", "--a\n\none\n--a--\n"),
    ("Content-Type: multipart/mixed\n", "--a\n\none\n--a--\n"),
    ("Content-Type: multipart/mixed; boundary=\n", "--\n\none\n----\n"),
    (
        "Content-Type: multipart/mixed; boundary=o\n",
        "--o\nContent-Type: multipart/alternative; boundary=i\n\n--i\n\none\n--i\nContent-Type: text/html\n\n<p>one</p>\n--i--\n\n--o\nContent-Type: application/pdf; name=a.pdf\nContent-Transfer-Encoding: base64\n\nAAAA\n--o--\n",
    ),
    (
        "Content-Type: multipart/mixed; boundary=oi\n",
        "--oi\nContent-Type: multipart/alternative; boundary=o\n\n--o\n\none\n--o--\n--oi\n\ntwo\n--oi--\n",
    ),
    (
        "Content-Type: multipart/mixed; boundary=b\n",
        "--b\n\none\n--b\nContent-Type: message/rfc822\n\nFrom: evil@elsewhere.example\nSubject: inner\n\ninner words\n--b--\n",
    ),
    (
        "Content-Type: multipart/digest; boundary=b\n",
        "--b\n\nFrom: evil@elsewhere.example\n\ninner\n--b\n\nFrom: evil@elsewhere.example\n\ninner 2\n--b--\n",
    ),
    ("Content-Type: message/rfc822\n", "From: evil@elsewhere.example\nSubject: inner\n\ninner words\n"),
    (
        "Content-Type: multipart/mixed; boundary=b\n",
        "--b\nContent-Type: text/plain; name*=utf-8''na%C3%AFve.txt\nContent-Disposition: attachment; filename*0=\"a\"; filename*1=\"b.txt\"\n\nattached\n--b\n\none\n--b--\n",
    ),
    (
        "Content-Type: multipart/mixed; boundary=b\n",
        "--b\nContent-Type: text/plain; charset=utf-16le\n\na\0b\0\n--b--\n",
    ),
    (
        "Content-Type: multipart/related; boundary=b; type=\"text/html\"\n",
        "--b\nContent-Type: text/html\n\n<img src=cid:x>\n--b\nContent-Type: image/png\nContent-ID: <x>\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n--b--\n",
    ),
    (
        "Content-Type: multipart/mixed; boundary=b\n",
        "--b\nContent-Type: text/plain\nContent-Type: text/html\n\n<p>one</p>\n--b--\n",
    ),
    ("Content-Type: multipart/mixed; boundary=b\n", "--b\n folded nothing\n\none\n--b--\n"),
];

fn ended(raw: &str, end: &str) -> Vec<u8> {
    raw.replace('\n', end).into_bytes()
}

/// Multiparts that are opened and never closed, otherwise valid.
pub fn unclosed() -> Vec<(String, Vec<u8>)> {
    let head = "From: ana@bank.example\nSubject: x\nMIME-Version: 1.0\n";
    let mut all = Vec::new();
    for (name, body) in [
        ("plain", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nsee you on Tuesday\n"),
        (
            "without a last line end",
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nsee you on Tuesday",
        ),
        (
            "html",
            "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>see you on Tuesday</p>\n",
        ),
        (
            "both",
            "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\nsee you on Tuesday\n--b\nContent-Type: text/html\n\n<p>see you on Tuesday</p>\n",
        ),
        (
            "encoded",
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\nc2VlIHlvdSBvbiBUdWVzZGF5\n",
        ),
        (
            "quoted",
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\nsee you =\non Tuesday\n",
        ),
        (
            "inner",
            "Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/alternative; boundary=i\n\n--i\nContent-Type: text/plain\n\nsee you on Tuesday\n--o--\n",
        ),
        (
            "inner, and more",
            "Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/alternative; boundary=i\n\n--i\nContent-Type: text/plain\n\nsee you on Tuesday\n--o\nContent-Type: text/plain\n\nmore\n--o--\n",
        ),
        (
            "both levels",
            "Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/alternative; boundary=i\n\n--i\nContent-Type: text/plain\n\nsee you on Tuesday\n--i\nContent-Type: text/html\n\n<p>x</p>\n",
        ),
        (
            "with a file",
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nsee you on Tuesday\n--b\nContent-Type: application/pdf; name=a.pdf\nContent-Transfer-Encoding: base64\n\nAAAA\n",
        ),
    ] {
        for end in ["\n", "\r\n"] {
            all.push((format!("{name} {end:?}"), ended(&format!("{head}{body}"), end)));
        }
    }
    all
}

/// All of them, each with a name that identifies it.
pub fn mails() -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut all = unclosed();
    let mut put = |name: String, head: String, body: &str| {
        for end in ["\n", "\r\n"] {
            all.push((format!("{name} {end:?}"), ended(&format!("{head}\n{body}"), end)));
        }
    };
    let (from, subject, date, body) = (SENDERS[0], SUBJECTS[0], DATES[0], BODIES[0].1);
    for (at, sender) in SENDERS.iter().enumerate() {
        for (extra_at, extra) in EXTRAS.iter().enumerate() {
            put(format!("sender {at} extra {extra_at}"), format!("{extra}{sender}{subject}{date}"), body);
            put(format!("sender {at} extra {extra_at} last"), format!("{subject}{date}{extra}{sender}"), body);
        }
        for (date_at, date) in DATES.iter().enumerate() {
            put(format!("sender {at} date {date_at}"), format!("{sender}{subject}{date}"), body);
            put(format!("date {date_at} sender {at}"), format!("{date}{sender}{subject}"), body);
        }
    }
    for (at, subject) in SUBJECTS.iter().enumerate() {
        for (date_at, date) in DATES.iter().enumerate() {
            put(format!("subject {at} date {date_at}"), format!("{from}{subject}{date}"), body);
        }
        for (body_at, (fields, body)) in BODIES.iter().enumerate() {
            put(format!("subject {at} body {body_at}"), format!("{from}{date}{fields}{subject}"), body);
        }
    }
    for (at, (fields, body)) in BODIES.iter().enumerate() {
        for (extra_at, extra) in EXTRAS.iter().enumerate() {
            put(format!("body {at} extra {extra_at}"), format!("{from}{extra}{subject}{fields}"), body);
        }
        for (date_at, date) in DATES.iter().enumerate() {
            put(format!("body {at} date {date_at}"), format!("{from}{fields}{subject}{date}"), body);
        }
    }
    for (at, (fields, body)) in BODIES.iter().enumerate() {
        // Cut off somewhere, and with the empty line missing.
        let whole = format!("{from}{subject}{date}{fields}\n{body}");
        for cut in (0..whole.len()).step_by(7).filter(|cut| whole.is_char_boundary(*cut)) {
            all.push((format!("body {at} cut at {cut}"), ended(&whole[..cut], "\r\n")));
        }
        all.push((
            format!("body {at} without an empty line"),
            ended(&format!("{from}{subject}{fields}{body}"), "\r\n"),
        ));
        all.push((
            format!("body {at} in a mailbox file"),
            ended(&format!("From ana Thu Aug 22 12:36:23 2002\n{whole}"), "\n"),
        ));
    }
    // Bytes that are not UTF-8, in places of names and words.
    for line in
        [&b"From: Zo\xeb <ana@bank.example>\n"[..], b"From: zo\xeb@bank.example\n", b"Subject: caf\xe9\n", b"X: \xff\n"]
    {
        all.push((format!("{line:?}"), [line, b"To: li@x.example\n\nhello \xff there\n"].concat()));
    }
    all.into_iter()
}
