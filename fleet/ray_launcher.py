"""Starts the processes of a Ray head, records them, and ends; they stay in the session it leads.

`ray start` does the same in 6.7 s against 3.5 s here: it also starts a dashboard server and an autoscaler, which a
single local node has no use for, and loads Ray's whole command line.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from events.errors import StackError
from fleet import paths, processes
from fleet.ray_node import Launch, RayNode

# The raylet insists on two agents and ends with them; this one costs nothing and ends with the raylet.
_STAND_IN = "import os,time\np=os.getppid()\nwhile os.getppid()==p: time.sleep(1)"
_AGENTS = {"--dashboard_agent_command", "--runtime_env_agent_command"}
# Where they would listen is a port at which nothing answers, and only the machine's administrator could.
_PORTS = {"--metrics-agent-port", "--metrics_export_port", "--dashboard_agent_listen_port", "--runtime_env_agent_port"}
_NOBODY = 1


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
    from ray._private import services
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    started = services.start_ray_process
    services.start_ray_process = lambda command, *args, **more: started(_without_agents(command), *args, **more)

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


def _without_agents(command: list[str]) -> list[str]:
    """A raylet's command with the agents' places taken; any other command as it is.

    The agents serve metrics, profiles and runtime environments, of which a stack uses none, and cost 2.2 s of CPU and
    110 MB. A raylet asks its environment agent only for workers that have a runtime environment.
    """
    if not command[0].endswith("raylet"):
        return command
    stand_in = shlex.join([sys.executable, "-I", "-S", "-c", _STAND_IN])
    kept = [part for part in command if part.partition("=")[0] not in _AGENTS | _PORTS]
    ports = [f"{name}={_NOBODY}" for name in sorted(_PORTS)]
    return [*kept, *ports, *(f"{name}={stand_in}" for name in sorted(_AGENTS))]


def _pid(node: Any, name: str) -> int:
    return int(node.all_processes[name][0].process.pid)


def _ref(pid: int) -> processes.ProcessRef:
    found = processes.ref(pid)
    if found is None:
        raise StackError("one of Ray's processes ended while it started")
    return found


if __name__ == "__main__":
    main(sys.argv[1])
