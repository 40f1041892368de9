// Adds the agent's key to every request the suite makes: it has no option for one.
import http from 'node:http';
const key = process.env.SLUICE_TEST_KEY;
const before = globalThis.fetch;
globalThis.fetch = (input, init = {}) => {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  if (!headers.has('authorization')) headers.set('authorization', `Bearer ${key}`);
  return before(input, { ...init, headers });
};
for (const name of ['request', 'get']) {
  const old = http[name];
  http[name] = function (...args) { const req = old.apply(this, args); if (!req.getHeader('authorization')) req.setHeader('authorization', `Bearer ${key}`); return req; };
}
