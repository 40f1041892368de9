-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.

-- Recovery after a restored or damaged database.

-- Sessions and tasks, budgets, questions per agent.

-- Files and shared state: where their content comes from.

-- Observe mode.
-- Until when an agent's calls are judged but not stopped, and which of those that leave the house are included.
ALTER TABLE agents ADD COLUMN observe_until INTEGER;
ALTER TABLE agents ADD COLUMN observe_leaving TEXT;
