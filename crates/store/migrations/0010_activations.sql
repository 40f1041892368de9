-- Activations: each time rules came into force, also when the same ones came back.

CREATE TABLE policy_activations (
    node TEXT NOT NULL,
    number INTEGER NOT NULL,
    version TEXT NOT NULL,
    loaded_by TEXT NOT NULL,
    loaded_at INTEGER NOT NULL,
    PRIMARY KEY (node, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX policy_activations_when ON policy_activations (loaded_at);

-- Of the time before, the last activation of each version is known.
INSERT INTO policy_activations (node, number, version, loaded_by, loaded_at)
SELECT 'before', ROW_NUMBER() OVER (ORDER BY loaded_at, version), version, loaded_by, loaded_at FROM policies;
