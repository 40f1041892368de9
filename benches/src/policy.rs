//! Policy decisions: ours at 10 to 10,000 rules, compared with one lookup in a hash table, and with Cedar.

mod cedar;
mod rules;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use rules::{BenchRules, PolicyQuestion, RuleDistribution};
use sluice_core::Tier;
use sluice_core::policy::{Policy, PolicyInput};

use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, MedianRange, RunTimes, median, timed_here};

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
const ROUNDS: usize = 7;
/// How often all queries are made in one round.
const PASSES: u64 = 8;
/// Queries for Cedar in one round: a decision takes it a millisecond.
const FOR_CEDAR: usize = 48;

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let questions = rules::questions()?;
    let mut rows = Vec::new();
    for mode in [RuleDistribution::Spread, RuleDistribution::Concentrated] {
        rows.extend(of_mode(mode, &questions)?);
    }
    let how = format!(
        "`Policy::judge`, processor time of the deciding thread, {} random questions, {ROUNDS} rounds. *spread*: at most 100 rules hold for \
         everybody, the others belong to one of {} agents. *concentrated*: every rule holds for everybody. Patterns are exact names, \
         `service.*` and `*`; about half of the rules have a `path_prefix`.",
        figure(questions.len() as f64),
        figure(rules::AGENTS as f64)
    );
    let notes = vec![
        "The floor builds the text `agent`, NUL, `capability`, looks it up in a `std` hash table and compares one path prefix: less than any policy needs."
            .to_owned(),
        "Every answer of ours was compared with a plain scan of the rules, and Cedar's answers with the same; files are ordered from strict to \
         lax, so that the first rule that matches is also the strictest, which is all Cedar can express. Each rule is a `permit` of its own in \
         Cedar, and the strictest of the reasons it gives is the tier; it gets its requests and entities ready-made."
            .to_owned(),
    ];
    let [_, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "policy", title, how, rows, notes })
}

/// One case that is measured in each round, with its floor.
struct PolicyRunner<'a> {
    decide: Box<dyn Fn() -> anyhow::Result<RunTimes> + 'a>,
    took: Vec<RunTimes>,
    floor: Vec<RunTimes>,
}

fn of_mode(mode: RuleDistribution, questions: &[PolicyQuestion]) -> anyhow::Result<Vec<ReportLine>> {
    let sets: Vec<BenchRules> = SIZES.iter().map(|size| BenchRules::new(mode, *size)).collect::<anyhow::Result<_>>()?;
    let policies: Vec<Arc<Policy>> = sets.iter().map(BenchRules::policy).collect::<anyhow::Result<_>>()?;
    for (set, policy) in sets.iter().zip(&policies) {
        same_answers(set, policy, questions)?;
    }
    let peer = sets.iter().find(|set| set.len() == 1_000).map(cedar::CedarPolicy::new).transpose()?;
    let table = table(questions);
    let mut runners: Vec<PolicyRunner<'_>> = policies
        .iter()
        .map(|policy| PolicyRunner {
            decide: Box::new(|| ours(policy, questions)),
            took: Vec::new(),
            floor: Vec::new(),
        })
        .collect();
    if let (Some(peer), Some(set)) = (&peer, sets.iter().find(|set| set.len() == 1_000)) {
        let sample = peer.requests(questions.get(..FOR_CEDAR).unwrap_or(questions))?;
        peer.must_agree(set, questions)?;
        let decide = Box::new(move || peer.decide(&sample));
        runners.push(PolicyRunner { decide, took: Vec::new(), floor: Vec::new() });
    }
    for round in 0..=ROUNDS {
        for runner in &mut runners {
            // Each size has its own floor measurement directly before or after it, in turns: a run after Cedar or after
            // another size finds caches full of other data, and neither side may have that advantage.
            let (floor, took) = if round % 2 == 0 {
                let floor = self::floor(&table, questions)?;
                (floor, (runner.decide)()?)
            } else {
                let took = (runner.decide)()?;
                (self::floor(&table, questions)?, took)
            };
            if round > 0 {
                runner.took.push(took);
                runner.floor.push(floor);
            }
        }
    }
    let [sizes @ .., cedar] = runners.as_slice() else { anyhow::bail!("nothing was measured") };
    Ok(table_rows(mode, sizes, cedar))
}

