"""Starts the processes of a Ray head, records them, and ends; they stay in the session it leads.

`ray start` does the same in 6.7 s against 3.5 s here: it also starts a dashboard server and an autoscaler, which a
single local node has no use for, and loads Ray's whole command line.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from events.errors import StackError
from fleet import paths, processes
from fleet.ray_node import Launch, RayNode


def main(text: str) -> None:
    """Start the head and write its `RayNode` where the launch says; a failure ends it and what it started."""
    launch = msgspec.json.decode(text, type=Launch)
    try:
        node = _start(launch)
        record = RayNode(
            address=node.gcs_address,
            session=_ref(os.getpid()),
            gcs=_ref(_pid(node, "gcs_server")),
            raylet=_ref(_pid(node, "raylet")),
            folder=launch.folder,
        )
        paths.write_private(Path(launch.result), msgspec.json.encode(record))
    except BaseException as error:
        print(f"Error: {str(error).strip() or type(error).__name__}", file=sys.stderr, flush=True)
        for process in processes.session_members(os.getpid()):
            if process.pid != os.getpid():
                processes.send(process, signal.SIGKILL)
        raise
    os._exit(0)  # no exit hooks: Ray's would stop what was just started


def _start(launch: Launch) -> Any:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class Head(Node):  # type: ignore[misc,unused-ignore]
        def start_api_server(self, *_: Any, **__: Any) -> None:
            """There is no dashboard."""

    settings = RayParams(
        node_ip_address="127.0.0.1",
        gcs_server_port=0,
        num_cpus=launch.cpus,
        resources=launch.resources,
        object_store_memory=launch.object_store_bytes,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        temp_dir=launch.folder,
        _system_config=launch.system_config,
    )
    return Head(settings, head=True, shutdown_at_exit=False, spawn_reaper=False)


def _pid(node: Any, name: str) -> int:
    return int(node.all_processes[name][0].process.pid)


def _ref(pid: int) -> processes.ProcessRef:
    found = processes.ref(pid)
    if found is None:
        raise StackError("one of Ray's processes ended while it started")
    return found


if __name__ == "__main__":
    main(sys.argv[1])
