//! Layouts in which people and programs write the same text.
//!
//! Takes a text, gives it in each layout, with the media type that it is declared as. Promise: no layout changes the words or their
//! order.

/// Gives a text in one layout.
pub type LayoutWriter = fn(&str) -> String;

/// Each layout: its name, how it is written, and its media type.
pub const LAYOUTS: [(&str, LayoutWriter, Option<&str>); 43] = [
    ("tabs", |text| text.replace(' ', "\t"), None),
    ("double blanks", |text| text.replace(' ', "  "), None),
    ("no-break blanks", |text| text.replace(' ', "\u{a0}"), None),
    ("hard wraps at 72", |text| wrapped(text, 72, "", ""), None),
    ("hard wraps at 60, indented", |text| wrapped(text, 60, "    ", ""), None),
    ("Windows line ends", |text| wrapped(text, 72, "", "\r"), None),
    ("quotes", |text| wrapped(text, 72, "> ", ""), None),
    ("nested quotes", |text| wrapped(text, 68, ">> > ", ""), None),
    ("line breaks of HTML in text", |text| wrapped(text, 60, "", "<br>").replace('\n', ""), None),
    ("line breaks of HTML", |text| wrapped(&escaped(text), 60, "", "<br/>"), Some("text/html")),
    ("YAML fold", |text| format!("title: Notes\ndescription: >-\n{}\nstatus: open", wrapped(text, 76, "  ", "")), None),
    (
        "YAML quoted",
        |text| {
            format!("- id: 7\n  body: '{}'\n  read: true", wrapped(&text.replace('\'', "''"), 76, "    ", "").trim())
        },
        None,
    ),
    (
        "cell of an HTML table",
        |text| format!("<table><tr><td>7</td><td>{}</td><td>open</td></tr></table>", escaped(text)),
        Some("text/html"),
    ),
    (
        "cell of a Markdown table",
        |text| {
            format!(
                "| id | text | state |\n|---|---|---|\n| 7 | {} | open |\n| 8 | Nothing new. | done |",
                one_line(text).replace('|', "/")
            )
        },
        None,
    ),
    ("box", |text| wrapped(text, 60, "| ", " |"), None),
    (
        "wrapped cell of a table",
        |text| {
            let rows: Vec<String> =
                wrapped(text, 50, "", "").lines().map(|line| format!("|    | {line:<50} |      |")).collect();
            format!("| id | text | state |\n|----|------|-------|\n| 7  | Note | open |\n{}", rows.join("\n"))
        },
        None,
    ),
    ("comment of C", |text| format!("/*\n{}\n */\nint x = 1;", wrapped(text, 70, " * ", "")), None),
    ("comment of Rust", |text| format!("{}\nfn main() {{}}", wrapped(text, 70, "/// ", "")), None),
    ("comment of JavaScript", |text| format!("{}\nconst x = 1;", wrapped(text, 70, "// ", "")), None),
    ("comment of Python", |text| format!("{}\nx = 1", wrapped(text, 70, "# ", "")), None),
    (
        "docstring of Python",
        |text| {
            format!("def run():\n    \"\"\"{}\n    \"\"\"\n    return 1", wrapped(text, 70, "    ", "").trim_start())
        },
        None,
    ),
    ("comment of SQL", |text| format!("{}\nSELECT 1;", wrapped(text, 70, "-- ", "")), None),
    ("comment of Lisp", |text| format!("{}\n(run)", wrapped(text, 70, ";; ", "")), None),
    ("comment of TeX", |text| format!("{}\n\\section{{One}}", wrapped(text, 70, "% ", "")), None),
    ("comment of Basic", |text| format!("{}\nPRINT 1", wrapped(text, 70, "' ", "")), None),
    ("comment of batch files", |text| format!("{}\ndir", wrapped(text, 70, "REM ", "")), None),
    ("comment of HTML", |text| format!("<!--\n{}\n-->\n<p>Hello</p>", wrapped(text, 70, "  ", "")), None),
    ("comment of OCaml", |text| format!("(* {} *)\nlet x = 1", wrapped(text, 70, "   ", "").trim()), None),
    ("comment of Fortran", |text| format!("{}\nend", wrapped(text, 70, "! ", "")), None),
    ("emphasis inside words", |text| inside_words(text, "**"), None),
    (
        "emphasis around words",
        |text| text.split(' ').map(|word| format!("*{word}*")).collect::<Vec<_>>().join(" "),
        None,
    ),
    ("tags inside words", |text| inside_words(&escaped(text), "<b></b>"), Some("text/html")),
    ("added lines of a diff", |text| format!("@@ -1,2 +1,9 @@\n line\n{}\n other", wrapped(text, 72, "+", "")), None),
    (
        "cell of CSV",
        |text| {
            format!("id,text,state\n7,\"{}\",open\n8,\"Nothing new, at all\",done", one_line(text).replace('"', "\"\""))
        },
        None,
    ),
    (
        "list of JSON",
        |text| {
            let lines: Vec<String> = wrapped(text, 50, "", "").lines().map(str::to_owned).collect();
            serde_json::json!({"id": 7, "lines": lines}).to_string()
        },
        Some("application/json"),
    ),
    (
        "list of JSON in a text",
        |text| {
            let lines: Vec<String> =
                wrapped(text, 50, "", "").lines().map(|line| format!("  {}", serde_json::json!(line))).collect();
            format!("The answer was:\n[\n{}\n]\n", lines.join(",\n"))
        },
        None,
    ),
    (
        "strings of a program",
        |text| {
            let lines: Vec<String> =
                wrapped(text, 50, "", " ").lines().map(|line| format!("    {}", serde_json::json!(line))).collect();
            format!("let note =\n{};", lines.join(" +\n"))
        },
        None,
    ),
    (
        "chat",
        |text| {
            let lines: Vec<String> =
                wrapped(text, 60, "", "").lines().map(|line| format!("[12:31] Ana: {line}")).collect();
            format!("[12:30] Tom: Good morning\n{}", lines.join("\n"))
        },
        None,
    ),
    (
        "chat with dates",
        |text| {
            let lines: Vec<String> =
                wrapped(text, 60, "", "").lines().map(|line| format!("2024-05-01, 12:31 - Ana B: {line}")).collect();
            format!("2024-05-01, 12:30 - Tom: Good morning\n{}", lines.join("\n"))
        },
        None,
    ),
    (
        "subtitles",
        |text| {
            let lines: Vec<String> = wrapped(text, 40, "", "").lines().map(str::to_owned).collect();
            let cues = lines.iter().enumerate().map(|(at, line)| {
                format!("{}\n00:00:{:02},000 --> 00:00:{:02},900\n{line}\n", at + 1, at % 60, at % 60)
            });
            cues.collect::<Vec<_>>().join("\n")
        },
        None,
    ),
    ("signature", |text| format!("Hello Tom,\n\nsee you on Monday.\n\n-- \n{}", wrapped(text, 72, "", "")), None),
    (
        "alternative text",
        |text| format!("Look at this: ![{}](https://a.test/x.png)", one_line(text).replace(['[', ']'], "")),
        None,
    ),
    (
        "title of a link",
        |text| format!("See [the plan](https://a.test/plan \"{}\") for more.", one_line(text).replace('"', "'")),
        None,
    ),
];

fn wrapped(text: &str, width: usize, before: &str, after: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut current = String::new();
        for word in line.split_whitespace() {
            if !current.is_empty() && current.len() + 1 + word.len() + before.len() > width {
                out.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        out.push(current);
    }
    out.iter().map(|line| format!("{before}{line}{after}")).collect::<Vec<_>>().join("\n")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn inside_words(text: &str, mark: &str) -> String {
    let dressed = text.split(' ').map(|word| {
        let letters = word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        if letters { format!("{}{mark}{}", &word[..2], &word[2..]) } else { word.to_owned() }
    });
    dressed.collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
