// One run of the OpenAI Agents example with a scripted model, as a process that can die: see `frameworks.test.mjs`.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTracingDisabled, Usage } from "@openai/agents";
import { SluiceClient } from "sluicegate";
import { build, goOn } from "../examples/openai_agents.mjs";

setTracingDisabled(true);
const [folder, dies, order] = process.argv.slice(2);
const model = {
  async getResponse({ input }) {
    const last = Array.isArray(input) ? input.at(-1) : {};
    const output =
      last.type === "function_call_result"
        ? {
            type: "message",
            role: "assistant",
            status: "completed",
            content: [{ type: "output_text", text: `told: ${last.output.text ?? last.output}` }],
          }
        : {
            type: "function_call",
            callId: "call_1",
            name: "pay",
            status: "completed",
            arguments: JSON.stringify({ order, cents: 5 }),
          };
    return { usage: new Usage(), output: [output] };
  },
  getStreamedResponse() {
    throw new Error("not scripted");
  },
};
const pay = async ({ order, cents }) => {
  appendFileSync(`${folder}/effects`, "x");
  if (dies === "in_tool") process.exit(9);
  return `paid ${cents} for ${order}`;
};
const saved = `${folder}/saved`;
const agent = build(new SluiceClient(), model, `run-${order}`, pay);
const done = await goOn(agent, "pay", existsSync(saved) ? readFileSync(saved, "utf8") : undefined);
// The effect happened, and nothing has been saved yet.
if (dies === "late" && existsSync(`${folder}/effects`)) process.exit(9);
if (done.interruptions.length) writeFileSync(saved, done.state.toString());
console.log(JSON.stringify({ status: done.interruptions.length ? "waits" : "done", text: String(done.finalOutput) }));
