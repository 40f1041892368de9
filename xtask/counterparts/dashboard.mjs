// The dashboard in Chromium, as people use it: with JavaScript and without, at a desk and on a phone.
//
// Makes a gateway of its own with the program in SLUICE_TEST_PROGRAM, walks, and checks every page with axe-core. With
// SLUICE_TEST_PICTURES set, pictures of the pages are written to that folder. Ends with an error at the first failed check.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const modules = process.env.SLUICE_TEST_MODULES;
const load = createRequire(join(realpathSync(modules), "x.js"));
const { chromium } = load("playwright-core");
const axe = readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");
const program = realpathSync(process.env.SLUICE_TEST_PROGRAM);
const pictures = process.env.SLUICE_TEST_PICTURES;
const home = mkdtempSync(join(tmpdir(), "sluice-browser-"));
const gate = join(home, "gate");

const port = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); });
});
const run = (words, env = {}) => {
  try {
    return execFileSync(program, words, { cwd: home, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env.PATH, HOME: home, XDG_CONFIG_HOME: join(home, "config"), SLUICE_CONFIG: join(gate, "sluice.yaml"), ...env } });
  } catch (error) {
    // 8: the call is not over.
    if (error.status === 8) return error.stdout;
    throw new Error(`${words.join(" ")}: ${error.stdout}${error.stderr}`);
  }
};
const json = (words) => JSON.parse(run([...words, "--json"]));
const call = (capability, input, ...more) => JSON.parse(run(
  ["call", capability, "--input", JSON.stringify(input), "--json", ...more],
  { SLUICE_AGENT_KEY_FILE: join(gate, "data/agents/inbox-helper.key") }));

run(["init", "--dir", "gate", "--agent", "inbox-helper", "--yes"]);
const [main, stop] = [await port(), await port()];
appendFileSync(join(gate, "sluice.yaml"), `
listen: 127.0.0.1:${main}
stop_listen: 127.0.0.1:${stop}
disk: {low: 1MB/0%, stop: 1MB/0%}
holds: {delays: {"filesystem.*": 45s, "state.*": 4m}}
batch: {services: {filesystem: {limit: 6, window: 10m}}}
`);
const workspace = (name) => join(realpathSync(join(gate, "workspace")), name);
const serving = spawn(program, ["serve", "--config", join(gate, "sluice.yaml")], { cwd: gate, stdio: ["ignore", "pipe", "inherit"] });
await new Promise((resolve, reject) => {
  serving.stdout.on("data", (text) => String(text).includes("listening on") && resolve());
  serving.on("exit", () => reject(new Error("the gateway ended")));
});
const url = `http://127.0.0.1:${main}`;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
let failed;
try { await walks(); } catch (error) { failed = error; console.error(error); }
await browser.close();
serving.kill("SIGTERM");
await new Promise((resolve) => serving.on("exit", resolve));
rmSync(home, { recursive: true, force: true });
process.exit(failed ? 1 : 0);

