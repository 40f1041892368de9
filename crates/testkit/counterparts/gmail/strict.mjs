// The Google plugin of `emulate` on its own server, but strict: a token nobody gave out is refused.
//   npm install --prefix <folder> (with the package.json beside this file), then
//   <folder>/node_modules/.bin/node strict.mjs <folder> <port>
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, port] = process.argv;
const modules = join(folder, "node_modules");
const load = (path) => import(pathToFileURL(path).href);
const core = await load(join(modules, "@emulators/core/dist/index.js"));
const yaml = createRequire(join(modules, "emulate/package.json"))("yaml");
const dist = join(modules, "emulate/dist");
// The plugins are bundled under names that change with each release.
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
core.serve({ port: Number(port), hostname: "127.0.0.1", fetch: (request) => server.app.fetch(request) });
console.log(`ready ${baseUrl}`);
