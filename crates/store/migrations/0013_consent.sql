-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.

-- Recovery after a restored or damaged database.

-- Which gateway this database belongs to. One row; a state file outside the database names the same id.
CREATE TABLE instances (
    one INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    founded_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Each node's starts as its state file counts them, and what a node found wrong with this database at its last start.
-- While any node suspects the database, everything is frozen.
CREATE TABLE recovery_nodes (
    node TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    suspected_at INTEGER,
    -- What was found, as JSON; no content.
    findings TEXT NOT NULL,
    investigating INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What witnesses have seen of each log, and their cosignatures.
CREATE TABLE cosignatures (
    log TEXT NOT NULL,
    witness TEXT NOT NULL,
    size INTEGER NOT NULL,
    line TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (log, witness, size)
) STRICT, WITHOUT ROWID;

-- Sessions and tasks, budgets, questions per agent.

-- Files and shared state: where their content comes from.

-- Observe mode.
