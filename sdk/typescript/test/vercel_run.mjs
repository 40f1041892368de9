// One run of the Vercel AI example with a scripted model, as a process that can die: see `frameworks.test.mjs`.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { MockLanguageModelV3 } from "ai/test";
import { SluiceClient } from "sluicegate";
import { run, tools } from "../examples/vercel_ai.mjs";

const [folder, dies, order] = process.argv.slice(2);
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    const last = prompt.at(-1);
    const answer = last.role === "tool" && last.content.find(({ type }) => type === "tool-result");
    const content = answer
      ? [{ type: "text", text: `told: ${answer.output.value}` }]
      : [{ type: "tool-call", toolCallId: "call_1", toolName: "pay", input: JSON.stringify({ order, cents: 5 }) }];
    return { content, finishReason: { unified: answer ? "stop" : "tool-calls" }, usage, warnings: [] };
  },
});
const pay = async ({ order, cents }) => {
  appendFileSync(`${folder}/effects`, "x");
  if (dies === "in_tool") process.exit(9);
  return `paid ${cents} for ${order}`;
};
const saved = `${folder}/saved`;
const messages = existsSync(saved) ? JSON.parse(readFileSync(saved, "utf8")) : [{ role: "user", content: "pay" }];
const done = await run(model, tools(new SluiceClient(), `run-${order}`, pay), messages);
// The effect happened, and nothing has been saved yet.
if (dies === "late" && existsSync(`${folder}/effects`)) process.exit(9);
if (!done.text) writeFileSync(saved, JSON.stringify(done.messages));
console.log(JSON.stringify({ status: done.text ? "done" : "waits", text: done.text }));
