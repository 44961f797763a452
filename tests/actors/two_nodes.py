"""A turn runs on a node of its own, whose raylet is killed: `python -m tests.actors.two_nodes DATABASE_URL FOLDER`.

Prints JSON: how the turn ended, who took it up, and how long after the kill. A program of its own, because a process
joins one Ray cluster only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster

from actors.commands import CreateSession, SubmitTurn
from actors.pool import CONCURRENCY, Pools, RayCommands, TurnActor, WorkerConfig
from actors.session_host import RuntimeDefaults
from actors.wire import encode
from events.errors import StackError
from events.ids import SessionId
from events.postgres_log import PostgresLog
from events.turn import TurnCompleted, TurnFailed, TurnResumed
from tests.actors.stage import events_of, wait_for

NAMESPACE = "two-nodes"
SESSION = SessionId("ses_00000000000000000001")


async def watch(commands: RayCommands) -> None:
    """What a gateway does: the session's owner may have been on that node, too."""
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(StackError):
            await commands.owners()
            await commands.recover(SESSION)


async def scenario(url: str, folder: str, cluster: Any, other: Any) -> dict[str, object]:
    defaults = RuntimeDefaults("direct", "patient/6", "patient/6")
    config = WorkerConfig(url, folder, defaults=defaults, turn_actors=2, warm_sandboxes=0)
    away = ray.remote(TurnActor).options(
        name="turns-0",
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        max_concurrency=CONCURRENCY,
        resources={"away": 1},
    )
    await away.remote(encode(config), "turns-0").ready.remote()
    pools = Pools(config, NAMESPACE)
    pools.start()
    commands = RayCommands(pools.session_names, NAMESPACE)
    await commands.ready()
    log = await PostgresLog.open(url)
    await commands.send(CreateSession(SESSION))
    await commands.send(SubmitTurn(SESSION, "t"))
    await wait_for(log, SESSION, "ModelCallStarted")
    killed = time.time()
    cluster.remove_node(other, allow_graceful=False)
    await pools._make(TurnActor, "turns-1")
    watching = asyncio.create_task(watch(commands))
    await wait_for(log, SESSION, "TurnCompleted", "TurnFailed")
    watching.cancel()
    events = await events_of(log, SESSION)
    await log.close()
    resumed = [event for event in events if isinstance(event.fact, TurnResumed)]
    (end,) = [event.fact for event in events if isinstance(event.fact, TurnCompleted | TurnFailed)]
    return {
        "end": type(end).__name__,
        "resumed_by": [event.fact.worker for event in resumed if isinstance(event.fact, TurnResumed)],
        "seconds": resumed[0].recorded_at / 1e6 - killed if resumed else None,
    }


def main() -> None:
    url, folder = sys.argv[1:]
    quick = {"health_check_initial_delay_ms": 1_000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False, "_system_config": quick},
    )
    try:
        other = cluster.add_node(num_cpus=1, resources={"away": 1})
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False)
        print(json.dumps(asyncio.run(scenario(url, folder, cluster, other))))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
