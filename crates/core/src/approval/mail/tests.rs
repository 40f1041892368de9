//! E-mails as many programs write them.

use super::*;

fn own_words(text: &str) -> String {
    read_reply(text).words
}

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
            assert_eq!(own_words(&format!("{own}{gap}{quote}")), own, "{quote}");
            assert_ne!(read_reply(&format!("{own}{gap}{quote}")).rest, ReplyRemainder::Doubtful, "{own:?} {quote}");
        }
        assert_eq!(own_words(quote), "", "nothing of a quote is taken: {quote}");
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
    assert_eq!(own_words("1\r\n\r\nThanks,\r\nAna"), "1\n\nThanks,\nAna", "nobody knows that this is a signature");
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

#[test]
fn what_only_looks_like_a_quote_or_a_signature_is_the_persons_own() {
    for text in [
        "5 kubectl delete pod x\n--dry-run=client",
        "5 git checkout main\n-- file.txt",
        "5 make\n__init__.py",
        "5 x = 1\n== 2",
        "5 a\n**b** c",
        "5 a\n- - b",
        "5 To: bob@example.com\nhello",
        "4 please\nTo: everyone",
        "5 Dear Ana,\n\nyes.\n\nBest,\nBob",
        "4 see\n\nOn Tuesday we deploy",
        "4 see\n\nOn Tue we wait...",
        "4 he wrote at 10:\nnothing",
    ] {
        let read = read_reply(text);
        assert_eq!((read.words.as_str(), read.rest), (text, ReplyRemainder::Nothing), "{text:?}");
    }
}

#[test]
fn what_may_be_the_persons_own_is_never_left_out_silently() {
    for (text, words) in [
        ("5 echo hi\n> /tmp/x", "5 echo hi"),
        ("5 cat x\n| grep y", "5 cat x"),
        ("5 git checkout\n--\nfile", "5 git checkout"),
        ("5 a\n---\nb", "5 a"),
        ("5 a\n\n***\n\nb", "5 a"),
        ("4 yes\n> 1\nbut not today", "4 yes"),
        ("1\n> 1  Allow once\nno wait", "1"),
        ("1\n\nOn Tue, 5 Nov 2024, gate@example.test wrote:\n> appr_01\nno, wait", "1"),
        ("5 run it\nSent from my script\n--really", "5 run it"),
        ("5 From: a\nFrom: b\nTo: c", "5 From: a"),
        ("5 Dear Ana,\n\nOn 5 Nov 2024 Bob wrote:\n> it is down", "5 Dear Ana,"),
    ] {
        let read = read_reply(text);
        assert_eq!(read.words, words, "{text:?}");
        assert!(!read.rest.is_certainly_complete(), "{text:?}: {:?}", read.rest);
    }
    let long = format!("1\n-- \n{}", "a line\n".repeat(LONGEST_SIGNATURE + 1));
    assert_eq!(read_reply(&long).rest, ReplyRemainder::Doubtful, "nobody has such a signature");
}

#[test]
fn a_quote_of_our_letter_is_told_from_any_other() {
    for quote in [
        "On Tue, 5 Nov 2024 at 10:02, Gate <gate@example.test> wrote:\n> Approve? x\n>\n> appr_01\n> open until",
        "вт, 5 нояб. 2024 г. в 10:02, Gate <gate@example.test>:\n\n> Approve? x\n> appr_01",
        "-----Original Message-----\nFrom: Gate\nSubject: x\n\nApprove?\nappr_01\n1  Allow once",
        "________________________________\nFrom: Gate <gate@example.test>\nSent: Tuesday\n\nappr_01",
        "Von: Gate <gate@example.test>\nGesendet: Dienstag\nAn: Ana\n\nappr_01",
        "> Approve? x\n> appr_01",
        "On Tue...",
    ] {
        for own in ["4 add logs", "5 kubectl delete pod x\n--dry-run=client", "5 Dear Ana,\n\nyes."] {
            let read = read_reply(&format!("{own}\n\n{quote}"));
            assert_eq!((read.words.as_str(), read.rest), (own, ReplyRemainder::OwnLetter), "{quote}");
        }
        let signed = read_reply(&format!("4 add logs\n\n-- \nAna\n\n{quote}"));
        assert_eq!((signed.words.as_str(), signed.rest), ("4 add logs", ReplyRemainder::Usual), "{quote}");
    }
}

proptest::proptest! {
    #[test]
    fn every_word_is_either_heard_or_named_as_left_out(
        lines in proptest::collection::vec("[-_=*>|a-zA-Z0-9:@. ]{0,12}", 0..6)
    ) {
        let text = format!("5 x\n{}", lines.join("\n"));
        let read = read_reply(&text);
        if read.rest == ReplyRemainder::Nothing {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            proptest::prop_assert_eq!(squeezed(&read.words), squeezed(&text));
        }
    }
}
