// A real gateway for the suite: `sdk/real_gateway.py`, which ends with this process.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export async function realGateway(...words) {
  const script = fileURLToPath(new URL("../../real_gateway.py", import.meta.url));
  const child = spawn("python3", [script, ...words], { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await Promise.race([
    new Promise((resolve) => createInterface({ input: child.stdout }).once("line", (text) => resolve([text]))),
    new Promise((_, reject) => child.once("exit", (code) => reject(new Error(`no gateway: ${code}`)))),
  ]);
  const told = JSON.parse(line);
  const api = async (method, path, body) => {
    const headers = { authorization: `Bearer ${told.operator}`, "content-type": "application/json" };
    const answer = await fetch(told.url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
  const pending = async () => (await api("GET", "/v1/approvals?state=pending")).data;
  const decide = async (decision, id, more = {}) => {
    const ids = id ? [id] : (await pending()).map((one) => one.approval_id);
    for (const one of ids) await api("POST", `/v1/approvals/${one}/decision`, { decision, ...more });
  };
  /** Decides the next approval request that appears. */
  const whenAsked = async (decision, more) => {
    for (let turn = 0; turn < 1000; turn++) {
      if ((await pending()).length) return decide(decision, undefined, more);
    }
    throw new Error("nobody was asked");
  };
  const close = () =>
    new Promise((resolve) => {
      child.once("exit", resolve);
      child.stdin.end();
    });
  return { ...told, api, pending, decide, whenAsked, close };
}
