"""What the Python client costs beside raw httpx, in one run against one real gateway, in turns.

Prints the median time and the processor time of a call, and the time to import the package.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
from real_gateway import RealGateway

from sluicegate import SluiceClient

ROUNDS, CALLS = 20, 50


def main() -> int:
    gateway = RealGateway()
    try:
        raw, client = httpx.Client(base_url=gateway.url), SluiceClient(gateway.url, key=gateway.key)
        headers = {"authorization": f"Bearer {gateway.key}"}
        body = {"capability": "agent.whoami", "arguments": {}}

        def with_httpx() -> None:
            answer = raw.post("/v1/calls", json=body, headers=headers)
            answer.raise_for_status()
            assert answer.json()["status"] == "done"

        def with_client() -> None:
            assert client.call("agent.whoami").status == "done"

        ways: dict[str, Callable[[], None]] = {"httpx": with_httpx, "sluicegate": with_client}
        took: dict[str, list[float]] = {name: [] for name in ways}
        busy = dict.fromkeys(ways, 0.0)
        for turn in range(ROUNDS + 1):
            for name, call in ways.items():
                cpu = time.process_time()
                for _ in range(CALLS):
                    begun = time.perf_counter()
                    call()
                    if turn:
                        took[name].append(time.perf_counter() - begun)
                busy[name] += time.process_time() - cpu if turn else 0.0
        median = {name: statistics.median(times) * 1000 for name, times in took.items()}
        count = ROUNDS * CALLS
        for name in ways:
            print(f"{name:12} p50 {median[name]:.3f} ms, processor {busy[name] / count * 1000:.3f} ms")
        added, ratio = median["sluicegate"] - median["httpx"], busy["sluicegate"] / busy["httpx"]
        print(f"added p50 {added:.3f} ms (goal 0.3), processor {ratio:.2f}x (goal 1.3)")
    finally:
        gateway.close()
    for what in ("import sluicegate", "from sluicegate import SluiceClient"):
        program = f"import time; t = time.perf_counter(); {what}; print((time.perf_counter() - t) * 1000)"
        times = [float(subprocess.check_output([sys.executable, "-c", program], text=True)) for _ in range(9)]
        print(f"{what}: {statistics.median(times):.1f} ms (goal 80)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