fn table_rows(mode: RuleDistribution, sizes: &[PolicyRunner<'_>], cedar: &PolicyRunner<'_>) -> Vec<ReportLine> {
    let nanos = |took: &[RunTimes]| format!("{} ns", figure(rounds::of(took, RunTimes::cpu_nanos)));
    let over = |one: &[RunTimes], other: &[RunTimes]| -> MedianRange {
        median(one.iter().zip(other).map(|(one, other)| one.cpu_nanos() / other.cpu_nanos()).collect())
    };
    let mut rows: Vec<ReportLine> = SIZES
        .iter()
        .zip(sizes)
        .map(|(size, ours)| ReportLine {
            what: format!("decision at {} rules, {mode}", figure(*size as f64)),
            ours: nanos(&ours.took),
            against: "one look into a hash table".into(),
            floor: nanos(&ours.floor),
            ratio: over(&ours.took, &ours.floor),
            target: RatioTarget::AtMost(2.0),
        })
        .collect();
    if let [smallest, _, thousand, largest] = sizes {
        rows.push(ReportLine {
            what: format!("decision at 10,000 rules, {mode}"),
            ours: nanos(&largest.took),
            against: "the same at 10 rules".into(),
            floor: nanos(&smallest.took),
            ratio: over(&largest.took, &smallest.took),
            target: RatioTarget::AtMost(1.25),
        });
        rows.push(ReportLine {
            what: format!("decision at 1,000 rules, {mode}: how much faster"),
            ours: nanos(&thousand.took),
            against: "cedar-policy 4.14.1".into(),
            floor: nanos(&cedar.took),
            ratio: over(&cedar.took, &thousand.took),
            target: RatioTarget::AtLeast(5_000.0),
        });
    }
    rows
}

fn ours(policy: &Policy, questions: &[PolicyQuestion]) -> anyhow::Result<RunTimes> {
    let work = || {
        for _ in 0..PASSES {
            for asked in questions {
                black_box(policy.judge(&question(asked)));
            }
        }
        Ok(())
    };
    Ok(timed_here(PASSES * questions.len() as u64, work)?.0)
}

fn question(asked: &PolicyQuestion) -> PolicyInput<'_> {
    PolicyInput::new(&asked.agent, &asked.capability, &asked.arguments, sluice_core::UtcMillis::from_millis(0))
}

/// Checks that our engine and a plain scan of the rules agree on every query, and that the answers are not all the
/// same.
fn same_answers(rules: &BenchRules, policy: &Policy, questions: &[PolicyQuestion]) -> anyhow::Result<()> {
    anyhow::ensure!(policy.rule_count() == rules.len(), "{} of {} rules were loaded", policy.rule_count(), rules.len());
    let mut by_rule = 0;
    for asked in questions {
        let (verdict, expected) = (policy.judge(&question(asked)), rules.scan(asked));
        let tier = expected.unwrap_or(Tier::Notify);
        anyhow::ensure!(verdict.tier == tier, "{asked:?}: {:?} instead of {tier:?}", verdict.tier);
        by_rule += usize::from(verdict.decided_by().is_some());
    }
    anyhow::ensure!(by_rule > 0, "no rule decided anything");
    Ok(())
}

/// The data of the floor: one answer for each agent and capability that is queried.
fn table(questions: &[PolicyQuestion]) -> HashMap<String, (String, Tier)> {
    let entry = |asked: &PolicyQuestion| (key(asked, String::new()), (asked.folder.clone(), Tier::Notify));
    questions.iter().map(entry).collect()
}

fn key(asked: &PolicyQuestion, mut buffer: String) -> String {
    buffer.clear();
    buffer.push_str(asked.agent.as_str());
    buffer.push('\0');
    buffer.push_str(asked.capability.as_str());
    buffer
}

fn floor(table: &HashMap<String, (String, Tier)>, questions: &[PolicyQuestion]) -> anyhow::Result<RunTimes> {
    let mut buffer = String::with_capacity(256);
    let work = || {
        for _ in 0..PASSES {
            for asked in questions {
                buffer = key(asked, std::mem::take(&mut buffer));
                let found = table.get(buffer.as_str()).filter(|(prefix, _)| asked.path.starts_with(prefix.as_str()));
                black_box(found.map(|(_, tier)| *tier));
            }
        }
        Ok(())
    };
    Ok(timed_here(PASSES * questions.len() as u64, work)?.0)
}
