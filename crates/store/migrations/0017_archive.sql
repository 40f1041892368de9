-- Schema 17: where the entries of an audit log begin, once the oldest of them were archived. One row for each such log.

CREATE TABLE audit_pruned (
    log TEXT NOT NULL PRIMARY KEY,
    -- Entries before this one are gone.
    size INTEGER NOT NULL,
    -- Their tree, and the hash of the last of them: what a verifier begins with.
    frontier TEXT NOT NULL,
    hash BLOB NOT NULL,
    -- How many entries are archived. The last of them, fewer than 256, are still here as well.
    archived INTEGER NOT NULL,
    pruned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
