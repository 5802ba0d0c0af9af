"""Real parts that a test needs: the path, or a skip with the reason. In CI a skip is a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tests import run


def skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("MCP_BRIDGE_TEST_REQUIRE") == "all":
        pytest.fail(f"MCP_BRIDGE_TEST_REQUIRE=all, but {reason}", pytrace=False)
    pytest.skip(reason)


def need_peer_python(name: str) -> Path:
    """The Python of the environment `mcp1` or `mcp2`."""
    try:
        return run.peer_python(name)
    except run.MissingPartError as exc:
        skip_or_fail(str(exc))


def need_npm_folder() -> Path:
    """The folder whose node_modules has the npm SDKs."""
    try:
        return run.npm_folder()
    except run.MissingPartError as exc:
        skip_or_fail(str(exc))


def need_program(name: str) -> str:
    """The path of a program of this machine."""
    path = shutil.which(name)
    if path is None:
        skip_or_fail(f"{name} is not installed")
    return path
