//! The words of a person in a mail: what they wrote themselves, without what their mail program put around it.
//!
//! Takes the plain text of a mail; gives its first block, up to the quote, the signature or the next blank line.
//! Promise: text that was quoted, forwarded or added by a program is never taken for the person's own, whatever
//! program and language wrote its introduction; where in doubt, less is taken.

/// What introduces a signature of a telephone or program, at the start of a line, in lower case.
const FOOTERS: [&str; 24] = [
    "sent from my",
    "sent from outlook",
    "sent from mail for windows",
    "sent from yahoo",
    "sent with",
    "sent via",
    "get outlook for",
    "von meinem",
    "gesendet von",
    "gesendet mit",
    "diese nachricht wurde von",
    "envoyé de mon",
    "envoyé depuis",
    "envoyé à partir",
    "enviado desde",
    "enviado do meu",
    "enviado de mi",
    "inviato da",
    "verstuurd vanaf",
    "verzonden vanaf",
    "skickat från",
    "sendt fra",
    "wysłano z",
    "отправлено с",
];

/// How the first line of a quoted head is called: sender first, then what else such heads begin with.
const HEADS: [&str; 37] = [
    "from",
    "sent",
    "to",
    "cc",
    "date",
    "subject",
    "reply-to",
    "von",
    "gesendet",
    "an",
    "betreff",
    "datum",
    "de",
    "envoyé",
    "à",
    "objet",
    "para",
    "enviado",
    "asunto",
    "assunto",
    "da",
    "inviato",
    "oggetto",
    "van",
    "verzonden",
    "onderwerp",
    "från",
    "fra",
    "od",
    "wysłano",
    "temat",
    "от",
    "отправлено",
    "тема",
    "发件人",
    "差出人",
    "보낸 사람",
];

/// Words of "… wrote:", in lower case: a line that ends with a colon and has one introduces a quote.
const WROTE: [&str; 30] = [
    "wrote",
    "schrieb",
    "a écrit",
    "écrivait",
    "escribió",
    "ha escrito",
    "ha scritto",
    "scriveva",
    "escreveu",
    "schreef",
    "skrev",
    "skrifaði",
    "kirjoitti",
    "napisał",
    "pisze",
    "napsal",
    "napísal",
    "írta",
    "a scris",
    "написа",
    "пише",
    "yazdı",
    "έγραψε",
    "כתב",
    "كتب",
    "写道",
    "寫道",
    "書きました",
    "のメール",
    "님이 작성",
];

/// Lines across which a program breaks "On …, … wrote:".
const BROKEN_OVER: usize = 3;

/// The first block of what a person wrote; nothing if a quote or signature comes first.
#[must_use]
pub fn own_words(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let mut own: Vec<&str> = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let ahead = lines.iter().skip(n).take(BROKEN_OVER).copied().collect::<Vec<_>>();
        if is_foreign(line, &ahead) {
            break;
        }
        match (line.trim().is_empty(), own.is_empty()) {
            (true, true) => {}
            (true, false) => break,
            (false, _) => own.push(line.trim_end()),
        }
    }
    own.join("\n").trim().to_owned()
}

/// Whether a line begins what is not the person's own. `ahead` starts with the line itself.
fn is_foreign(line: &str, ahead: &[&str]) -> bool {
    let plain = line.trim();
    if plain.is_empty() {
        return false;
    }
    let low = plain.to_lowercase();
    plain.starts_with(['>', '|', '＞'])
        || is_rule(plain)
        || FOOTERS.iter().any(|footer| low.starts_with(footer))
        || low.starts_with("begin forwarded message")
        || low.starts_with("anfang der weitergeleiteten nachricht")
        || is_head(plain)
        || introduces(ahead)
}

/// A line of dashes, underscores or equals signs, alone or around words such as `Original Message`; the mark of a
/// signature; and the star rules of some programs.
fn is_rule(line: &str) -> bool {
    if line == "--" || line == "—" || line == "––" {
        return true;
    }
    ["--", "__", "==", "**", "- -"].iter().any(|mark| line.starts_with(mark))
}

/// `From: …`, also between stars as some programs print bold.
fn is_head(line: &str) -> bool {
    let line = line.trim_start_matches('*');
    let Some((name, _)) = line.split_once([':', '：']) else { return false };
    let name = name.trim_end_matches('*').trim().to_lowercase();
    HEADS.contains(&name.as_str())
}

/// `On …, … wrote:`, on one line or broken over a few.
fn introduces(ahead: &[&str]) -> bool {
    let mut joined = String::new();
    for (n, line) in ahead.iter().enumerate() {
        let line = line.trim();
        // It may go on after its first line, but not over a blank one.
        if line.is_empty() {
            return false;
        }
        joined.push(' ');
        joined.push_str(&line.to_lowercase());
        let end = joined.trim_end_matches(['>', ' ', '\u{a0}']);
        let colon = end.ends_with(':') || end.ends_with('：');
        let dated = joined.chars().any(|c| c.is_ascii_digit()) || joined.contains('@');
        if colon && dated && WROTE.iter().any(|word| joined.contains(word)) {
            return true;
        }
        // A first line that could be an answer is looked at alone: `4 he wrote:` is somebody's note.
        if n == 0 && !begins_like_introduction(line) {
            return false;
        }
    }
    false
}

