"""Each route with scripted replies: what it asks, what it runs, how it ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.failures import describe_failure
from actors.ports import (
    BudgetSpent,
    CellOutcome,
    FileSummary,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    ProgramFailed,
    Stopped,
    TurnInputs,
)
from actors.programs.rlm import STEP_LIMIT_NOTE, HostFunction
from actors.programs.run import run_turn
from actors.sandboxes.contract import CellResult, CellUsage, CodeError, HostCall, SandboxGone
from events.ids import CellId
from events.turn import NoticeRaised, SubmitRefused
from tests.actors.programs.fake_effects import FakeEffects, ScriptedModel, fields, step

Make = Callable[[Model], FakeEffects]
TERMS = fields(terms='["needle", "haystack"]')


def inputs(mode: str, task: str = "How deep is it?", **others: Any) -> TurnInputs:
    base = TurnInputs(task, "direct", "test/main", "test/sub", manifest="notes.txt 40 B", files=FileSummary(1, 40, 10))
    return msgspec.structs.replace(base, mode=mode, **others)


def purposes(effects: FakeEffects) -> list[str]:
    return [purpose for purpose, _ in effects.requests]


def failing(code: str) -> CellOutcome:
    error = CodeError("NameError", "name 'x' is not defined", "Traceback …\nNameError: name 'x' is not defined")
    return CellOutcome(CellId("cel_x"), "", CellResult("error", CellUsage(), error))


# direct


def test_direct_is_one_reply_and_no_code(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(fields(reasoning="r", answer="12 fathoms, see notes.txt:3")))
    answer = run_turn(inputs("direct"), effects)
    assert (answer.answer, answer.route, answer.citations) == (
        "12 fathoms, see notes.txt:3",
        "direct",
        ("notes.txt:3",),
    )
    assert (purposes(effects), effects.cells) == (["answer"], [])
    assert effects.requests[0][1].model == "test/main"


def test_an_unreadable_reply_is_asked_again_once(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel("I think it is deep.", fields(reasoning="r", answer="deep")))
    assert run_turn(inputs("direct"), effects).answer == "deep"
    again = effects.requests[1][1].messages
    assert (again[-2].role, again[-2].content) == ("assistant", "I think it is deep.")
    assert "[[ ## answer ## ]]" in again[-1].content


def test_two_unreadable_replies_end_the_turn(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel("nonsense"))
    with pytest.raises(ProgramFailed, match="answer") as caught:
        run_turn(inputs("direct"), effects)
    assert (caught.value.kind, len(effects.requests)) == ("malformed", 2)


@pytest.mark.parametrize(
    "reply",
    ["<think>hm [maybe]</think>\n" + fields(reasoning="r", answer="deep"), '{"reasoning": "r", "answer": "deep"}'],
)
def test_replies_in_other_forms_are_read(effects_with: Make, reply: str) -> None:
    effects = effects_with(ScriptedModel(reply))
    assert (run_turn(inputs("direct"), effects).answer, len(effects.requests)) == ("deep", 1)


def test_an_empty_answer_is_no_answer(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(fields(reasoning="r", answer=" ")))
    with pytest.raises(ProgramFailed) as caught:
        run_turn(inputs("direct"), effects)
    assert caught.value.kind == "empty"


@pytest.mark.parametrize(
    "error", [ModelError("rate_limited", "wait"), ModelError("context_length", "too long"), BudgetSpent("calls", 1, 1)]
)
def test_errors_of_effects_come_out_as_they_went_in(effects_with: Make, error: Exception) -> None:
    effects = effects_with(ScriptedModel(error))
    for mode in ("direct", "rlm", "flex"):
        with pytest.raises((type(error), ProgramFailed)) as caught:
            run_turn(inputs(mode), effects)
        assert describe_failure(caught.value) == describe_failure(error)


def test_being_stopped_passes_through_everything(effects_with: Make) -> None:
    for mode in ("direct", "flex", "rlm", "hybrid"):
        effects = effects_with(ScriptedModel(TERMS))

        def stopped(*_: Any) -> Any:
            raise Stopped("cancelled")

        effects.model = stopped  # type: ignore[method-assign]
        with pytest.raises(Stopped):
            run_turn(inputs(mode), effects)


def test_memory_over_its_bound_is_cut_with_a_notice(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(fields(reasoning="r", answer="deep")))
    run_turn(inputs("direct", memory="m" * 500_000), effects)
    assert [note.kind for note in effects.notes if isinstance(note, NoticeRaised)] == ["memory_cut"]
    assert sum(len(message.content) for message in effects.requests[0][1].messages) < 12_000


# flex


def test_flex_searches_in_the_sandbox_and_answers_from_passages(effects_with: Make, workspace: Path) -> None:
    (workspace / "deep").mkdir()
    (workspace / "deep/notes.txt").write_text("one\nthe Needle is in the haystack\nthree\n", encoding="utf-8")
    (workspace / "other.bin").write_bytes(b"\0needle")
    effects = effects_with(ScriptedModel(TERMS, fields(answer="In the haystack (deep/notes.txt:2).")))
    answer = run_turn(inputs("flex"), effects)
    assert (answer.answer, answer.citations) == ("In the haystack (deep/notes.txt:2).", ("deep/notes.txt:2",))
    assert purposes(effects) == ["workflow", "workflow"]
    assert "deep/notes.txt:2: the Needle is in the haystack" in effects.requests[1][1].messages[-1].content
    assert "other.bin" not in effects.requests[1][1].messages[-1].content
    assert len(effects.cells) == 1
    assert effects.cells[0]["reasoning"].startswith("Workflow")


def test_passages_are_bounded(effects_with: Make, workspace: Path) -> None:
    words = ["".join(letters) for letters in itertools.product("abcdefghijklmnop", repeat=4)]
    (workspace / "big.txt").write_text("".join(f"needle and haystack in {word}\n" for word in words))
    (workspace / "dull.txt").write_text("".join(f"needle and haystack {n}\n" for n in range(50_000)))
    effects = effects_with(ScriptedModel(TERMS, fields(answer="found")))
    run_turn(inputs("flex"), effects)
    passages = effects.requests[1][1].messages[-1].content
    assert 10_000 < len(passages) < 20_000
    assert passages.count("dull.txt:") <= 4, "lines alike but for their digits are shown a few times"


def test_a_workflow_that_fails_fails_the_turn(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(TERMS))
    effects.on_cell = failing
    with pytest.raises(ProgramFailed, match="NameError") as caught:
        run_turn(inputs("flex"), effects)
    assert caught.value.kind == "no_progress"


def test_unreadable_replies_inside_the_workflow_are_malformed(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel("nonsense"))
    with pytest.raises(ProgramFailed) as caught:
        run_turn(inputs("flex"), effects)
    assert caught.value.kind == "malformed"


# rlm


def test_rlm_in_several_steps(effects_with: Make, workspace: Path) -> None:
    (workspace / "notes.txt").write_text("depth 12\ndepth 31\n", encoding="utf-8")
    script = ScriptedModel(
        step("with open('notes.txt') as f:\n depths = [int(l.split()[1]) for l in f]\nprint(depths)", "read the file"),
        step("sum(depths)"),
        step("SUBMIT(f'{sum(depths)} in all, notes.txt:{len(depths)}')"),
    )
    effects = effects_with(script)
    answer = run_turn(inputs("rlm"), effects)
    assert (answer.answer, answer.citations, answer.ungrounded) == ("43 in all, notes.txt:2", ("notes.txt:2",), ())
    assert purposes(effects) == ["action"] * 3
    assert [cell["reasoning"] for cell in effects.cells] == ["read the file", "next", "next"]
    assert [sorted(cell["variables"]) for cell in effects.cells] == [["history", "manifest", "memory", "task"], [], []]
    assert "[12, 31]" in effects.requests[1][1].messages[-1].content
    assert "43" in effects.requests[2][1].messages[-1].content


def test_a_failed_step_is_shown_and_mended(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("print('before')\nmissing"), step("SUBMIT('mended')")))
    assert run_turn(inputs("rlm"), effects).answer == "mended"
    shown = effects.requests[1][1].messages[-1].content
    assert "NameError: name 'missing' is not defined" in shown
    assert "before" in shown


def test_a_turn_whose_every_step_failed_fails(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("missing")))
    with pytest.raises(ProgramFailed, match="NameError") as caught:
        run_turn(inputs("rlm", max_iterations=3), effects)
    assert (caught.value.kind, purposes(effects)) == ("no_progress", ["action"] * 3)


def test_reaching_the_step_limit_is_said(effects_with: Make) -> None:
    script = ScriptedModel(step("print(1)"), step("missing"), fields(answer="perhaps 1"))
    effects = effects_with(script)
    answer = run_turn(inputs("rlm", max_iterations=2), effects)
    assert answer.answer == STEP_LIMIT_NOTE + "perhaps 1"
    assert purposes(effects) == ["action", "action", "extract"]
    assert [note.kind for note in effects.notes if isinstance(note, NoticeRaised)] == ["step_limit"]


def test_invented_figures_are_refused_twice_and_then_flagged(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("SUBMIT('It is 4711 m deep')")))
    answer = run_turn(inputs("rlm"), effects)
    assert (answer.answer, answer.ungrounded) == ("It is 4711 m deep", ("4711",))
    refusals = [note for note in effects.notes if isinstance(note, SubmitRefused)]
    assert [(note.figures, note.attempt) for note in refusals] == [(["4711"], 1), (["4711"], 2)]
    assert "no input and no output has shown 4711" in effects.requests[1][1].messages[-1].content


def test_figures_of_the_task_may_be_repeated(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("SUBMIT('It is 4711 m deep')")))
    answer = run_turn(inputs("rlm", "Is it 4,711 m deep?"), effects)
    assert (answer.ungrounded, [type(note).__name__ for note in effects.notes]) == ((), ["RouteChosen"])


@pytest.mark.parametrize("code", ["'ä' * 5_000_000", "str(7) * 20_000", "str([[n] * 3 for n in range(50_000)])"])
def test_large_answers_arrive_exactly(effects_with: Make, code: str) -> None:
    effects = effects_with(ScriptedModel(step(f"SUBMIT({code})")))
    assert run_turn(inputs("rlm"), effects).answer == eval(code)


def test_a_wrongly_typed_submit_is_an_error_of_the_code(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("SUBMIT(42)"), step("SUBMIT('42')")))
    assert run_turn(inputs("rlm", "why 42?"), effects).answer == "42"
    assert "answer must be str, not int" in effects.requests[1][1].messages[-1].content


def test_sub_queries_go_to_the_sub_model(effects_with: Make) -> None:
    script = ScriptedModel(
        step("print(llm_query_batched(['ä?', 'ö?', 'ü?']))\nprint(dspy.Predict('q -> a')(q='ß?').a)"),
        lambda request: f"echo {request.messages[-1].content}",
        lambda request: f"echo {request.messages[-1].content}",
        lambda request: f"echo {request.messages[-1].content}",
        fields(a="typed ß"),
        step("SUBMIT('done')"),
    )
    effects = effects_with(script)
    assert run_turn(inputs("rlm"), effects).answer == "done"
    assert purposes(effects) == ["action", "sub", "sub", "sub", "sub", "action"]
    assert "['echo ä?', 'echo ö?', 'echo ü?']\ntyped ß" in effects.outcomes[1].output
    assert effects.requests[4][1].model == "test/sub"


def test_an_agent_inside_a_cell_that_runs_cells_is_refused(effects_with: Make) -> None:
    script = ScriptedModel(step("dspy.RLM('q -> a')(q='deep')"), step("print(dspy.Predict('q -> a')(q='x').a)"))
    script.replies += [fields(a="still works"), step("SUBMIT('done')")]
    effects = effects_with(script)
    assert run_turn(inputs("rlm"), effects).answer == "done"
    assert "cannot start an agent that runs code" in effects.requests[1][1].messages[-1].content
    assert "still works" in effects.outcomes[2].output


def test_host_functions_are_documented_and_callable(effects_with: Make) -> None:
    calls: list[HostCall] = []

    def remember(call: HostCall) -> str:
        calls.append(call)
        return "kept"

    function = HostFunction("remember(text) -> str", "proposes a note for later sessions", remember)
    journal = HostFunction("delegate(task) -> dict", "answered by the journal")
    effects = effects_with(ScriptedModel(step("print(remember('x', key=2))"), step("SUBMIT('done')")))
    run_turn(inputs("rlm"), effects, functions=[function, journal])
    assert (calls[0].args, calls[0].kwargs, effects.outcomes[1].output) == (["x"], {"key": 2}, "kept\n")
    assert "- remember(text) -> str: proposes" in effects.requests[0][1].messages[0].content


def test_a_lost_sandbox_ends_the_turn_with_its_reason(effects_with: Make) -> None:
    gone = SandboxGone("memory", "the sandbox ran out of memory")
    effects = effects_with(ScriptedModel(TERMS, step("print(1)")))

    def lost(code: str) -> CellOutcome:
        raise gone

    effects.on_cell = lost
    for mode in ("flex", "rlm"):
        with pytest.raises(SandboxGone) as caught:
            run_turn(inputs(mode), effects)
        assert caught.value is gone


def test_what_the_model_sees_of_output_is_bounded_at_both_ends(effects_with: Make) -> None:
    effects = effects_with(ScriptedModel(step("print('A' * 50_000 + 'Z' * 50_000)"), step("SUBMIT('done')")))
    run_turn(inputs("rlm"), effects)
    shown = effects.requests[1][1].messages[-1].content
    assert len(shown) < 12_000
    assert "left out; print less" in shown
    assert "AAA" in shown
    assert "ZZZ" in shown


def test_the_first_prompt_is_small_also_with_many_files(effects_with: Make) -> None:
    manifest = "\n".join(f"folder/sub/file_{n:05}_with_a_rather_long_name_to_fill_sixty.txt" for n in range(200))[
        :12_000
    ]
    effects = effects_with(ScriptedModel(step("SUBMIT('done')")))
    run_turn(inputs("rlm"), effects)
    run_turn(inputs("rlm", manifest=manifest, history="h" * 16_000, memory="m" * 8_000), effects)
    sizes = [sum(len(m.content.encode()) for m in request.messages) for _, request in effects.requests]
    assert sizes[0] < 3_500
    assert sizes[1] < 16_000


def test_a_prompt_that_outgrows_the_model_is_shortened_once(effects_with: Make) -> None:
    script = ScriptedModel(step("print('x' * 9_000)"), step("print('y' * 9_000)"))
    script.replies += [ModelError("context_length", "too long"), step("SUBMIT('done')")]
    effects = effects_with(script)
    assert run_turn(inputs("rlm"), effects).answer == "done"
    sizes = [len(request.messages[-1].content) for _, request in effects.requests]
    assert sizes[3] < sizes[2] / 2


def test_a_reply_cut_at_its_limit_raises_a_notice(effects_with: Make) -> None:
    class Cut(ScriptedModel):
        async def complete(self, request: ModelRequest, on_delta: Callable[[str], None]) -> ModelReply:
            return msgspec.structs.replace(await super().complete(request, on_delta), finish_reason="length")

    effects = effects_with(Cut(fields(reasoning="r", answer="deep")))
    assert run_turn(inputs("direct"), effects).answer == "deep"
    assert [note.kind for note in effects.notes if isinstance(note, NoticeRaised)] == ["reply_cut"]


def test_turns_in_parallel_threads_do_not_meet(effects_with: Make) -> None:
    def answers(name: str) -> ScriptedModel:
        return ScriptedModel(step(f"x = '{name}'"), step("y = dspy.Predict('q -> a')(q=x).a"), fields(a=name), DONE)

    everyone = [effects_with(answers(f"turn {number}")) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda effects: run_turn(inputs("rlm"), effects), everyone))
    assert [one.answer for one in found] == [f"turn {number}" for number in range(8)]
    assert all(purposes(effects) == ["action", "action", "sub", "action"] for effects in everyone)


DONE = step("SUBMIT(y)")


def test_long_work_keeps_its_prompt_bounded(effects_with: Make) -> None:
    steps = [step(f"print({n}, 'x' * 9_900)") for n in range(29)]
    effects = effects_with(ScriptedModel(*steps, step("SUBMIT('done')")))
    run_turn(inputs("rlm", max_iterations=30), effects)
    assert max(sum(len(m.content) for m in request.messages) for _, request in effects.requests) < 110_000