/** A signed-in page. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("pageerror", (error) => { throw error; });
  page.on("console", (line) => { if (line.type() === "error" && !/status of 4\d\d/.test(line.text())) throw new Error(`console: ${line.text()}`); });
  page.on("request", (request) => assert(request.url().startsWith(url) || request.url().startsWith("data:"), `left the host: ${request.url()}`));
  const made = json(["login"]);
  if (options.javaScriptEnabled === false) {
    await page.goto(`${url}/`);
    await page.fill("#secret", made.code);
  } else {
    await page.goto(made.link);
    assert.equal(await page.inputValue("#secret"), made.code, "the link fills the code in");
    assert(!page.url().includes("#"), "the code is off the address");
  }
  await page.click("#sign-in button");
  await page.waitForURL(`${url}/ui`);
  return page;
}

/** No serious finding of axe-core on this page. */
async function accessible(page, name) {
  // Not `evaluate`: the page's own policy forbids to run text.
  const session = await page.context().newCDPSession(page);
  const expression = `${axe}; axe.run(document, {resultTypes: ["violations"]})`;
  const answer = await session.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  const found = answer.result.value;
  const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(serious.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`), [], name);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert(wide <= 0, `${name} is ${wide} px too wide`);
}

async function picture(page, name) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.waitForTimeout(700);
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

async function walks() {
  for (const name of ["invoices-2024.csv", "draft.md", "old-notes.txt"]) writeFileSync(workspace(name), "x\n");
  for (const walk of [emptyStates, liveHold, decide, batch, everyPage, phoneFreeze, withoutScript, clockAndNetwork]) {
    await walk();
    console.log(`walked: ${walk.name}`);
  }
}

async function emptyStates() {
  const page = await open();
  await page.getByText("Nothing waits, and nothing has happened yet.").waitFor();
  await accessible(page, "an empty overview");
  await picture(page, "overview-empty");
  await page.context().close();
}

/** Sees a hold appear by itself, counts down, and cancels it. */
async function liveHold() {
  const page = await open();
  await page.goto(`${url}/ui/pending`);
  await page.getByText("No writes are waiting.").waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  const held = call("filesystem.write", { path: workspace("report.md"), content: "# Q3\n" });
  const row = page.locator(`#row-${held.buffer_id}`);
  await row.waitFor({ timeout: 5000 });
  await page.waitForFunction(() => /0:\d\d/.test(document.querySelector("time[data-until]").textContent));
  await row.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByText("Cancelled 1 write.").waitFor();
  assert.equal(json(["holds", "show", held.buffer_id]).state, "cancelled");
  assert(!existsSync(workspace("report.md")));
  await page.context().close();
}

async function decide() {
  const reason = "The user asked me to tidy up the workspace and to remove what is older than a year.";
  const asked = call("filesystem.delete", { path: workspace("invoices-2024.csv") }, "--reason", reason);
  const page = await open();
  await page.getByRole("link", { name: /wants filesystem.delete/ }).first().click();
  await page.waitForURL(`**/approvals/${asked.approval_id}`);
  await page.getByRole("heading", { name: "Why you are asked" }).waitFor();
  await accessible(page, "an approval");
  await picture(page, "approval");
  await page.keyboard.press("a");
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Approve once/);
  const challenge = page.locator("#challenge");
  if (await challenge.count()) await challenge.fill("inbox-helper");
  await page.fill("#note", "fine, thank you");
  // What somebody types is not taken away by a change of the page.
  call("state.persistent.set", { key: "seen", value: 1 });
  await page.waitForTimeout(600);
  assert.equal(await page.inputValue("#note"), "fine, thank you");
  await page.getByRole("button", { name: "Approve once" }).click();
  await page.getByText("You can still cancel until it leaves.").waitFor();
  await accessible(page, "a decided approval");
  await page.getByRole("button", { name: "Cancel it" }).click();
  await page.getByText("Cancelled 1 write.").waitFor();
  assert(existsSync(workspace("invoices-2024.csv")));
  await page.context().close();
}

/** A batch with an outlier: the unusual write comes first, and only the ticked ones are approved. */
async function batch() {
  const calls = [];
  for (let i = 1; i <= 9; i++) {
    const content = i === 7 ? "This letter is much longer than all the others. ".repeat(12) : `Reminder ${i}\n`;
    calls.push(call("filesystem.write", { path: workspace(`reminder-${i}.txt`), content }));
  }
  const waiting = calls.filter((one) => one.approval_id);
  assert(waiting.length >= 2, JSON.stringify(calls));
  const page = await open();
  await page.goto(`${url}/ui/approvals/${waiting[0].approval_id}`);
  await page.getByRole("heading", { name: /writes at once/ }).waitFor();
  const first = await page.locator("table.batch tbody tr").first().textContent();
  assert(first.includes("reminder-7") && first.includes("longest"), first);
  await accessible(page, "a batch");
  await picture(page, "batch");
  const shown = await page.locator("table.batch tbody tr").count();
  await page.getByText("Tick single writes").click();
  await page.locator(".picks input").nth(1).check();
  const picked = await page.locator(".picks input").nth(1).inputValue();
  const challenge = page.locator("#challenge");
  if (await challenge.count()) await challenge.fill(String(shown));
  await page.getByRole("button", { name: "Approve the ticked writes" }).click();
  await page.getByText("You can still cancel").waitFor();
  const states = calls.map((one) => json(["holds", "show", one.buffer_id])).filter((one) => one.approval_id);
  assert.deepEqual(states.filter((one) => one.state === "held").map((one) => one.buffer_id), [picked]);
  await page.context().close();
}

