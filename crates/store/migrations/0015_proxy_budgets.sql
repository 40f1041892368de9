-- Schema 15: budgets of security proxies, and what their reviews look at.

-- What the tasks of a proxy used within a UTC day, and what those under way may still use.
CREATE TABLE proxy_days (
    proxy TEXT NOT NULL,
    -- Days since 1970, UTC.
    day INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    millis INTEGER NOT NULL,
    -- In millionths of a unit.
    cost INTEGER NOT NULL,
    held_requests INTEGER NOT NULL,
    held_bytes INTEGER NOT NULL,
    held_millis INTEGER NOT NULL,
    held_cost INTEGER NOT NULL,
    -- The largest share of the day that people were told of, in percent.
    told INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (proxy, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX proxy_days_until ON proxy_days (until);

-- The day a task is counted on and what was reserved for it. Empty for tasks from before budgets.
ALTER TABLE proxy_tasks ADD COLUMN day INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN held_requests INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN held_bytes INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN held_millis INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN held_cost INTEGER;
-- Why its caller was given nothing, why its request was refused, how large the answer was, what was found in it, and how
-- many proposals were not kept.
ALTER TABLE proxy_tasks ADD COLUMN failed TEXT;
ALTER TABLE proxy_tasks ADD COLUMN refused TEXT;
ALTER TABLE proxy_tasks ADD COLUMN answer_bytes INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN findings INTEGER;
ALTER TABLE proxy_tasks ADD COLUMN proposals_refused INTEGER;
CREATE INDEX proxy_tasks_by_start ON proxy_tasks (proxy, started_at);
