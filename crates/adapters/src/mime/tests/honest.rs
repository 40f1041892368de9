//! Ordinary mails, as ordinary programs write them: Outlook, Apple Mail, Gmail, mutt, mailing lists, newsletters,
//! calendar invitations, delivery reports, receipts. The same number gives the same mails.

/// A small number generator: the same seed gives the same mails.
struct MailRandom(u64);

impl MailRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap_or(0)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    fn hex(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b"0123456789abcdef"[self.roll(16)])).collect()
    }
}

const NAMES: [&str; 12] = [
    "Ana Ruiz",
    "Li Wen",
    "Zo\u{eb} Lindqvist",
    "Tom O'Neil",
    "J\u{fc}rgen Wei\u{df}",
    "\u{9673}\u{5927}\u{6587}",
    "Mar\u{ed}a-Jos\u{e9} N\u{fa}\u{f1}ez",
    "Dr. A. B. Clark",
    "Support Team",
    "Smith, John",
    "\u{418}\u{432}\u{430}\u{43d}",
    "no-reply",
];
const HOSTS: [&str; 8] = [
    "northpeak.example",
    "alderfinch.example",
    "mail.glass.example",
    "bank.example",
    "shop-24.example",
    "uni.example",
    "a.b.c.example",
    "list.example",
];
const SUBJECTS: [&str; 12] = [
    "Roof survey, part 2",
    "Re: Tuesday",
    "Fwd: figures for Q3",
    "Your receipt #20261117-4",
    "Gr\u{fc}\u{df}e aus K\u{f6}ln",
    "[list] meeting notes (draft)",
    "Invitation: stand-up @ Tue 17 Nov 2026 9am",
    "\u{4f1a}\u{8b70}\u{306e}\u{304a}\u{77e5}\u{3089}\u{305b}",
    "Delivery Status Notification (Failure)",
    "50% off \u{2013} today only!",
    "\u{412}\u{441}\u{442}\u{440}\u{435}\u{447}\u{430} \u{432}\u{43e} \u{432}\u{442}\u{43e}\u{440}\u{43d}\u{438}\u{43a}",
    "caf\u{e9} \u{2615} at 4?",
];
const LINES: [&str; 12] = [
    "the survey is on Tuesday at 9.",
    "Please find the figures attached.",
    "Thanks, that works for me.",
    "Total: 1,204.50 EUR (incl. VAT)",
    "On Mon, Nov 16, 2026 at 5:02 PM Li Wen wrote:",
    "> When do we meet?",
    "-- ",
    "The roof needs two more days; see the plan.",
    "Gr\u{fc}\u{df}e, J\u{fc}rgen",
    "From: the desk of Ana",
    "https://shop-24.example/orders?id=4&x=1",
    "\u{660e}\u{5929}\u{898b}",
];
const DATES: [&str; 6] = [
    "Tue, 17 Nov 2026 10:00:00 +0000",
    "Tue, 17 Nov 2026 02:00:00 -0800 (PST)",
    "17 Nov 2026 10:00:00 GMT",
    "Tue, 17 Nov 2026 11:00:00 +0100",
    "Tue, 17 Nov 26 10:00 EST",
    "Wed,  4 Nov 2026 09:08:07 +0530",
];

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    text.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>().join("\n")
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let mut column = 0;
        for &byte in line.as_bytes() {
            let piece = match byte {
                b'=' | 0..=31 | 127..=255 => format!("={byte:02X}"),
                _ => char::from(byte).to_string(),
            };
            if column + piece.len() > 75 {
                out.push_str("=\n");
                column = 0;
            }
            column += piece.len();
            out.push_str(&piece);
        }
        if out.ends_with(' ') {
            out.pop();
            out.push_str("=20");
        }
        out.push('\n');
    }
    out.pop();
    out
}

