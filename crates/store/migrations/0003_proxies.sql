-- Tasks of security proxies, and which proxies wait for a person.

CREATE TABLE proxy_tasks (
    id BLOB NOT NULL PRIMARY KEY,
    proxy TEXT NOT NULL,
    operation TEXT NOT NULL,
    agent TEXT NOT NULL,
    node TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    state TEXT NOT NULL,
    requests INTEGER NOT NULL,
    -- The crash report, in its published form. Empty for a task that ended well.
    report TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX proxy_tasks_by_proxy ON proxy_tasks (proxy, id);
CREATE INDEX proxy_tasks_running ON proxy_tasks (node) WHERE state = 'running';

-- A proxy that is not listed here may run.
CREATE TABLE proxy_standing (
    proxy TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    crash TEXT,
    reason TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
