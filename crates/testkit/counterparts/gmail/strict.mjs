// The Google plugin of `emulate` on its own server, but strict: a token that was not issued is refused.
//   npm install --prefix <folder> (with the package.json beside this file), then
//   <folder>/node_modules/.bin/node strict.mjs <folder> <port>
// Two more addresses control faults:
//   POST /__fault {"path": "/messages/send$", "method": "POST", "status": 503, "headers": {}, "times": 1, "after": true}
//        answers like this instead; with `after`, only after the call was really carried out: a lost reply
//   POST /__forget {"token": "…"}   this access token is refused from now on
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, port] = process.argv;
const modules = join(resolve(folder), "node_modules");
const load = (path) => import(pathToFileURL(path).href);
const core = await load(join(modules, "@emulators/core/dist/index.js"));
const yaml = createRequire(join(modules, "emulate/package.json"))("yaml");
const dist = join(modules, "emulate/dist");
// The names of the bundled plugins change with each release.
const bundles = readdirSync(dist).filter((name) => /^dist-.*\.js$/.test(name));
const bundle = bundles.find((name) => /^\s*googlePlugin,?$/m.test(readFileSync(join(dist, name), "utf8")));
const google = await load(join(dist, bundle));
const seed = yaml.parse(readFileSync(new URL("./seed.yaml", import.meta.url), "utf8"));

const tokens = Object.fromEntries(
  Object.entries(seed.tokens).map(([token, user], n) => [token, { login: user.login, id: n + 1, scopes: user.scopes }]),
);
core.WebhookDispatcher.prototype.setHeaderFactory ??= () => {};
const baseUrl = `http://127.0.0.1:${port}`;
const server = core.createServer(google.googlePlugin, { port: Number(port), baseUrl, tokens });
google.googlePlugin.seed?.(server.store, baseUrl);
google.seedFromConfig?.(server.store, baseUrl, seed.google, server.webhooks);

const said = (value) => new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
let faults = [];

async function answer(request) {
  const { pathname } = new URL(request.url);
  if (pathname === "/__fault") {
    faults.push({ times: 1, ...(await request.json()) });
    return said({ faults: faults.length });
  }
  if (pathname === "/__forget") return said({ known: server.tokenMap.delete((await request.json()).token) });
  const fault = faults.find(
    (one) => one.times > 0 && (!one.method || one.method === request.method) && new RegExp(one.path).test(pathname),
  );
  if (!fault) return server.app.fetch(request);
  fault.times -= 1;
  if (fault.after) await server.app.fetch(request);
  const headers = { "content-type": "application/json", ...fault.headers };
  return new Response(JSON.stringify(fault.body ?? {}), { status: fault.status, headers });
}

core.serve({ port: Number(port), hostname: "127.0.0.1", fetch: answer });
console.log(`ready ${baseUrl}`);
