//! Nodes: several gateways on one database, what each reports, whether it is alive, and where they differ.
//!
//! Takes what the nodes reported and how long this machine has been running; gives who is alive, what differs and for
//! how long, and which services no node has. Promise: no clock that a person can set decides whether a node is alive or
//! a difference lasts: the node that looks counts by the uptime of its own machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clock::{Millis, UtcMillis};
use crate::ids::{NodeName, ServiceName};

/// How long a node may be silent before it counts as gone.
pub const GONE_AFTER: Millis = Millis::from_mins(1);
/// How long nodes may differ before people are notified.
pub const DIFFERS_AFTER: Millis = Millis::from_mins(1);
/// How long no live node may have a service before its writes no longer wait for one.
pub const LACKING_AFTER: Millis = Millis::from_mins(1);

/// The origin of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// The gateway carries it out itself.
    BuiltIn,
    /// A person connected it.
    Connected,
    /// A third-party server behind the gate.
    Mounted,
    /// Declared in a file of `capabilities/`.
    Custom,
    /// A security proxy.
    Proxy,
    /// A kind that only a newer release knows.
    #[serde(other)]
    Other,
}

impl ServiceKind {
    /// Its name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Connected => "connected",
            Self::Mounted => "mounted",
            Self::Custom => "custom",
            Self::Proxy => "proxy",
            Self::Other => "other",
        }
    }
}

/// A service of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeService {
    /// Its name.
    pub name: ServiceName,
    /// Its origin.
    pub kind: ServiceKind,
    /// Whether the node can carry out its writes now.
    pub ready: bool,
}

/// The phase in the lifetime of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    /// It handles what an earlier run left open.
    Starting,
    /// It accepts calls.
    Open,
    /// It accepts nothing new, or has ended.
    Stopping,
    /// A phase that only a newer release knows. No work is left to such a node.
    Unknown,
}

impl NodePhase {
    /// Every phase that this release writes.
    pub const ALL: [Self; 3] = [Self::Starting, Self::Open, Self::Stopping];

    /// Its name in the database and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Open => "open",
            Self::Stopping => "stopping",
            Self::Unknown => "unknown",
        }
    }
}

/// What a node reports about itself. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Its release.
    pub release: String,
    /// Its phase.
    pub phase: NodePhase,
    /// The version of the rules in force there.
    pub policy_version: String,
    /// The services behind the gate there, by name.
    pub services: Vec<NodeService>,
    /// The public keys that verify the logs it signs.
    pub log_keys: Vec<(NodeName, String)>,
}

/// A node as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Its name.
    pub name: NodeName,
    /// Its last report.
    pub report: NodeReport,
    /// When it was started.
    pub started_at: UtcMillis,
    /// When it last wrote to the database.
    pub alive_at: UtcMillis,
    /// Since when it does not trust the database.
    pub suspected_at: Option<UtcMillis>,
}

/// The state of a node, seen from the node that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLiveness {
    /// How long ago it was seen.
    pub lag: Millis,
    /// Whether it was seen recently enough to count.
    pub is_live: bool,
}

/// What nodes can differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeDifferenceKind {
    /// The release.
    Release,
    /// The rules in force.
    Policy,
    /// The services behind the gate.
    Services,
}

impl NodeDifferenceKind {
    /// Its name in the database and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Policy => "policy",
            Self::Services => "services",
        }
    }
}

/// A difference between live nodes, in words that name the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDifference {
    /// What differs.
    pub kind: NodeDifferenceKind,
    /// The value of each node.
    pub text: String,
}

/// One node's view of all of them, over time.
#[derive(Debug, Default)]
pub struct NodeWatch {
    seen: BTreeMap<NodeName, NodeSighting>,
    differing: BTreeMap<NodeDifferenceKind, Millis>,
    lacking: BTreeMap<ServiceName, Millis>,
    /// Services that a live node other than this one can carry out now.
    elsewhere: BTreeSet<ServiceName>,
}

#[derive(Debug, Clone, Copy)]
struct NodeSighting {
    alive_at: UtcMillis,
    /// The uptime of this machine when that was first read.
    at: Millis,
    /// How far behind it was by then.
    behind: Millis,
}

