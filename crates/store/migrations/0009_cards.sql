-- Cards: what an agent said about a write, and links under which a person can open a question.

-- The agent's own words about why it wants the write. Shown to people as such; nothing rests on them.
ALTER TABLE contents ADD COLUMN reason TEXT;

-- One link for one person to one question. Only the hash of its token is here.
CREATE TABLE links (
    token BLOB NOT NULL PRIMARY KEY,
    approval BLOB NOT NULL,
    person TEXT NOT NULL,
    channel TEXT NOT NULL,
    made_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX links_old ON links (made_at);
