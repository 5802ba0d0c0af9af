"""What a bridge says, one frame after the other, for tests that follow thousands of them."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from typing import Any

from tests.support.processes import WAIT_SECONDS, Bridge


def frames_of(bridge: Bridge) -> Iterator[Any]:
    """The frames of a bridge that was started with reads=False, as they come."""
    stdout = bridge.process.stdout
    assert stdout is not None
    rest = b""
    while True:
        ready, _, _ = select.select([stdout], [], [], WAIT_SECONDS)
        assert ready, "the bridge says nothing more"
        chunk = os.read(stdout.fileno(), 1 << 16)
        assert chunk, f"the bridge has ended: {bridge.stderr()[-2000:]!r}"
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
