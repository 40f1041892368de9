-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Why a person is asked, as it was when the question was put: a JSON list of code, rule and words.
ALTER TABLE approvals ADD COLUMN reasons TEXT;
-- How many writes of the question a letter showed, and the digest that names them in their order.
ALTER TABLE deliveries ADD COLUMN items INTEGER;
ALTER TABLE deliveries ADD COLUMN card BLOB;
-- The digest of what a vote covers: only votes for the same writes are counted together.
ALTER TABLE votes ADD COLUMN card BLOB;

-- Standing approvals: bounds, uses, last use.
ALTER TABLE allowances ADD COLUMN bound TEXT;
ALTER TABLE allowances ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE allowances ADD COLUMN last_used_at INTEGER;
-- Standing approvals of agents had no bounds: they covered every call of a capability. They end here.
UPDATE allowances SET revoked_by = 'node:upgrade', revoked_at = given_at, version = version + 1
    WHERE asker LIKE 'agent:%' AND revoked_at IS NULL;
-- A client's approval for a session had no end.
UPDATE allowances SET expires_at = given_at + 28800000, uses_left = 200, version = version + 1
    WHERE asker LIKE 'client:%' AND session IS NOT NULL AND expires_at IS NULL AND revoked_at IS NULL;
-- What was learnt without the family of its capability and the role of its argument counts no longer.
DELETE FROM known_targets;

-- Freezes and mounted tools.
-- Who accepted that a mounted tool only reads, and when. Bound to the accepted definition: a change ends it.
ALTER TABLE mount_tools ADD COLUMN read_only_by TEXT;
ALTER TABLE mount_tools ADD COLUMN read_only_at INTEGER;

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
-- Who stated the task of a session. A task from before, which the agent itself stated, has nobody and is not read.
ALTER TABLE sessions ADD COLUMN task_by TEXT;

-- Files and shared state: where their content comes from.

-- Contents that agents wrote into trusted folders, by their hash: they are outside text for whoever reads them.
CREATE TABLE written_files (
    sha256 TEXT NOT NULL PRIMARY KEY,
    path TEXT NOT NULL,
    agent TEXT NOT NULL,
    hold BLOB NOT NULL,
    written_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Observe mode.
-- Until when an agent's calls are judged but not stopped, and which of those that leave the house are included.
ALTER TABLE agents ADD COLUMN observe_until INTEGER;
ALTER TABLE agents ADD COLUMN observe_leaving TEXT;
