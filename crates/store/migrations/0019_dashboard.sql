-- Schema 19: how people are signed in to the dashboard. Only hashes of codes and cookies are stored; what a session may do
-- is what the operator's credential behind it may do at that moment.

CREATE TABLE dashboard_links (
    hash BLOB NOT NULL PRIMARY KEY,
    -- The operator's credential that the code signs in.
    key BLOB NOT NULL,
    made_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE dashboard_sessions (
    id BLOB NOT NULL PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    key BLOB NOT NULL,
    -- The browser, by the name it gives itself, cut to length.
    browser TEXT NOT NULL,
    made_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_by TEXT
) STRICT, WITHOUT ROWID;
