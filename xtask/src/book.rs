//! The book: `docs/` as pages to read, built into `target/book`, with every link of it checked.
//!
//! Takes nothing; gives the outcome of one suite. Promise: it fails if a page is not in the table of contents, or if a
//! link, in the book or between the repository's Markdown files, leads nowhere.

use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::links::{self, LinkedPage, html, markdown};
use crate::packages::command_output;
use crate::report::{SuiteOutcome, SuiteReport};
use crate::tools;

/// The folder whose pages are the chapters.
const PAGES: &str = "docs";
/// The table of contents, in that folder.
const CONTENTS: &str = "SUMMARY.md";
/// The folder with the settings of the book.
const SETTINGS: &str = "docs/book";
/// Where the book is built.
const BUILT: &str = "target/book";

/// Builds the book and checks it, as one suite.
pub fn suite(report: &mut SuiteReport) {
    report.time("book", || {
        let root = std::env::current_dir().map_err(|error| error.to_string());
        (root.map_or_else(SuiteOutcome::Failed, |root| outcome(&root)), ())
    });
}

fn outcome(root: &Path) -> SuiteOutcome {
    // What needs no program comes first: it is checked even if the program cannot be installed.
    match pages(root, "md", markdown::read) {
        Ok(pages) => {
            let mut offences = links::broken(root, &pages);
            offences.extend(left_out(&pages));
            if let Some(failed) = failed(&offences, "Markdown files") {
                return failed;
            }
        }
        Err(reason) => return SuiteOutcome::Failed(reason),
    }
    let program = match tools::mdbook(root) {
        Ok(program) => program.display().to_string(),
        Err(reason) => return SuiteOutcome::Skipped(reason),
    };
    let built = root.join(BUILT);
    let line = CommandLine::new(&[&program, "build", SETTINGS, "--dest-dir", &built.display().to_string()]);
    println!("\n$ {line}");
    if let Err(reason) = command_output(&line) {
        return SuiteOutcome::Failed(reason);
    }
    match pages(&built, "html", html::read) {
        Ok(pages) => {
            println!("{} pages: {}", pages.len(), built.join("index.html").display());
            // Its addresses count from the root of a site, which we do not know.
            let pages: Vec<_> = pages.into_iter().filter(|page| page.path != Path::new("404.html")).collect();
            failed(&links::broken(&built, &pages), "pages of the book").unwrap_or(SuiteOutcome::Passed)
        }
        Err(reason) => SuiteOutcome::Failed(reason),
    }
}

fn pages(folder: &Path, ending: &str, read: fn(PathBuf, &str) -> LinkedPage) -> Result<Vec<LinkedPage>, String> {
    let io = |path: &Path, error: std::io::Error| format!("`{}`: {error}", path.display());
    let files = links::files_below(folder, ending).map_err(|error| io(folder, error))?;
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(folder.join(&path)).map_err(|error| io(&path, error))?;
        Ok(read(path, &text))
    };
    files.into_iter().map(read).collect()
}

/// The pages that the table of contents does not name: the book would not have them.
fn left_out(pages: &[LinkedPage]) -> Vec<String> {
    let contents = Path::new(PAGES).join(CONTENTS);
    let named: Vec<PathBuf> = pages
        .iter()
        .filter(|page| page.path == contents)
        .flat_map(|page| page.links.iter().map(|link| Path::new(PAGES).join(link)))
        .collect();
    let own = pages.iter().filter(|page| page.path.starts_with(PAGES) && page.path != contents);
    let left_out = own.filter(|page| !named.contains(&page.path));
    left_out.map(|page| format!("{}: it is not in {}", page.path.display(), contents.display())).collect()
}

fn failed(offences: &[String], place: &str) -> Option<SuiteOutcome> {
    if offences.is_empty() {
        return None;
    }
    println!("\n{}", offences.join("\n"));
    Some(SuiteOutcome::Failed(format!("{} problems in the {place}", offences.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_table_of_contents_does_not_name_is_found() {
        let page = |path: &str, links: &[&str]| LinkedPage {
            path: path.into(),
            links: links.iter().map(|&link| link.to_owned()).collect(),
            ..LinkedPage::default()
        };
        let contents = page("docs/SUMMARY.md", &["a.md", "deep/b.md"]);
        let pages = [contents, page("docs/a.md", &["c.md"]), page("docs/c.md", &[]), page("README.md", &[])];
        assert_eq!(left_out(&pages), ["docs/c.md: it is not in docs/SUMMARY.md"]);
        let pages = [page("docs/SUMMARY.md", &["a.md", "deep/b.md"]), page("docs/deep/b.md", &[])];
        assert_eq!(left_out(&pages), Vec::<String>::new());
    }
}
