//! The peer: `notmuch`, on a maildir of the same mails, but fewer of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::letters::LetterGenerator;

/// Ticks of the processor clock in a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

pub struct NotmuchIndex<'f> {
    folder: &'f Path,
}

impl<'f> NotmuchIndex<'f> {
    /// Puts mails into a maildir and indexes them. Gives the processor time.
    ///
    /// # Errors
    /// When it is not installed, or did not index all of them.
    pub fn index(folder: &'f Path, letters: &LetterGenerator, many: u64) -> anyhow::Result<(Self, Duration)> {
        let mail = folder.join("mail");
        for part in ["cur", "new", "tmp"] {
            std::fs::create_dir_all(mail.join(part))?;
        }
        for n in 0..many {
            std::fs::write(mail.join(format!("cur/{n}:2,S")), letters.get(n).raw)?;
        }
        let config =
            format!("[database]\npath={}\n[user]\nname=Office\nprimary_email=office@alder.example\n", mail.display());
        std::fs::write(folder.join("notmuch-config"), config)?;
        let this = Self { folder };
        let before = children()?;
        this.run(&["new", "--quiet"]).context("notmuch")?;
        let spent = children()?.saturating_sub(before);
        let counted = this.run(&["count", "*"])?;
        ensure!(counted.trim() == many.to_string(), "notmuch indexed {} of {many}", counted.trim());
        Ok((this, spent))
    }

    /// Searches for each of the words. Gives the processor time of one search, and the total number of matches.
    pub fn search(&self, words: &[String]) -> anyhow::Result<(Duration, usize)> {
        let before = children()?;
        let mut found = 0;
        for word in words {
            let order = ["search", "--output=messages", "--limit=20", "--sort=newest-first", word];
            found += self.run(&order)?.lines().count();
        }
        let many = u32::try_from(words.len()).unwrap_or(1).max(1);
        Ok((children()?.saturating_sub(before) / many, found))
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("notmuch");
        command.args(words).env("NOTMUCH_CONFIG", self.folder.join("notmuch-config")).stdin(Stdio::null());
        let ran = command.output()?;
        ensure!(ran.status.success(), "notmuch {words:?}: {}", String::from_utf8_lossy(&ran.stderr).trim());
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }
}

/// Processor time of children that have ended.
fn children() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    // On the whole line these are the fields 16 and 17; two of them come before the bracket.
    let ticks = fields.get(13).unwrap_or(&0.0) + fields.get(14).unwrap_or(&0.0);
    Ok(Duration::from_secs_f64(ticks / TICKS))
}
