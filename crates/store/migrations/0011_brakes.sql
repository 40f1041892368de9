-- The brake of a connection is how it stands, not a row among the freezes of people: neither can hide or lift the other.

-- Who took the last step, where that is known.
ALTER TABLE connections ADD COLUMN moved_by TEXT NOT NULL DEFAULT 'node:earlier';
UPDATE connections SET moved_by = (SELECT f.placed_by FROM freezes f WHERE f.scope = 'service' AND f.name = connections.service)
WHERE state IN ('paused', 'needs_reauth')
AND EXISTS (SELECT 1 FROM freezes f WHERE f.scope = 'service' AND f.name = connections.service);
DELETE FROM freezes WHERE scope = 'service'
AND reason IN ('the connection is paused', 'the connection needs a new sign-in')
AND EXISTS (SELECT 1 FROM connections c WHERE c.service = freezes.name AND c.state IN ('paused', 'needs_reauth'));

-- Writes that were on their way when their service was disconnected: they are not tried again.
CREATE TABLE stop_orders (
    hold BLOB NOT NULL PRIMARY KEY,
    given_by TEXT NOT NULL,
    given_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
