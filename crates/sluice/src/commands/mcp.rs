//! `sluice mcp`: the stdio bridge, for clients that start MCP servers as programs.
//!
//! Takes JSON-RPC messages on standard input, one per line; gives the gateway's answers on standard output. Promise:
//! nothing else is written there; the key comes from a variable or a private file and goes to the gateway only; the
//! bridge reconnects when the gateway comes back; a call that may have arrived is never sent twice. A request that the
//! client cancels is closed and not answered; what the gateway has accepted by then stays accepted.

mod relay;
mod wire;

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;

use clap::Args;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::relay::{McpBridgeEnd, McpMessageKind, McpRelay};
use crate::client::{ClientCredentialKind, GatewayArgs};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Most messages in progress at once.
const UNDER_WAY: usize = 64;
/// Longest message, in bytes.
const LONGEST: usize = 64 << 20;

/// Run an MCP server on stdin and stdout, for clients that start programs.
///
/// The key comes from SLUICE_AGENT_KEY or the file in SLUICE_AGENT_KEY_FILE, the address from SLUICE_URL or the
/// configuration. Exit code 10 if the gateway does not accept the key.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  SLUICE_AGENT_KEY_FILE=data/agents/assistant.key sluice mcp\n  sluice setup claude-desktop --key-file data/agents/assistant.key"
)]
pub(crate) struct McpCommand {
    #[command(flatten)]
    reach: GatewayArgs,
}

impl McpCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let (runtime, wire) = self.reach.open_client(ClientCredentialKind::Agent)?.into_wire();
        let (lines, heard) = mpsc::channel(UNDER_WAY);
        // A thread of its own: standard input cannot be polled together with other sources.
        std::thread::spawn(move || listen(&lines));
        let relay = Arc::new(McpRelay::new(wire, Box::new(say)));
        let ended = runtime.block_on(serve(&relay, heard));
        runtime.shutdown_background();
        match ended {
            McpBridgeEnd::Closed => Ok(CommandExit::Ok),
            McpBridgeEnd::Refused(why) => {
                screen.note(format_args!("the gateway does not accept the key: {why}"));
                Ok(CommandExit::CredentialRefused)
            }
        }
    }
}

/// Reads messages until there are no more.
fn listen(lines: &mpsc::Sender<String>) {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match std::io::Read::take(&mut input, LONGEST as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if !line.is_empty() && lines.blocking_send(line).is_err() {
            return;
        }
    }
}

/// Writes one message.
fn say(message: &str) -> bool {
    let mut output = std::io::stdout().lock();
    output.write_all(message.as_bytes()).and_then(|()| output.write_all(b"\n")).and_then(|()| output.flush()).is_ok()
}

/// Forwards messages, many at once, until there are no more or the key is refused.
async fn serve(relay: &Arc<McpRelay>, mut heard: mpsc::Receiver<String>) -> McpBridgeEnd {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            line = heard.recv(), if under_way.len() < UNDER_WAY => match line {
                Some(line) => {
                    if let Some(message) = relay.read(&line) {
                        match message.kind {
                            McpMessageKind::Opening => {
                                // Later messages may depend on the answer to the opening one.
                                relay.forward(message).await;
                                let listening = Arc::clone(relay);
                                under_way.spawn(async move { listening.listen().await });
                            }
                            McpMessageKind::Other => {
                                let relay = Arc::clone(relay);
                                under_way.spawn(async move { relay.forward(message).await });
                            }
                        }
                    }
                }
                None => break,
            },
            Some(_) = under_way.join_next(), if !under_way.is_empty() => {}
        }
        if let Some(why) = relay.refused() {
            return McpBridgeEnd::Refused(why);
        }
    }
    relay.finish();
    while under_way.join_next().await.is_some() {}
    relay.end().await;
    relay.refused().map_or(McpBridgeEnd::Closed, McpBridgeEnd::Refused)
}
