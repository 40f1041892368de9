-- What calls asked for that the rules refused, each once: so that other rules can be tried on them.

CREATE TABLE refused_actions (
    digest BLOB NOT NULL PRIMARY KEY,
    action BLOB NOT NULL,
    kept_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_actions_when ON refused_actions (kept_at);