impl NodeWatch {
    /// Looks at all nodes at this uptime of the machine. Gives the state of each, in their order.
    pub fn observe_nodes(&mut self, own: &NodeName, nodes: &[KnownNode], boot: Millis) -> Vec<NodeLiveness> {
        // Both times are the database's, so their difference is correct whatever the clocks of the machines show.
        let now = nodes.iter().find(|node| node.name == *own).map(|node| node.alive_at);
        self.seen.retain(|name, _| nodes.iter().any(|node| node.name == *name));
        nodes
            .iter()
            .map(|node| {
                let behind = now.map_or(Millis::ZERO, |now| now.since(node.alive_at));
                let fresh = NodeSighting { alive_at: node.alive_at, at: boot, behind };
                let seen = self.seen.entry(node.name.clone()).or_insert(fresh);
                if seen.alive_at != node.alive_at {
                    *seen = NodeSighting { behind: Millis::ZERO, ..fresh };
                }
                let lag = if node.name == *own { Millis::ZERO } else { seen.behind + passed(boot, seen.at) };
                NodeLiveness { lag, is_live: lag <= GONE_AFTER && node.report.phase != NodePhase::Stopping }
            })
            .collect()
    }

    /// The lasting differences among live nodes, of which people are notified. Empty while something differs for a
    /// shorter time only, `None` if nothing differs at all.
    pub fn track_lasting_differences(
        &mut self,
        differences: &[NodeDifference],
        boot: Millis,
    ) -> Option<Vec<NodeDifference>> {
        self.differing.retain(|kind, _| differences.iter().any(|one| one.kind == *kind));
        for one in differences {
            self.differing.entry(one.kind).or_insert(boot);
        }
        let lasts = |one: &&NodeDifference| {
            self.differing.get(&one.kind).is_some_and(|since| passed(boot, *since) > DIFFERS_AFTER)
        };
        (!differences.is_empty()).then(|| differences.iter().filter(lasts).cloned().collect())
    }

    /// Notes which services other live nodes can carry out now.
    pub fn note_services(&mut self, own: &NodeName, live: &[&KnownNode]) {
        let others = live.iter().filter(|node| node.name != *own && node.report.phase == NodePhase::Open);
        let ready = others.flat_map(|node| &node.report.services).filter(|service| service.ready);
        self.elsewhere = ready.map(|service| service.name.clone()).collect();
        self.lacking.retain(|name, _| !self.elsewhere.contains(name));
    }

    /// Whether a due write of a service that this node does not have waits for another node: one has it, or none has
    /// had it for a short time only.
    pub fn track_missing_service(&mut self, service: &ServiceName, boot: Millis) -> bool {
        if self.elsewhere.contains(service) {
            return true;
        }
        let since = *self.lacking.entry(service.clone()).or_insert(boot);
        passed(boot, since) <= LACKING_AFTER
    }

    /// Notes that this node has the service now.
    pub fn clear_missing_service(&mut self, service: &ServiceName) {
        self.lacking.remove(service);
    }
}

fn passed(boot: Millis, since: Millis) -> Millis {
    Millis::from_millis(boot.as_millis().saturating_sub(since.as_millis()))
}

