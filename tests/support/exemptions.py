"""What the frames may break of the official types, as one table. Everything else is a problem.

A place is the kind of frame, the path in it and what is wrong there, as the checker names it in its
problems: `to_client result tools/call: structuredContent (dict_type)`. `*` fits anything.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Exemption(NamedTuple):
    place: str
    why: str


EXEMPTIONS = (
    Exemption(
        "to_client result tools/call: structuredContent (*)",
        "structured content of any JSON type passes unchanged, VS Code and MCP Apps read it",
    ),
    Exemption(
        "to_client result tools/list: tools.*.inputSchema.type (missing)",
        "VS Code keeps a root schema without a type, so it passes unchanged",
    ),
    Exemption(
        "to_client error: id (null)",
        "JSON-RPC: a line whose id cannot be known is answered with a null id",
    ),
)


def is_exempt(place: str, of_this_case: tuple[str, ...] = ()) -> bool:
    """`of_this_case` are the members that a hostile server of one test makes invalid itself."""
    patterns = (*(exemption.place for exemption in EXEMPTIONS), *of_this_case)
    return any(fnmatchcase(place, pattern) for pattern in patterns)
