//! What people and agents do to a held write: stop it, wait longer, let it go now, settle what only
//! they can know.

use sluice_core::approval::{Approval, ApprovalMove};
use sluice_core::hold::{Hold, HoldState, IllegalMove, Move};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, HoldId, ServiceName, Span, Tier};

use crate::approvals::{self, AskAgain};
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::holds::{self, Why, columns};
use crate::rollbacks;
use crate::sql::{Tx, Val, params};
use crate::stops;

/// Stops a write. An agent may stop its own; people and nodes any.
pub(crate) struct Cancel {
    pub hold: HoldId,
    pub by: Actor,
}

/// How a cancel went.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    /// Nothing was or will be sent.
    Stopped(Hold),
    /// It had started, or was over.
    TooLate(Hold),
}

impl UseCase for Cancel {
    type Out = Cancelled;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Cancelled, StoreError> {
        let hold = holds::locked(desk, self.hold).await?;
        if is_strangers(&hold, &self.by) {
            return Err(StoreError::NotFound { what: "held write" });
        }
        let step = Move::Cancel { by: self.by.clone(), at: desk.now };
        if hold.state.clone().apply(step.clone()).is_err() {
            return Ok(Cancelled::TooLate(hold));
        }
        let question = match &hold.state {
            HoldState::AwaitingApproval { approval } => Some(*approval),
            _ => hold.consent,
        };
        let why = Why::by(self.by.clone());
        if let Some(question) = question {
            approvals::withdraw(desk, question, &why).await?;
        }
        holds::shift(desk, hold, [step], &why).map(Cancelled::Stopped)
    }
}

/// SECURITY: to a stranger the write does not exist, rather than being forbidden.
fn is_strangers(hold: &Hold, by: &Actor) -> bool {
    matches!(by, Actor::Agent(name) if name != hold.agent())
}

/// Stops everything of a service that has not left: part of taking it away. What is on its way is not tried again.
pub(crate) struct CancelService {
    pub service: ServiceName,
    pub by: Actor,
    /// What the record gives as the reason.
    pub code: &'static str,
}

/// What disconnecting a service did to its writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Nothing of these was or will be sent.
    pub cancelled: Vec<HoldId>,
    /// These had left, or may have: whatever turns out not to have happened is cancelled then.
    pub on_their_way: Vec<HoldId>,
}

macro_rules! stoppable {
    ($whose:literal) => {
        columns!(
            "WHERE ",
            $whose,
            " AND h.state IN ('awaiting_approval', 'held', 'ready', 'stale', 'preparing') ORDER BY h.id /*lock*/"
        )
    };
}
const OF_SERVICE: &str = stoppable!("h.service = ?1");
const ON_THEIR_WAY: &str = "SELECT id FROM holds WHERE service = ?1 AND ended_at IS NULL \
     AND state IN ('armed', 'in_doubt', 'needs_human') ORDER BY id /*lock*/";
/// Taking something back was asked for by a person, and goes on.
const OF_AGENT: &str = stoppable!("h.agent = ?1 AND h.reverses IS NULL");

impl UseCase for CancelService {
    type Out = Ended;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Ended, StoreError> {
        let waiting = Waiting::read(desk, OF_SERVICE, params![&self.service]).await?;
        let mut on_their_way = Vec::new();
        for row in desk.rows(ON_THEIR_WAY, params![&self.service]).await? {
            on_their_way.push(HoldId::from_bits(row.of("holds").bits()?));
        }
        for hold in &on_their_way {
            stops::order(desk, *hold, &self.by);
        }
        let cancelled = waiting.stop(desk, &self.by, self.code)?;
        Ok(Ended { cancelled, on_their_way })
    }
}

/// Writes that have not left, and the questions about them: all that is read before any of them is stopped.
pub(crate) struct Waiting {
    holds: Vec<Hold>,
    questions: Vec<Approval>,
}

impl Waiting {
    /// Everything of an agent that has not left.
    pub(crate) async fn of<T: Tx>(desk: &mut Desk<'_, T>, agent: &AgentName) -> Result<Self, StoreError> {
        Self::read(desk, OF_AGENT, params![agent]).await
    }

