//! Finds the configuration for a command: `--config`, `SLUICE_CONFIG`, `sluice.yaml` in this folder or a parent folder,
//! or the user's own (`~/.config/sluice/sluice.yaml`).
//!
//! Promise: the environment is read here and nowhere else. A file that was not given explicitly is used only if it
//! belongs to this user or to root, so that a file in a shared folder cannot redirect a command.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_config::{CommandLineFlag, Config, ConfigContext, ConfigErrors, ConfigOrigins, FILE};

use crate::commands::policy::counted;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Options that select the configuration file.
#[derive(Debug, Default, Args)]
pub(crate) struct ConfigFileArgs {
    /// Configuration file; default: $SLUICE_CONFIG, sluice.yaml in this folder or a parent folder, or the user's own
    #[arg(long, global = true, value_name = "FILE", help_heading = crate::GLOBAL_OPTIONS)]
    config: Option<PathBuf>,
}

/// The sources of a configuration, so that it can be read again: file, environment and flags.
#[derive(Clone)]
pub(crate) struct ConfigLayers {
    file: Option<PathBuf>,
    variables: Vec<(String, String)>,
    around: ConfigContext,
}

impl ConfigLayers {
    /// Whether the gateway's location is unknown: no file was found, and neither a flag nor a variable gives its
    /// data folder.
    pub(crate) fn is_unconfigured(&self) -> bool {
        let flagged = self.around.flags.iter().any(|flag| flag.key == "data");
        self.file.is_none() && !flagged && !self.variables.iter().any(|(name, _)| name == "SLUICE_DATA")
    }

    /// Reads the configuration.
    pub(crate) fn read(&self) -> Result<(Config, ConfigOrigins), ConfigErrors> {
        Config::load(self.file.as_deref(), &self.variables, &self.around)
    }
}

/// A configuration that was read, or its errors.
pub(crate) struct LoadedSettings {
    /// The file that was found.
    pub(crate) file: Option<PathBuf>,
    pub(crate) loaded: Result<(Config, ConfigOrigins), ConfigErrors>,
}

impl ConfigFileArgs {
    /// The file, if there is one. A file that was given explicitly must exist.
    pub(crate) fn file(&self) -> Result<Option<PathBuf>, CliError> {
        let variable = || std::env::var_os("SLUICE_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        let Some(named) = self.config.clone().or_else(variable) else { return find_unnamed() };
        if named.exists() {
            return Ok(Some(named));
        }
        Err(CliError::new(CommandExit::NotFound, format!("no configuration at `{}`", named.display()))
            .hint("create one: sluice init"))
    }

    /// Finds the sources of the configuration; `flags` are the values from the command line.
    pub(crate) fn layers(&self, flags: Vec<CommandLineFlag>) -> Result<ConfigLayers, CliError> {
        let file = self.file()?;
        let here = std::env::current_dir().map_err(|error| {
            CliError::new(CommandExit::Failed, "this folder cannot be used").why(describe_io_error(&error))
        })?;
        let around = ConfigContext { here, host: host_name(), flags };
        Ok(ConfigLayers { file, variables: variables()?, around })
    }

    /// Reads the configuration.
    pub(crate) fn load(&self, flags: Vec<CommandLineFlag>) -> Result<LoadedSettings, CliError> {
        Ok(self.layers(flags)?.into())
    }
}

impl From<ConfigLayers> for LoadedSettings {
    fn from(layers: ConfigLayers) -> Self {
        let loaded = layers.read();
        Self { file: layers.file, loaded }
    }
}

impl LoadedSettings {
    /// The configuration, for a command that needs a valid one; problems are printed.
    pub(crate) fn or_fail(self, screen: &CommandConsole) -> Result<(Config, ConfigOrigins), CliError> {
        let file = self.name();
        self.loaded.map_err(|errors| {
            errors.faults.iter().for_each(|fault| screen.fault(fault));
            CliError::new(CommandExit::Failed, format!("{} in `{file}`", counted(errors.faults.len(), "error")))
        })
    }

    /// The name of the file in messages.
    pub(crate) fn name(&self) -> String {
        self.file.as_deref().unwrap_or(Path::new(FILE)).display().to_string()
    }
}

/// The configuration if none was given: in this folder, in the nearest parent folder, of the user.
fn find_unnamed() -> Result<Option<PathBuf>, CliError> {
    let here = PathBuf::from(FILE);
    if here.exists() {
        return Ok(Some(here));
    }
    let folder = std::env::current_dir().ok();
    let above = folder.iter().flat_map(|folder| folder.ancestors().skip(1)).map(|folder| folder.join(FILE));
    if let Some(found) = above.into_iter().find(|file| file.is_file()) {
        return check_owner(&found).map(|()| Some(found));
    }
    let Some(own) = user_config_file()?.and_then(|file| file.canonicalize().ok()) else { return Ok(None) };
    check_owner(&own).map(|()| Some(own))
}

/// The path of the user's own configuration, even if it does not exist: `sluice init` links it to the first gateway.
pub(crate) fn user_config_file() -> Result<Option<PathBuf>, CliError> {
    let folder = match (variable("XDG_CONFIG_HOME")?, variable("HOME")?) {
        (Some(config), _) => PathBuf::from(config),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => return Ok(None),
    };
    Ok(folder.is_absolute().then(|| folder.join("sluice").join(FILE)))
}

/// SECURITY: the configuration says where operator tokens are read from and sent to. A file that another user wrote is
/// not used unless it is given explicitly.
fn check_owner(file: &Path) -> Result<(), CliError> {
    let refuse = |why: String| {
        Err(CliError::new(CommandExit::Failed, format!("`{}` is not used", file.display()))
            .why(why)
            .hint(format!("if you trust it, give it explicitly: --config {}", file.display())))
    };
    let about = match std::fs::metadata(file) {
        Ok(about) => about,
        Err(error) => return refuse(describe_io_error(&error)),
    };
    let user = rustix::process::geteuid().as_raw();
    if about.uid() != user && about.uid() != 0 {
        return refuse("it was found in a parent folder and belongs to another user".to_owned());
    }
    if about.mode() & 0o002 != 0 {
        return refuse("it was found in a parent folder and every user can change it".to_owned());
    }
    Ok(())
}

/// Our environment variables. A value that is not text is refused, because its meaning would be a guess.
fn variables() -> Result<Vec<(String, String)>, CliError> {
    let ours = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let system = ["CREDENTIALS_DIRECTORY", "XDG_STATE_HOME", "HOME"];
    let ours = ours.filter(|(name, _)| name.starts_with("SLUICE_") || system.contains(&name.as_str()));
    let read = ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => {
            Err(CliError::new(CommandExit::Failed, format!("the variable `{}` is not UTF-8 text", name.escape_debug())))
        }
    });
    read.collect()
}

/// One of our environment variables; an empty value counts as not set.
pub(crate) fn variable(name: &str) -> Result<Option<String>, CliError> {
    let found = std::env::var_os(name).filter(|value| !value.is_empty());
    let text = |value: std::ffi::OsString| {
        value
            .into_string()
            .map_err(|_| CliError::new(CommandExit::Failed, format!("the variable `{name}` is not UTF-8 text")))
    };
    found.map(text).transpose()
}

/// The name of this host.
pub(crate) fn host_name() -> Option<String> {
    let places = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let names = places.iter().filter_map(|place| std::fs::read_to_string(place).ok());
    names.map(|name| name.trim().to_owned()).find(|name| !name.is_empty())
}
