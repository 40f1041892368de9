-- Schema 14: the state of messages, retries, reads and local services. Each section is one part of the product.

-- Files that a coding client writes itself.

-- What was there before a call that was allowed. The contents lie in the data folder of the node that kept them.
CREATE TABLE client_writes (
    id BLOB NOT NULL PRIMARY KEY,
    agent TEXT NOT NULL,
    session BLOB,
    capability TEXT NOT NULL,
    node TEXT NOT NULL,
    -- A hash of what was asked, by which a report of the client finds its call.
    wish BLOB NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    -- The files, with their states before and after, as JSON.
    files BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    captured_at INTEGER NOT NULL,
    reported_at INTEGER,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX client_writes_by_agent ON client_writes (agent, captured_at);
CREATE INDEX client_writes_by_end ON client_writes (state, until);

-- Messages to people: whether and how they were delivered.
-- Why a letter was refused or has not been taken yet, in words without content, and when it is tried again.
ALTER TABLE deliveries ADD COLUMN reason TEXT;
ALTER TABLE deliveries ADD COLUMN next_at INTEGER;
-- The answer that a letter asks a person to confirm.
ALTER TABLE deliveries ADD COLUMN proposal BLOB;
-- Answers with a text of which something may be missing: what was understood, until the person confirms it.
CREATE TABLE proposed_answers (
    id BLOB NOT NULL PRIMARY KEY,
    approval BLOB NOT NULL,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    -- The digit of the menu and the text after it.
    code TEXT NOT NULL,
    words TEXT NOT NULL,
    made_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX proposed_answers_of ON proposed_answers (approval, channel, place);

-- Mail that two readers understand differently.

-- Retrying writes: last error and next attempt.

-- Why the last attempt of a write failed: our code, and what the service said, screened and short.
CREATE TABLE hold_failures (
    hold BLOB NOT NULL PRIMARY KEY,
    attempt INTEGER NOT NULL,
    code TEXT NOT NULL,
    service_words TEXT,
    failed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What reads returned, and notices to people.
CREATE INDEX outbox_urgent ON outbox (due_at) WHERE sent_at IS NULL AND topic <> 'call.notify';
CREATE INDEX outbox_notices ON outbox (created_at) WHERE sent_at IS NULL AND topic = 'call.notify';

-- Local services: git, processes, schedules, messages between agents, custom capabilities.

-- Messages between agents. A message that was taken stays until it expires, so that what was said can be looked at.
CREATE TABLE agent_messages (
    recipient TEXT NOT NULL,
    id BLOB NOT NULL,
    sender TEXT NOT NULL,
    channel TEXT,
    message TEXT NOT NULL,
    -- 0 is high, 1 normal, 2 low.
    priority INTEGER NOT NULL,
    -- Whether the sender had read something suspicious when it wrote it.
    tainted INTEGER NOT NULL,
    sent_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    taken_at INTEGER,
    PRIMARY KEY (recipient, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_messages_by_id ON agent_messages (id);
CREATE INDEX agent_messages_until ON agent_messages (until);

CREATE TABLE agent_channels (
    channel TEXT NOT NULL,
    agent TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (channel, agent)
) STRICT, WITHOUT ROWID;

-- Calls that agents planned. `next_at` is empty once nothing is due any more.
CREATE TABLE schedules (
    id BLOB NOT NULL PRIMARY KEY,
    agent TEXT NOT NULL,
    capability TEXT NOT NULL,
    arguments TEXT NOT NULL,
    -- Five fields of cron in UTC; empty for a single call.
    cron TEXT,
    description TEXT,
    -- `active`, `done`, `cancelled` or `missed`.
    state TEXT NOT NULL,
    reason TEXT,
    version INTEGER NOT NULL,
    next_at INTEGER,
    created_at INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    last_at INTEGER,
    last_call BLOB,
    last_code TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE state = 'active';
CREATE INDEX schedules_of ON schedules (agent, state);

-- What an agent kept, as it was at a moment of its choice: a JSON object of keys and values.
CREATE TABLE state_snapshots (
    id BLOB NOT NULL PRIMARY KEY,
    agent TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    items INTEGER NOT NULL,
    size INTEGER NOT NULL,
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX state_snapshots_of ON state_snapshots (agent, id);

-- Security proxies: budgets and reviews.