    async fn read<T: Tx>(desk: &mut Desk<'_, T>, sql: &'static str, params: Vec<Val>) -> Result<Self, StoreError> {
        let rows = desk.rows(sql, params).await?;
        let holds = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let mut questions: Vec<Approval> = Vec::new();
        for hold in &holds {
            let question = match hold.state {
                HoldState::AwaitingApproval { approval } => Some(approval),
                _ => hold.consent,
            };
            if let Some(question) = question
                && !questions.iter().any(|asked| asked.id == question)
            {
                questions.push(approvals::locked(desk, question).await?);
            }
        }
        Ok(Self { holds, questions })
    }

    /// Stops them, and withdraws the questions.
    pub(crate) fn stop<T: Tx>(
        self,
        desk: &mut Desk<'_, T>,
        by: &Actor,
        code: &'static str,
    ) -> Result<Vec<HoldId>, StoreError> {
        let (why, at) = (Why::because(by.clone(), code), desk.now);
        let mut stopped = Vec::new();
        for hold in self.holds {
            stopped.push(hold.id);
            holds::shift(desk, hold, [Move::Cancel { by: by.clone(), at }], &why)?;
        }
        for question in self.questions {
            // A card covers one agent at one service, so nothing is left to ask about on it either.
            if question.state.is_open() {
                approvals::shift(desk, question, ApprovalMove::Withdraw { at }, &why)?;
            } else {
                approvals::take_back(desk, question, &why)?;
            }
        }
        Ok(stopped)
    }
}

/// What an operator can do to a write's timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Hold it for so much longer.
    Longer(Span),
    /// Close its undo window now.
    Now,
}

pub(crate) struct Retime {
    pub hold: HoldId,
    pub by: Actor,
    pub timing: Timing,
}

impl UseCase for Retime {
    type Out = Hold;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Hold, StoreError> {
        // SECURITY: nobody shortens the window in which people can stop them.
        match (&self.by, self.timing) {
            (Actor::Person(_) | Actor::Operator(_), Timing::Longer(_) | Timing::Now)
            | (Actor::Agent(_) | Actor::Node(_), Timing::Longer(_)) => {}
            (Actor::Agent(_) | Actor::Node(_), Timing::Now) => return Err(StoreError::NotAPerson),
        }
        let hold = holds::locked(desk, self.hold).await?;
        if is_strangers(&hold, &self.by) {
            return Err(StoreError::NotFound { what: "held write" });
        }
        let now = desk.now;
        let step = match (self.timing, &hold.state) {
            (Timing::Longer(span), HoldState::Held { not_before }) => Move::Rehold { not_before: *not_before + span },
            (Timing::Longer(span), _) => Move::Rehold { not_before: now + span },
            (Timing::Now, _) => Move::SendNow { now },
        };
        // A stale write is chosen, not merely retimed: see [`Settle`].
        if matches!(hold.state, HoldState::Stale { .. }) {
            return Err(StoreError::NotOffered);
        }
        holds::shift(desk, hold, [step], &Why::by(self.by.clone()))
    }
}

/// Why a write is dead that a person gave up.
const GIVEN_UP: &str = "execute.given_up";

/// A person's word on a write that cannot go on without one.
#[derive(Debug, Clone)]
pub struct Settle {
    /// Which.
    pub hold: HoldId,
    /// As they saw it.
    pub version: u64,
    /// Who.
    pub by: Actor,
    /// What.
    pub word: Word,
    /// What policy says of it now; a revived write needs a yes again if policy asks for one.
    pub tier: Tier,
    /// The id of that question.
    pub approval: ApprovalId,
    /// The id of a message.
    pub message: MessageId,
    /// How long people have to answer it.
    pub expiry: Span,
}

/// What a person can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// It did happen (a write that needs a human).
    Happened {
        /// How they know.
        evidence: String,
    },
    /// It did not happen: try again (needs a human), or give it another window (dead, stale).
    Again,
    /// Give it up.
    GiveUp,
}

