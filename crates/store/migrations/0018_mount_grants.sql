-- Schema 18: the access that people granted to mounted servers. Tokens and secrets are in the vault.

CREATE TABLE mount_grants (
    mount TEXT NOT NULL PRIMARY KEY,
    -- The address of the server when the access was granted: another address is another server.
    url TEXT NOT NULL,
    -- The server's identifier and its authorization server, exactly as they were published.
    resource TEXT NOT NULL,
    issuer TEXT NOT NULL,
    authorize TEXT NOT NULL,
    token TEXT NOT NULL,
    revoke TEXT,
    -- `document`, `registered` or `dynamic`, and how the client proves who it is.
    client_id TEXT NOT NULL,
    client_origin TEXT NOT NULL,
    client_auth TEXT NOT NULL,
    -- Scopes, separated by spaces.
    requested TEXT NOT NULL,
    granted TEXT NOT NULL,
    -- When it ends, if it cannot be renewed.
    ends_at INTEGER,
    granted_by TEXT NOT NULL,
    granted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