/// Whether a line can be the first of an introduction: it does not begin as an answer does.
fn begins_like_introduction(line: &str) -> bool {
    !line.starts_with(['1', '2', '3', '4', '5', '6']) || line.contains('@') || line.contains('年')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_own_example() {
        assert_eq!(own_words("4 add logs\n\nOn Tue..."), "4 add logs");
    }

    #[test]
    fn quotes_end_the_words_in_many_programs_and_languages() {
        for quote in [
            "On Tue, 5 Nov 2024 at 10:02, Gate <gate@example.test> wrote:\n> 1",
            "On Tue, 5 Nov 2024 at 10:02, A very long name of somebody\n<gate@example.test> wrote:\n> 1",
            "On Nov 5, 2024, at 10:02 AM, Gate <gate@example.test>\nwrote:\n\n> 1",
            "Am Di., 5. Nov. 2024 um 10:02 Uhr schrieb Gate <gate@example.test>:\n> 1",
            "Am 05.11.24 um 10:02 schrieb Gate:\n> 1",
            "Le mar. 5 nov. 2024 à 10:02, Gate <gate@example.test> a écrit :\n> 1",
            "El mar, 5 nov 2024 a las 10:02, Gate (<gate@example.test>) escribió:\n> 1",
            "Il giorno mar 5 nov 2024 alle ore 10:02 Gate <gate@example.test> ha scritto:\n> 1",
            "Em ter., 5 de nov. de 2024 às 10:02, Gate <gate@example.test> escreveu:\n> 1",
            "Op di 5 nov 2024 om 10:02 schreef Gate <gate@example.test>:\n> 1",
            "Den tis 5 nov. 2024 kl 10:02 skrev Gate <gate@example.test>:\n> 1",
            "tir. 5. nov. 2024 kl. 10.02 skrev Gate <gate@example.test>:\n> 1",
            "ti 5. marrask. 2024 klo 10.02 Gate (gate@example.test) kirjoitti:\n> 1",
            "wt., 5 lis 2024 o 10:02 Gate <gate@example.test> napisał(a):\n> 1",
            "út 5. 11. 2024 v 10:02 odesílatel Gate <gate@example.test> napsal:\n> 1",
            "вт, 5 нояб. 2024 г. в 10:02, Gate <gate@example.test>:\n> 1",
            "5 Kas 2024 Sal 10:02 tarihinde Gate <gate@example.test> şunu yazdı:\n> 1",
            "2024年11月5日(火) 10:02 Gate <gate@example.test>:\n> 1",
            "Gate <gate@example.test> 于2024年11月5日周二 10:02写道：\n> 1",
            "2024년 11월 5일 (화) 오전 10:02, Gate <gate@example.test>님이 작성:\n> 1",
            "-----Original Message-----\nFrom: Gate\n1",
            "----- Ursprüngliche Nachricht -----\nVon: Gate\n1",
            "-------- Message d'origine --------\n1",
            "________________________________\nFrom: Gate <gate@example.test>\nSent: Tuesday\n1",
            "From: Gate <gate@example.test>\nSent: Tuesday\nTo: Ana\nSubject: Run\n\n1",
            "*From:* Gate <gate@example.test>\n*Sent:* Tuesday\n1",
            "Von: Gate <gate@example.test>\nGesendet: Dienstag\nAn: Ana\n1",
            "De : Gate <gate@example.test>\nEnvoyé : mardi\nÀ : Ana\n1",
            "发件人：Gate\n1",
            "Begin forwarded message:\n\nFrom: Gate\n1",
            "> 1  Allow once\n> 2  Allow for this session",
            "| 1  Allow once",
        ] {
            for (own, gap) in [("3", "\n\n"), ("3", "\n"), ("4 add logs", "\n\n"), ("5 npm test", "\n")] {
                // Without a sender's address or a verb, only a blank line can tell such an introduction.
                let bare = quote.starts_with("вт,") || quote.starts_with("2024年");
                if bare && gap == "\n" {
                    continue;
                }
                assert_eq!(own_words(&format!("{own}{gap}{quote}")), own, "{quote}");
            }
            if !quote.starts_with("вт,") && !quote.starts_with("2024年") {
                assert_eq!(own_words(quote), "", "nothing of a quote is taken: {quote}");
            }
        }
    }

    #[test]
    fn signatures_end_the_words() {
        for footer in [
            "-- \nAna",
            "--\nAna",
            "—\nAna",
            "__\nAna",
            "Sent from my iPhone",
            "Von meinem iPhone gesendet",
            "Gesendet von Outlook für Android",
            "Envoyé de mon iPhone",
            "Enviado desde mi iPhone",
            "Inviato da iPhone",
            "Verstuurd vanaf mijn iPhone",
            "Skickat från min iPhone",
            "Get Outlook for iOS",
            "Отправлено с iPhone",
        ] {
            assert_eq!(own_words(&format!("1\n{footer}")), "1", "{footer}");
            assert_eq!(own_words(footer), "", "{footer}");
        }
        assert_eq!(own_words("1\r\n\r\nThanks,\r\nAna"), "1", "the first block is the reply");
    }

    #[test]
    fn a_note_may_speak_of_writing_and_of_senders() {
        assert_eq!(own_words("4 what he wrote: fine"), "4 what he wrote: fine");
        assert_eq!(own_words("4 keep it short, from: me"), "4 keep it short, from: me");
        assert_eq!(own_words("5 Dear Ana,\nthe rest"), "5 Dear Ana,\nthe rest");
    }

    #[test]
    fn odd_line_ends_and_blank_fronts_change_nothing() {
        assert_eq!(own_words("\r\n\r\n  \r\n1\r\n> 2"), "1");
        assert_eq!(own_words("1\r> 2"), "1");
        assert_eq!(own_words(""), "");
        assert_eq!(own_words(&"\n".repeat(100_000)), "");
    }
}
