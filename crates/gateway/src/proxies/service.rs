//! One proxy as a service behind the gate: its reads are answered by a task, its writes carried out by one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{ConnectionName, SessionId};
use sluice_core::nodes::ServiceKind;
use sluice_core::proxy::{Method, Proxy, spawn};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, Span, Timestamp};

use tokio::sync::oneshot;

use super::run::{Errand, Faults, NotGiven};
use super::{Ground, Workspace};
use crate::services::{Ask, Performed, Place, ReadSource, Service, Trouble, Work};
use crate::value::put;
use crate::workers::WorkerPlace;

/// One proxy.
#[derive(Debug, Clone)]
pub struct ProxyService {
    name: String,
    declared: Arc<Proxy>,
    workspace: Workspace,
    connection: ConnectionName,
    ground: Arc<Ground>,
    /// When the last of its tasks crashed: reports are called after their moment, and no two may share one.
    crashed_at: Arc<Mutex<Timestamp>>,
    faults: Arc<Mutex<Faults>>,
}

impl ProxyService {
    pub(super) fn new(name: String, declared: Proxy, workspace: Workspace, ground: Arc<Ground>) -> Option<Self> {
        let connection = ConnectionName::new(format!("proxy.{name}")).ok()?;
        let crashed_at = Arc::new(Mutex::new(Timestamp::from_millis(i64::MIN)));
        Some(Self {
            name,
            declared: Arc::new(declared),
            workspace,
            connection,
            ground,
            crashed_at,
            faults: Arc::default(),
        })
    }

    /// In the place of another of the same name: the same workspace, and what was counted goes on counting.
    pub(super) fn after(self, old: &Self) -> Self {
        let (workspace, crashed_at, faults) = (&old.workspace, &old.crashed_at, &old.faults);
        Self { workspace: workspace.clone(), crashed_at: Arc::clone(crashed_at), faults: Arc::clone(faults), ..self }
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment that no other crash of this proxy is called after.
    pub(super) fn moment(&self, now: Timestamp) -> Timestamp {
        let mut last = self.crashed_at.lock().unwrap_or_else(PoisonError::into_inner);
        *last = now.max(*last + Span::from_millis(1));
        *last
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its file says.
    #[must_use]
    pub fn declared(&self) -> &Proxy {
        &self.declared
    }

    /// What outlives its tasks.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    pub(super) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(crate) fn connection(&self) -> &ConnectionName {
        &self.connection
    }

    async fn answer(&self, action: &Action) -> Result<Value, NotGiven> {
        let unknown = || {
            let refusal = Refusal::new(Code::GatewayUnsupported);
            NotGiven { refusal, changed: false, for_good: true }
        };
        let capability = action.capability();
        let (name, operation) = self.declared.operation(&self.name, capability).ok_or_else(unknown)?;
        let errand = Errand {
            agent: action.agent().clone(),
            capability: capability.clone(),
            name: name.to_owned(),
            operation: operation.clone(),
            arguments: action.arguments().clone(),
            spawn: action.spawn().cloned(),
        };
        self.draft_allows(operation, action.arguments()).map_err(|refusal| NotGiven {
            refusal,
            changed: false,
            for_good: true,
        })?;
        // Whoever asked may hang up. The task goes on to its end, which is recorded.
        let (this, may_change) = (self.clone(), operation.method != Method::Get);
        let (answer, answered) = oneshot::channel();
        // The place that was taken for it goes along into the task.
        let place = WorkerPlace::handed_on();
        self.ground.owns(async move {
            let given = match place {
                Some(place) => place.used_by(this.run(&errand)).await,
                None => this.run(&errand).await,
            };
            drop(answer.send(given));
        });
        let lost = |_| {
            let refusal = Refusal::new(Code::GatewayInternal);
            NotGiven { refusal, changed: may_change, for_good: false }
        };
        answered.await.map_err(lost)?
    }
}

/// What an agent is given: the data, that it came from outside, and that characters in it were replaced where some were.
fn told(service: &str, action: &Action, mut given: Value) -> Value {
    let data = given.get_mut("data").map(Value::take).unwrap_or_default();
    let mut told = json!({"data": data, "source": service, "untrusted": true});
    let has = |name: &str| given.get(name) == Some(&json!(true));
    let notes = [
        ("replaced", "bytes that are not UTF-8 were replaced"),
        ("unfit", "it was carried out; its answer does not follow `output_schema` and is left out"),
    ];
    let notes: Vec<&str> = notes.into_iter().filter(|(name, _)| has(name)).map(|(_, words)| words).collect();
    if !notes.is_empty() {
        put(&mut told, "notes", json!(notes));
    }
    if let (Some(_), Some((proxy, task))) = (action.spawn(), spawn::parts(action.capability())) {
        put(&mut told, "label", spawn::label(proxy));
        put(&mut told, "task", task);
    }
    told
}

impl Service for ProxyService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Proxy
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn outside(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.declared.operation(&self.name, capability).is_some()
    }

    fn foresee<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if let Some((_, operation)) = self.declared.operation(&self.name, action.capability()) {
                self.draft_allows(operation, action.arguments())?;
            }
            self.estimated(action).await.map(drop)
        })
    }

    fn estimate<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Option<Value>, Refusal>> {
        Box::pin(async move { self.estimated(action).await.map(Some) })
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async {
            let data = self.answer(&ask.action).await.map_err(|not| not.refusal)?;
            Ok(told(&self.declared.service, &ask.action, data))
        })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> Work<'a, Result<Place, Refusal>> {
        Box::pin(async {
            let place = self.ground.workers.reserve().await;
            place.map(Place::Worker).map_err(|error| {
                let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
                Refusal::new(code).with_text(&error.to_string())
            })
        })
    }

    fn perform<'a>(&'a self, _: Permit, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async {
            match self.answer(&hold.action).await {
                Ok(data) => Ok(Performed {
                    receipt: format!("{} answered", self.declared.service),
                    result: told(&self.declared.service, &hold.action, data),
                    after: None,
                    undo_until: None,
                }),
                Err(NotGiven { changed: true, .. }) => Err(Trouble::Unclear),
                Err(NotGiven { refusal, for_good: true, .. }) => Err(Trouble::Refused(refusal)),
                Err(NotGiven { refusal, .. }) => Err(Trouble::NotDone(refusal)),
            }
        })
    }
}
