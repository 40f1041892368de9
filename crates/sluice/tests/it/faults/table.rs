//! What came of the writes of a scenario, for each class of effect, and whether that is as promised.
//!
//! Takes what the agents were told and what the oracles counted; gives a table. Promise: a write counts as lost, doubled or
//! sent after its cancel by what happened, never by what the gateway says of itself.

use std::collections::BTreeMap;
use std::fmt;

/// What is known about one write at the end.
#[derive(Debug, Clone)]
pub struct ScenarioWrite {
    #[expect(dead_code, reason = "shown when a write did not end as promised")]
    pub mark: String,
    pub class: &'static str,
    /// What the gateway says of it; `unknown` if it does not know it.
    pub status: String,
    /// Whether a cancel was acknowledged.
    pub is_cancelled: bool,
    /// How often it happened.
    pub times: usize,
    /// Whether nobody could know if it happened: its request came in, or whoever sent it was interrupted.
    pub is_doubtful: bool,
}

#[derive(Debug, Default, Clone)]
struct ScenarioClassCounts {
    acknowledged: usize,
    executed: usize,
    lost: usize,
    doubled: usize,
    after_cancel: usize,
    asked: usize,
    without_doubt: usize,
    open: usize,
    /// How many ended as what, by the gateway's word.
    said: BTreeMap<String, usize>,
}

/// One row for each class.
#[derive(Debug)]
pub struct ScenarioReport {
    scenario: String,
    rows: BTreeMap<&'static str, ScenarioClassCounts>,
    wrong: Vec<String>,
}

/// Of so many acknowledged writes, one may be asked about without a real doubt; one in any case.
const ASKED_OF: usize = 200;

impl ScenarioReport {
    pub fn new(scenario: &str, outcomes: &[ScenarioWrite]) -> Self {
        let mut table = Self { scenario: scenario.to_owned(), rows: BTreeMap::new(), wrong: Vec::new() };
        outcomes.iter().for_each(|one| table.add(one));
        table
    }

    fn add(&mut self, one: &ScenarioWrite) {
        let row = self.rows.entry(one.class).or_default();
        row.acknowledged += 1;
        *row.said.entry(one.status.clone()).or_default() += 1;
        row.executed += usize::from(one.times > 0);
        let status = one.status.as_str();
        let is_lost = match status {
            "done" => one.times == 0,
            "unknown" => true,
            _ => false,
        };
        let is_late = (one.is_cancelled || status == "cancelled") && one.times > 0;
        let is_asked = ["needs_human", "needs_attention", "stale"].contains(&status);
        row.lost += usize::from(is_lost);
        row.doubled += usize::from(one.times > 1);
        row.after_cancel += usize::from(is_late);
        row.asked += usize::from(is_asked);
        row.without_doubt += usize::from(is_asked && !one.is_doubtful);
        row.open += usize::from(["held", "executing", "retrying", "in_doubt", "pending"].contains(&status));
        if is_lost || is_late || one.times > 1 || (is_asked && !one.is_doubtful) {
            self.wrong.push(format!("{one:?}"));
        }
    }

    fn sum(&self, of: impl Fn(&ScenarioClassCounts) -> usize) -> usize {
        self.rows.values().map(of).sum()
    }

    /// Writes that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.sum(|row| row.acknowledged)
    }

    /// Writes that happened.
    pub fn executed(&self) -> usize {
        self.sum(|row| row.executed)
    }

    /// Writes that were acknowledged as done and did not happen, or that the gateway no longer knows.
    pub fn lost(&self) -> usize {
        self.sum(|row| row.lost)
    }

    /// Fails when something happened twice or after its cancel: this holds whatever was done to the gateway.
    pub fn assert_nothing_happened_twice(&self) {
        self.repeated().unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    /// Fails unless the goals are met: nothing lost, doubled or sent after its cancel, people asked only about real doubts.
    pub fn assert_as_promised(&self) {
        self.judged().unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    fn repeated(&self) -> Result<(), String> {
        let is_well = self.sum(|row| row.doubled + row.after_cancel) == 0;
        if is_well { Ok(()) } else { Err(format!("{self}\n{:#?}", self.wrong)) }
    }

    fn judged(&self) -> Result<(), String> {
        self.repeated()?;
        let allowed = self.acknowledged().div_ceil(ASKED_OF);
        let is_well = self.lost() == 0 && self.sum(|row| row.without_doubt) <= allowed;
        // Nothing that happened proves nothing.
        if is_well && self.executed() > 0 { Ok(()) } else { Err(format!("{self}\n{:#?}", self.wrong)) }
    }
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "faults | scenario | class | acknowledged | executed | lost | doubled | after cancel | asked | without doubt | open | the gateway says"
        )?;
        for (class, row) in &self.rows {
            let ScenarioClassCounts {
                acknowledged,
                executed,
                lost,
                doubled,
                after_cancel,
                asked,
                without_doubt,
                open,
                said,
            } = row;
            let scenario = &self.scenario;
            writeln!(
                f,
                "faults | {scenario} | {class} | {acknowledged} | {executed} | {lost} | {doubled} | {after_cancel} | {asked} | {without_doubt} | {open} | {}",
                said.iter().map(|(status, count)| format!("{status} {count}")).collect::<Vec<_>>().join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: &str, times: usize) -> ScenarioWrite {
        ScenarioWrite {
            mark: "m".into(),
            class: "opaque",
            status: status.into(),
            is_cancelled: false,
            times,
            is_doubtful: false,
        }
    }

    /// Whether the goals are met beside one write that is well.
    fn is_good(one: ScenarioWrite) -> bool {
        ScenarioReport::new("planted", &[outcome("done", 1), one]).judged().is_ok()
    }

    #[test]
    fn what_was_lost_doubled_or_sent_after_its_cancel_is_seen() {
        assert!(is_good(outcome("done", 1)) && is_good(outcome("dead", 0)) && is_good(outcome("in_doubt", 1)));
        assert!(!is_good(outcome("done", 0)), "lost");
        assert!(!is_good(outcome("unknown", 0)), "forgotten");
        assert!(!is_good(outcome("in_doubt", 2)), "doubled");
        assert!(!is_good(outcome("cancelled", 1)), "sent after its cancel");
        assert!(
            !is_good(ScenarioWrite { is_cancelled: true, ..outcome("done", 1) }),
            "sent although a cancel was acknowledged"
        );
    }

    #[test]
    fn people_are_asked_without_doubt_once_in_two_hundred_at_most() {
        let asked = vec![outcome("needs_human", 0); 2];
        let mut all = vec![outcome("done", 1); 100];
        all.extend(asked.clone());
        assert!(ScenarioReport::new("planted", &all).judged().is_err());
        all.extend(vec![outcome("done", 1); 200]);
        ScenarioReport::new("planted", &all).assert_as_promised();
    }
}
