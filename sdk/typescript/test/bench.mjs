// What the client costs beside raw fetch, in one run against one real gateway, in turns.
import { SluiceClient } from "../dist/index.js";
import { realGateway } from "./real_gateway.mjs";

const [rounds, calls] = [20, 50];
const gateway = await realGateway();
const client = new SluiceClient({ url: gateway.url, key: gateway.key });
const headers = { authorization: `Bearer ${gateway.key}`, "content-type": "application/json" };
const body = JSON.stringify({ capability: "agent.whoami", arguments: {} });
const ways = {
  fetch: async () => (await fetch(`${gateway.url}/v1/calls`, { method: "POST", headers, body })).json(),
  sluicegate: () => client.call("agent.whoami"),
};
const took = { fetch: [], sluicegate: [] };
const busy = { fetch: 0, sluicegate: 0 };
for (let turn = 0; turn <= rounds; turn++) {
  for (const [name, call] of Object.entries(ways)) {
    const before = process.cpuUsage();
    for (let n = 0; n < calls; n++) {
      const begun = performance.now();
      await call();
      if (turn) took[name].push(performance.now() - begun);
    }
    const { user, system } = process.cpuUsage(before);
    if (turn) busy[name] += user + system;
  }
}
const p50 = (name) => took[name].sort((a, b) => a - b)[Math.floor(took[name].length / 2)];
for (const name of Object.keys(ways)) {
  console.log(
    `${name}: p50 ${p50(name).toFixed(3)} ms, processor ${(busy[name] / rounds / calls / 1000).toFixed(3)} ms`,
  );
}
const [added, ratio] = [p50("sluicegate") - p50("fetch"), busy.sluicegate / busy.fetch];
console.log(`added p50 ${added.toFixed(3)} ms (goal 0.3), processor ${ratio.toFixed(2)}x (goal 1.3)`);
await gateway.close();
process.exit(0);
