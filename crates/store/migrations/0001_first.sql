-- One text for both engines. For PostgreSQL: INTEGER reads BIGINT, BLOB reads BYTEA, STRICT and WITHOUT ROWID go.
-- Lines that begin with `shared` are for databases that several nodes write to: a file's one writer remembers instead.
-- Times are UTC milliseconds. Ids are 16 bytes. Every table a move touches has a version to compare and set.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A running gateway and the head of its audit log. `commits` counts its transactions: after a lost
-- COMMIT answer it tells whether that transaction happened.
CREATE TABLE nodes (
    node TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    alive_at INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    commits INTEGER NOT NULL,
    log_size INTEGER NOT NULL,
    log_hash BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE holds (
    id BLOB NOT NULL PRIMARY KEY,
    call BLOB NOT NULL,
    session BLOB,
    agent TEXT NOT NULL,
    service TEXT NOT NULL,
    digest BLOB NOT NULL,
    class TEXT NOT NULL,
    tier TEXT NOT NULL,
    policy TEXT NOT NULL,
    object_key TEXT,
    weight INTEGER NOT NULL,
    delay INTEGER NOT NULL,
    admitted_at INTEGER NOT NULL,
    reverses BLOB,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    approval BLOB,
    handle TEXT,
    not_before INTEGER,
    claim_node TEXT,
    claim_life INTEGER,
    lease_until INTEGER,
    since INTEGER,
    rounds INTEGER,
    code TEXT,
    receipt TEXT,
    actor TEXT,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
/*shared*/ CREATE INDEX holds_by_digest ON holds (digest);
CREATE INDEX holds_waiting ON holds (not_before) WHERE state IN ('held', 'ready');
CREATE INDEX holds_running ON holds (lease_until) WHERE state IN ('preparing', 'armed');
CREATE INDEX holds_unclear ON holds (since) WHERE state = 'in_doubt';
CREATE INDEX holds_asked ON holds (approval) WHERE state = 'awaiting_approval';
-- No list of three or more in the condition of an index: SQLite builds a tree of it for every row that is written.
CREATE INDEX holds_for_people ON holds (state) WHERE state = 'needs_human' OR state = 'stale' OR state = 'dead';
CREATE INDEX holds_by_object ON holds (object_key, admitted_at)
    WHERE object_key IS NOT NULL AND ended_at IS NULL;

-- What a hold will do, apart from its state: moves do not rewrite it, and retention can erase it
-- (with its key) while the chain, which holds only a commitment, stays whole.
CREATE TABLE contents (
    hold BLOB NOT NULL PRIMARY KEY,
    action BLOB NOT NULL,
    record_key BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (
    id BLOB NOT NULL PRIMARY KEY,
    subject TEXT NOT NULL,
    agent TEXT NOT NULL,
    service TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    items INTEGER NOT NULL,
    note TEXT,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires_at INTEGER,
    answer TEXT,
    decided_by TEXT,
    decided_at INTEGER,
    valid_until INTEGER,
    replacement BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_open ON approvals (expires_at) WHERE state = 'pending';
CREATE UNIQUE INDEX approvals_one_batch ON approvals (agent, service) WHERE state = 'pending' AND subject = 'batch';

CREATE TABLE approval_items (
    approval BLOB NOT NULL,
    place INTEGER NOT NULL,
    hold BLOB NOT NULL,
    digest BLOB NOT NULL,
    chosen INTEGER,
    PRIMARY KEY (approval, place)
) STRICT, WITHOUT ROWID;

-- By name first: names that count, or begin with their time, lie beside each other whoever gave them.
CREATE TABLE idempotency (
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    call BLOB NOT NULL,
    hold BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (name, agent)
) STRICT, WITHOUT ROWID;

-- Batch windows and rate limits: weight per slot of time, so that limits survive restarts.
CREATE TABLE counters (
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    slot INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    PRIMARY KEY (kind, agent, name, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE allowances (
    id BLOB NOT NULL PRIMARY KEY,
    rule BLOB,
    session TEXT,
    asker TEXT NOT NULL,
    covers TEXT NOT NULL,
    domains TEXT,
    given_at INTEGER NOT NULL,
    given_by TEXT NOT NULL,
    expires_at INTEGER,
    uses_left INTEGER,
    revoked_by TEXT,
    revoked_at INTEGER,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX allowances_live ON allowances (asker) WHERE revoked_at IS NULL;

CREATE TABLE freezes (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    placed_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    placed_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- The state before a write, to go back to; prints are hashes of an object's state before and after.
CREATE TABLE rollback_points (
    id BLOB NOT NULL PRIMARY KEY,
    hold BLOB NOT NULL,
    content BLOB NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    before_print BLOB NOT NULL,
    after_print BLOB,
    captured_at INTEGER NOT NULL,
    until INTEGER,
    ended_by TEXT,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX rollback_by_hold ON rollback_points (hold);
CREATE INDEX rollback_live ON rollback_points (until) WHERE state = 'sealed';

-- Messages to people. Delivered at least once; harmless twice.
CREATE TABLE outbox (
    id BLOB NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL,
    severity TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    sent_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (due_at) WHERE sent_at IS NULL;

CREATE TABLE policies (
    version TEXT NOT NULL PRIMARY KEY,
    sources TEXT NOT NULL,
    loaded_by TEXT NOT NULL,
    loaded_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_entries (
    log TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (log, seq)
) STRICT, WITHOUT ROWID;

-- Hashes of complete subtrees, every 256 leaves: what inclusion and consistency proofs are made from.
CREATE TABLE audit_nodes (
    log TEXT NOT NULL,
    level INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (log, level, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    log TEXT NOT NULL,
    size INTEGER NOT NULL,
    frontier TEXT NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (log, size)
) STRICT, WITHOUT ROWID;
