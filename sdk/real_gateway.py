"""A real gateway for the suites of the SDKs: the built program on free ports of this machine, in a temporary folder.

As a program, it prints one line of JSON (`url`, `key`, `task_key`, `operator`, `folder`) and runs until its standard
input ends. Promise: the gateway ends with the program that started it, and its folder is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("SLUICE_TEST_PROGRAM") or str(ROOT / "target/debug/sluice")
POSTGRES = os.environ.get("SLUICE_TEST_POSTGRES")

ORG = "defaults:\n  tier: notify\n"
CLERK = """rules:
  - {capability: "custom:ask*", tier: approval_required}
  - {capability: "custom:blocked*", tier: blocked}
  - {capability: "custom:*", tier: autonomous}
  - {capability: filesystem.delete, tier: approval_required}
  - {capability: "filesystem.*", tier: autonomous}
  - {capability: "state.*", tier: autonomous}
  - {capability: "alerts.*", tier: autonomous}
  - {capability: "git.*", tier: blocked}
"""
CONFIG = """
listen: 127.0.0.1:{main}
stop_listen: 127.0.0.1:{stop}
holds: {{delays: {{alerts.send: 60s, filesystem.append: 0s}}}}
budgets: {{questions_from_checks: 1000}}
batch: {{services: {{filesystem: off, alerts: off}}}}
disk: {{low: 1MB/0%, stop: 1MB/0%}}
"""


def free_ports() -> list[int]:
    """Two ports that are free at the moment."""
    taken = [socket.socket() for _ in range(2)]
    for listener in taken:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in taken]
    for listener in taken:
        listener.close()
    return ports


class RealGateway:
    """One gateway of the built program, and what an operator does with it."""

    def __init__(self, *, postgres: bool = False) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="sluice-sdk-"))
        self.folder = self.home / "gate"
        self.main, self.stop_port = free_ports()
        self.url = f"http://127.0.0.1:{self.main}"
        self._environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.home)}
        self._database: str | None = None
        self._child: subprocess.Popen[str] | None = None
        try:
            self._prepare(postgres)
            self.start()
        except BaseException:
            self.close()
            raise

    def _prepare(self, postgres: bool) -> None:
        words = ["init", "--dir", str(self.folder), "--agent", "clerk", "--yes"]
        if postgres:
            words += ["--database-url-file", str(self._new_database())]
        self.sluice(*words)
        (self.folder / "policies/org.yaml").write_text(ORG)
        (self.folder / "policies/agents/clerk.yaml").write_text(CLERK)
        with (self.folder / "sluice.yaml").open("a") as config:
            config.write(CONFIG.format(main=self.main, stop=self.stop_port))
        self.key_file = self.folder / "data/agents/clerk.key"
        self.key = self.key_file.read_text().strip()
        self.task_key = (self.folder / "data/agents/clerk.task").read_text().strip()
        self.operator = (self.folder / "data/operator.token").read_text().strip()

    def _new_database(self) -> Path:
        """A database of its own at the PostgreSQL server of the run."""
        assert POSTGRES is not None
        self._database = f"sdk_{os.getpid()}_{time.monotonic_ns()}"
        self._psql(f"CREATE DATABASE {self._database}")
        base, _, query = POSTGRES.partition("?")
        file = self.home / "database.url"
        file.write_text(base.rsplit("/", 1)[0] + f"/{self._database}" + (f"?{query}" if query else ""))
        file.chmod(0o600)
        return file

    def _psql(self, statement: str) -> None:
        beside = sorted(Path("/usr/lib/postgresql").glob("*/bin/psql"))
        program = shutil.which("psql") or str(beside[-1])
        subprocess.run([program, str(POSTGRES), "-qc", statement], check=True)

    def sluice(self, *words: str) -> str:
        """Runs a command of the program."""
        done = subprocess.run(
            [PROGRAM, *words], env=self._environment, capture_output=True, text=True, check=False, cwd=self.home
        )
        if done.returncode != 0:
            raise RuntimeError(f"sluice {words[0]} failed: {done.stderr}")
        return done.stdout

    def start(self) -> None:
        """Starts serving, and returns when the gateway answers."""
        self._child = subprocess.Popen(
            [PROGRAM, "serve", "--config", "sluice.yaml"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=(self.home / "log").open("a"),
            text=True,
        )
        assert self._child.stdout is not None
        first = self._child.stdout.readline()
        if "listening on" not in first:
            raise RuntimeError(f"the gateway does not start: {first} {(self.home / 'log').read_text()[-2000:]}")
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError("the gateway is not ready")

    def stop(self) -> None:
        """Stops serving."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._child = None

    def close(self) -> None:
        self.stop()
        if self._database is not None and POSTGRES is not None:
            self._psql(f"DROP DATABASE IF EXISTS {self._database} WITH (FORCE)")
        shutil.rmtree(self.home, ignore_errors=True)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """A request with the operator's token."""
        headers = {"authorization": f"Bearer {self.operator}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def pending(self) -> list[dict[str, Any]]:
        return self.api("GET", "/v1/approvals?state=pending")["data"]

    def decide(self, decision: str, approval_id: str | None = None, **more: Any) -> None:
        """Decides an approval request, or all that are open."""
        ids = [approval_id] if approval_id else [one["approval_id"] for one in self.pending()]
        for one in ids:
            self.api("POST", f"/v1/approvals/{one}/decision", {"decision": decision, **more})

    def log(self) -> str:
        return (self.home / "log").read_text()

    def key_of(self, agent: str) -> str:
        """A further key of an agent."""
        return self.api("POST", "/v1/keys", {"kind": "agent", "agent": agent})["secret"]


def main() -> int:
    gateway = RealGateway(postgres="--postgres" in sys.argv)
    try:
        names = ("url", "key", "task_key", "operator")
        told = {name: getattr(gateway, name) for name in names} | {"folder": str(gateway.folder)}
        print(json.dumps(told), flush=True)
        sys.stdin.read()
    finally:
        gateway.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
