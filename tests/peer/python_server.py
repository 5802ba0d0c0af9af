"""A modern MCP server of the Python SDK 2.x over stdio, for the environment `mcp2`.

The SDK serves both eras; a middleware refuses every message of the older one, so that a test
passes only when the bridge really drove this server by revision 2026-07-28. With --spare it has a
tool more, and one that disables it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import (
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    Completion,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    EmptyResult,
    InputRequiredResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    SetLevelRequestParams,
    TextContent,
)
from pydantic import BaseModel, Field

MODERN = "2026-07-28"
PAGE_SIZE = 4
WORDS = ("alpha", "beta", "gamma")

warnings.filterwarnings("ignore", message=".*deprecated as of 2026-07-28.*")


async def modern_only(ctx: Any, call_next: Any) -> Any:
    if ctx.protocol_version != MODERN or ctx.method == "initialize":
        raise MCPError(
            code=UNSUPPORTED_PROTOCOL_VERSION,
            message="this server serves 2026-07-28 only",
            data={"supported": [MODERN], "requested": str(ctx.protocol_version)},
        )
    return await call_next(ctx)


async def in_pages(ctx: Any, call_next: Any) -> Any:
    """The SDK lists all tools on one page; a client must follow cursors."""
    result = await call_next(ctx)
    if ctx.method != "tools/list" or not isinstance(result, Mapping):
        return result
    start = int((ctx.params or {}).get("cursor", "0"))
    end = start + PAGE_SIZE
    page = {**result, "tools": result["tools"][start:end]}
    return {**page, "nextCursor": str(end)} if end < len(result["tools"]) else page


server = MCPServer(
    "python-peer",
    title="Python peer",
    version="1.2.3",
    instructions="Call add first.",
    middleware=[modern_only, in_pages],
)


# --- Tools ------------------------------------------------------------------------------------


@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    """Add two integers."""
    return str(a + b)


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Say the text again, as it came."""
    return text


cancelled_calls = 0


@server.tool(structured_output=False)
async def slow(ctx: Context[Any, Any], steps: int = 3, seconds: float = 0.05) -> str:
    """Work in steps, with progress for each."""
    global cancelled_calls  # noqa: PLW0603 - one process, one connection
    try:
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step} of {steps}")
            await anyio.sleep(seconds)  # the npm client loses progress that comes with the answer
    except anyio.get_cancelled_exc_class():
        cancelled_calls += 1
        raise
    return f"{steps} steps"


@server.tool(structured_output=False)
def cancel_count() -> str:
    """How many slow calls were cancelled."""
    return str(cancelled_calls)


class Weather(BaseModel):
    city: str
    degrees: float
    wind: list[int]


@server.tool()
def weather(city: str) -> Weather:
    """A result with structured content and an output schema."""
    return Weather(city=city, degrees=21.5, wind=[3, 4])


class Item(BaseModel):
    sku: str = Field(pattern="^[a-z]+$")
    count: int = Field(ge=1, default=1)
    colour: Literal["red", "green"] | None = None


@server.tool(structured_output=False)
def order(
    items: list[Item],
    tags: list[str] | None = None,
    prices: dict[str, float] | None = None,
    size: tuple[int, int] = (1, 1),
) -> str:
    """Arrays, objects, a tuple and references, as pydantic writes them."""
    total = sum(item.count for item in items)
    return f"{total} items, {len(tags or ())} tags, {len(prices or ())} prices, {size[0]}x{size[1]}"


@server.tool(structured_output=False)
def fail(why: str) -> str:
    """A tool error that the model may read."""
    raise ToolError(why)


@server.tool(structured_output=False)
async def log(ctx: Context[Any, Any], text: str) -> str:
    """One log message of each of three levels."""
    for level in ("debug", "warning", "error"):
        await ctx.log(level, f"{level}: {text}", logger_name="peer")
    return "logged"


