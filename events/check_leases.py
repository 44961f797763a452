"""The suite every `Leases` passes: run each of `LEASE_CHECKS` on a log of its own."""

from __future__ import annotations

import asyncio

from events.check import Check, OpenLog
from events.leases import LEASE_SECONDS


async def generations_only_grow(open_log: OpenLog) -> None:
    async with open_log() as one, open_log() as two:
        taken = [await log.leases.take(name) for log, name in ((one, "a"), (two, "b"), (two, "a"), (one, "c"))]
        numbers = [lease.generation for lease in taken]
        assert numbers == sorted(set(numbers)), numbers
        assert numbers[0] > 0


async def the_newest_lease_of_an_owner_ends_the_one_before(open_log: OpenLog) -> None:
    async with open_log() as one, open_log() as two:
        old = await one.leases.take("a", "node-1")
        assert await one.leases.renew(old)
        new = await two.leases.take("a", "node-2")
        assert not await one.leases.renew(old), "the old process must learn that it is superseded"
        assert await two.leases.renew(new)
        assert await one.leases.holder(old.generation) is None
        assert await one.leases.holder(new.generation) == new
        await one.leases.release(old)
        assert await two.leases.holder(new.generation) == new, "a superseded process releases nothing"


async def a_released_lease_has_no_holder(open_log: OpenLog) -> None:
    async with open_log() as log:
        lease = await log.leases.take("a")
        other = await log.leases.take("b")
        await log.leases.release(lease)
        assert await log.leases.holder(lease.generation) is None
        assert await log.leases.holder(other.generation) == other
        assert await log.leases.holder(1 << 40) is None


async def a_silent_owner_loses_its_lease_and_may_renew_it_until_superseded(open_log: OpenLog) -> None:
    async with open_log() as log:
        lease = await log.leases.take("a")
        await asyncio.sleep(LEASE_SECONDS + 0.3)
        assert await log.leases.holder(lease.generation) is None
        assert await log.leases.renew(lease)
        assert await log.leases.holder(lease.generation) == lease


async def racers_for_one_post_have_one_winner(open_log: OpenLog) -> None:
    async with open_log() as one, open_log() as two:
        logs = [one, two] * 8
        taken = await asyncio.gather(*(log.leases.take("a") for log in logs))
        assert len({lease.generation for lease in taken}) == len(taken)
        renewed = [await log.leases.renew(lease) for log, lease in zip(logs, taken, strict=True)]
        assert renewed.count(True) == 1
        assert taken[renewed.index(True)].generation == max(lease.generation for lease in taken)


LEASE_CHECKS: tuple[Check, ...] = (
    generations_only_grow,
    the_newest_lease_of_an_owner_ends_the_one_before,
    a_released_lease_has_no_holder,
    a_silent_owner_loses_its_lease_and_may_renew_it_until_superseded,
    racers_for_one_post_have_one_winner,
)
