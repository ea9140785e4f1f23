"""One server of Prefect for all files of this folder that look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.flows.prefect_site import Prefect, deployed


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    with deployed(tmp_path_factory.mktemp("prefect")) as found:
        yield found
