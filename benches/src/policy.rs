//! Policy decisions: ours at 10 to 10,000 rules, beside one look into a hash table, and beside Cedar.

mod cedar;
mod rules;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use rules::{Asked, Mode, Rules};
use sluice_core::Tier;
use sluice_core::policy::{Policy, Question};

use crate::report::{ORDER, Row, Section, Target, figure};
use crate::rounds::{self, Median, Took, median, timed_here};

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
const ROUNDS: usize = 7;
/// How often all questions are put in one round.
const PASSES: u64 = 8;
/// Questions Cedar gets in one round: a decision takes it a millisecond.
const FOR_CEDAR: usize = 48;

/// Measures the section.
pub fn measure() -> anyhow::Result<Section> {
    let questions = rules::questions()?;
    let mut rows = Vec::new();
    for mode in [Mode::Spread, Mode::Concentrated] {
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
    Ok(Section { name: "policy", title, how, rows, notes })
}

/// One thing that is measured in each round, and the floor beside it.
struct Runner<'a> {
    decide: Box<dyn Fn() -> anyhow::Result<Took> + 'a>,
    took: Vec<Took>,
    floor: Vec<Took>,
}

fn of_mode(mode: Mode, questions: &[Asked]) -> anyhow::Result<Vec<Row>> {
    let sets: Vec<Rules> = SIZES.iter().map(|size| Rules::new(mode, *size)).collect::<anyhow::Result<_>>()?;
    let policies: Vec<Arc<Policy>> = sets.iter().map(Rules::policy).collect::<anyhow::Result<_>>()?;
    for (set, policy) in sets.iter().zip(&policies) {
        same_answers(set, policy, questions)?;
    }
    let peer = sets.iter().find(|set| set.len() == 1_000).map(cedar::Cedar::new).transpose()?;
    let table = table(questions);
    let mut runners: Vec<Runner<'_>> = policies
        .iter()
        .map(|policy| Runner { decide: Box::new(|| ours(policy, questions)), took: Vec::new(), floor: Vec::new() })
        .collect();
    if let (Some(peer), Some(set)) = (&peer, sets.iter().find(|set| set.len() == 1_000)) {
        let sample = peer.requests(questions.get(..FOR_CEDAR).unwrap_or(questions))?;
        peer.must_agree(set, questions)?;
        let decide = Box::new(move || peer.decide(&sample));
        runners.push(Runner { decide, took: Vec::new(), floor: Vec::new() });
    }
    for round in 0..=ROUNDS {
        for runner in &mut runners {
            // Each size has the floor right beside it, before and after in turns: whoever comes after Cedar or after
            // another size finds caches full of something else, and neither side may have that advantage.
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

fn table_rows(mode: Mode, sizes: &[Runner<'_>], cedar: &Runner<'_>) -> Vec<Row> {
    let nanos = |took: &[Took]| format!("{} ns", figure(rounds::of(took, Took::cpu_nanos)));
    let over = |one: &[Took], other: &[Took]| -> Median {
        median(one.iter().zip(other).map(|(one, other)| one.cpu_nanos() / other.cpu_nanos()).collect())
    };
    let mut rows: Vec<Row> = SIZES
        .iter()
        .zip(sizes)
        .map(|(size, ours)| Row {
            what: format!("decision at {} rules, {mode}", figure(*size as f64)),
            ours: nanos(&ours.took),
            against: "one look into a hash table".into(),
            floor: nanos(&ours.floor),
            ratio: over(&ours.took, &ours.floor),
            target: Target::AtMost(2.0),
        })
        .collect();
    if let [smallest, _, thousand, largest] = sizes {
        rows.push(Row {
            what: format!("decision at 10,000 rules, {mode}"),
            ours: nanos(&largest.took),
            against: "the same at 10 rules".into(),
            floor: nanos(&smallest.took),
            ratio: over(&largest.took, &smallest.took),
            target: Target::AtMost(1.25),
        });
        rows.push(Row {
            what: format!("decision at 1,000 rules, {mode}: how much faster"),
            ours: nanos(&thousand.took),
            against: "cedar-policy 4.14.1".into(),
            floor: nanos(&cedar.took),
            ratio: over(&cedar.took, &thousand.took),
            target: Target::AtLeast(5_000.0),
        });
    }
    rows
}

fn ours(policy: &Policy, questions: &[Asked]) -> anyhow::Result<Took> {
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

fn question(asked: &Asked) -> Question<'_> {
    Question::new(&asked.agent, &asked.capability, &asked.arguments, sluice_core::Timestamp::from_millis(0))
}

/// Our engine says what a plain scan of the rules says, to every question; and it does not say the same to all.
fn same_answers(rules: &Rules, policy: &Policy, questions: &[Asked]) -> anyhow::Result<()> {
    anyhow::ensure!(policy.rules() == rules.len(), "{} of {} rules were loaded", policy.rules(), rules.len());
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

/// What the floor knows: one answer for each agent and capability that is asked about.
fn table(questions: &[Asked]) -> HashMap<String, (String, Tier)> {
    let entry = |asked: &Asked| (key(asked, String::new()), (asked.folder.clone(), Tier::Notify));
    questions.iter().map(entry).collect()
}

fn key(asked: &Asked, mut buffer: String) -> String {
    buffer.clear();
    buffer.push_str(asked.agent.as_str());
    buffer.push('\0');
    buffer.push_str(asked.capability.as_str());
    buffer
}

fn floor(table: &HashMap<String, (String, Tier)>, questions: &[Asked]) -> anyhow::Result<Took> {
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
