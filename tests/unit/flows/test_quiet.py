"""What libraries log for themselves stays off the screen, and their warnings do not."""

from __future__ import annotations

import importlib
import logging

import pytest

from flows.cli.command import told

CLIENT = "ray.dashboard.modules.job.sdk"


def test_ray_s_client_says_nothing_of_a_job_that_is_over_though_its_module_is_loaded_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with told(False):
        importlib.reload(importlib.import_module(CLIENT))
    logger = logging.getLogger(CLIENT)
    assert logger.level == logging.INFO, "the module sets its own level: a level set before would be lost"
    with caplog.at_level(logging.DEBUG):
        logger.info("WebSocket closed for job r-train-1 with close code 1000")
        logger.warning("the job cannot be found")
    assert [record.message for record in caplog.records] == ["the job cannot be found"]
