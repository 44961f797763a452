"""Every signature and instruction that programs put before a model. Each thing is said once."""

from __future__ import annotations

from typing import Any

from actors.programs.dspy_setup import dspy

TASK = "what the operator asks"
HISTORY = "earlier turns of this session, oldest first"
MEMORY = "notes that were approved for this session"
MANIFEST = "the files of the session: path, size, type, first and last lines"
ANSWER = "for a reader who has seen nothing else; evidence is cited as path:line"


def _inputs() -> dict[str, tuple[type, Any]]:
    descriptions = {"task": TASK, "history": HISTORY, "memory": MEMORY, "manifest": MANIFEST}
    return {name: (str, dspy.InputField(desc=text)) for name, text in descriptions.items()}


def _answer() -> dict[str, tuple[type, Any]]:
    return {"answer": (str, dspy.OutputField(desc=ANSWER))}


DirectAnswer = dspy.Signature(
    {**_inputs(), **_answer()},
    "Answer the task from what is given here. Of each file you see only what the manifest shows; say so when the "
    "answer needs more than that. Never invent a figure, a quotation or a line number.",
    "DirectAnswer",
)

FlexAnswer = dspy.Signature(
    {**_inputs(), **_answer()},
    "Answer the task from the files of the session, citing path:line. The files lie under the working directory.",
    "FlexAnswer",
)

RlmAnswer = dspy.Signature({**_inputs(), **_answer()}, "", "RlmAnswer")

Triage = dspy.Signature(
    {
        "task": (str, dspy.InputField(desc=TASK)),
        "history": (str, dspy.InputField(desc=HISTORY)),
        "manifest": (str, dspy.InputField(desc=MANIFEST)),
        "size": (str, dspy.InputField(desc="how much there is to read")),
        "direct": (float, dspy.OutputField(desc="probability 0..1")),
        "flex": (float, dspy.OutputField(desc="probability 0..1")),
        "rlm": (float, dspy.OutputField(desc="probability 0..1")),
        "confidence": (float, dspy.OutputField(desc="how sure you are of the first choice, 0..1")),
        "reasons": (str, dspy.OutputField(desc="one short line for each route, `route: reason`")),
    },
    "Choose how a task is worked on. Give each route the probability that it is the cheapest one that answers well.\n"
    "direct: one reply, no files read. Conversation, writing, general knowledge, what the manifest or history shows.\n"
    "flex: one search through the files, one reply. A fact or passage that a few matching lines answer.\n"
    "rlm: Python in steps. Counting, comparing, joining, computing, writing files, evidence spread over much text.",
    "Triage",
)

ACTION = """Work on the operator's task by writing Python. Each step: you write code, it runs, you see its output; \
names stay defined. Inputs are the variables `task`, `history`, `memory`, `manifest`; the files of the session lie \
under the working directory (all of them, also when the manifest is a summary). Stream large files; print little: of \
each output you see {output_chars:,} characters.

Beside the standard library there are
- llm_query(prompt) -> str and llm_query_batched(prompts) -> list[str], in parallel: a model that sees only the \
prompt. Use it for meaning; search, count, sort, join and compute in code.
- dspy.Predict("question, text -> answer: str, score: float")(question=..., text=...): the same with typed fields.
- SUBMIT(answer): hands in the answer and ends the work.
{functions}
Look before you conclude: read some lines, then narrow down, and SUBMIT in a later step than the one whose output \
supports it. Put values into the answer from variables (f-strings), never by retyping: figures that nothing has shown \
are refused. Cite evidence as path:line, lines counted from 1. Files you write are kept as artifacts."""

EXTRACT = """The step limit is reached. Give the answer that the steps so far support, citing path:line; say plainly \
what remains open."""


def action_instructions(output_chars: int, functions: str) -> str:
    """What a model that writes code is told; `functions` documents the host functions, one line each."""
    return ACTION.format(output_chars=output_chars, functions=functions + "\n" if functions else "")
