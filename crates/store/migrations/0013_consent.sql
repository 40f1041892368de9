-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.

-- Recovery after a restored or damaged database.

-- Sessions and tasks, budgets, questions per agent.

-- Files and shared state: where their content comes from.

-- Contents that agents wrote into trusted folders, by their hash: they are outside text for whoever reads them.
CREATE TABLE written_files (
    sha256 TEXT NOT NULL PRIMARY KEY,
    path TEXT NOT NULL,
    agent TEXT NOT NULL,
    hold BLOB NOT NULL,
    written_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Observe mode.
