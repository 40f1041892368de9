"""The examples with the real frameworks, scripted models and a real gateway, in processes that die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_gateway import RealGateway

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DURABLE = ["langgraph", "openai_agents", "pydantic_ai"]


class FrameworkRun:
    """A run of one framework that several processes carry on."""

    def __init__(self, framework: str, gateway: Any, folder: Path) -> None:
        pytest.importorskip({"openai_agents": "agents"}.get(framework, framework))
        self.framework, self.gateway, self.folder = framework, gateway, folder
        self.order = uuid.uuid4().hex

    def go_on(self, dies: str = "never") -> dict[str, str] | None:
        """One process. `None`: it died."""
        program = Path(__file__).with_name("framework_runs.py")
        words = [sys.executable, str(program), self.framework, str(self.folder), dies, self.order]
        env = os.environ | {"SLUICE_URL": self.gateway.url, "SLUICE_AGENT_KEY_FILE": str(self.gateway.key_file)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 9:
            return None
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])

    @property
    def effects(self) -> int:
        file = self.folder / "effects"
        return len(file.read_text()) if file.exists() else 0


@pytest.fixture(scope="module")
def framework_gateway() -> Iterator[RealGateway]:
    """One engine is enough: a framework sees the same answers of either."""
    running = RealGateway()
    yield running
    running.close()


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, framework_gateway: RealGateway, tmp_path: Path) -> FrameworkRun:
    return FrameworkRun(request.param, framework_gateway, tmp_path)


def test_a_call_waits_for_a_person_and_only_the_gateway_lets_it_go_on(durable):
    assert durable.go_on()["status"] == "waits"
    # The framework resumes, which approves the call in its own state: nobody has decided at the gateway.
    again = durable.go_on()
    assert again["status"] == "waits" or "waits for a person" in again["text"]
    assert durable.effects == 0


def test_an_approved_call_runs_once_and_a_denied_one_never(durable):
    assert durable.go_on()["status"] == "waits"
    durable.gateway.decide("approve")
    assert durable.go_on() == {"status": "done", "text": f"told: paid 5 for {durable.order}"}
    assert durable.effects == 1


def test_a_denied_call_does_not_run(durable):
    assert durable.go_on()["status"] == "waits"
    durable.gateway.decide("deny", note="not on Friday")
    done = durable.go_on()
    assert done["status"] == "done"
    assert "not on Friday" in done["text"]
    assert durable.effects == 0


def test_a_process_that_dies_in_the_tool_leaves_one_effect(durable):
    assert durable.go_on()["status"] == "waits"
    durable.gateway.decide("approve")
    assert durable.go_on("in_tool") is None
    assert "not known" in durable.go_on()["text"]
    assert durable.effects == 1


def test_a_process_that_dies_before_the_checkpoint_gets_the_stored_result(durable):
    assert durable.go_on()["status"] == "waits"
    durable.gateway.decide("approve")
    assert durable.go_on("late") is None
    assert durable.go_on()["text"] == f"told: paid 5 for {durable.order}"
    assert durable.effects == 1


def test_plain_functions_run_as_a_program(framework_gateway):
    gateway = framework_gateway
    env = os.environ | {"SLUICE_URL": gateway.url, "SLUICE_AGENT_KEY_FILE": str(gateway.key_file)}
    words = [sys.executable, str(EXAMPLES / "plain_functions.py"), uuid.uuid4().hex, "5"]
    first = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert first.stdout.startswith("refunded 5 cents")
    assert subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout == first.stdout


def test_an_example_has_at_most_forty_lines():
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) >= 4
    for file in files:
        assert len(file.read_text().splitlines()) <= 40, file.name


def test_the_page_of_an_example_shows_the_file_as_it_is():
    """A reader copies the page; what is tested is the file."""
    guides = Path(__file__).resolve().parents[3] / "docs/book/guides"
    pages = {
        "langgraph.md": EXAMPLES / "langgraph_agent.py",
        "openai-agents.md": EXAMPLES / "openai_agents_agent.py",
        "pydantic-ai.md": EXAMPLES / "pydantic_ai_agent.py",
        "google-adk.md": EXAMPLES / "google_adk_agent.py",
        "agent-framework.md": EXAMPLES / "agent_framework_agent.py",
        "smolagents.md": EXAMPLES / "smolagents_agent.py",
        "plain-functions.md": EXAMPLES / "plain_functions.py",
        "openai-agents-js.md": EXAMPLES.parents[1] / "typescript/examples/openai_agents.mjs",
        "vercel-ai.md": EXAMPLES.parents[1] / "typescript/examples/vercel_ai.mjs",
    }
    for page, file in pages.items():
        lines = [line.removeprefix("   ") for line in (guides / page).read_text().splitlines()]
        assert file.read_text().rstrip() in "\n".join(lines), page
