-- What a gateway needs beside held writes: who may knock, their sessions, what agents remember, results.

-- A number that moves with every change of a kind, so that other nodes see that something changed.
CREATE TABLE generations (
    name TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO generations (name, number) VALUES ('keys', 0);

-- A name is given once: what was allowed under it must not pass to another.
CREATE TABLE agents (
    name TEXT NOT NULL PRIMARY KEY,
    note TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    paused_at INTEGER,
    paused_by TEXT,
    paused_for TEXT,
    removed_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    id BLOB NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT,
    label TEXT,
    hash BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX keys_by_hash ON keys (hash);

CREATE TABLE sessions (
    id BLOB NOT NULL PRIMARY KEY,
    agent TEXT NOT NULL,
    client TEXT,
    task TEXT,
    opened_at INTEGER NOT NULL,
    ended_at INTEGER,
    tainted_at INTEGER
) STRICT, WITHOUT ROWID;

-- What the agent is told of a write that happened.
CREATE TABLE results (
    hold BLOB NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When a slot can no longer count. Empty for latches, which stay.
ALTER TABLE counters ADD COLUMN until INTEGER;

-- Who sent a message and who has seen to it. Empty where a gateway sent it by itself.
ALTER TABLE outbox ADD COLUMN sent_by TEXT;
ALTER TABLE outbox ADD COLUMN acked_by TEXT;
ALTER TABLE outbox ADD COLUMN acked_at INTEGER;

-- What agents remember, at its newest. Owners are ids or names as bytes, names are
-- bytes too, so that both engines order them alike. Without a
-- value it was deleted: the row keeps counting versions and knows the write that deleted it.
CREATE TABLE state_items (
    shelf TEXT NOT NULL,
    owner BLOB NOT NULL,
    name BLOB NOT NULL,
    version INTEGER NOT NULL,
    value TEXT,
    size INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    agent TEXT NOT NULL,
    hold BLOB NOT NULL,
    PRIMARY KEY (shelf, owner, name)
) STRICT, WITHOUT ROWID;

-- What they remembered before.
CREATE TABLE state_versions (
    shelf TEXT NOT NULL,
    owner BLOB NOT NULL,
    name BLOB NOT NULL,
    version INTEGER NOT NULL,
    value TEXT,
    size INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    agent TEXT NOT NULL,
    hold BLOB NOT NULL,
    PRIMARY KEY (shelf, owner, name, version)
) STRICT, WITHOUT ROWID;
