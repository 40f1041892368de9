"""A gateway with one mount, as the client that a conformance scenario tests.

Takes the address of the scenario's server as the last word and the program in SLUICE_TEST_PROGRAM. Mounts the server, waits
for its tools, calls each as an agent would, and ends. What the scenario thinks of it, the suite says. Where the server
wants a sign-in, it runs `sluice mounts connect` and opens the link, as a person with a browser would.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PROGRAM = os.environ["SLUICE_TEST_PROGRAM"]
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def plausible(shape, n):
    """Something that follows a schema."""
    kind = shape.get("type")
    if kind in ("integer", "number"):
        return 5 if n == 0 else 3
    if kind == "boolean":
        return True
    if kind == "object":
        inner = shape.get("properties", {})
        return {name: plausible(one, at) for at, (name, one) in enumerate(inner.items())}
    if kind == "array":
        return []
    return "us-west1"


def main():
    url = sys.argv[-1]
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder) / "gate"
        run = [PROGRAM, "init", "--dir", str(home), "--agent", "clerk", "--yes"]
        # The user's own configuration stays as it is.
        environment = {**os.environ, "XDG_CONFIG_HOME": folder}
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL, env=environment)
        main_port = port()
        with open(home / "sluice.yaml", "a", encoding="utf-8") as config:
            config.write(
                f"\nlisten: 127.0.0.1:{main_port}\nstop_listen: 127.0.0.1:{port()}\nsandbox: degraded\n"
                "disk: {low: 1MB/0%, stop: 1MB/0%}\n"
                f'mounts:\n  suite: {{url: "{url}", http: true, allow_addresses: [127.0.0.1/32, "::1/128"], delay: 0s, '
                "timeout: 8s}\n"
                "oauth:\n  client_document: https://conformance-test.local/client-metadata.json\n"
            )
        rules = 'rules:\n  - {capability: "*", tier: autonomous}\n'
        (home / "policies/agents/clerk.yaml").write_text(rules, encoding="utf-8")
        key = (home / "data/agents/clerk.key").read_text(encoding="utf-8").strip()
        serve = [PROGRAM, "serve", "--config", "sluice.yaml"]
        gate = subprocess.Popen(serve, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wanted = SCENARIO.startswith("auth/")
            person = Person(home) if wanted else None
            visit(f"http://127.0.0.1:{main_port}", key, person)
        finally:
            gate.terminate()
            gate.wait()


class Person:
    """Somebody with a browser and the command line."""

    def __init__(self, home):
        self.home = home
        self.config = ["--config", str(home / "sluice.yaml")]
        self.rounds = 0
        self.more = []
        if "client_id" in CONTEXT:
            self.more = ["--client-id", CONTEXT["client_id"]]
        if "client_secret" in CONTEXT:
            secret = home / "client.txt"
            secret.write_text(CONTEXT["client_secret"], encoding="utf-8")
            self.more += ["--client-secret-file", str(secret)]
        if "issuer" in CONTEXT:
            self.more += ["--issuer", CONTEXT["issuer"]]

    def asked(self):
        """Whether the server waits for a person."""
        show = [PROGRAM, "mounts", "show", "suite", "--json", *self.config]
        done = subprocess.run(show, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return False
        mount = json.loads(done.stdout)
        return mount.get("sign_in", {}).get("state") in ("needed", "more_access")

    def sign_in(self, more=()):
        """One consent; at most three, as a person would lose patience."""
        if self.rounds == 3:
            return
        self.rounds += 1
        connect = [PROGRAM, "mounts", "connect", "suite", "--no-browser", "--timeout", "15s", *self.config]
        process = subprocess.Popen(
            [*connect, *self.more, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("http"):
                try:
                    urllib.request.urlopen(line.strip(), timeout=10).read()
                except OSError as error:
                    told += f"{error}\n"
        process.wait()
        print(told)
        # A server that changed its authorization server: the person accepts the new one.
        if "was not accepted" in told:
            self.rounds -= 1
            self.sign_in(["--issuer", told.split("authorization server `")[1].split("`")[0]])


def visit(base, key, person):
    def ask(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except OSError:
            return {}

    tools = {}
    since_consent = 0
    for _ in range(200):
        listed = ask("GET", "/v1/capabilities").get("data", [])
        tools = {one["name"]: one for one in listed if one["name"].startswith("suite.")}
        if tools:
            break
        if person and person.asked():
            person.sign_in()
            since_consent = 0
            if person.rounds == 3:
                break
        since_consent += 1
        # A server that refuses whatever was granted has no tools, and the suite waits 30 s for this program.
        if person and person.rounds and since_consent > 40:
            break
        time.sleep(0.1)
    print(f"{SCENARIO}: {sorted(tools)}")
    # A null where the tool's schema has none is refused by the gate before it leaves; an agent leaves the argument out.
    given = lambda arguments: {name: value for name, value in arguments.items() if value is not None}
    calls = [(f"suite.{one['name']}", given(one["arguments"])) for one in CONTEXT.get("toolCalls", [])]
    if not calls:
        for name, one in tools.items():
            shapes = one.get("input_schema", one.get("schema", {})).get("properties", {})
            calls.append((name, {arg: plausible(shape, at) for at, (arg, shape) in enumerate(shapes.items())}))
    for name, arguments in calls:
        wish = {"capability": name, "arguments": arguments, "wait_ms": 10000, "allow_duplicate": True}
        said = ask("POST", "/v1/calls", wish)
        print(name, json.dumps(said)[:400])
        while person and person.rounds < 3 and person.asked():
            person.sign_in()
            said = ask("POST", "/v1/calls", wish)
            print(name, json.dumps(said)[:400])


main()
