//! Credentials that this gateway issues or keeps: the holder of one acts as an agent, an operator or a person.

use super::{FormatProof, SecretFormat, row};

#[rustfmt::skip] // A table: one row, one line.
pub(super) static FORMATS: &[SecretFormat] = &[
    // Agent keys (sga_), operator tokens (sgo_), inbox keys (sgi_), worker tickets (sgt_), root keys (sgk_), and all
    // future kinds except the letters that Sourcegraph and Segment use.
    row("sluicegate.token", "credential of this gateway", &["sga_", "sgb_", "sgc_", "sge_", "sgf_", "sgg_", "sgh_", "sgi_", "sgj_", "sgk_", "sgl_", "sgm_", "sgn_", "sgo_", "sgq_", "sgr_", "sgt_", "sgu_", "sgv_", "sgw_", "sgx_", "sgy_", "sgz_"], r"sg[a-ce-oq-rt-z]_[A-Za-z0-9_-]{43,}").proof(FormatProof::None),
    row("sluicegate.link", "link that answers an approval request", &["/a/"], r"/a/[A-Za-z0-9_-]{43}").back(1).proof(FormatProof::Random),
    row("sluicegate.signing_key", "signing key of an audit log", &["PRIVATE+KEY+"], r"PRIVATE\+KEY\+[^\s+]{1,200}\+[0-9a-f]{8}\+[A-Za-z0-9+/]{40,}").proof(FormatProof::None),
];
