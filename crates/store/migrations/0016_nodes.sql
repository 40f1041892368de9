-- Schema 16: what each node says of itself, for the other nodes and for people. When it was last seen is in `nodes`.

CREATE TABLE node_reports (
    node TEXT NOT NULL PRIMARY KEY,
    release TEXT NOT NULL,
    -- `starting`, `open` or `stopping`.
    phase TEXT NOT NULL,
    policy_version TEXT NOT NULL,
    -- What stands behind the gate there: name, kind and whether it can be used now, as JSON.
    services TEXT NOT NULL,
    -- The public keys of the logs it signs, as JSON.
    log_keys TEXT NOT NULL,
    reported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Whether people were told that nodes differ, and in what. One row: whichever node notices first tells them.
CREATE TABLE node_divergence (
    one INTEGER NOT NULL PRIMARY KEY,
    -- `release`, `policy` and `services`, as far as people were told of them.
    kinds TEXT NOT NULL,
    since INTEGER NOT NULL,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO node_divergence (one, kinds, since, ended_at) VALUES (1, '', 0, 0);
