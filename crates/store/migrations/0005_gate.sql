-- The approval gate: what clients ask in their own words, where questions were shown, and who has said yes so far.

-- What a client wants to do by itself. `digest` is of everything asked: the same again, while it is open, is one question.
CREATE TABLE requests (
    approval BLOB NOT NULL PRIMARY KEY,
    client TEXT NOT NULL,
    session TEXT NOT NULL,
    action_type TEXT NOT NULL,
    title TEXT NOT NULL,
    preview TEXT NOT NULL,
    options TEXT NOT NULL,
    channel TEXT,
    place TEXT,
    digest BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    name TEXT,
    rule BLOB,
    reworded TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_alike ON requests (digest);
CREATE UNIQUE INDEX requests_by_name ON requests (client, name) WHERE name IS NOT NULL;

-- Where a question was shown. One row per attempt: what was sent before a crash keeps working. Only the hash of its
-- secret is here; `message` is the channel's own name for it, once that is known.
CREATE TABLE deliveries (
    approval BLOB NOT NULL,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    secret BLOB NOT NULL,
    message TEXT,
    opened_at INTEGER NOT NULL,
    sent_at INTEGER,
    reminded_at INTEGER,
    shown TEXT NOT NULL,
    PRIMARY KEY (approval, channel, place, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_by_secret ON deliveries (secret);
CREATE INDEX deliveries_by_message ON deliveries (channel, place, message) WHERE message IS NOT NULL;
CREATE INDEX deliveries_stale ON deliveries (shown) WHERE shown = 'pending';
CREATE INDEX deliveries_lately ON deliveries (channel, place, opened_at);

-- A yes that is not enough alone.
CREATE TABLE votes (
    approval BLOB NOT NULL,
    voter TEXT NOT NULL,
    channel TEXT NOT NULL,
    given_at INTEGER NOT NULL,
    PRIMARY KEY (approval, voter)
) STRICT, WITHOUT ROWID;

-- How far a channel has read, and what it has heard lately: the same news twice is heard once.
CREATE TABLE channel_marks (
    channel TEXT NOT NULL PRIMARY KEY,
    mark TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE channel_news (
    channel TEXT NOT NULL,
    news TEXT NOT NULL,
    heard_at INTEGER NOT NULL,
    PRIMARY KEY (channel, news)
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_news_old ON channel_news (heard_at);