@server.tool(structured_output=False)
async def touch(ctx: Context[Any, Any], uri: str) -> str:
    """Tell everyone who listens that a resource and the list of tools changed."""
    await ctx.notify_resource_updated(uri)
    await ctx.notify_tools_changed()
    return "touched"


# --- Tools that ask ---------------------------------------------------------------------------


class Name(BaseModel):
    name: str = Field(title="Your name", max_length=40)
    age: int = Field(ge=0, le=150, default=30)
    colour: Literal["red", "green"] = "red"
    newsletter: bool = False


def ask_for_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool(structured_output=False)
def ask_name(who: Annotated[ElicitationResult[Name], Resolve(ask_for_name)]) -> str:
    """Ask with a form."""
    if who.action != "accept":
        return str(who.action)
    return f"{who.data.name}, {who.data.age}, {who.data.colour}"


@server.tool(structured_output=False)
async def ask_url(ctx: Context[Any, Any]) -> CallToolResult | InputRequiredResult:
    """Ask the person to open a page."""
    answer = (ctx.input_responses or {}).get("page")
    if answer is None:
        params = ElicitRequestURLParams(message="Open the page", url="https://example.com/step?n=1")
        return InputRequiredResult(
            input_requests={"page": ElicitRequest(params=params)}, request_state="waiting for page"
        )
    action = answer.action if isinstance(answer, ElicitResult) else "no elicitation result"
    return CallToolResult(content=[TextContent(type="text", text=f"{ctx.request_state}: {action}")])


def ask_the_model(question: str) -> Sample:
    content = TextContent(type="text", text=question)
    return Sample([SamplingMessage(role="user", content=content)], max_tokens=50)


@server.tool(structured_output=False)
def think(question: str, answer: Annotated[CreateMessageResult, Resolve(ask_the_model)]) -> str:
    """Ask the client's model."""
    content = answer.content
    said = content.text if isinstance(content, TextContent) else "no text"
    return f"{question} {said} ({answer.model})"


def ask_for_roots() -> ListRoots:
    return ListRoots()


@server.tool(structured_output=False)
def list_roots(roots: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
    """Ask for the client's roots."""
    return " ".join(str(root.uri) for root in roots.roots)


# --- Resources, prompts, completion, logging -----------------------------------------------------


@server.resource("note://fixed", name="fixed", mime_type="text/plain")
def fixed() -> str:
    return "a fixed note"


@server.resource("note://bytes", name="bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    return bytes(range(8))


@server.resource("note://named/{name}", name="named", mime_type="text/plain")
def named(name: str) -> str:
    return f"a note about {name}"


@server.prompt(title="Review code")
def review(code: str, language: str = "python") -> str:
    """A prompt with one argument that is needed and one that is not."""
    return f"Review this {language} code: {code}"


@server.completion()
async def complete(ref: Any, argument: Any, _context: Any) -> Completion | None:
    known = (isinstance(ref, PromptReference) and argument.name == "language") or (
        isinstance(ref, ResourceTemplateReference) and argument.name == "name"
    )
    if not known:
        return None
    fitting = [word for word in WORDS if word.startswith(argument.value)]
    return Completion(values=fitting, total=len(fitting), has_more=False)


async def set_level(_ctx: Any, _params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


# The SDK declares `logging` when this method has a handler, and MCPServer has no decorator for it.
# By revision 2026-07-28 nobody can call it: the level is in the `_meta` of each request.
server._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)


def add_spare_tools() -> None:
    """A tool, and one that takes it off the list."""

    @server.tool(structured_output=False)
    def spare() -> str:
        return "spare"

    @server.tool(structured_output=False)
    async def disable_spare(ctx: Context[Any, Any]) -> str:
        server.remove_tool("spare")
        await ctx.notify_tools_changed()
        return "disabled"


if __name__ == "__main__":
    if "--spare" in sys.argv:
        add_spare_tools()
    server.run("stdio")
