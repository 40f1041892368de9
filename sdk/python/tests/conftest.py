"""A real gateway for the suite, on each engine that this run has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from real_gateway import POSTGRES, RealGateway

from sluicegate import AsyncSluiceClient, SluiceClient

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def gateway(request: pytest.FixtureRequest) -> Iterator[RealGateway]:
    """A gateway that the tests share. Tests of PostgreSQL are skipped where no server is named."""
    if request.param == "postgres" and POSTGRES is None:
        pytest.skip("SLUICE_TEST_POSTGRES names no server")
    running = RealGateway(postgres=request.param == "postgres")
    yield running
    running.close()


@pytest.fixture
def own_gateway() -> Iterator[RealGateway]:
    """A gateway that a test may stop, freeze or take keys from."""
    running = RealGateway()
    yield running
    running.close()


@pytest.fixture
def client(gateway: RealGateway) -> Iterator[SluiceClient]:
    with SluiceClient(gateway.url, key=gateway.key, task_key=gateway.task_key) as made:
        yield made


@pytest.fixture
def async_client(gateway: RealGateway) -> AsyncSluiceClient:
    return AsyncSluiceClient(gateway.url, key=gateway.key, task_key=gateway.task_key)
