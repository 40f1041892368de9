-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.
-- Who accepted that a mounted tool only reads, and when. Bound to the accepted definition: a change ends it.
ALTER TABLE mount_tools ADD COLUMN read_only_by TEXT;
ALTER TABLE mount_tools ADD COLUMN read_only_at INTEGER;

-- Recovery after a restored or damaged database.

-- Sessions and tasks, budgets, questions per agent.

-- Files and shared state: where their content comes from.

-- Observe mode.
