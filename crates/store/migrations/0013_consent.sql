-- Consent: what people are shown and agree to, how far a standing approval reaches, what a freeze stops, how much an
-- agent may do in a day.

-- Questions: what was shown, and why it was asked.

-- Why a person is asked, as it was when the question was put: a JSON list of code, rule and words.
ALTER TABLE approvals ADD COLUMN reasons TEXT;
-- How many writes of the question a letter showed, and the digest that names them in their order.
ALTER TABLE deliveries ADD COLUMN items INTEGER;
ALTER TABLE deliveries ADD COLUMN card BLOB;
-- The digest of what a vote covers: only votes for the same writes are counted together.
ALTER TABLE votes ADD COLUMN card BLOB;

-- Standing approvals: bounds, uses, last use.

-- Freezes and mounted tools.

-- Recovery after a restored or damaged database.

-- Sessions and tasks, budgets, questions per agent.

-- Files and shared state: where their content comes from.

-- Observe mode.