/// The differences between live nodes. The order of the nodes is that of the answer.
#[must_use]
pub fn differences(live: &[&KnownNode]) -> Vec<NodeDifference> {
    let mut found = Vec::new();
    let mut words = |kind, of: fn(&KnownNode) -> &str, what: &str| {
        let all: BTreeSet<&str> = live.iter().map(|node| of(node)).collect();
        if all.len() > 1 {
            let each: Vec<String> = live.iter().map(|node| format!("{} has {}", node.name, of(node))).collect();
            found.push(NodeDifference { kind, text: format!("{what}: {}", each.join(", ")) });
        }
    };
    words(NodeDifferenceKind::Release, |node| &node.report.release, "release");
    words(NodeDifferenceKind::Policy, |node| &node.report.policy_version, "policy version");
    let names: BTreeSet<&ServiceName> =
        live.iter().flat_map(|node| node.report.services.iter().map(|service| &service.name)).collect();
    for name in names {
        let standing = |node: &KnownNode| {
            let service = node.report.services.iter().find(|service| service.name == *name);
            service.map_or("does not have it", |service| if service.ready { "has it" } else { "cannot use it now" })
        };
        let all: BTreeSet<&str> = live.iter().map(|node| standing(node)).collect();
        if all.len() > 1 {
            let each: Vec<String> = live.iter().map(|node| format!("{} {}", node.name, standing(node))).collect();
            let text = format!("service {name}: {}", each.join(", "));
            found.push(NodeDifference { kind: NodeDifferenceKind::Services, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, alive_at: i64) -> KnownNode {
        let report = NodeReport {
            release: "1".into(),
            phase: NodePhase::Open,
            policy_version: "p".into(),
            services: vec![service("email", true)],
            log_keys: Vec::new(),
        };
        let name = NodeName::new(name).unwrap();
        let time = UtcMillis::from_millis(alive_at * 1_000);
        KnownNode { name, report, started_at: time, alive_at: time, suspected_at: None }
    }

    fn service(name: &str, ready: bool) -> NodeService {
        NodeService { name: ServiceName::new(name).unwrap(), kind: ServiceKind::Connected, ready }
    }

    fn at(secs: u64) -> Millis {
        Millis::from_secs(secs)
    }

    #[test]
    fn a_node_is_gone_a_minute_after_it_was_last_seen_by_the_machine_of_whoever_looks() {
        let mut watch = NodeWatch::default();
        let own = NodeName::new("a").unwrap();
        // Already half a minute behind when it is first seen.
        let nodes = [node("a", 130), node("b", 100)];
        let live = |watch: &mut NodeWatch, nodes: &[KnownNode], secs| -> Vec<bool> {
            watch.observe_nodes(&own, nodes, at(secs)).iter().map(|one| one.is_live).collect()
        };
        assert_eq!(
            watch.observe_nodes(&own, &nodes, at(1_000)).iter().map(|one| one.lag).collect::<Vec<_>>(),
            [at(0), at(30)]
        );
        assert_eq!(live(&mut watch, &nodes, 1_030), [true, true]);
        assert_eq!(live(&mut watch, &nodes, 1_031), [true, false]);
        // It wrote again: whatever time that was, it counts as alive for a minute from now on.
        let nodes = [node("a", 131), node("b", 101)];
        assert_eq!(live(&mut watch, &nodes, 1_032), [true, true]);
        assert_eq!(live(&mut watch, &nodes, 1_092), [true, true]);
        assert_eq!(live(&mut watch, &nodes, 1_093), [true, false]);
        let mut stopped = node("b", 102);
        stopped.report.phase = NodePhase::Stopping;
        assert_eq!(live(&mut watch, &[node("a", 131), stopped], 1_094), [true, false]);
    }

    #[test]
    fn every_difference_is_found_and_names_who_has_what() {
        let same = [node("a", 1), node("b", 2)];
        assert_eq!(differences(&[&same[0], &same[1]]), []);
        let mut other = node("b", 1);
        other.report.release = "2".into();
        other.report.policy_version = "q".into();
        other.report.services = vec![service("email", false), service("notes", true)];
        let found = differences(&[&same[0], &other]);
        let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "release: a has 1, b has 2",
                "policy version: a has p, b has q",
                "service email: a has it, b cannot use it now",
                "service notes: a does not have it, b has it",
            ]
        );
        assert_eq!(differences(&[&same[0]]), [], "one node agrees with itself");
    }

    #[test]
    fn only_what_differs_for_more_than_a_minute_lasts() {
        let mut watch = NodeWatch::default();
        let one = |kind| NodeDifference { kind, text: String::new() };
        let release = [one(NodeDifferenceKind::Release)];
        assert_eq!(watch.track_lasting_differences(&[], at(0)), None);
        assert_eq!(watch.track_lasting_differences(&release, at(0)), Some(Vec::new()));
        assert_eq!(watch.track_lasting_differences(&release, at(60)), Some(Vec::new()));
        assert_eq!(watch.track_lasting_differences(&release, at(61)), Some(release.to_vec()));
        // Another kind counts from its own beginning, and a difference that ended starts again.
        let both = [one(NodeDifferenceKind::Release), one(NodeDifferenceKind::Services)];
        assert_eq!(watch.track_lasting_differences(&both, at(62)), Some(release.to_vec()));
        assert_eq!(watch.track_lasting_differences(&[], at(63)), None);
        assert_eq!(watch.track_lasting_differences(&release, at(64)), Some(Vec::new()));
    }

    #[test]
    fn a_write_waits_for_the_node_that_has_its_service_and_a_minute_for_one_that_nobody_has() {
        let mut watch = NodeWatch::default();
        let own = NodeName::new("a").unwrap();
        let (email, notes) = (ServiceName::new("email").unwrap(), ServiceName::new("notes").unwrap());
        let (a, mut b) = (node("a", 1), node("b", 1));
        watch.note_services(&own, &[&a, &b]);
        assert!(watch.track_missing_service(&email, at(0)) && watch.track_missing_service(&email, at(999)));
        assert!(watch.track_missing_service(&notes, at(0)) && watch.track_missing_service(&notes, at(60)));
        assert!(!watch.track_missing_service(&notes, at(61)));
        b.report.services = vec![service("email", false)];
        watch.note_services(&own, &[&a, &b]);
        assert!(watch.track_missing_service(&email, at(1_000)), "the minute begins when it was last there");
        assert!(!watch.track_missing_service(&email, at(1_061)));
    }
}
