//! The layers of the jail, one file each.

pub(crate) mod descriptors;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod privileges;
pub(crate) mod root;
pub(crate) mod seccomp;
pub(crate) mod signals;
pub(crate) mod third_party;
