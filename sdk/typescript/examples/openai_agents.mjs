// OpenAI Agents SDK: the gateway decides about a tool call, before it and again when it runs.
import { Agent, RunState, run, tool } from "@openai/agents";
import { ParkedCallError, SluiceError } from "sluicegate";
import { z } from "zod";

/** `name` names the run: with the id of a tool call it names one operation. */
export function build(client, model, name, payOrder) {
  const pay = tool({
    name: "pay",
    description: "Pays an order.",
    parameters: z.object({ order: z.string(), cents: z.number() }),
    needsApproval: async (_, input, callId) => {
      const operation = `${name}:${callId}`;
      const error = await client.check("custom:ask_pay", input, { operation }).catch((caught) => caught);
      return error instanceof ParkedCallError; // A refusal is told by the tool itself.
    },
    execute: (input, _, details) =>
      client
        .gate("ask_pay", payOrder, { operation: () => `${name}:${details.toolCall.callId}` })(input)
        .catch((error) => {
          if (error instanceof SluiceError) return `not done: ${error.message}`;
          throw error;
        }),
  });
  return new Agent({ name: "payer", model, tools: [pay] });
}

/** Begins a run, or goes on with a saved one. Approving here only lets the tool ask the gateway again. */
export async function goOn(agent, task, saved) {
  if (saved === undefined) return run(agent, task);
  const state = await RunState.fromString(agent, saved);
  for (const item of state.getInterruptions()) state.approve(item);
  return run(agent, state);
}
