// The examples with the real frameworks, scripted models and a real gateway, in processes that die.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { realGateway } from "./real_gateway.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));

for (const program of ["vercel_run.mjs", "openai_run.mjs"])
  test(program, async (suite) => {
    const gateway = await realGateway();
    const begin = () => {
      const [folder, order] = [mkdtempSync(join(tmpdir(), "sluice-run-")), randomUUID()];
      const env = { ...process.env, SLUICE_URL: gateway.url, SLUICE_AGENT_KEY: gateway.key };
      return {
        order,
        goOn(dies = "never") {
          const words = [join(here, program), folder, dies, order];
          const done = spawnSync(process.execPath, words, { env, encoding: "utf8" });
          if (done.status === 9) return undefined;
          assert.equal(done.status, 0, done.stderr);
          return JSON.parse(done.stdout.trim().split("\n").at(-1));
        },
        effects: () => (existsSync(join(folder, "effects")) ? readFileSync(join(folder, "effects"), "utf8").length : 0),
      };
    };

    await suite.test("only the gateway lets a call go on", () => {
      const run = begin();
      assert.equal(run.goOn().status, "waits");
      assert.match(run.goOn().text, /waits for a person/);
      assert.equal(run.effects(), 0);
    });

    await suite.test("an approved call runs once, a denied one never", async () => {
      await gateway.decide("deny");
      const approved = begin();
      assert.equal(approved.goOn().status, "waits");
      await gateway.decide("approve");
      assert.equal(approved.goOn().text, `told: paid 5 for ${approved.order}`);
      assert.equal(approved.effects(), 1);
      const denied = begin();
      assert.equal(denied.goOn().status, "waits");
      await gateway.decide("deny", undefined, { note: "not on Friday" });
      assert.match(denied.goOn().text, /not on Friday/);
      assert.equal(denied.effects(), 0);
    });

    await suite.test("a process that dies after the effect leaves one effect", async () => {
      for (const [dies, then] of [
        ["in_tool", /not known/],
        ["late", /paid 5/],
      ]) {
        const run = begin();
        assert.equal(run.goOn().status, "waits");
        await gateway.decide("approve");
        assert.equal(run.goOn(dies), undefined);
        assert.match(run.goOn().text, then);
        assert.equal(run.effects(), 1);
      }
    });
    await gateway.close();
  });

test("an example has at most forty lines", () => {
  const folder = join(here, "../examples");
  for (const file of readdirSync(folder)) {
    const lines = readFileSync(join(folder, file), "utf8").trimEnd().split("\n").length;
    assert.ok(lines <= 40, `${file}: ${lines}`);
  }
});
