//! Why one of our own workers did not do a job, as a code.
//!
//! Takes the reason in the worker; gives the code of its report, and the reverse in the gateway. Promise: the words on the
//! wire do not change with a renaming; a code that is not in this list is none of ours, so nothing is decided by it.

use serde::{Deserialize, Serialize};

/// The code of a job that was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobFailureCode {
    /// The worker does not know the kind of job.
    #[serde(rename = "worker.kind")]
    WorkerKind,
    /// The parameters of the job have another shape.
    #[serde(rename = "worker.job")]
    WorkerJob,
    /// There is no adapter of this name.
    #[serde(rename = "worker.adapter")]
    WorkerAdapter,
    /// A frame would be larger than allowed.
    #[serde(rename = "worker.too_large")]
    WorkerTooLarge,
    /// The operation of a proxy has no schema for its answer, or one that cannot be used.
    #[serde(rename = "proxy.no_schema")]
    ProxyNoSchema,
    /// The arguments make no request.
    #[serde(rename = "proxy.arguments")]
    ProxyArguments,
    /// Egress refused the request.
    #[serde(rename = "proxy.refused")]
    ProxyRefused,
    /// The service refused the credential.
    #[serde(rename = "proxy.auth")]
    ProxyAuth,
    /// The service asks to slow down.
    #[serde(rename = "proxy.rate")]
    ProxyRate,
    /// The service answered with a status that is no answer.
    #[serde(rename = "proxy.status")]
    ProxyStatus,
    /// The answer cannot be used.
    #[serde(rename = "proxy.answer")]
    ProxyAnswer,
    /// An object of the answer has the same key twice.
    #[serde(rename = "proxy.ambiguous")]
    ProxyAmbiguous,
    /// The mail cannot be read in only one way.
    #[serde(rename = "mail.unreadable")]
    MailUnreadable,
}

impl JobFailureCode {
    /// All codes.
    pub const ALL: [Self; 13] = [
        Self::WorkerKind,
        Self::WorkerJob,
        Self::WorkerAdapter,
        Self::WorkerTooLarge,
        Self::ProxyNoSchema,
        Self::ProxyArguments,
        Self::ProxyRefused,
        Self::ProxyAuth,
        Self::ProxyRate,
        Self::ProxyStatus,
        Self::ProxyAnswer,
        Self::ProxyAmbiguous,
        Self::MailUnreadable,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkerKind => "worker.kind",
            Self::WorkerJob => "worker.job",
            Self::WorkerAdapter => "worker.adapter",
            Self::WorkerTooLarge => "worker.too_large",
            Self::ProxyNoSchema => "proxy.no_schema",
            Self::ProxyArguments => "proxy.arguments",
            Self::ProxyRefused => "proxy.refused",
            Self::ProxyAuth => "proxy.auth",
            Self::ProxyRate => "proxy.rate",
            Self::ProxyStatus => "proxy.status",
            Self::ProxyAnswer => "proxy.answer",
            Self::ProxyAmbiguous => "proxy.ambiguous",
            Self::MailUnreadable => "mail.unreadable",
        }
    }

    /// The code with this word. A third-party program may give any other word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_its_word_and_its_json_name_each_other() {
        for code in JobFailureCode::ALL {
            assert_eq!(JobFailureCode::from_word(code.as_str()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
        assert_eq!(JobFailureCode::from_word("proxy.Auth"), None);
    }
}