impl UseCase for Settle {
    type Out = Hold;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Hold, StoreError> {
        match &self.by {
            Actor::Person(_) | Actor::Operator(_) => {}
            Actor::Agent(_) | Actor::Node(_) => return Err(StoreError::NotAPerson),
        }
        let hold = holds::locked(desk, self.hold).await?;
        if hold.version != self.version {
            return Err(StoreError::Conflict);
        }
        let point = rollbacks::of_hold(desk, hold.id).await?;
        let stop = stops::ordered(desk, hold.id).await?;
        let (now, why) = (desk.now, Why::by(self.by.clone()));
        match (&self.word, &hold.state) {
            (Word::Happened { evidence }, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                holds::shift(desk, hold, [Move::Complete { receipt: evidence.clone(), at: now }], &why)
            }
            // Also before it was looked up: a service that cannot be reached would keep it in doubt for ever.
            (Word::Again, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                stops::or_on(desk, hold, Move::ProveAbsent { not_before: now }, (stop, &why))
            }
            // The wait between two attempts ends here; the back-off goes on from this attempt.
            (Word::Again, HoldState::Ready { .. }) if stop.is_none() && hold.next_attempt_at().is_some() => {
                holds::shift(desk, hold, [Move::SendNow { now }], &why)
            }
            // What it was to be sent through is over.
            (Word::Again, _) if stop.is_some() => Err(StoreError::NotOffered),
            (Word::Again, HoldState::Dead { .. } | HoldState::Stale { .. }) => self.revive(desk, hold, &why),
            // Anything else is on its way, or over: another question would stand beside the first.
            (Word::Happened { .. } | Word::Again, state) => {
                Err(IllegalMove::NoEdge { from: state.word(), attempted: "be settled" }.into())
            }
            // A person gave it up and needs not be told; the record names them.
            (Word::GiveUp, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                let code = || GIVEN_UP.to_owned();
                let asked = matches!(hold.state, HoldState::InDoubt { .. }).then(|| Move::AskHuman { code: code() });
                let steps = asked.into_iter().chain([Move::GiveUp { code: code(), at: now }]);
                holds::shift(desk, hold, steps, &Why::because(self.by.clone(), GIVEN_UP))
            }
            // What was never tried is cancelled, not given up.
            (Word::GiveUp, HoldState::Ready { .. }) if hold.next_attempt_at().is_none() => {
                Err(IllegalMove::NoEdge { from: hold.state.word(), attempted: "be given up" }.into())
            }
            (Word::GiveUp, _) => {
                if let Some(point) = point
                    && point.is_captured()
                {
                    rollbacks::abandon(desk, point)?;
                }
                holds::shift(desk, hold, [Move::Discard { by: self.by.clone(), at: now }], &why)
            }
        }
    }
}

impl Settle {
    /// Another window for a dead or stale write, through a person again where policy wants one.
    fn revive<T: Tx>(&self, desk: &mut Desk<'_, T>, hold: Hold, why: &Why) -> Result<Hold, StoreError> {
        let not_before = desk.now + hold.delay;
        let hold = Hold { attempts: 0, ..hold };
        match self.tier {
            Tier::Blocked => Err(StoreError::NotOffered),
            Tier::ApprovalRequired => {
                let (approval, message) = (self.approval, self.message);
                let again = AskAgain { approval, message, code: "hold.revived", expiry: self.expiry, reasons: &[] };
                again.ask(desk, hold, self.by.clone())
            }
            Tier::Autonomous | Tier::Notify => {
                let step = match hold.state {
                    HoldState::Stale { .. } => Move::Rehold { not_before },
                    _ => Move::Revive { not_before },
                };
                holds::shift(desk, hold, [step], why)
            }
        }
    }
}

/// Held writes, newest last, for lists: all of them, or those in some states.
pub(crate) struct Listed {
    pub after: Option<HoldId>,
    pub limit: u32,
}

const LISTED: &str = columns!("WHERE h.id > ?1 ORDER BY h.id LIMIT ?2");

impl Query for Listed {
    type Out = Vec<Hold>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        let after = self.after.unwrap_or(HoldId::from_bits(0));
        tx.rows(LISTED, &params![after, self.limit]).await?.into_iter().map(holds::decode).collect()
    }
}