/// A value as it is written in a header: encoded where necessary.
fn value(dice: &mut MailRandom, text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    match dice.roll(4) {
        0 => text.to_owned(),
        1 => format!("=?UTF-8?B?{}?=", base64(text.as_bytes()).replace('\n', "")),
        2 => {
            let words: Vec<String> = text
                .split(' ')
                .map(|word| format!("=?utf-8?B?{}?=", base64(format!("{word} ").as_bytes()).replace('\n', "")))
                .collect();
            words.join("\n ")
        }
        _ => {
            let word: String =
                text.bytes()
                    .map(|byte| {
                        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("={byte:02X}") }
                    })
                    .collect();
            format!("=?utf-8?Q?{word}?=")
        }
    }
}

fn person(dice: &mut MailRandom) -> String {
    let (name, host) = (dice.pick(&NAMES), dice.pick(&HOSTS));
    let local = dice.pick(&["ana", "li.wen", "bounce+a=b", "o'neil", "no-reply", "x_y-1"]);
    let address = format!("{local}@{host}");
    match dice.roll(5) {
        0 => address,
        1 => format!("<{address}>"),
        2 if name.is_ascii() => format!("\"{name}\" <{address}>"),
        3 => format!("{address} ({})", if name.is_ascii() { name } else { "Ana" }),
        _ if name.contains(',') => format!("\"{name}\" <{address}>"),
        _ => format!("{} <{address}>", value(dice, name)),
    }
}

fn body(dice: &mut MailRandom) -> String {
    let mut lines = vec!["Hello,".to_owned(), String::new()];
    for _ in 0..1 + dice.roll(12) {
        lines.push(dice.pick(&LINES).to_owned());
        if dice.roll(3) == 0 {
            lines.push(String::new());
        }
    }
    lines.join("\n") + "\n"
}

/// A text part with its fields, in one of the usual encodings.
fn part(dice: &mut MailRandom, kind: &str, text: &str) -> String {
    let charset = dice.pick(&["utf-8", "UTF-8", "\"utf-8\""]);
    let flowed =
        if kind == "text/plain" { dice.pick(&["", "; format=flowed", "; format=flowed; delsp=yes"]) } else { "" };
    match dice.roll(3) {
        0 => format!("Content-Type: {kind}; charset={charset}{flowed}\nContent-Transfer-Encoding: 8bit\n\n{text}"),
        1 => format!(
            "Content-Type: {kind};\n\tcharset={charset}{flowed}\nContent-Transfer-Encoding: quoted-printable\n\n{}",
            quoted(text)
        ),
        _ => format!(
            "Content-Transfer-Encoding: base64\nContent-Type: {kind}; charset={charset}\n\n{}\n",
            base64(text.as_bytes())
        ),
    }
}

fn html(text: &str) -> String {
    format!("<html><head><meta charset=\"utf-8\"></head><body><p>{}</p></body></html>\n", text.replace('\n', "<br>\n"))
}

fn alternative(dice: &mut MailRandom, boundary: &str) -> String {
    let text = body(dice);
    let (plain, rich) = (part(dice, "text/plain", &text), part(dice, "text/html", &html(&text)));
    format!("--{boundary}\n{plain}\n--{boundary}\n{rich}\n--{boundary}--\n")
}

fn file(dice: &mut MailRandom) -> String {
    let name = dice.pick(&["report.pdf", "Q3 figures.xlsx", "image001.png"]);
    let bytes: Vec<u8> = (0..40 + dice.roll(200)).map(|at| at.to_le_bytes()[0]).collect();
    format!(
        "Content-Type: application/octet-stream; name=\"{name}\"\nContent-Disposition: attachment;\n filename=\"{name}\"\nContent-Transfer-Encoding: base64\n\n{}",
        base64(&bytes)
    )
}

