//! Policy templates.

/// A complete set of policy files with comments and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyTemplate {
    /// `coding`, `personal`, `team` or `strict`.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub summary: &'static str,
    /// Its files.
    pub files: &'static [PolicyTemplateFile],
}

/// One file of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyTemplateFile {
    /// Relative to the policy directory.
    pub path: &'static str,
    /// Its content.
    pub text: &'static str,
}

/// All templates, loosest first.
pub const TEMPLATES: [PolicyTemplate; 4] = [
    PolicyTemplate {
        name: "coding",
        summary: "coding agents: reads, project writes, builds and tests run; installs, network, pushes need approval",
        files: &[
            PolicyTemplateFile {
                path: "org.yaml",
                text: include_str!("../../../../policies/templates/coding/org.yaml"),
            },
            PolicyTemplateFile {
                path: "agents/coder.yaml",
                text: include_str!("../../../../policies/templates/coding/agents/coder.yaml"),
            },
        ],
    },
    PolicyTemplate {
        name: "personal",
        summary: "one person and their agents: reads and local writes run, writes to unknown recipients need approval",
        files: &[
            PolicyTemplateFile {
                path: "org.yaml",
                text: include_str!("../../../../policies/templates/personal/org.yaml"),
            },
            PolicyTemplateFile {
                path: "agents/assistant.yaml",
                text: include_str!("../../../../policies/templates/personal/agents/assistant.yaml"),
            },
        ],
    },
    PolicyTemplate {
        name: "team",
        summary: "several people: mail inside the organisation flows in working hours, the rest needs approval",
        files: &[
            PolicyTemplateFile { path: "org.yaml", text: include_str!("../../../../policies/templates/team/org.yaml") },
            PolicyTemplateFile {
                path: "agents/bookkeeper.yaml",
                text: include_str!("../../../../policies/templates/team/agents/bookkeeper.yaml"),
            },
        ],
    },
    PolicyTemplate {
        name: "strict",
        summary: "regulated work: everything is blocked unless a rule opens it, every write needs approval",
        files: &[
            PolicyTemplateFile {
                path: "org.yaml",
                text: include_str!("../../../../policies/templates/strict/org.yaml"),
            },
            PolicyTemplateFile {
                path: "agents/reader.yaml",
                text: include_str!("../../../../policies/templates/strict/agents/reader.yaml"),
            },
        ],
    },
];
