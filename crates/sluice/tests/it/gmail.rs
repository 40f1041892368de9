//! A connected mailbox from end to end: a gateway whose time is ours, real workers, and a service that speaks Gmail's
//! API over HTTP in a process of its own, counts every call and fails on command.

mod addressing;
mod attaching;
mod braking;
mod copying;
mod doubting;
mod faulty;
mod forgetting;
mod killed;
mod nodes;
mod refusing;
mod respawning;
mod sealed;
mod sending;
mod signing;
mod test_gateway;
mod undoing;
mod windows;