fn trace(dice: &mut MailRandom) -> String {
    let id = dice.hex(16);
    let host = dice.pick(&HOSTS);
    format!(
        "Delivered-To: office@alderfinch.example\nReceived: by 2002:a05:6a10:{} with SMTP id {id};\n        Tue, 17 Nov 2026 02:00:00 -0800 (PST)\n\
         X-Received: by 2002:a17:90b with SMTP id {id}.1;\n        Tue, 17 Nov 2026 02:00:00 -0800 (PST)\n\
         ARC-Seal: i=1; a=rsa-sha256; t=1795000000; cv=none;\n        d=google.com; s=arc-20240605;\n        b={id}\n\
         Return-Path: <bounce@{host}>\nReceived: from mx.{host} (mx.{host}. [192.0.2.7])\n        by mx.google.com with ESMTPS id {id}\n        \
         for <office@alderfinch.example>\n        (version=TLS1_3 cipher=TLS_AES_256_GCM_SHA384 bits=256/256);\n        Tue, 17 Nov 2026 02:00:00 -0800 (PST)\n\
         Received-SPF: pass (google.com: domain of bounce@{host} designates 192.0.2.7 as permitted sender) client-ip=192.0.2.7;\n\
         Authentication-Results: mx.google.com;\n       dkim=pass header.i=@{host} header.s=s1 header.b={id};\n       \
         spf=pass smtp.mailfrom=bounce@{host};\n       dmarc=pass (p=QUARANTINE sp=NONE dis=NONE) header.from={host}\n\
         DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed;\n        d={host}; s=s1;\n        h=from:to:subject:date:message-id;\n        bh={id}=;\n        b={id}{id}\n         {id}==\n",
        dice.hex(4)
    )
}

