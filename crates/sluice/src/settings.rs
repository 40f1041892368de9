//! The configuration as a command finds it: `--config`, `SLUICE_CONFIG`, `sluice.yaml` in this folder or one above it,
//! or the user's own (`~/.config/sluice/sluice.yaml`).
//!
//! Promise: the environment is read here and nowhere else. A file that nobody named is used only if it belongs to this
//! user or to root, so that a file left in a shared folder cannot redirect a command.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_gateway::config::{Around, Config, ConfigErrors, FILE, Flag, Origins};

use crate::commands::policy::counted;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;

/// Which file, for commands that need the configuration.
#[derive(Debug, Default, Args)]
pub(crate) struct Which {
    /// Configuration file; otherwise $SLUICE_CONFIG, sluice.yaml here or in a folder above, or the user's own
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
    /// Whether nobody has said where this gateway is: no file was found, and neither a flag nor a variable names its
    /// data folder.
    pub(crate) fn is_unfounded(&self) -> bool {
        let flagged = self.around.flags.iter().any(|flag| flag.key == "data");
        self.file.is_none() && !flagged && !self.variables.iter().any(|(name, _)| name == "SLUICE_DATA")
    }

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
        let Some(named) = self.config.clone().or_else(variable) else { return find_unnamed() };
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

/// The configuration that applies where nobody named one: of this folder, of the nearest folder above, of the user.
fn find_unnamed() -> Result<Option<PathBuf>, Failure> {
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

/// Where the user's own configuration is, whether it exists or not: `sluice init` makes it a link to the first gateway.
pub(crate) fn user_config_file() -> Result<Option<PathBuf>, Failure> {
    let folder = match (variable("XDG_CONFIG_HOME")?, variable("HOME")?) {
        (Some(config), _) => PathBuf::from(config),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => return Ok(None),
    };
    Ok(folder.is_absolute().then(|| folder.join("sluice").join(FILE)))
}

/// SECURITY: the configuration says where operators' tokens are read and sent. One that another user wrote is not used
/// unless somebody names it.
fn check_owner(file: &Path) -> Result<(), Failure> {
    let refuse = |why: String| {
        Err(Failure::new(Exit::Failed, format!("`{}` is not used", file.display()))
            .why(why)
            .hint(format!("if you trust it, name it: --config {}", file.display())))
    };
    let about = match std::fs::metadata(file) {
        Ok(about) => about,
        Err(error) => return refuse(io_words(&error)),
    };
    let user = rustix::process::geteuid().as_raw();
    if about.uid() != user && about.uid() != 0 {
        return refuse("it was found in a folder above this one and belongs to another user".to_owned());
    }
    if about.mode() & 0o002 != 0 {
        return refuse("it was found in a folder above this one and every user can change it".to_owned());
    }
    Ok(())
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
