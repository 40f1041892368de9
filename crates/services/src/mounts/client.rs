//! The gateway as an MCP client: a client that offers nothing to servers.
//!
//! Promise: every request of a server except a ping is refused; no server reaches a model or a person through the gate.

#[expect(deprecated, reason = "servers of older revisions still ask for roots, and get a refusal")]
use rmcp::model::ListRootsResult;
use rmcp::model::{ClientConfig, ElicitRequestParams, ElicitResult, Implementation, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};

/// How a conversation with a server begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum McpConversationStart {
    /// With a handshake: revisions up to 2025-11-25.
    Handshake,
    /// Without a handshake: every request states its client and its revision. From 2026-07-28 on.
    Stateless,
}

impl McpConversationStart {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Handshake => Self::Stateless,
            Self::Stateless => Self::Handshake,
        }
    }

    pub(super) fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        }
    }
}

/// The client half of a mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct MountClientHandler;

fn refused() -> ErrorData {
    ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, "this client offers nothing to servers", None)
}

#[expect(deprecated, reason = "servers of older revisions still ask for roots, and get a refusal")]
impl ClientHandler for MountClientHandler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            rmcp::model::ClientCapabilities::default(),
            Implementation::new("sluicegate", env!("CARGO_PKG_VERSION")),
        )
        // The newest revision that begins with a handshake.
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(refused())
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(refused())
    }
}
