-- Secrets, sealed before they come here, and how often each way out was used.

INSERT INTO generations (name, number) VALUES ('vault', 0);

-- Which root key seals the vault: its fingerprint, the salt of a passphrase, and a text only that key opens.
CREATE TABLE vault_root (
    one INTEGER NOT NULL PRIMARY KEY,
    root TEXT NOT NULL,
    salt BLOB NOT NULL,
    proof BLOB NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A name is one secret for ever; `scope` is what it is bound to, sealed in with every version.
CREATE TABLE secrets (
    name TEXT NOT NULL PRIMARY KEY,
    id BLOB NOT NULL,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    revoked_at INTEGER,
    revoked_by TEXT
) STRICT, WITHOUT ROWID;

-- Ciphertexts only. Without its row here a version cannot be opened by anyone.
CREATE TABLE secret_versions (
    secret BLOB NOT NULL,
    version INTEGER NOT NULL,
    root TEXT NOT NULL,
    scope TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    sealed BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (secret, version)
) STRICT, WITHOUT ROWID;

-- Requests per way out and second.
CREATE TABLE egress_counters (
    connection TEXT NOT NULL,
    slot INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (connection, slot)
) STRICT, WITHOUT ROWID;

-- Requests altogether, and the breaker.
CREATE TABLE egress_states (
    connection TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    burned INTEGER NOT NULL,
    told INTEGER NOT NULL,
    refusals INTEGER NOT NULL,
    opened INTEGER NOT NULL,
    open_until INTEGER,
    probe_until INTEGER
) STRICT, WITHOUT ROWID;
