"""Effects without journal or sandbox: models through an event loop thread, cells by `exec` in this process.

Cells run with the test's own working directory, so a test that attaches files changes into a temporary one.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dspy.primitives import facade

from actors.ports import CellOutcome, Model, ModelError, ModelReply, ModelRequest, OnToolCall
from actors.programs.parsing import TREES
from actors.sandboxes.contract import CellResult, CellUsage, CodeError, HostCall, HostCallFailed, Json
from events.effects import HostError, Purpose
from events.ids import CellId
from events.turn import NoticeRaised, RouteChosen, SubmitRefused

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


class Submit(BaseException):
    pass


class FakeEffects:
    """Records everything it is asked; `on_cell` may replace how a cell ends."""

    def __init__(self, model: Model, sub_model: str = "offline/extractive") -> None:
        self.port = model
        self.sub_model = sub_model
        self.requests: list[tuple[str, ModelRequest]] = []
        self.replies: list[str] = []
        self.cells: list[dict[str, Any]] = []
        self.outcomes: list[CellOutcome] = []
        self.notes: list[RouteChosen | SubmitRefused | NoticeRaised] = []
        self.on_cell: Callable[[str], CellOutcome | None] = lambda code: None
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.port.close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    def model(self, request: ModelRequest, purpose: Purpose) -> ModelReply:
        self.requests.append((purpose, request))
        pieces: list[str] = []
        future = asyncio.run_coroutine_threadsafe(self.port.complete(request, pieces.append), self.loop)
        reply = future.result(60)
        self.replies.append(reply.text)
        assert "".join(pieces) == reply.text
        return reply

    def models(self, requests: Sequence[ModelRequest], purpose: Purpose) -> list[ModelReply | ModelError]:
        def one(request: ModelRequest) -> ModelReply | ModelError:
            try:
                return self.model(request, purpose)
            except ModelError as error:
                return error

        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(one, requests))

    def note(self, fact: RouteChosen | SubmitRefused | NoticeRaised) -> None:
        self.notes.append(fact)

    def cell(
        self,
        code: str,
        *,
        reasoning: str = "",
        variables: Mapping[str, Json] = {},
        functions: Mapping[str, OnToolCall] = {},
        outputs: Sequence[tuple[str, str]] = (),
        silent: bool = False,
    ) -> CellOutcome:
        if not silent:
            self.cells.append({"code": code, "reasoning": reasoning, "variables": dict(variables)})
        outcome = self.on_cell(code) if not silent else None
        if outcome is None:
            outcome = self._execute(code, variables, functions, outputs)
        self.outcomes.append(outcome)
        return outcome

    def _execute(
        self,
        code: str,
        variables: Mapping[str, Json],
        functions: Mapping[str, OnToolCall],
        outputs: Sequence[tuple[str, str]],
    ) -> CellOutcome:
        self.namespace.update(variables)
        if facade.HOST_TOKEN_VAR in variables:  # this "guest" shares the host's memory, and the shim must know
            self.namespace[facade.HOST_TOKEN_VAR] = facade._HOST_PROCESS_TOKEN
        failures: list[tuple[str, str]] = []
        for name, function in {**self._queries(), **functions}.items():
            self.namespace[name] = in_thread(name, function, failures)
        submitted: dict[str, Any] = {}
        self.namespace["SUBMIT"] = submit(outputs, submitted)
        printed = io.StringIO()
        value, error, ended = None, None, False
        with contextlib.redirect_stdout(printed):
            try:
                with TREES:
                    tree = ast.parse(code)
                last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, "<cell>", "exec"), self.namespace)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.namespace)
            except Submit:
                ended = True
            except Exception as raised:
                error = CodeError(type(raised).__name__, str(raised), traceback.format_exc()[-20_000:])
        result = CellResult("error" if error else "ok", CellUsage(), error, submitted if ended else None, value)
        host_error = HostError(*failures[-1]) if failures else None
        return CellOutcome(CellId(f"cel_{len(self.outcomes)}"), printed.getvalue(), result, host_error)

    def _queries(self) -> dict[str, OnToolCall]:
        def request(prompt: str) -> ModelRequest:
            from actors.ports import Message

            return ModelRequest(self.sub_model, (Message("user", prompt),))

        def query(call: HostCall) -> Json:
            return self.model(request(call.args[0]), "sub").text

        def batched(call: HostCall) -> Json:
            replies = self.models([request(prompt) for prompt in call.args[0]], "sub")
            return [f"[ERROR] {r.message}" if isinstance(r, ModelError) else r.text for r in replies]

        return {"llm_query": query, "llm_query_batched": batched}


def submit(outputs: Sequence[tuple[str, str]], submitted: dict[str, Any]) -> Callable[..., None]:
    def hand_in(*args: Any, **kwargs: Any) -> None:
        given = dict(zip([name for name, _ in outputs], args, strict=False)) | kwargs
        if set(given) != {name for name, _ in outputs}:
            raise TypeError(f"expected {outputs}, got {sorted(given)}")
        for name, kind in outputs:
            if kind and not isinstance(given[name], TYPES[kind]):
                raise TypeError(f"{name} must be {kind}, not {type(given[name]).__name__}")
        submitted.update(given)
        raise Submit

    return hand_in


def in_thread(name: str, function: OnToolCall, failures: list[tuple[str, str]]) -> Callable[..., Json]:
    """Host calls come from a thread of their own, with a context of their own."""

    def call(*args: Any, **kwargs: Any) -> Json:
        answers: list[Json] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(function(HostCall(0, name, list(args), kwargs)))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors and not isinstance(errors[0], Exception):
            raise errors[0]
        if errors:
            error = errors[0]
            if isinstance(error, HostCallFailed) and error.ended is not None:
                failures.append(error.ended)
            kind = error.type_name if isinstance(error, HostCallFailed) else type(error).__name__
            raise RuntimeError(f"{kind}: {error}") from error
        return answers[0]

    return call


class ScriptedModel:
    """Replies in order, or by a function of the request. A ModelError in the script is raised."""

    def __init__(self, *replies: str | Exception | Callable[[ModelRequest], str]) -> None:
        self.replies = list(replies)

    async def complete(self, request: ModelRequest, on_delta: Callable[[str], None]) -> ModelReply:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else reply(request)
        on_delta(text)
        return ModelReply(text, len(text) // 4, len(text) // 4)

    async def close(self) -> None:
        pass


def fields(**values: str) -> str:
    """A reply in DSPy's chat format."""
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items()) + "\n\n[[ ## completed ## ]]"


def step(code: str, reasoning: str = "next") -> str:
    return fields(reasoning=reasoning, code=f"```python\n{code}\n```")


@contextlib.contextmanager
def effects_of(model: Model) -> Iterator[FakeEffects]:
    effects = FakeEffects(model)
    try:
        yield effects
    finally:
        effects.close()
