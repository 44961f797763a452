"""Reading what a DSPy program asks: its input values and the output fields it wants, or a plain prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from actors.ports import Message

HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*", re.MULTILINE)
OUTPUT = re.compile(r"^\d+\. `(\w+)` \(([^\n]*?)\):", re.MULTILINE)
ENDS = ("\n\nRespond with the corresponding output fields", "\n\nRespond with a JSON object")


class Asked(msgspec.Struct, frozen=True):
    """A request in DSPy's chat or JSON format; without `outputs` it is a plain prompt, whole in `prompt`."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    """Field name to type as DSPy writes it."""
    instructions: str
    prompt: str
    as_json: bool = False


def read(messages: Sequence[Message]) -> Asked:
    """What the messages ask. The last user message with field headers holds the inputs; never raises."""
    system = "\n".join(message.content for message in messages if message.role == "system")
    said = [message.content for message in messages if message.role == "user"]
    last = said[-1] if said else ""
    described = system.partition("Your output fields are:")[2].partition("\nAll interactions will be structured")[0]
    outputs = dict(OUTPUT.findall(described))
    if not outputs:
        return Asked({}, {}, system, "\n\n".join(filter(None, [system, last])))
    instructions = system.partition("your objective is:")[2]
    filled = next((text for text in reversed(said) if any(end in text for end in ENDS)), last)
    return Asked(_values(filled), outputs, instructions, last, "Outputs will be a JSON object" in system)


def _values(text: str) -> dict[str, str]:
    for end in ENDS:
        text = text.rpartition(end)[0] or text
    pieces = HEADER.split(text)
    return {name: value.strip("\n") for name, value in zip(pieces[1::2], pieces[2::2], strict=True)}
