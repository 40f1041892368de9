//! One module per noun. A new command needs a variant here and a line in [`run`].

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
pub(crate) mod login;
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

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// The commands of `sluice`.
#[derive(Debug, Subcommand)]
pub(crate) enum SluiceCommand {
    /// Show what Sluicegate does, in a minute, without an account or a network
    Demo(demo::DemoCommand),
    /// Create a folder for a new gateway
    Init(init::InitCommand),
    /// Run the gateway
    Serve(serve::ServeCommand),
    /// Show the state of the gateway
    Status(status::StatusCommand),
    /// Sign in to the dashboard, list and end such sessions
    Login(login::LoginCommand),
    /// List approvals and answer them
    Approvals(approvals::ApprovalsCommand),
    /// List, cancel, extend, send and settle held writes
    Holds(holds::HoldsCommand),
    /// List writes that failed permanently; retry, change or discard them
    Dead(dead::DeadCommand),
    /// List calls, show one, wait for one
    Calls(calls::CallsCommand),
    /// Make a call as an agent
    Call(call::CallCommand),
    /// Connect a service: opens a consent link, then copies the account
    Connect(services::ConnectCommand),
    /// Disconnect a service and print a receipt
    Disconnect(services::DisconnectCommand),
    /// Connect services, show their state, disconnect them
    Services(services::ServicesCommand),
    /// Search the replica of a connected service
    Replica(replica::ReplicaCommand),
    /// Freeze everything, one agent or one service
    Freeze(freeze::FreezeCommand),
    /// Lift a freeze
    Unfreeze(freeze::UnfreezeCommand),
    /// Decide what to do with a database that was restored or changed
    Recover(recover::RecoverCommand),
    /// Create, verify, restore and test backups
    Backup(backup::BackupCommand),
    /// Show the gateways that share one database, and their differences
    Nodes(nodes::NodesCommand),
    /// Show whether the gateway follows the machine's clock, and correct it
    Clock(clock::ClockCommand),
    /// Undo writes that were carried out
    Rollback(rollback::RollbackCommand),
    /// List, add, pause and remove agents
    Agents(agents::AgentsCommand),
    /// List, create, rotate and revoke credentials
    Keys(keys::KeysCommand),
    /// List, set, rotate and revoke the secrets that the gateway uses for agents
    Secrets(secrets::SecretsCommand),
    /// Show where the root key comes from, and replace it
    Vault(vault::VaultCommand),
    /// List egress connections, show their usage, reset them
    Egress(egress::EgressCommand),
    /// List and revoke standing approvals
    Allowances(allowances::AllowancesCommand),
    /// List and test the channels that reach people
    Channels(channels::ChannelsCommand),
    /// Check, list and maintain security proxies
    Proxies(proxies::ProxiesCommand),
    /// List what agents can call, check custom capabilities
    Capabilities(capabilities::CapabilitiesCommand),
    /// List, add, test and accept third-party MCP servers behind the gate
    Mounts(mounts::MountsCommand),
    /// List and acknowledge alerts
    Alerts(alerts::AlertsCommand),
    /// List, show and release content that was withheld from agents
    Findings(findings::FindingsCommand),
    /// List sessions of agents, start one, state a task, clear a taint, end one
    Sessions(sessions::SessionsCommand),
    /// Run an MCP server on stdin and stdout, for clients that start programs
    Mcp(mcp::McpCommand),
    /// Configure a client to use the gate
    Setup(setup::SetupCommand),
    /// Answer a coding agent's hook: may it use this tool now
    Hook(hook::HookCommand),
    /// Follow the events of the gateway
    Events(events::EventsCommand),
    /// Check the configuration and this machine
    Doctor(doctor::DoctorCommand),
    /// Show and check the configuration
    Config(config::ConfigCommand),
    /// Check, test, explain and compare policies
    Policy(policy::PolicyCommand),
    /// Show what the content checks find in a text
    Screen(screen::ScreenCommand),
    /// Show the audit log, export it, and verify it offline
    Audit(audit::AuditCommand),
    /// Print ids that begin with a text, for shell completion
    #[command(hide = true)]
    Complete(complete::CompleteIdsCommand),
    /// Print shell completions
    Completions(about::CompletionsCommand),
    /// Print the manual page, or write all pages to a directory
    Man(about::ManCommand),
    /// Show the help of a command, or a manual page
    Help(help::HelpCommand),
    /// Print the version
    Version(about::VersionCommand),
}

