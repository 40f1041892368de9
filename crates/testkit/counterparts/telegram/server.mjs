// `telegram-test-api`, a third-party Bot API: messages with buttons, presses, replies and edits. It ignores offsets and never
// waits; for those cases there is the strict stand-in in crates/gateway/tests/it/telegram.rs.
//   npm install --prefix <folder> (with the package.json beside this file), then
//   <folder>/node_modules/.bin/node server.mjs <folder> <port>
import { createRequire } from "node:module";
import { join, resolve as absolute } from "node:path";

const [, , folder, port] = process.argv;
const load = createRequire(join(absolute(folder), "package.json"));
const found = load("telegram-test-api");
const TelegramServer = found.TelegramServer ?? found.default ?? found;
const server = new TelegramServer({ port: Number(port), host: "127.0.0.1", storeTimeout: 3600 });
await server.start();
console.log(`ready ${port}`);
