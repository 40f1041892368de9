// Vercel AI SDK: the gateway decides about a tool call, before it and again when it runs.
import { generateText, stepCountIs, tool } from "ai";
import { ParkedCallError, SluiceError } from "sluicegate";
import { z } from "zod";

const parts = (messages) => messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
const requests = (messages) => parts(messages).filter(({ type }) => type === "tool-approval-request");

/** `name` names the run: with the id of a tool call it names one operation. */
export function tools(client, name, payOrder) {
  return {
    pay: tool({
      description: "Pays an order.",
      inputSchema: z.object({ order: z.string(), cents: z.number() }),
      needsApproval: async (input, { toolCallId, messages }) => {
        // The SDK asks again before it runs an approved call, and denies it if the answer has changed.
        if (requests(messages).some((request) => request.toolCallId === toolCallId)) return true;
        const operation = `${name}:${toolCallId}`;
        const error = await client.check("custom:ask_pay", input, { operation }).catch((caught) => caught);
        return error instanceof ParkedCallError; // A refusal is told by the tool itself.
      },
      execute: (input, { toolCallId }) =>
        client
          .gate("ask_pay", payOrder, { operation: () => `${name}:${toolCallId}` })(input)
          .catch((error) => {
            if (error instanceof SluiceError) return `not done: ${error.message}`;
            throw error;
          }),
    }),
  };
}

/** Begins a run, or goes on with saved messages. Approving here only lets the tool ask the gateway again. */
export async function run(model, tools, messages) {
  const answer = ({ approvalId }) => ({ type: "tool-approval-response", approvalId, approved: true });
  const content = requests(messages).map(answer);
  const given = content.length ? [...messages, { role: "tool", content }] : messages;
  const result = await generateText({ model, tools, messages: given, stopWhen: stepCountIs(3) });
  return { text: result.text, messages: [...given, ...result.response.messages] };
}
