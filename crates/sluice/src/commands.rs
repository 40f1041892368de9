//! One module per noun. A new command is a variant here and a line in [`run`].

pub(crate) mod about;
pub(crate) mod agents;
pub(crate) mod alerts;
pub(crate) mod allowances;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod capabilities;
pub(crate) mod channels;
pub(crate) mod clock;
pub(crate) mod complete;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod egress;
pub(crate) mod events;
pub(crate) mod findings;
pub(crate) mod freeze;
pub(crate) mod help;
pub(crate) mod holds;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod mounts;
pub(crate) mod nodes;
pub(crate) mod policy;
pub(crate) mod proxies;
pub(crate) mod recover;
mod replica;
pub(crate) mod rollback;
pub(crate) mod screen;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod status;
pub(crate) mod vault;

use clap::Subcommand;

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// What `sluice` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See what Sluicegate does, in a minute, without an account or a network
    Demo(demo::Demo),
    /// Make a folder a gateway can start in
    Init(init::Init),
    /// Run the gateway
    Serve(serve::Serve),
    /// Show how the gateway is
    Status(status::Status),
    /// See questions and answer them
    Approvals(approvals::Approvals),
    /// List, stop, extend, send and settle held writes
    Holds(holds::Holds),
    /// List writes that ended without their effect; try, change or give them up
    Dead(dead::Dead),
    /// List calls, show one, wait for one
    Calls(calls::Calls),
    /// Make a call as an agent
    Call(call::Call),
    /// Connect a service: a link to say yes at, then its copy begins
    Connect(services::Connect),
    /// End a connection and print what is left of it
    Disconnect(services::Disconnect),
    /// Connect services, see how they are, end them
    Services(services::Services),
    /// Look into the copy of a connected service
    Replica(replica::Replica),
    /// Stop everything, one agent or one service
    Freeze(freeze::Freeze),
    /// Let go again what was frozen
    Unfreeze(freeze::Unfreeze),
    /// Say what became of a database that was restored or changed
    Recover(recover::Recover),
    /// Make, check, restore and practise backups
    Backup(backup::Backup),
    /// Show the gateways that share one database, and where they differ
    Nodes(nodes::Nodes),
    /// Show whether the clock is followed, and set it right
    Clock(clock::Clock),
    /// Take back writes that were done
    Rollback(rollback::Rollback),
    /// List, add, pause and remove agents
    Agents(agents::Agents),
    /// List, make, replace and revoke credentials
    Keys(keys::Keys),
    /// List, set, replace and revoke secrets the gateway uses for agents
    Secrets(secrets::Secrets),
    /// Show where the root key comes from, and replace it
    Vault(vault::Vault),
    /// List ways out, see what they have used, start over
    Egress(egress::Egress),
    /// List standing approvals and take them back
    Allowances(allowances::Allowances),
    /// List the channels to people and test them
    Channels(channels::Channels),
    /// Check, list and look after security proxies
    Proxies(proxies::Proxies),
    /// List what agents can ask, check custom capabilities
    Capabilities(capabilities::Capabilities),
    /// List, add, test and accept servers of others behind the gate
    Mounts(mounts::Mounts),
    /// List and acknowledge alerts
    Alerts(alerts::Alerts),
    /// List, show and release what was kept from agents
    Findings(findings::Findings),
    /// List sessions of agents, open one, state a task, lift a taint, end one
    Sessions(sessions::Sessions),
    /// Speak MCP on standard input and output, for clients that start programs
    Mcp(mcp::Mcp),
    /// Put the gate into a client's configuration
    Setup(setup::Setup),
    /// Answer a coding agent's hook: may it use this tool now
    Hook(hook::Hook),
    /// Follow what happens
    Events(events::Events),
    /// Check the configuration and this machine
    Doctor(doctor::Doctor),
    /// Show and check the configuration
    Config(config::Config),
    /// Check, test, explain and compare the rules agents live by
    Policy(policy::Policy),
    /// Show what the content stages say about a text
    Screen(screen::Screen),
    /// Show the record, export it, and verify it with nothing but files
    Audit(audit::Audit),
    /// Print ids that start like this, for completions
    #[command(hide = true)]
    Complete(complete::Complete),
    /// Print completions for a shell
    Completions(about::Completions),
    /// Print the manual page, or write all pages to a directory
    Man(about::Man),
    /// Explain a command, or a thing that matters
    Help(help::Help),
    /// Print the version
    Version(about::Version),
}

/// Runs one command.
pub(crate) fn run(command: Command, screen: &Screen) -> Result<Exit, Failure> {
    match command {
        Command::Demo(demo) => demo.run(screen),
        Command::Init(init) => init.run(screen),
        Command::Serve(serve) => serve.run(screen),
        Command::Status(status) => status.run(screen),
        Command::Approvals(approvals) => approvals.run(screen),
        Command::Holds(holds) => holds.run(screen),
        Command::Dead(dead) => dead.run(screen),
        Command::Calls(calls) => calls.run(screen),
        Command::Call(call) => call.run(screen),
        Command::Connect(connect) => connect.run(screen),
        Command::Disconnect(disconnect) => disconnect.run(screen),
        Command::Services(services) => services.run(screen),
        Command::Replica(replica) => replica.run(screen),
        Command::Freeze(freeze) => freeze.run(screen),
        Command::Unfreeze(unfreeze) => unfreeze.run(screen),
        Command::Recover(recover) => recover.run(screen),
        Command::Backup(backup) => backup.run(screen),
        Command::Clock(clock) => clock.run(screen),
        Command::Nodes(nodes) => nodes.run(screen),
        Command::Rollback(rollback) => rollback.run(screen),
        Command::Agents(agents) => agents.run(screen),
        Command::Keys(keys) => keys.run(screen),
        Command::Secrets(secrets) => secrets.run(screen),
        Command::Vault(vault) => vault.run(screen),
        Command::Egress(egress) => egress.run(screen),
        Command::Allowances(allowances) => allowances.run(screen),
        Command::Channels(channels) => channels.run(screen),
        Command::Proxies(proxies) => proxies.run(screen),
        Command::Capabilities(capabilities) => capabilities.run(screen),
        Command::Mounts(mounts) => mounts.run(screen),
        Command::Alerts(alerts) => alerts.run(screen),
        Command::Findings(findings) => findings.run(screen),
        Command::Sessions(sessions) => sessions.run(screen),
        Command::Mcp(mcp) => mcp.run(screen),
        Command::Setup(setup) => setup.run(screen),
        Command::Hook(hook) => hook.run(screen),
        Command::Events(events) => events.run(screen),
        Command::Doctor(doctor) => doctor.run(screen),
        Command::Config(config) => config.run(screen),
        Command::Policy(policy) => policy.run(screen),
        Command::Screen(wanted) => wanted.run(screen),
        Command::Audit(audit) => audit.run(screen),
        Command::Complete(complete) => complete.run(screen),
        Command::Completions(completions) => completions.run(screen),
        Command::Man(man) => man.run(screen),
        Command::Help(help) => help.run(screen),
        Command::Version(version) => version.run(screen),
    }
}