/// Runs one command.
pub(crate) fn run(command: SluiceCommand, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    match command {
        SluiceCommand::Demo(demo) => demo.run(screen),
        SluiceCommand::Init(init) => init.run(screen),
        SluiceCommand::Serve(serve) => serve.run(screen),
        SluiceCommand::Status(status) => status.run(screen),
        SluiceCommand::Login(login) => login.run(screen),
        SluiceCommand::Approvals(approvals) => approvals.run(screen),
        SluiceCommand::Holds(holds) => holds.run(screen),
        SluiceCommand::Dead(dead) => dead.run(screen),
        SluiceCommand::Calls(calls) => calls.run(screen),
        SluiceCommand::Call(call) => call.run(screen),
        SluiceCommand::Connect(connect) => connect.run(screen),
        SluiceCommand::Disconnect(disconnect) => disconnect.run(screen),
        SluiceCommand::Services(services) => services.run(screen),
        SluiceCommand::Replica(replica) => replica.run(screen),
        SluiceCommand::Freeze(freeze) => freeze.run(screen),
        SluiceCommand::Unfreeze(unfreeze) => unfreeze.run(screen),
        SluiceCommand::Recover(recover) => recover.run(screen),
        SluiceCommand::Backup(backup) => backup.run(screen),
        SluiceCommand::Clock(clock) => clock.run(screen),
        SluiceCommand::Nodes(nodes) => nodes.run(screen),
        SluiceCommand::Rollback(rollback) => rollback.run(screen),
        SluiceCommand::Agents(agents) => agents.run(screen),
        SluiceCommand::Keys(keys) => keys.run(screen),
        SluiceCommand::Secrets(secrets) => secrets.run(screen),
        SluiceCommand::Vault(vault) => vault.run(screen),
        SluiceCommand::Egress(egress) => egress.run(screen),
        SluiceCommand::Allowances(allowances) => allowances.run(screen),
        SluiceCommand::Channels(channels) => channels.run(screen),
        SluiceCommand::Proxies(proxies) => proxies.run(screen),
        SluiceCommand::Capabilities(capabilities) => capabilities.run(screen),
        SluiceCommand::Mounts(mounts) => mounts.run(screen),
        SluiceCommand::Alerts(alerts) => alerts.run(screen),
        SluiceCommand::Findings(findings) => findings.run(screen),
        SluiceCommand::Sessions(sessions) => sessions.run(screen),
        SluiceCommand::Mcp(mcp) => mcp.run(screen),
        SluiceCommand::Setup(setup) => setup.run(screen),
        SluiceCommand::Hook(hook) => hook.run(screen),
        SluiceCommand::Events(events) => events.run(screen),
        SluiceCommand::Doctor(doctor) => doctor.run(screen),
        SluiceCommand::Config(config) => config.run(screen),
        SluiceCommand::Policy(policy) => policy.run(screen),
        SluiceCommand::Screen(wanted) => wanted.run(screen),
        SluiceCommand::Audit(audit) => audit.run(screen),
        SluiceCommand::Complete(complete) => complete.run(screen),
        SluiceCommand::Completions(completions) => completions.run(screen),
        SluiceCommand::Man(man) => man.run(screen),
        SluiceCommand::Help(help) => help.run(screen),
        SluiceCommand::Version(version) => version.run(screen),
    }
}
