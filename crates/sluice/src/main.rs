//! The command line of Sluicegate.

fn main() {}
