-- The local replica of one mailbox. It can be rebuilt from the service at any time.
-- A key is the second a message was received times 16, plus a counter: the order of keys is the order of age, and a
-- range of days is a range of keys, in the word index as well.
-- The packed body is last in its row: a search with snippets, and a fetch, read row and body from one page; a list
-- does not read the body.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    thread TEXT NOT NULL,
    received INTEGER NOT NULL,
    sender TEXT NOT NULL,
    subject TEXT NOT NULL,
    preview TEXT NOT NULL,
    labels TEXT NOT NULL,
    flags INTEGER NOT NULL,
    size INTEGER NOT NULL,
    dictionary INTEGER NOT NULL,
    length INTEGER NOT NULL,
    packed BLOB NOT NULL
) STRICT;
CREATE INDEX messages_by_thread ON messages (thread);
CREATE TABLE labels (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;
CREATE TABLE labelled (label INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (label, key)) STRICT, WITHOUT ROWID;
CREATE TABLE dictionaries (n INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE sync (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cursor TEXT,
    synced_at INTEGER,
    complete INTEGER NOT NULL,
    done INTEGER NOT NULL,
    total INTEGER
) STRICT;
INSERT INTO sync (one, cursor, synced_at, complete, done, total) VALUES (1, NULL, NULL, 0, 0, NULL);
-- Contents of attachments by their hash (packed or, where that saves nothing, as they are), and which messages hold them.
CREATE TABLE files (
    n INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    is_packed INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE holders (hash TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (hash, key)) STRICT, WITHOUT ROWID;
CREATE INDEX holders_by_message ON holders (key);
-- Messages that crashed every worker that parsed them: only their id is kept.
CREATE TABLE aside (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
-- Words arrive already shortened and case-folded; only which message holds which word is stored.
CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, detail='none', tokenize='ascii');
