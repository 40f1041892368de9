//! One proxy as a service behind the gate: its reads are answered by a task, its writes carried out by one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::ConnectionName;
use sluice_core::proxy::{Method, Proxy};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{CapabilityName, Span, Timestamp};

use tokio::sync::oneshot;

use super::run::{Errand, Faults, NotGiven};
use super::{Ground, Workspace};
use crate::services::{Ask, Performed, ReadSource, Service, Trouble, Work};

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

    async fn answer(&self, action: &sluice_core::Action) -> Result<Value, NotGiven> {
        let unknown = || NotGiven { refusal: Refusal::new(Code::GatewayUnsupported), changed: false };
        let capability = action.capability();
        let (name, operation) = self.declared.operation(&self.name, capability).ok_or_else(unknown)?;
        let errand = Errand {
            agent: action.agent().clone(),
            capability: capability.clone(),
            name: name.to_owned(),
            operation: operation.clone(),
            arguments: action.arguments().clone(),
        };
        // Whoever asked may hang up. The task goes on to its end, which is recorded.
        let (this, may_change) = (self.clone(), operation.method != Method::Get);
        let (answer, answered) = oneshot::channel();
        self.ground.owns(async move { drop(answer.send(this.run(&errand).await)) });
        let lost = |_| NotGiven { refusal: Refusal::new(Code::GatewayInternal), changed: may_change };
        answered.await.map_err(lost)?
    }
}

/// What an agent is given: the data, and that it came from outside.
fn told(service: &str, data: Value) -> Value {
    json!({"data": data, "source": service, "untrusted": true})
}

impl Service for ProxyService {
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn outside(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.declared.operation(&self.name, capability).is_some()
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async {
            let data = self.answer(&ask.action).await.map_err(|not| not.refusal)?;
            Ok(told(&self.declared.service, data))
        })
    }

    fn perform<'a>(&'a self, _: Permit, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async {
            match self.answer(&hold.action).await {
                Ok(data) => Ok(Performed {
                    receipt: format!("{} answered", self.declared.service),
                    result: told(&self.declared.service, data),
                    after: None,
                    undo_until: None,
                }),
                Err(NotGiven { changed: true, .. }) => Err(Trouble::Unclear),
                Err(NotGiven { refusal, changed: false }) => Err(Trouble::NotDone(refusal)),
            }
        })
    }
}
