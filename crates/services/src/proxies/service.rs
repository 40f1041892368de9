//! One proxy as a service behind the gate: a task answers each read and carries out each write.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{ConnectionName, SessionId};
use sluice_core::nodes::ServiceKind;
use sluice_core::proxy::{Proxy, ProxyMethod, spawn};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, BoxedFuture, CapabilityName, Millis, UtcMillis};
use tokio::sync::oneshot;

use super::run::{ProxyFaultCounts, ProxyTaskAssignment, ProxyTaskError};
use super::{ProxiesDeps, ProxyWorkspace};
use crate::value::put;
use crate::workers::WorkerSlot;
use crate::{CompletedWrite, ReadSource, Service, ServiceRead, ServiceSlot, WriteError};

/// One proxy.
#[derive(Debug, Clone)]
pub struct ProxyService {
    name: String,
    declared: Arc<Proxy>,
    workspace: ProxyWorkspace,
    connection: ConnectionName,
    deps: Arc<ProxiesDeps>,
    /// When the last of its tasks crashed: reports are named after their time, and no two may share one.
    crashed_at: Arc<Mutex<UtcMillis>>,
    faults: Arc<Mutex<ProxyFaultCounts>>,
}

impl ProxyService {
    pub(super) fn new(
        name: String,
        declared: Proxy,
        workspace: ProxyWorkspace,
        deps: Arc<ProxiesDeps>,
    ) -> Option<Self> {
        let connection = ConnectionName::new(format!("proxy.{name}")).ok()?;
        let crashed_at = Arc::new(Mutex::new(UtcMillis::from_millis(i64::MIN)));
        Some(Self {
            name,
            declared: Arc::new(declared),
            workspace,
            connection,
            deps,
            crashed_at,
            faults: Arc::default(),
        })
    }

    /// Replaces another proxy with the same name: it keeps the workspace and the counters.
    pub(super) fn after(self, old: &Self) -> Self {
        let (workspace, crashed_at, faults) = (&old.workspace, &old.crashed_at, &old.faults);
        Self { workspace: workspace.clone(), crashed_at: Arc::clone(crashed_at), faults: Arc::clone(faults), ..self }
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, ProxyFaultCounts> {
        self.faults.lock()
    }

    /// A time that no other crash report of this proxy has.
    pub(super) fn moment(&self, now: UtcMillis) -> UtcMillis {
        let mut last = self.crashed_at.lock();
        *last = now.max(*last + Millis::from_millis(1));
        *last
    }

    /// The name of the proxy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its declaration.
    #[must_use]
    pub fn declared(&self) -> &Proxy {
        &self.declared
    }

    /// The workspace, which outlives its tasks.
    #[must_use]
    pub fn workspace(&self) -> &ProxyWorkspace {
        &self.workspace
    }

    pub(super) fn deps(&self) -> &ProxiesDeps {
        &self.deps
    }

    /// The connection that its requests use.
    pub fn connection(&self) -> &ConnectionName {
        &self.connection
    }

    async fn answer(&self, action: &Action) -> Result<Value, ProxyTaskError> {
        let unknown = || {
            let refusal = Refusal::new(Code::GatewayUnsupported);
            ProxyTaskError { refusal, changed: false, for_good: true }
        };
        let capability = action.capability();
        let (name, operation) = self.declared.operation(&self.name, capability).ok_or_else(unknown)?;
        let assignment = ProxyTaskAssignment {
            agent: action.agent().clone(),
            capability: capability.clone(),
            name: name.to_owned(),
            operation: operation.clone(),
            arguments: action.arguments().clone(),
            spawn: action.spawn().cloned(),
        };
        self.draft_allows(operation, action.arguments()).map_err(|refusal| ProxyTaskError {
            refusal,
            changed: false,
            for_good: true,
        })?;
        // The caller may hang up. The task runs to its end, which is recorded.
        let (this, may_change) = (self.clone(), operation.method != ProxyMethod::Get);
        let (answer, answered) = oneshot::channel();
        // The place that was reserved for it goes with the task.
        let place = WorkerSlot::take_reserved();
        self.deps.owns(async move {
            let given = match place {
                Some(place) => place.used_by(this.run(&assignment)).await,
                None => this.run(&assignment).await,
            };
            drop(answer.send(given));
        });
        let lost = |_| {
            let refusal = Refusal::new(Code::GatewayInternal);
            ProxyTaskError { refusal, changed: may_change, for_good: false }
        };
        answered.await.map_err(lost)?
    }
}

/// What an agent gets: the data, marked as outside content, and a note where characters were replaced.
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
    if let (Some(_), Some((proxy, task))) = (action.spawn(), spawn::split_capability(action.capability())) {
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

    fn gives_outside_text(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.declared.operation(&self.name, capability).is_some()
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if let Some((_, operation)) = self.declared.operation(&self.name, action.capability()) {
                self.draft_allows(operation, action.arguments())?;
            }
            self.estimated(action).await.map(drop)
        })
    }

    fn estimate<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Option<Value>, Refusal>> {
        Box::pin(async move { self.estimated(action).await.map(Some) })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async {
            let data = self.answer(&ask.action).await.map_err(|not| not.refusal)?;
            Ok(told(&self.declared.service, &ask.action, data))
        })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        Box::pin(async {
            let place = self.deps.workers.reserve().await;
            place.map(ServiceSlot::Worker).map_err(|error| {
                let code = error.refusal_code();
                Refusal::new(code).with_text(&error.to_string())
            })
        })
    }

    fn perform<'a>(
        &'a self,
        _: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async {
            match self.answer(&hold.action).await {
                Ok(data) => Ok(CompletedWrite {
                    receipt: format!("{} answered", self.declared.service),
                    result: told(&self.declared.service, &hold.action, data),
                    after: None,
                    undo_until: None,
                }),
                Err(ProxyTaskError { changed: true, .. }) => Err(WriteError::Unclear),
                Err(ProxyTaskError { refusal, for_good: true, .. }) => Err(WriteError::Refused(refusal)),
                Err(ProxyTaskError { refusal, .. }) => Err(WriteError::NotDone(refusal)),
            }
        })
    }
}
