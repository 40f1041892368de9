// What the types promise. Compiled, never run.
import {
  type AlreadyFinishedError,
  BlockedError,
  type CallHandle,
  type CallView,
  type ErrorCode,
  type SluiceClient,
  SluiceError,
} from "../src/index.js";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Same<A, B>): void => undefined;

export async function promises(client: SluiceClient, unknown: AlreadyFinishedError): Promise<void> {
  const call = await client.call<{ size: number }>("filesystem.write", { path: "a", content: "b" });
  same<typeof call, CallHandle<{ size: number }>>(true);
  same<typeof call.result, { size: number }>(true);
  same<typeof call.view, CallView>(true);
  const refund = client.gate("refund", async ({ order }: { order: string }) => order.length);
  same<Awaited<ReturnType<typeof refund>>, number>(true);
  const plain = client.gate("plain", ({ order }: { order: string }) => order);
  same<ReturnType<typeof plain>, Promise<string>>(true);
  const stream = client.gate("stream", async function* ({ count }: { count: number }) {
    for (let n = 0; n < count; n++) yield n;
  });
  for await (const item of stream({ count: 1 })) same<typeof item, number>(true);
  const code: ErrorCode = "policy.blocked";
  const newer: ErrorCode = "some.new_code";
  same<typeof unknown.result, unknown>(true);
  if (unknown instanceof BlockedError) same<typeof unknown.rule, string | undefined>(true);
  // @ts-expect-error a capability is a text
  await client.call(1);
  // @ts-expect-error the argument of the function is typed
  await refund({ order: 1 });
  // @ts-expect-error there are three ways to treat an approval request
  await client.call("a", {}, { onApproval: "maybe" });
  // @ts-expect-error an error has a code
  new SluiceError("text", {});
  void [code, newer];
}
