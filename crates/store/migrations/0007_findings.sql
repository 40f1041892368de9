-- What comes from outside: what was withheld, what sessions were shown, and which targets people have approved.

-- An item that is kept from agents. Its content is sealed with the vault's root key and goes when `until` has come.
CREATE TABLE findings (
    id BLOB NOT NULL PRIMARY KEY,
    found_at INTEGER NOT NULL,
    service TEXT NOT NULL,
    source TEXT NOT NULL,
    author TEXT NOT NULL,
    agent TEXT,
    session BLOB,
    call BLOB,
    -- Thousandths.
    score INTEGER NOT NULL,
    threshold INTEGER NOT NULL,
    notes TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    hash BLOB NOT NULL,
    root TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    sealed BLOB NOT NULL,
    released_at INTEGER,
    released_by TEXT,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX findings_old ON findings (until);
CREATE INDEX findings_alike ON findings (service, hash);

-- What a session was shown from outside: not the text, but numbers of its values that only this session can make.
CREATE TABLE observations (
    session BLOB NOT NULL,
    id BLOB NOT NULL,
    seen_at INTEGER NOT NULL,
    source TEXT NOT NULL,
    met BLOB NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX observations_old ON observations (seen_at);

-- Targets a person has approved for an agent, as hashes.
CREATE TABLE known_targets (
    agent TEXT NOT NULL,
    print TEXT NOT NULL,
    since INTEGER NOT NULL,
    approval BLOB NOT NULL,
    PRIMARY KEY (agent, print)
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_tainted ON sessions (agent) WHERE tainted_at IS NOT NULL;

-- Where the targets of a held write come from, as it was when it was admitted.
ALTER TABLE contents ADD COLUMN targets TEXT;
