//! Policies to start from.

/// A complete set of policy files with comments and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// `coding`, `personal`, `team` or `strict`.
    pub name: &'static str,
    /// For whom it is.
    pub summary: &'static str,
    /// Its files.
    pub files: &'static [TemplateFile],
}

/// One file of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateFile {
    /// Relative to the policy directory.
    pub path: &'static str,
    /// Its content.
    pub text: &'static str,
}

/// All templates, loosest first.
pub const TEMPLATES: [Template; 4] = [
    Template {
        name: "coding",
        summary: "coding agents: reads, project writes, builds and tests run; installs, network and pushes are asked",
        files: &[
            TemplateFile { path: "org.yaml", text: include_str!("../../../../policies/templates/coding/org.yaml") },
            TemplateFile {
                path: "agents/coder.yaml",
                text: include_str!("../../../../policies/templates/coding/agents/coder.yaml"),
            },
        ],
    },
    Template {
        name: "personal",
        summary: "one person and their own agents: reads run, local writes are told, what leaves the house is asked",
        files: &[
            TemplateFile { path: "org.yaml", text: include_str!("../../../../policies/templates/personal/org.yaml") },
            TemplateFile {
                path: "agents/assistant.yaml",
                text: include_str!("../../../../policies/templates/personal/agents/assistant.yaml"),
            },
        ],
    },
    Template {
        name: "team",
        summary: "several people: mail inside the organisation flows in working hours, the rest is asked",
        files: &[
            TemplateFile { path: "org.yaml", text: include_str!("../../../../policies/templates/team/org.yaml") },
            TemplateFile {
                path: "agents/bookkeeper.yaml",
                text: include_str!("../../../../policies/templates/team/agents/bookkeeper.yaml"),
            },
        ],
    },
    Template {
        name: "strict",
        summary: "regulated work: everything is blocked unless a rule opens it, every write is asked",
        files: &[
            TemplateFile { path: "org.yaml", text: include_str!("../../../../policies/templates/strict/org.yaml") },
            TemplateFile {
                path: "agents/reader.yaml",
                text: include_str!("../../../../policies/templates/strict/agents/reader.yaml"),
            },
        ],
    },
];
