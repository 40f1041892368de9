//! `sluice egress`: ways out, what they have used, and starting over.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Ask, Reach, encode, entries, shown};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;
use crate::watch::{self, Listing};

/// List ways out, see what they have used, start over.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice egress list\n  sluice egress show crm\n  sluice egress reset crm"
)]
pub(crate) struct Egress {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List ways out with what they have used
    #[command(before_help = "Examples:\n  sluice egress list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what a way out may and how it stands
    #[command(before_help = "Examples:\n  sluice egress show crm")]
    Show {
        /// Its name
        name: String,
    },
    /// Forget what a way out has used and close its breaker
    #[command(before_help = "Examples:\n  sluice egress reset crm")]
    Reset {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

impl Egress {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { listing } => {
                let fetch = || client.whole("/v1/egress");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { name } => {
                screen.json(&client.ask(&Ask::get(format!("/v1/egress/{}", encode(&name))))?)?;
                Ok(Exit::Ok)
            }
            Verb::Reset { names, json } => watch::each(screen, &names, |name| {
                client.ask(&Ask::post(format!("/v1/egress/{}/reset", encode(name))))?;
                if json {
                    screen.json(&json!({"name": name, "reset": true}))?;
                }
                screen.note(format_args!("{name} starts over"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["connection", "breaker", "until", "minute", "hour", "burned"]);
    for one in entries(list) {
        let cell = |name| shown(one, name);
        let used = (cell("used_minute"), cell("used_hour"), cell("burned"));
        table.row(&[cell("name"), cell("breaker"), cell("open_until"), used.0, used.1, used.2]);
    }
    table.print(screen, "there are no connections")
}
