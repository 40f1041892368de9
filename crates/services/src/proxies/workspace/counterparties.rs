//! What lasts: known sides, the facts kept about them, and drafts that outlive the task that began them.
//!
//! Takes proposals that were accepted; gives the history for the next task. Promise: a file appears complete or not at
//! all; a side or a draft keeps the name that a call used, and no proposal changes it; the trust level of a service is
//! never stored here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_core::UtcMillis;
use sluice_core::proxy::{
    ContinuityProposal, DraftMove, OpenDraft, ProposalError, ProxyCounterparty, ProxyIdentity, ProxyOperation,
    ProxyTaskHistory,
};

use super::{ABANDONED, IN_PROGRESS, ProxyDraft, ProxyWorkspace, SENT, filed, files, read_draft, whole};

/// Most sides that are kept. The one with the oldest contact makes room for a new one.
const SIDES: usize = 1_000;
/// Most named drafts that are kept in progress.
const DRAFTS: usize = 100;
/// How much of the log is searched for refused proposals.
const LOOKED: usize = 256 * 1024;

/// A side as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterpartyRecord {
    /// The name that calls use.
    pub name: String,
    /// When it was first contacted.
    pub since: String,
    /// When it was last contacted.
    pub last: String,
    /// The facts kept about it.
    #[serde(default)]
    pub facts: Map<String, Value>,
}

/// A draft with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProxyDraft {
    /// The name that calls use.
    pub name: String,
    /// `IN_PROGRESS`, `SENT` or `ABANDONED`.
    pub state: String,
    /// The operation that last moved it.
    pub operation: String,
    /// When it was last moved.
    pub at: String,
    /// The fields kept in it.
    pub fields: Map<String, Value>,
}

/// A proposal that was refused, as the log shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefusedProposal {
    /// When it was refused.
    pub at: String,
    /// The task that proposed it.
    pub task: String,
    /// `relation` or `draft`.
    pub about: String,
    /// Why it was refused.
    pub code: String,
}

impl ProxyWorkspace {
    /// The history that a task gets at its start.
    #[must_use]
    pub fn told(
        &self,
        identity: &ProxyIdentity,
        operation: &ProxyOperation,
        arguments: &Map<String, Value>,
    ) -> ProxyTaskHistory {
        let side = identity.side(arguments);
        let relation = side.map(|name| {
            let facts = self.side(name).map(|kept| kept.facts).unwrap_or_default();
            ProxyCounterparty { name: name.to_owned(), facts: identity.known_facts(facts) }
        });
        let recent = side.map(|name| self.recent(name, identity.recent as usize)).unwrap_or_default();
        let many = if side.is_none() { identity.relations as usize } else { 0 };
        let relations = self.sides(many).into_iter().map(|kept| kept.name).collect();
        let named = operation.draft_of(arguments);
        let mut open = self.named_drafts();
        open.retain(|draft| draft.state == IN_PROGRESS);
        // The named draft comes first, before others in progress.
        open.sort_by_key(|draft| Some(draft.name.as_str()) != named);
        let most = (identity.drafts as usize).max(usize::from(named.is_some()));
        let drafts = open.into_iter().take(most);
        let drafts =
            drafts.map(|draft| OpenDraft { name: draft.name, fields: identity.known_fields(draft.fields) }).collect();
        ProxyTaskHistory { relation, relations, recent, drafts }.bounded()
    }

