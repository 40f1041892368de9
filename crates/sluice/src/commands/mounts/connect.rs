//! `sluice mounts connect`: a person grants the gateway access to a mounted server, and takes it back.
//!
//! Takes the name of a mount; prints a link, waits for the browser, and prints what was granted. Promise: no token
//! reaches the command line; the answer is accepted on loopback only, once, for this link.

use clap::Args;
use serde_json::{Value, json};
use sluice_core::Millis;

use super::{list, path};
use crate::client::{ApiRequest, GatewayClient, display_field, text_field};
use crate::commands::secrets;
use crate::commands::services::browser::{self, OauthRedirectReceiver};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};
use crate::time_args::span;

/// Sign in to a server.
#[derive(Debug, Args)]
pub(crate) struct MountsConnectArgs {
    /// Name of the server
    name: String,
    /// Client ID at the authorization server, if the gateway was registered there by hand
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// File with the client secret; it is stored in the vault
    #[arg(long, value_name = "FILE", requires = "client_id")]
    client_secret_file: Option<std::path::PathBuf>,
    /// Authorization server that you accept, if the server names another one than before
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Ask for this scope too; can be repeated
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// For a machine without a browser: give consent elsewhere, and paste the address you were sent to
    #[arg(long)]
    paste: bool,
    /// Only print the link, do not open a browser
    #[arg(long)]
    no_browser: bool,
    /// Port that the browser returns to; default: any free port
    #[arg(long, value_name = "PORT", default_value = "0")]
    port: u16,
    /// How long to wait for the consent
    #[arg(long, value_parser = span, default_value = "10m")]
    timeout: Millis,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Give up the access to a server.
#[derive(Debug, Args)]
pub(crate) struct MountsDisconnectArgs {
    /// Name of the server
    name: String,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl MountsConnectArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let secret = self.client_secret_file.as_deref().map(|file| secrets::value(Some(file))).transpose()?;
        let waiting = if self.paste { OauthRedirectReceiver::Paste } else { OauthRedirectReceiver::listen(self.port)? };
        let body = json!({
            "redirect": waiting.redirect()?, "client_id": self.client_id, "client_secret": secret,
            "issuer": self.issuer, "scopes": self.scope,
        });
        let ask = ApiRequest::post(path(&self.name, "/connect")).body(body).with_wait(Millis::from_mins(2));
        let begun = client.send(&ask)?;
        let (link, state) = (text_field(&begun, "link"), text_field(&begun, "state"));
        screen.note(format_args!(
            "{} asks {} for {}.",
            escape::escape_line(&self.name),
            display_field(&begun, "issuer"),
            scopes(&begun, "scopes")
        ));
        screen.note("Open this link, sign in and give consent:");
        // The person needs the link, even with --quiet.
        screen.print_required(link)?;
        if !self.paste && !self.no_browser && browser::open(link) {
            screen.note("A browser was opened.");
        }
        let back = waiting.answer(state, self.timeout, screen)?;
        let body = json!({"state": back.state, "code": back.code, "issuer": back.issuer});
        let ask = ApiRequest::post(path(&self.name, "/finish")).body(body).with_wait(Millis::from_mins(2));
        let mount = client.send(&ask)?;
        self.connected(&mount, screen)
    }

    fn connected(&self, mount: &Value, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        if self.json {
            screen.json(mount)?;
            return Ok(CommandExit::Ok);
        }
        let access = mount.get("sign_in").cloned().unwrap_or_default();
        let name = escape::escape_line(&self.name);
        screen.line(format_args!("{name} is connected: {}", scopes(&access, "scopes")))?;
        let why = mount.get("reason").map(|_| format!(": {}", display_field(mount, "reason"))).unwrap_or_default();
        screen.line(format_args!("state      {}{why}", display_field(mount, "state")))?;
        screen.note(format_args!("see its tools: sluice mounts show {name}"));
        Ok(CommandExit::Ok)
    }
}

impl MountsDisconnectArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let name = escape::escape_line(&self.name);
        if !self.yes {
            screen.confirm(&format!("Give up the access to {name}? Its tools stop working."), "--yes")?;
        }
        let ask = ApiRequest::post(path(&self.name, "/disconnect")).with_wait(Millis::from_mins(2));
        let done = client.send(&ask)?;
        if self.json {
            screen.json(&done)?;
        } else {
            screen.line(format_args!(
                "{name} is disconnected; its authorization server: {}",
                display_field(&done, "grant")
            ))?;
        }
        Ok(CommandExit::Ok)
    }
}

/// The lines of `sluice mounts show` about the access to a server.
pub(super) fn print_access(screen: &CommandConsole, mount: &Value, access: &Value) -> Result<(), CliError> {
    let name = display_field(mount, "name");
    let said = match text_field(access, "state") {
        "connected" => format!(
            "connected at {} by {} ({})",
            display_field(access, "issuer"),
            display_field(access, "granted_by"),
            scopes(access, "scopes")
        ),
        "more_access" => {
            format!("the server wants more access ({}): sluice mounts connect {name}", scopes(access, "wanted"))
        }
        _ => format!("needed: sluice mounts connect {name}"),
    };
    screen.line(format_args!("{:<10} {said}", "sign-in"))?;
    Ok(())
}

fn scopes(value: &Value, name: &str) -> String {
    let words: Vec<String> = list(value, name).iter().filter_map(Value::as_str).map(escape::escape_line).collect();
    if words.is_empty() { "access without scopes".to_owned() } else { words.join(" ") }
}
