"""How fields become a prompt and a reply becomes fields: DSPy's chat format, read tolerantly, asked again once.

Accepted beside the proper form: leaked ``<think>`` text before it, one JSON object with the fields, and for code a bare
Python fence. Anything else is shown to the model once with the list of fields; after that it is AdapterParseError.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from dspy.adapters.utils import parse_value
from dspy.utils.exceptions import AdapterParseError

from actors.programs.dspy_setup import dspy

lm15 = dspy.lm15

SHOWN_BACK = 4_000
"""Characters of an unreadable reply that are shown to the model again."""
CONFIGURABLE = frozenset(
    {"max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "frequency_penalty", "presence_penalty"}
)


class TurnAdapter(dspy.ChatAdapter):  # type: ignore[misc]
    """ChatAdapter over dspy.lm15 requests. One instance serves all threads."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: Any,
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """The parsed fields of one completion, in a list. Errors: AdapterParseError after the second bad reply."""
        system, *rest = self.format(signature, demos, inputs)
        messages = [_message(item) for item in rest]
        settings = {**getattr(lm, "kwargs", {}), **lm_kwargs}
        config = lm15.Config(**{k: v for k, v in settings.items() if k in CONFIGURABLE and v is not None})
        reply = _ask(lm, system["content"], messages, config)
        try:
            return [self.parse(signature, reply)]
        except AdapterParseError:
            shown = reply[:SHOWN_BACK] or "(nothing)"
            messages += [lm15.Message.assistant(shown), lm15.Message.user(again(signature))]
        return [self.parse(signature, _ask(lm, system["content"], messages, config))]

    def format_system_message(self, signature: Any) -> str:
        return _system_message(self, signature)

    def format_user_message_content(
        self, signature: Any, inputs: dict[str, Any], prefix: str = "", suffix: str = "", main_request: bool = False
    ) -> str:
        """DSPy's own form. Text goes in as it is: DSPy builds a pydantic adapter for each value of each call."""
        if not all(isinstance(value, str) for value in inputs.values()):
            text: str = super().format_user_message_content(signature, inputs, prefix, suffix, main_request)
            return text
        parts = [prefix, *(f"[[ ## {k} ## ]]\n{inputs[k]}" for k in signature.input_fields if k in inputs)]
        if main_request:
            parts.append(self.user_message_output_requirements(signature) or "")
        return "\n\n".join([*parts, suffix]).strip()

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        text = without_thinking(completion)
        try:
            fields: dict[str, Any] = super().parse(signature, text)
            return fields
        except AdapterParseError:
            found = from_json(signature, text) or from_fence(signature, text)
            if found is None:
                raise
            return found


@lru_cache(maxsize=128)
def _system_message(adapter: TurnAdapter, signature: Any) -> str:
    """The same for every call with one signature, and a fifth of the host's work per call."""
    text: str = dspy.ChatAdapter.format_system_message(adapter, signature)
    return text


def again(signature: Any) -> str:
    """What a model is told whose reply could not be read."""
    fields = "\n".join(f"[[ ## {name} ## ]]" for name in signature.output_fields)
    return (
        "Your reply could not be read. Reply again with exactly these headers, each on its own line and followed by "
        f"its value, and nothing before them:\n{fields}\n[[ ## completed ## ]]"
    )


def without_thinking(text: str) -> str:
    """The text after a leaked reasoning block."""
    head, tag, tail = text.rpartition("</think>")
    return tail.lstrip() if tag and "[[ ## " not in head else text


def from_json(signature: Any, text: str) -> dict[str, Any] | None:
    """The fields of a reply that is one JSON object, or None."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or text[:start].strip() not in ("", "```", "```json"):
        return None
    try:
        found = json.loads(text[start : end + 1])
        if not isinstance(found, dict) or not signature.output_fields.keys() <= found.keys():
            return None
        return {name: parse_value(found[name], field.annotation) for name, field in signature.output_fields.items()}
    except (ValueError, RecursionError):
        return None


def from_fence(signature: Any, text: str) -> dict[str, Any] | None:
    """Reasoning and code of a reply that is prose and one Python fence, or None when other fields are wanted."""
    if set(signature.output_fields) != {"reasoning", "code"}:
        return None
    before, fence, rest = text.partition("```python\n")
    if not fence:
        return None
    code = rest.partition("\n```")[0].strip()
    reasoning = "\n".join(line for line in before.splitlines() if not line.strip().startswith("[[ ## "))
    return {"reasoning": reasoning.strip(), "code": code} if code else None


def _ask(lm: Any, system: str, messages: list[Any], config: Any) -> str:
    response = lm(lm15.Request(model=lm.model, messages=tuple(messages), system=system, config=config))
    return response.text or ""


def _message(item: dict[str, Any]) -> Any:
    content = item["content"]
    if not isinstance(content, str):  # DSPy's media types; the engine says that they are not sent
        content = "".join(part.get("text", "") for part in content)
    return lm15.Message(item["role"], (lm15.TextPart(content),))


ADAPTER = TurnAdapter()
