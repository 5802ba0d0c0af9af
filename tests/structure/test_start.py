"""What the start of the program loads: a script is compiled and imported anew each time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import mcp_bridge_vscode as bridge
from tests.structure import product

WAIT: Final = 60.0  # bounds every wait of this file
NEVER_LOADED: Final = frozenset(
    "ssl http http.client http.server asyncio dataclasses argparse logging typing inspect socket"
    " email urllib.request tempfile shutil random hashlib ctypes.wintypes".split()
)
NOT_LOADED_BY_IMPORT: Final = NEVER_LOADED | {"subprocess", "select", "ctypes", "selectors"}

# A server of the modern revision that is just enough for one conversation.
SERVER: Final = """\
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"resultType": "complete"}
    if message["method"] == "server/discover":
        result.update(supportedVersions=["2026-07-28"], capabilities={"tools": {}})
    else:
        result["tools"] = []
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
CONVERSATION: Final[tuple[dict[str, object], ...]] = (
    {
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "tools/list"},
)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - this Python
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=WAIT
    )


def loaded_by(importtime: str) -> set[str]:
    """The modules in the report of -X importtime."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| *(\S+)$", importtime, re.MULTILINE))


def modules_of_one_conversation(tmp_path: Path) -> tuple[set[str], str]:
    """What the real program loads from its start to its stop, and its log."""
    server, log = tmp_path / "server.py", tmp_path / "stderr.txt"
    server.write_text(SERVER, encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(product.FILE)]
    command += ["--", sys.executable, "-I", "-S", str(server)]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(  # noqa: S603 - this Python
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for number, message in enumerate(CONVERSATION):
            frame = {"jsonrpc": "2.0", "id": number, **message}
            process.stdin.write(json.dumps(frame).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], "result" in answer) == (number, True)
        process.stdin.close()
        assert process.wait(WAIT) == 0
    text = log.read_text(encoding="utf-8")
    return loaded_by(text), text


def test_the_stdio_form_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    loaded, log = modules_of_one_conversation(tmp_path)
    assert {"json", "threading", "subprocess"} <= loaded, log  # the report was read
    assert loaded & NEVER_LOADED == set()


def test_an_import_alone_loads_still_less() -> None:
    """Without -S the environment may load anything before us; so it is asked without."""
    code = f"import sys; sys.path.insert(0, {str(product.ROOT)!r}); import mcp_bridge_vscode"
    loaded = loaded_by(run_python("-I", "-S", "-X", "importtime", "-c", code).stderr)
    assert "mcp_bridge_vscode" in loaded
    assert loaded & NOT_LOADED_BY_IMPORT == set()


def test_an_import_alone_changes_nothing() -> None:
    """No thread, no signal handler, no descriptor, no hook."""
    code = f"""
import os, signal, sys, threading
def state():
    opened = sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    return (threading.active_count(), handlers, opened, threading.excepthook, sys.excepthook,
            sys.getswitchinterval(), os.getcwd(), dict(os.environ))
before = state()
path = [{str(product.ROOT)!r}, *sys.path]
sys.path[:] = path
import mcp_bridge_vscode
assert state() == before
assert sys.path == path
"""
    done = run_python("-I", "-S", "-c", code)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_version_is_the_newest_of_the_changes() -> None:
    readme = product.ROOT / "README.md"
    if not readme.is_file():
        pytest.skip("README.md is not written yet")
    changes = readme.read_text(encoding="utf-8").rpartition("\n## Changes\n")[2]
    headings = [h.strip() for h in re.findall(r"^### (.+)$", changes, re.MULTILINE)]
    released = [h for h in headings if not h.lower().startswith("unreleased")]
    assert released, "Changes has no version yet"
    assert released[0].split()[0].strip("[]v") == bridge.__version__


def test_the_file_may_be_run_by_its_name() -> None:
    assert product.LINES[0] == "#!/usr/bin/env python3"
    assert "SPDX-License-Identifier: Apache-2.0" in product.LINES[1]
    if os.name == "posix":
        assert product.FILE.stat().st_mode & 0o444