    /// Writes an accepted proposal.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub fn take(&self, proposal: &ContinuityProposal, operation: &str, now: UtcMillis) -> Result<(), ProposalError> {
        let _turn = self.turn();
        match proposal {
            ContinuityProposal::Relation { name, facts } => self.know(name, facts, now),
            ContinuityProposal::Draft { name, does, fields } => self.move_draft((name, *does), fields, operation, now),
        }
    }

    fn know(&self, name: &str, facts: &Map<String, Value>, now: UtcMillis) -> Result<(), ProposalError> {
        self.make_room(name).map_err(|_| ProposalError::Unwritten)?;
        let mut side = self.side(name).unwrap_or_else(|| newcomer(name, &now.to_string()));
        side.last = now.to_string();
        side.facts.extend(facts.clone());
        self.write_side(&side).map_err(|_| ProposalError::Unwritten)
    }

    /// Records a contact with a side. The caller holds the turn.
    pub(super) fn record_contact(&self, name: &str, at: &str) -> io::Result<()> {
        let side = self.side(name).unwrap_or_else(|| newcomer(name, at));
        self.write_side(&CounterpartyRecord { last: at.to_owned(), ..side })
    }

    /// Removes the side with the oldest contact, if the maximum is reached and this one is new. The caller holds the
    /// turn.
    pub(super) fn make_room(&self, name: &str) -> io::Result<()> {
        if self.side_path(name).exists() || self.side_files().len() < SIDES {
            return Ok(());
        }
        let all = self.side_files().into_iter().filter_map(|path| Some((read_side(&path)?.last, path)));
        let Some((_, oldest)) = all.min() else { return Ok(()) };
        fs::remove_file(&oldest)?;
        match fs::remove_file(oldest.with_extension("jsonl")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write_side(&self, side: &CounterpartyRecord) -> io::Result<()> {
        whole(&self.side_path(&side.name), &serde_json::to_vec_pretty(side)?)
    }

    fn move_draft(
        &self,
        (name, does): (&str, DraftMove),
        fields: &Map<String, Value>,
        operation: &str,
        now: UtcMillis,
    ) -> Result<(), ProposalError> {
        let path = self.named_path(name);
        let open = read_draft(&path).filter(|draft| draft.state == IN_PROGRESS && draft.name.as_deref() == Some(name));
        let mut kept = match (does, open) {
            (DraftMove::Open, Some(_)) => return Err(ProposalError::DraftExists),
            (DraftMove::Change | DraftMove::Finish, None) => return Err(ProposalError::NoDraft),
            (DraftMove::Open, None) => {
                let open = self.named_drafts().iter().filter(|draft| draft.state == IN_PROGRESS).count();
                if open >= DRAFTS {
                    return Err(ProposalError::Full);
                }
                Map::new()
            }
            (DraftMove::Change | DraftMove::Finish, Some(draft)) => as_fields(draft.arguments),
        };
        kept.extend(fields.clone());
        let state = match does {
            DraftMove::Open | DraftMove::Change => IN_PROGRESS,
            DraftMove::Finish => SENT,
        };
        let draft = ProxyDraft {
            state: state.to_owned(),
            operation: operation.to_owned(),
            at: now.to_string(),
            arguments: Value::Object(kept),
            name: Some(name.to_owned()),
        };
        let text = serde_json::to_vec_pretty(&draft).map_err(|_| ProposalError::Unwritten)?;
        whole(&path, &text).map_err(|_| ProposalError::Unwritten)
    }

    /// Marks a named draft as abandoned: the task that worked on it ended badly.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn abandon_named(&self, name: &str) -> io::Result<()> {
        let _turn = self.turn();
        let path = self.named_path(name);
        let open = read_draft(&path).is_some_and(|draft| draft.state == IN_PROGRESS);
        if open { self.mark(&path, ABANDONED) } else { Ok(()) }
    }

    /// Marks every named draft as abandoned: their service has attacked.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn abandon_all_named(&self) -> io::Result<usize> {
        let _turn = self.turn();
        self.abandon_where(|draft| draft.name.is_some())
    }

    /// A side, if there was contact with it.
    #[must_use]
    pub fn side(&self, name: &str) -> Option<CounterpartyRecord> {
        read_side(&self.side_path(name)).filter(|side| side.name == name)
    }

    /// The sides with the latest contact, newest first.
    #[must_use]
    pub fn sides(&self, most: usize) -> Vec<CounterpartyRecord> {
        if most == 0 {
            return Vec::new();
        }
        let mut all: Vec<CounterpartyRecord> = self.side_files().iter().filter_map(|path| read_side(path)).collect();
        all.sort_by(|one, other| other.last.cmp(&one.last).then_with(|| one.name.cmp(&other.name)));
        all.truncate(most);
        all
    }

    /// The state of the draft with this name, if there is one.
    #[must_use]
    pub fn draft_state(&self, name: &str) -> Option<String> {
        read_draft(&self.named_path(name)).filter(|draft| draft.name.as_deref() == Some(name)).map(|draft| draft.state)
    }

    /// Named drafts, newest first.
    #[must_use]
    pub fn named_drafts(&self) -> Vec<NamedProxyDraft> {
        let mut all: Vec<NamedProxyDraft> = files(&self.path().join("drafts"))
            .iter()
            .filter_map(|path| {
                let ProxyDraft { state, operation, at, arguments, name } = read_draft(path)?;
                Some(NamedProxyDraft { name: name?, state, operation, at, fields: as_fields(arguments) })
            })
            .collect();
        all.sort_by(|one, other| other.at.cmp(&one.at).then_with(|| one.name.cmp(&other.name)));
        all
    }

    /// The last refused proposals, newest first.
    #[must_use]
    pub fn refused(&self, most: usize) -> Vec<RefusedProposal> {
        let text = fs::read_to_string(self.path().join("logs/audit.jsonl")).unwrap_or_default();
        let end = text.len().saturating_sub(LOOKED);
        let start = (end..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        let lines = text.get(start..).unwrap_or_default().lines().rev();
        lines
            .filter(|line| line.contains("\"proposal\""))
            .filter_map(|line| serde_json::from_str(line).ok())
            .take(most)
            .collect()
    }

    fn side_files(&self) -> Vec<PathBuf> {
        let mut found = files(&self.path().join("relations"));
        found.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        found
    }

    fn side_path(&self, name: &str) -> PathBuf {
        self.path().join("relations").join(format!("{}.json", filed(name)))
    }

    fn named_path(&self, name: &str) -> PathBuf {
        self.path().join("drafts").join(format!("{}.json", filed(name)))
    }
}