fn one(dice: &mut MailRandom) -> String {
    let mut head = if dice.roll(3) > 0 { trace(dice) } else { String::new() };
    let (from, subject) = (person(dice), dice.pick(&SUBJECTS));
    let subject = value(dice, subject);
    let to: Vec<String> = (0..1 + dice.roll(4)).map(|_| person(dice)).collect();
    let fields = [
        format!("From: {from}\n"),
        format!("To: {}\n", to.join(dice.pick(&[", ", ",\n\t", ",\n "]))),
        format!(
            "Subject: {}\n",
            if dice.roll(4) == 0 { subject.replace("\n ", " ").replace(' ', "\n\t") } else { subject }
        ),
        format!("Date: {}\n", dice.pick(&DATES)),
        format!("Message-ID: <{}@{}>\n", dice.hex(20), dice.pick(&HOSTS)),
        "MIME-Version: 1.0\n".to_owned(),
    ];
    let turn = dice.roll(fields.len());
    for at in 0..fields.len() {
        head.push_str(&fields[(at + turn) % fields.len()]);
    }
    if dice.roll(3) == 0 {
        head.push_str(&format!(
            "Cc: {}\nIn-Reply-To: <{}@x.example>\nReferences: <a@x.example>\n <b@x.example>\n",
            person(dice),
            dice.hex(8)
        ));
    }
    let (outer, inner) = (dice.hex(12), dice.hex(12));
    match dice.roll(9) {
        // Outlook.
        0 => {
            let (outer, inner) = (format!("_004_{outer}_"), format!("_000_{inner}_"));
            format!(
                "{head}Thread-Topic: x\nThread-Index: AQ{outer}\nAccept-Language: en-US\nContent-Language: en-US\nX-MS-Has-Attach: yes\n\
                 Content-Type: multipart/mixed;\n\tboundary=\"{outer}\"\n\n--{outer}\nContent-Type: multipart/alternative;\n\tboundary=\"{inner}\"\n\n{}\n--{outer}\n{}\n\n--{outer}--\n",
                alternative(dice, &inner),
                file(dice)
            )
        }
        // Apple Mail.
        1 => {
            let boundary = format!("Apple-Mail=_{}", outer.to_uppercase());
            format!(
                "{head}Content-Type: multipart/mixed; boundary=\"{boundary}\"\nX-Mailer: Apple Mail (2.3774.600.62)\n\n\n--{boundary}\n{}\n--{boundary}\n{}\n--{boundary}\n{}\n--{boundary}--\n",
                part(dice, "text/plain", "Hello,\n"),
                file(dice),
                part(dice, "text/plain", "\nsee above.\n")
            )
        }
        // Gmail.
        2 => format!(
            "{head}Content-Type: multipart/alternative; boundary=\"000000000000{outer}\"\n\n{}",
            alternative(dice, &format!("000000000000{outer}"))
        ),
        // mutt.
        3 => {
            let text = body(dice);
            format!(
                "{head}Content-Disposition: inline\nUser-Agent: Mutt/2.2.12 (2023-09-09)\n{}",
                part(dice, "text/plain", &text)
            )
        }
        // A mailing list.
        4 => {
            let text = body(dice);
            format!(
                "{head}Precedence: list\nList-Id: notes of meetings <notes.list.example>\nList-Unsubscribe: <https://list.example/u>,\n <mailto:notes-request@list.example?subject=unsubscribe>\n\
                 List-Post: <mailto:notes@list.example>\nSender: notes-bounces@list.example\nContent-Type: multipart/mixed; boundary=\"==============={outer}==\"\n\n--==============={outer}==\n{}\n--==============={outer}==\n\
                 Content-Type: text/plain; charset=\"us-ascii\"\nContent-Transfer-Encoding: 7bit\nContent-Disposition: inline\n\n_______________________\nnotes mailing list\n\n--==============={outer}==--\n",
                part(dice, "text/plain", &text)
            )
        }
        // A newsletter.
        5 => {
            let text = body(dice);
            format!(
                "{head}List-Unsubscribe-Post: List-Unsubscribe=One-Click\nX-Report-Abuse: <mailto:abuse@shop-24.example>\nFeedback-ID: 1:2:3:x\n{}",
                part(dice, "text/html", &html(&text))
            )
        }
        // An invitation.
        6 => {
            let event = "BEGIN:VCALENDAR\nMETHOD:REQUEST\nBEGIN:VEVENT\nSUMMARY:stand-up\nEND:VEVENT\nEND:VCALENDAR\n";
            let text = body(dice);
            format!(
                "{head}Content-Type: multipart/mixed; boundary=\"{outer}\"\n\n--{outer}\nContent-Type: multipart/alternative; boundary=\"{inner}\"\n\n--{inner}\n{}\n--{inner}\n{}\n--{inner}\n\
                 Content-Type: text/calendar; charset=\"UTF-8\"; method=REQUEST\nContent-Transfer-Encoding: 7bit\n\n{event}\n--{inner}--\n\n--{outer}\nContent-Type: application/ics; name=\"invite.ics\"\n\
                 Content-Disposition: attachment; filename=\"invite.ics\"\nContent-Transfer-Encoding: base64\n\n{}\n--{outer}--\n",
                part(dice, "text/plain", &text),
                part(dice, "text/html", &html(&text)),
                base64(event.as_bytes())
            )
        }
        // A delivery report.
        7 => format!(
            "{head}Auto-Submitted: auto-replied\nContent-Type: multipart/report; boundary=\"{outer}\"; report-type=delivery-status\n\n--{outer}\nContent-Type: text/plain; charset=\"UTF-8\"\n\n\
             ** Address not found **\n\nYour message wasn't delivered.\n\n--{outer}\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; googlemail.com\n\nFinal-Recipient: rfc822; x@y.example\nAction: failed\nStatus: 5.1.1\n\n\
             --{outer}\nContent-Type: message/rfc822\n\nFrom: office@alderfinch.example\nTo: x@y.example\nSubject: hello\nContent-Type: text/plain\n\nthe returned words\n\n--{outer}--\n"
        ),
        // A receipt with its pictures.
        _ => {
            let text = body(dice);
            format!(
                "{head}Content-Type: multipart/related; boundary=\"----=_Part_{outer}\"; type=\"multipart/alternative\"\n\n------=_Part_{outer}\nContent-Type: multipart/alternative; boundary=\"----=_Part_1_{inner}\"\n\n------=_Part_1_{inner}\n{}\n------=_Part_1_{inner}\n{}\n\
                 ------=_Part_1_{inner}--\n\n------=_Part_{outer}\nContent-Type: image/png; name=\"logo.png\"\nContent-ID: <logo>\nContent-Disposition: inline; filename=\"logo.png\"\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n------=_Part_{outer}--\n",
                part(dice, "text/plain", &text),
                part(dice, "text/html", &html(&text))
            )
        }
    }
}

/// This many mails, each with a name that identifies it. Services give them with network line ends.
pub fn mails(many: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut dice = MailRandom(0x9E37_79B9_7F4A_7C15);
    (0..many).map(move |at| {
        let raw = one(&mut dice);
        (format!("honest {at}"), raw.replace('\n', "\r\n").into_bytes())
    })
}
