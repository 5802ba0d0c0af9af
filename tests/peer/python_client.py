"""A legacy client of the Python SDK 1.x, for the environment `mcp1`: python_client.py -- command...

It starts the command as a stdio server, does everything that a client of revision 2025-11-25 does,
and prints one JSON report. A section that fails is in the report with its error, and the others
run all the same. `npm_client.mjs` writes the same report.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Callable, Literal

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

SECTION_SECONDS = 20.0
FIXED = "note://fixed"

warnings.filterwarnings("ignore", category=DeprecationWarning)


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Visit:
    """One connection, and what the report says of it."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {"failures": {}, "logs": [], "changes": [], "questions": []}
        self.changed = anyio.Event()
        self.session: ClientSession
        self.action: Literal["accept", "decline", "cancel"] = "accept"

    # --- What the server may send ---------------------------------------------------------

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.report["logs"].append(plain(params))

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.report["failures"]["stdout"] = repr(message)
        elif isinstance(message, types.ServerNotification):
            heard = plain(message.root)
            if "changed" in heard["method"] or "updated" in heard["method"]:
                self.report["changes"].append(heard)
            if heard["method"] == "notifications/resources/updated":
                self.changed.set()

    async def on_elicitation(self, _context: Any, params: Any) -> types.ElicitResult:
        self.report["questions"].append({"method": "elicitation/create", "params": plain(params)})
        if params.mode == "url" or self.action != "accept":
            return types.ElicitResult(action=self.action)
        content = {"name": "Ada", "age": 36, "colour": "green", "newsletter": False}
        return types.ElicitResult(action="accept", content=content)

    async def on_sampling(
        self, _context: Any, params: Any
    ) -> types.CreateMessageResult | types.ErrorData:
        asked = {"method": "sampling/createMessage", "params": plain(params)}
        self.report["questions"].append(asked)
        if self.action == "decline":
            return types.ErrorData(code=-32000, message="refused")
        if self.action == "cancel":  # as Copilot refuses
            nothing = types.TextContent(type="text", text="")
            return types.CreateMessageResult(
                role="user", content=nothing, model="", stopReason="cancelled"
            )
        content = types.TextContent(type="text", text="because")
        return types.CreateMessageResult(role="assistant", content=content, model="a-model")

    async def on_roots(self, _context: Any) -> types.ListRootsResult | types.ErrorData:
        self.report["questions"].append({"method": "roots/list"})
        if self.action == "decline":
            return types.ErrorData(code=-32000, message="refused")
        if self.action == "cancel":
            return types.ListRootsResult(roots=[])
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///a", "name": "a"}]})

    # --- What a client does ---------------------------------------------------------------

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return plain(await self.session.call_tool(name, arguments))

    async def lists_tools(self) -> None:
        pages: list[list[str]] = []
        tools: dict[str, Any] = {}
        cursor: str | None = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self.session.list_tools(params=params)
            pages.append([tool.name for tool in page.tools])
            tools.update({tool.name: plain(tool) for tool in page.tools})
            cursor = page.nextCursor
            if cursor is None:
                break
        self.report.update(tool_pages=pages, tools=tools)

    async def calls_tools(self) -> None:
        progress: list[Any] = []

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            progress.append([done, total, message])

        calls = self.report["calls"] = {}
        calls["add"] = await self.call("add", {"a": 2, "b": 3})
        calls["echo"] = await self.call("echo", {"text": "\u2028 \U0001f600 \x7f é"})
        calls["weather"] = await self.call("weather", {"city": "Rome"})
        order = {
            "items": [{"sku": "nut", "count": 2}, {"sku": "bolt"}],
            "tags": ["x"],
            "prices": {"nut": 0.5},
            "size": [2, 3],
        }
        calls["order"] = await self.call("order", order)
        calls["fail"] = await self.call("fail", {"why": "no reason"})
        slow = await self.session.call_tool("slow", {"steps": 3}, progress_callback=on_progress)
        calls["slow"] = plain(slow)
        self.report["progress"] = progress

    async def calls_in_parallel(self) -> None:
        answers: dict[str, str] = {}

        async def one(index: int) -> None:
            result = await self.call("echo", {"text": str(index)})
            answers[str(index)] = result["content"][0]["text"]

        async with anyio.create_task_group() as group:
            for index in range(20):
                group.start_soon(one, index)
        self.report["parallel"] = answers

    async def reads_resources(self) -> None:
        listed = await self.session.list_resources()
        self.report["resources"] = [str(resource.uri) for resource in listed.resources]
        templates = await self.session.list_resource_templates()
        self.report["templates"] = [one.uriTemplate for one in templates.resourceTemplates]
        uris = (FIXED, "note://bytes", "note://named/cats", "note://none")
        self.report["reads"] = {uri: await self.read(uri) for uri in uris}

    async def read(self, uri: str) -> Any:
        try:
            return plain(await self.session.read_resource(types.AnyUrl(uri)))["contents"]
        except McpError as exc:
            return {"error": plain(exc.error)}

    async def gets_prompts(self) -> None:
        listed = await self.session.list_prompts()
        self.report["prompts"] = [plain(prompt) for prompt in listed.prompts]
        got = await self.session.get_prompt("review", {"code": "x = 1", "language": "beta"})
        self.report["prompt"] = plain(got)["messages"]

    async def completes(self) -> None:
        prompt = types.PromptReference(type="ref/prompt", name="review")
        template = types.ResourceTemplateReference(type="ref/resource", uri="note://named/{name}")
        of_prompt = await self.session.complete(prompt, {"name": "language", "value": "al"})
        of_template = await self.session.complete(template, {"name": "name", "value": ""})
        self.report["completions"] = {
            "prompt": plain(of_prompt)["completion"],
            "template": plain(of_template)["completion"],
        }

    async def cancels(self) -> None:
        """SDK 1.x has no call for it: the notification by hand, and nobody waits for the answer."""
        request_id = self.session._request_id
        async with anyio.create_task_group() as group:
            started = anyio.Event()

            async def on_progress(*_step: Any) -> None:
                started.set()

            async def wait_for_the_answer_that_never_comes() -> None:
                arguments = {"steps": 200, "seconds": 0.1}
                await self.session.call_tool("slow", arguments, progress_callback=on_progress)
                self.report["failures"]["cancels"] = "the cancelled call was answered"

            group.start_soon(wait_for_the_answer_that_never_comes)
            await started.wait()
            params = types.CancelledNotificationParams(requestId=request_id, reason="enough")
            notification = types.CancelledNotification(params=params)
            await self.session.send_notification(types.ClientNotification(notification))
            self.report["cancelled_calls"] = await self.count_of_cancelled_calls()
            group.cancel_scope.cancel()

    async def count_of_cancelled_calls(self) -> str:
        """The server may get to know of it a moment after the next call."""
        count = "0"
        for _ in range(50):
            count = (await self.call("cancel_count", {}))["content"][0]["text"]
            if count != "0":
                break
            await anyio.sleep(0.05)
        return count

    async def hears_logs(self) -> None:
        await self.session.set_logging_level("warning")
        await self.call("log", {"text": "hello"})

    async def hears_changes(self) -> None:
        await self.session.subscribe_resource(types.AnyUrl(FIXED))
        await self.call("touch", {"uri": FIXED})
        await self.changed.wait()
        await self.session.unsubscribe_resource(types.AnyUrl(FIXED))

    async def answers_questions(self) -> None:
        """Each tool that asks, with a person who accepts, declines, cancels."""
        every = self.report["answers"] = {}
        for self.action in ("accept", "decline", "cancel"):
            answers = every[self.action] = {}
            for tool in ("ask_name", "ask_url", "think", "list_roots"):
                arguments = {"question": "why?"} if tool == "think" else {}
                try:
                    answers[tool] = await self.call(tool, arguments)
                except McpError as exc:
                    answers[tool] = {"error": plain(exc.error)}

    async def pings(self) -> None:
        self.report["ping"] = plain(await self.session.send_ping())

    async def section(self, what: Callable[[], Awaitable[None]]) -> None:
        name = what.__name__
        try:
            with anyio.fail_after(SECTION_SECONDS):
                await what()
        except Exception as exc:  # noqa: BLE001 - the report says it, the test judges it
            self.report["failures"][name] = f"{type(exc).__name__}: {exc}"

    async def run(self, command: list[str]) -> None:
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ)
        )
        async with (
            stdio_client(parameters) as streams,
            ClientSession(
                *streams,
                sampling_callback=self.on_sampling,
                elicitation_callback=self.on_elicitation,
                list_roots_callback=self.on_roots,
                logging_callback=self.on_log,
                message_handler=self.on_message,
                client_info=types.Implementation(name="python-client", version="0.1"),
            ) as self.session,
        ):
            with anyio.fail_after(SECTION_SECONDS):
                self.report["initialize"] = plain(await self.session.initialize())
            for what in (
                self.lists_tools,
                self.calls_tools,
                self.calls_in_parallel,
                self.reads_resources,
                self.gets_prompts,
                self.completes,
                self.cancels,
                self.hears_logs,
                self.hears_changes,
                self.answers_questions,
                self.pings,
            ):
                await self.section(what)


def main() -> None:
    visit = Visit()
    try:
        anyio.run(visit.run, sys.argv[sys.argv.index("--") + 1 :])
    except Exception as exc:  # noqa: BLE001 - the report says it, the test judges it
        visit.report["failures"]["connection"] = repr(exc)
    with suppress(BrokenPipeError):
        print(json.dumps(visit.report), flush=True)


if __name__ == "__main__":
    main()
