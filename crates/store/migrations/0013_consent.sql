-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.

-- Recovery after a restored or damaged database.

-- Sessions and tasks, budgets, questions per agent.
-- Who stated the task of a session. A task from before, which the agent itself stated, has nobody and is not read.
ALTER TABLE sessions ADD COLUMN task_by TEXT;

-- Files and shared state: where their content comes from.

-- Observe mode.
