"""How much the stress tests do: MCP_BRIDGE_TEST_STRESS=20 makes it twenty times as much."""

from __future__ import annotations

import os
from typing import Final

FACTOR: Final = int(os.environ.get("MCP_BRIDGE_TEST_STRESS", "1"))