fn newcomer(name: &str, at: &str) -> CounterpartyRecord {
    CounterpartyRecord { name: name.to_owned(), since: at.to_owned(), last: at.to_owned(), facts: Map::new() }
}

fn read_side(path: &Path) -> Option<CounterpartyRecord> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn as_fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::Millis;
    use sluice_core::proxy::{PastExchange, Proxy};

    use super::*;

    const NOW: UtcMillis = UtcMillis::from_millis(1_730_000_000_123);

    fn workspace(folder: &tempfile::TempDir) -> ProxyWorkspace {
        let workspace = ProxyWorkspace::new(folder.path(), "moltbook").unwrap();
        workspace.make().unwrap();
        workspace
    }

    fn with(value: Value) -> Map<String, Value> {
        as_fields(value)
    }

    fn relation(name: &str, facts: Value) -> ContinuityProposal {
        ContinuityProposal::Relation { name: name.into(), facts: with(facts) }
    }

    fn draft(name: &str, does: DraftMove, fields: Value) -> ContinuityProposal {
        ContinuityProposal::Draft { name: name.into(), does, fields: with(fields) }
    }

    fn exchange(at: UtcMillis) -> PastExchange {
        PastExchange {
            at: at.to_string(),
            operation: "feed".into(),
            outcome: "clean".into(),
            answer_bytes: 1,
            answer_hash: "00".into(),
        }
    }

    fn declared() -> Proxy {
        Proxy::from_yaml(
            "service: M\npurpose: p\nbase_url: https://m.example\nidentity: {relation: author, recent: 2, relations: 1, drafts: 2, \
             facts: {likes: {type: integer}}, draft: {text: {type: text, max: 9}}}\noperations:\n\
             \x20 feed: {summary: s, path: /f, arguments: {author: {type: text, max: 9}}}\n\
             \x20 go: {summary: s, path: /g, arguments: {title: {type: text, max: 9}}, draft: {does: finish, named_by: title}}\n",
        )
        .unwrap()
    }

    #[test]
    fn a_task_is_told_of_its_own_side_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, proxy) = (workspace(&folder), declared());
        let identity = proxy.identity.as_ref().unwrap();
        for n in 0..3 {
            workspace.remember("ana", &exchange(NOW + Millis::from_secs(n))).unwrap();
        }
        workspace.remember("ben", &exchange(NOW + Millis::from_secs(9))).unwrap();
        workspace.take(&relation("ana", json!({"likes": 3, "gone": "x"})), "feed", NOW).unwrap();
        let told = workspace.told(identity, &proxy.operations["feed"], &with(json!({"author": "ana"})));
        let side = ProxyCounterparty { name: "ana".into(), facts: with(json!({"likes": 3})) };
        assert_eq!((told.relation, told.relations), (Some(side), vec![]), "and only of what is still declared");
        let times: Vec<String> = told.recent.into_iter().map(|one| one.at).collect();
        assert_eq!(times, [(NOW + Millis::from_secs(1)).to_string(), (NOW + Millis::from_secs(2)).to_string()]);
        // A call that names nobody gets the latest contacts.
        let told = workspace.told(identity, &proxy.operations["go"], &with(json!({"title": "t"})));
        assert_eq!((told.relation, told.relations, told.recent), (None, vec!["ben".to_owned()], vec![]));
    }

    #[test]
    fn a_draft_is_begun_goes_on_and_is_sent_once() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        let take = |proposal: &ContinuityProposal| workspace.take(proposal, "go", NOW);
        assert_eq!(take(&draft("plan", DraftMove::Change, json!({}))), Err(ProposalError::NoDraft));
        take(&draft("plan", DraftMove::Open, json!({"text": "a", "remote": "7"}))).unwrap();
        assert_eq!(take(&draft("plan", DraftMove::Open, json!({}))), Err(ProposalError::DraftExists));
        take(&draft("plan", DraftMove::Change, json!({"text": "b"}))).unwrap();
        take(&draft("plan", DraftMove::Finish, json!({}))).unwrap();
        assert_eq!(take(&draft("plan", DraftMove::Finish, json!({}))), Err(ProposalError::NoDraft));
        let kept = workspace.named_drafts();
        assert_eq!((kept.len(), kept[0].state.as_str()), (1, "SENT"));
        assert_eq!(kept[0].fields, with(json!({"text": "b", "remote": "7"})));
        take(&draft("plan", DraftMove::Open, json!({}))).unwrap();
        assert_eq!(workspace.named_drafts()[0].fields, Map::new(), "a new one, not the old one again");
    }

    #[test]
    fn the_draft_that_is_meant_is_told_before_newer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, proxy) = (workspace(&folder), declared());
        for n in 0..5 {
            let open = draft(&format!("d{n}"), DraftMove::Open, json!({"text": n.to_string()}));
            workspace.take(&open, "go", NOW + Millis::from_secs(n)).unwrap();
        }
        let identity = proxy.identity.as_ref().unwrap();
        let told = workspace.told(identity, &proxy.operations["go"], &with(json!({"title": "d1"})));
        let names: Vec<&str> = told.drafts.iter().map(|draft| draft.name.as_str()).collect();
        assert_eq!(names, ["d1", "d4"]);
    }

    #[test]
    fn drafts_with_a_name_are_abandoned_and_come_back_from_a_quarantine_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        for name in ["one", "two"] {
            workspace.take(&draft(name, DraftMove::Open, json!({})), "go", NOW).unwrap();
        }
        workspace.take(&relation("ana", json!({"likes": 3})), "feed", NOW).unwrap();
        workspace.keep_good().unwrap();
        workspace.take(&relation("ana", json!({"likes": 666})), "feed", NOW).unwrap();
        workspace.abandon_named("one").unwrap();
        let states = |workspace: &ProxyWorkspace| {
            let mut all = workspace.named_drafts();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all.into_iter().map(|draft| draft.state).collect::<Vec<_>>()
        };
        assert_eq!(states(&workspace), ["ABANDONED", "IN_PROGRESS"]);
        assert_eq!(workspace.abandon_all_named().unwrap(), 1);
        let archive = workspace.archive(NOW).unwrap();
        assert_eq!(workspace.side("ana").unwrap().facts, with(json!({"likes": 3})), "as it was when it was good");
        assert_eq!(states(&workspace), ["ABANDONED", "ABANDONED"]);
        workspace.restore(Some(&archive)).unwrap();
        assert_eq!(workspace.side("ana").unwrap().facts, with(json!({"likes": 666})));
    }

    #[test]
    fn a_name_from_outside_is_a_name_and_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        for name in ["../../../etc/passwd", "/etc/passwd", "a\0b", "", &"x".repeat(5_000)] {
            workspace.take(&draft(name, DraftMove::Open, json!({})), "go", NOW).unwrap();
            workspace.take(&relation(name, json!({"likes": 1})), "go", NOW).unwrap();
            assert_eq!(workspace.side(name).unwrap().name, name);
        }
        assert_eq!(files(&workspace.path().join("drafts")).len(), 5);
        assert_eq!(workspace.side_files().len(), 5);
        let outside = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(outside, 1, "nothing beside the workspace");
    }

    #[test]
    fn a_full_workspace_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        for n in 0..DRAFTS {
            workspace.take(&draft(&n.to_string(), DraftMove::Open, json!({})), "go", NOW).unwrap();
        }
        assert_eq!(workspace.take(&draft("more", DraftMove::Open, json!({})), "go", NOW), Err(ProposalError::Full));
    }

    #[test]
    fn the_side_dealt_with_longest_ago_makes_room_for_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        for n in 0..SIDES as u64 {
            let side = newcomer(&format!("s{n}"), &(NOW + Millis::from_secs(n)).to_string());
            fs::write(workspace.side_path(&side.name), serde_json::to_vec(&side).unwrap()).unwrap();
        }
        workspace.remember("s0", &exchange(NOW + Millis::from_secs(5_000))).unwrap();
        fs::write(workspace.relation("s1"), "{}\n").unwrap();
        workspace.remember("new", &exchange(NOW + Millis::from_secs(5_001))).unwrap();
        assert!(workspace.side("s1").is_none() && !workspace.relation("s1").exists(), "all that is kept of it");
        workspace.take(&relation("newer", json!({"likes": 1})), "feed", NOW + Millis::from_secs(5_002)).unwrap();
        assert!(workspace.side("s2").is_none());
        assert!(["s0", "s3", "new", "newer"].iter().all(|name| workspace.side(name).is_some()));
        assert_eq!(workspace.side_files().len(), SIDES);
    }

    #[test]
    fn what_was_refused_is_told_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        let line = |n: u32| json!({"at": n.to_string(), "event": "proposal", "task": "job_1", "about": "draft", "code": "proposal.leak"});
        workspace.log(&[line(1), json!({"at": "x", "event": "end"}), line(2)]).unwrap();
        let times: Vec<String> = workspace.refused(9).into_iter().map(|one| one.at).collect();
        assert_eq!(times, ["2", "1"]);
    }
}
