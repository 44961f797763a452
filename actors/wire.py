"""Commands, answers and errors as bytes between processes: msgpack, never pickled objects of ours."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.commands import Accepted, Command
from actors.turn_run import RunTurn
from events.errors import FleetError


class Failure(msgspec.Struct, frozen=True, tag=True):
    """A FleetError: its class name, message and fields."""

    name: str
    message: str
    fields: dict[str, Any] = {}


encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_turn = msgspec.msgpack.Decoder(RunTurn).decode
_decode_answer = msgspec.msgpack.Decoder(Accepted | Failure).decode


def failure(error: FleetError) -> Failure:
    """The error as data."""
    fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | bool)}
    return Failure(type(error).__name__, str(error), fields)


def restore(failed: Failure) -> FleetError:
    """The error again, of the same class where it is known here."""
    cls = _error_classes().get(failed.name, FleetError)
    error = cls.__new__(cls)
    error.args = (failed.message,)
    vars(error).update(failed.fields)
    return error


def answer(data: bytes) -> Accepted:
    """The answer in these bytes. Errors: the FleetError in them."""
    decoded = _decode_answer(data)
    if isinstance(decoded, Failure):
        raise restore(decoded)
    return decoded


def _error_classes() -> dict[str, type[FleetError]]:
    found: dict[str, type[FleetError]] = {}
    todo = [FleetError]
    while todo:
        cls = todo.pop()
        found[cls.__name__] = cls
        todo.extend(cls.__subclasses__())
    return found
