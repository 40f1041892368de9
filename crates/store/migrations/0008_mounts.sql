-- Tools of mounted servers: the definition a person has accepted (or that was there at first), and the one that waits.

CREATE TABLE mount_tools (
    mount TEXT NOT NULL,
    tool TEXT NOT NULL,
    -- Canonical JSON of the whole definition; empty until one was accepted.
    accepted TEXT,
    accepted_by TEXT,
    accepted_at INTEGER,
    -- What the server says now, if that is not what was accepted, and why it waits: `changed`, `new` or `suspicious`.
    waiting TEXT,
    reason TEXT,
    since INTEGER,
    PRIMARY KEY (mount, tool)
) STRICT, WITHOUT ROWID;
