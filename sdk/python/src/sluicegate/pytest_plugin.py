"""Fixtures for pytest: `fake_gateway`, and the clients `sluice_client` and `async_sluice_client` of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .aio import AsyncSluiceClient
    from .client import SluiceClient
    from .testing import FakeGateway


@pytest.fixture
def fake_gateway() -> FakeGateway:
    """An offline gateway that blocks what the test does not script."""
    from .testing import FakeGateway

    return FakeGateway()


@pytest.fixture
def sluice_client(fake_gateway: FakeGateway) -> Iterator[SluiceClient]:
    """A client of the offline gateway."""
    with fake_gateway.client() as client:
        yield client


@pytest.fixture
def async_sluice_client(fake_gateway: FakeGateway) -> AsyncSluiceClient:
    """An asynchronous client of the offline gateway."""
    return fake_gateway.async_client()