async function everyPage() {
  call("filesystem.write", { path: workspace("summary.md"), content: "# Summary\n\nAll mails of the week.\n" });
  call("filesystem.delete", { path: workspace("old-notes.txt") }, "--reason", "it is empty");
  const called = call("state.persistent.set", { key: "week", value: 47 });
  const pages = { overview: "/ui", approvals: "/ui/approvals", pending: "/ui/pending", freeze: "/ui/freeze", dead: "/ui/dead",
    alerts: "/ui/alerts", sessions: "/ui/sessions", call: `/ui/calls/${called.call_id}` };
  const kept = ["overview", "pending", "call", "approvals"];
  const looks = { light: { colorScheme: "light" }, dark: { colorScheme: "dark" }, phone: { colorScheme: "light", viewport: { width: 390, height: 844 }, hasTouch: true, deviceScaleFactor: 2 } };
  for (const [look, options] of Object.entries(looks)) {
    const page = await open(options);
    for (const [name, path] of Object.entries(pages)) {
      await page.goto(url + path);
      await accessible(page, `${name}, ${look}`);
      if (kept.includes(name)) await picture(page, `${name}-${look}`);
    }
    const card = (await json(["approvals", "list"])).data.find((one) => one.status === "pending");
    await page.goto(`${url}/ui/approvals/${card.approval_id}`);
    await accessible(page, `a card, ${look}`);
    await picture(page, `card-${look}`);
    await page.context().close();
  }
  const narrow = await open({ viewport: { width: 320, height: 640 } });
  for (const [name, path] of Object.entries(pages)) {
    await narrow.goto(url + path);
    await accessible(narrow, `${name} at 320 px`);
  }
  await narrow.context().close();
}

async function phoneFreeze() {
  const page = await open({ viewport: { width: 390, height: 844 }, hasTouch: true });
  await page.getByRole("link", { name: "Freeze" }).tap();
  await page.fill("#reason", "looks odd");
  await page.getByRole("button", { name: "Freeze now" }).tap();
  await page.getByText("Frozen: Everything").waitFor();
  await accessible(page, "frozen, on a phone");
  await picture(page, "frozen-phone");
  assert.equal(json(["status"]).freezes.length, 1);
  await page.getByRole("button", { name: "Unfreeze" }).tap();
  await page.getByText("Nothing is frozen.").waitFor();
  assert.equal(json(["status"]).freezes.length, 0);
  await page.context().close();
}

async function withoutScript() {
  const page = await open({ javaScriptEnabled: false });
  const held = call("state.persistent.set", { key: "plain", value: 1 });
  await page.goto(`${url}/ui/pending`);
  await page.locator(`#row-${held.buffer_id}`).getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByText("Cancelled 1 write.").waitFor();
  assert.equal(json(["holds", "show", held.buffer_id]).state, "cancelled");
  const asked = call("filesystem.delete", { path: workspace("draft.md") });
  await page.goto(`${url}/ui/approvals/${asked.approval_id}`);
  await page.fill("#reason", "keep the draft");
  await page.getByRole("button", { name: "Not now" }).click();
  await page.getByText("Denied. Nothing was sent.").waitFor();
  assert.equal(json(["approvals", "show", asked.approval_id]).note, "Not now: keep the draft");
  await page.goto(`${url}/ui/freeze`);
  await page.selectOption("#scope", "agent:inbox-helper");
  await page.getByRole("button", { name: "Freeze now" }).click();
  await page.getByText("Frozen: Agent inbox-helper").waitFor();
  await page.getByRole("button", { name: "Unfreeze" }).click();
  await page.getByText("Nothing is frozen.").waitFor();
  await page.context().close();
}

/** A browser whose clock is an hour off counts down to the same moment, and one that was cut off catches up. */
async function clockAndNetwork() {
  const context = await browser.newContext();
  await context.addInitScript("{ const real = Date.now; Date.now = () => real() + 3600000; }");
  const page = await context.newPage();
  await page.goto(json(["login"]).link);
  await page.click("#sign-in button");
  call("state.persistent.set", { key: "clock", value: 2 });
  await page.goto(`${url}/ui/pending`);
  await page.waitForFunction(() => /[0-4]:\d\d/.test(document.querySelector("time[data-until]")?.textContent));
  const left = await page.locator("time[data-until]").first().textContent();
  assert.match(left, /^[0-4]:\d\d$/, left);
  await page.getByText("Live", { exact: true }).waitFor();
  await context.setOffline(true);
  call("state.persistent.set", { key: "while-away", value: 3 });
  await context.setOffline(false);
  await page.getByText("while-away").first().waitFor({ timeout: 30000 });
  await context.close();
}
