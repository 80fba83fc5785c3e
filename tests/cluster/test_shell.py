"""The page's shell on a cluster made of one machine: what a new user types there."""

from __future__ import annotations

import pytest
from tests.cluster.page import blocks, shell_environment

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.server]


def test_the_page_s_commands_run_in_the_shell(lab, placed):
    environment = shell_environment(lab)
    _, inside = blocks("Try it on one machine")
    done = lab.host("driver").run(["bash", "-euc", inside], env=environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    said = done.stdout.splitlines()
    assert "ok       Executors: on worker-1, worker-2, worker-3" in said
    assert said[-1] == "[3600 rows x 5 columns]"
