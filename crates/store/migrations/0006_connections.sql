-- Connected services: which account, how it is reached, and how it stands. What was copied of a service lies
-- elsewhere, one file per connection and node.

CREATE TABLE connections (
    name TEXT NOT NULL PRIMARY KEY,
    adapter TEXT NOT NULL,
    service TEXT NOT NULL,
    account TEXT,
    -- Addresses and what else signing in needs, as JSON. No secrets.
    endpoints TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    since INTEGER NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
