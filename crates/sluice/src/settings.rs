//! The configuration as a command finds it: `--config`, `SLUICE_CONFIG`, or `sluice.yaml` where it was started.
//!
//! Promise: the environment is read here and nowhere else.

use std::path::{Path, PathBuf};

use clap::Args;
use sluice_gateway::config::{Around, Config, ConfigErrors, FILE, Flag, Origins};

use crate::commands::policy::counted;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;

/// Which file, for commands that need the configuration.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Configuration file; otherwise $SLUICE_CONFIG, otherwise ./sluice.yaml
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where a configuration is read from, and read from again: file, environment and flags as they were found.
#[derive(Clone)]
pub(crate) struct Layers {
    file: Option<PathBuf>,
    variables: Vec<(String, String)>,
    around: Around,
}

impl Layers {
    /// Reads them.
    pub(crate) fn read(&self) -> Result<(Config, Origins), ConfigErrors> {
        Config::load(self.file.as_deref(), &self.variables, &self.around)
    }
}

/// A configuration that was read, or why not.
pub(crate) struct Settings {
    /// The file that was found.
    pub(crate) file: Option<PathBuf>,
    pub(crate) loaded: Result<(Config, Origins), ConfigErrors>,
}

impl Which {
    /// The file, if there is one. A file that was named must exist.
    pub(crate) fn file(&self) -> Result<Option<PathBuf>, Failure> {
        let variable = || std::env::var_os("SLUICE_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        let Some(named) = self.config.clone().or_else(variable) else {
            return Ok(Some(PathBuf::from(FILE)).filter(|file| file.exists()));
        };
        if named.exists() {
            return Ok(Some(named));
        }
        Err(Failure::new(Exit::NotFound, format!("there is no configuration at `{}`", named.display()))
            .hint("make one: sluice init"))
    }

    /// Finds the layers of the configuration; `flags` are what the command line says about single keys.
    pub(crate) fn layers(&self, flags: Vec<Flag>) -> Result<Layers, Failure> {
        let file = self.file()?;
        let here = std::env::current_dir()
            .map_err(|error| Failure::new(Exit::Failed, "this folder cannot be used").why(io_words(&error)))?;
        let around = Around { here, host: host_name(), flags };
        Ok(Layers { file, variables: variables()?, around })
    }

    /// Reads the configuration.
    pub(crate) fn load(&self, flags: Vec<Flag>) -> Result<Settings, Failure> {
        Ok(self.layers(flags)?.into())
    }
}

impl From<Layers> for Settings {
    fn from(layers: Layers) -> Self {
        let loaded = layers.read();
        Self { file: layers.file, loaded }
    }
}

impl Settings {
    /// The configuration, for a command that needs a good one; problems are printed.
    pub(crate) fn or_fail(self, screen: &Screen) -> Result<(Config, Origins), Failure> {
        let file = self.name();
        self.loaded.map_err(|errors| {
            errors.faults.iter().for_each(|fault| screen.fault(fault));
            Failure::new(Exit::Failed, format!("{} in `{file}`", counted(errors.faults.len(), "error")))
        })
    }

    /// How messages call the file.
    pub(crate) fn name(&self) -> String {
        self.file.as_deref().unwrap_or(Path::new(FILE)).display().to_string()
    }
}

/// Our variables. One that is no text is refused: what it means would be a guess.
fn variables() -> Result<Vec<(String, String)>, Failure> {
    let ours = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let system = ["CREDENTIALS_DIRECTORY", "XDG_STATE_HOME", "HOME"];
    let ours = ours.filter(|(name, _)| name.starts_with("SLUICE_") || system.contains(&name.as_str()));
    let read = ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(Failure::new(Exit::Failed, format!("the variable `{}` is not UTF-8 text", name.escape_debug()))),
    });
    read.collect()
}

/// One of our variables; an empty one counts as not set.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    let found = std::env::var_os(name).filter(|value| !value.is_empty());
    let text = |value: std::ffi::OsString| {
        value.into_string().map_err(|_| Failure::new(Exit::Failed, format!("the variable `{name}` is not UTF-8 text")))
    };
    found.map(text).transpose()
}

/// The name of this host.
pub(crate) fn host_name() -> Option<String> {
    let places = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let names = places.iter().filter_map(|place| std::fs::read_to_string(place).ok());
    names.map(|name| name.trim().to_owned()).find(|name| !name.is_empty())
}
