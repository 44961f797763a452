"""Random programs, the same for the same task: model calls, alone and in parallel, cells that ask, write and die."""

from __future__ import annotations

import json
from random import Random

from actors.ports import Effects, Message, ModelError, ModelRequest, TurnAnswer, TurnInputs
from actors.sandboxes.contract import HostCall, Json
from events.turn import NoticeRaised


def ask(text: str) -> ModelRequest:
    return ModelRequest("sim/m", (Message("user", text),))


def program(inputs: TurnInputs, effects: Effects) -> TurnAnswer:
    random = Random(inputs.task)
    heard: list[str] = [inputs.task, str(inputs.files.files), inputs.history[-50:]]
    for step in range(random.randrange(1, 6)):
        match random.randrange(5):
            case 0:
                try:
                    heard.append(effects.model(ask(f"{inputs.task} {step} {heard[-1]}"), "action").text)
                except ModelError as error:
                    heard.append(error.message)
            case 1:
                asked = [ask(f"{inputs.task} {step}.{n}") for n in range(random.randrange(1, 5))]
                heard += [str(getattr(reply, "text", reply)) for reply in effects.models(asked, "other")]
            case 2:
                effects.note(NoticeRaised("step", f"{step} {len(heard)}"))
            case _:
                heard.append(_cell(random, inputs.task, step, effects))
    if random.random() < 0.1:
        raise ValueError("this program fails")
    return TurnAnswer(" | ".join(heard)[-500:], "direct")


def _cell(random: Random, task: str, step: int, effects: Effects) -> str:
    calls: list[list[Json]] = []
    for number in range(random.randrange(3)):
        name = random.choice(["llm_query", "llm_query_batched", "tool"])
        text = f"{task} {step} asks {number}"
        calls.append([name, [text, f"{text} too"] if name == "llm_query_batched" else text])
    code = json.dumps(
        {
            "name": f"{step}",
            "calls": calls,
            "writes": {f"{random.choice('abc')}.txt": f"{task} {step} "} if random.random() < 0.5 else {},
            "dies": random.random() < 0.08,
            "submits": random.random() < 0.2,
        }
    )

    def tool(call: HostCall) -> Json:
        return f"tool heard {call.args[0]}"

    for _ in range(3):
        outcome = effects.cell(code, reasoning=f"step {step}", functions={"tool": tool})
        error = outcome.result.error
        if error is None or error.type_name != "WorkerLost":
            break
    return outcome.output or (error.message if error else "")
