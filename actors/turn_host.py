"""Many turns in one process: starts them, stops them, says which are running."""

from __future__ import annotations

import asyncio

from actors.turn_run import RunTurn, TurnParts, TurnRun
from events.ids import TurnId
from events.turn import TurnEnd


class TurnHost:
    """Runs turns side by side. Lives on one event loop."""

    def __init__(self, parts: TurnParts) -> None:
        self._parts = parts
        self._runs: dict[TurnId, tuple[TurnRun, asyncio.Task[TurnEnd]]] = {}

    async def run(self, turn: RunTurn) -> TurnEnd:
        """Run a turn to its recorded end. Asked again for a turn that runs here, it joins that run.

        Errors: LogError when the end could not be recorded (fenced, or the log away for too long).
        """
        known = self._runs.get(turn.turn_id)
        if known is None:
            run = TurnRun(self._parts, turn)
            known = run, asyncio.ensure_future(run.run())
            self._runs[turn.turn_id] = known
            known[1].add_done_callback(lambda _: self._runs.pop(turn.turn_id, None))
        return await asyncio.shield(known[1])

    async def stop(self, turn_id: TurnId, reason: str) -> bool:
        """Stop a turn and return when its end is recorded. False if it does not run here."""
        known = self._runs.get(turn_id)
        if known is None:
            return False
        known[0].stop(reason)
        await asyncio.wait({known[1]})
        return True

    def running(self) -> list[TurnId]:
        return list(self._runs)

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*(self.stop(turn_id, "the worker is shutting down") for turn_id in self.running()))
        await self._parts.sandboxes.close()
        await self._parts.model.close()
