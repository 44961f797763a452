"""The unconfined backend: the same driver as a plain subprocess, for machines that cannot isolate.

Code in it can do what the user running Fleet can. It is never a fallback: somebody has to choose it by name.
"""

from __future__ import annotations

import contextlib
import os
import signal

from actors.sandboxes.bubblewrap import environment, python
from actors.sandboxes.contract import SandboxGone, SandboxSpec, SandboxUnavailable
from actors.sandboxes.hosted import HostedSandbox
from actors.sandboxes.launch import Guest
from actors.sandboxes.local import HostedProvider, rlimits_for
from actors.sandboxes.places import Place
from actors.sandboxes.processes import marked

MARK = "FLEET_UNCONFINED"
"""In the environment of every process of one sandbox: how those that left its process group are found."""


class UnconfinedProvider(HostedProvider):
    """Plain subprocesses with their workspaces under `root`; limits are kept, isolation there is none."""

    name = "unconfined"

    async def __aenter__(self) -> UnconfinedProvider:
        return self

    async def start(self, spec: SandboxSpec) -> HostedSandbox:
        """See `SandboxProvider.start`."""
        await self.prepare()
        place = Place(self._root, spec.sandbox_id, None)
        mark = os.urandom(16).hex()
        try:
            guest = Guest(
                [python(), "-I", "-S", "-B", "-X", "utf8", str(place.driver)],
                environment={**environment(str(place.tmp)), MARK: mark},
                folder=place.workspace,
            )
        except BaseException:
            place.remove()
            raise
        sandbox = UnconfinedSandbox(spec, self.name, guest, place, self._executor, counted=False)
        sandbox.mark = mark
        try:
            await self.begin(sandbox, str(place.workspace), rlimits_for(spec.limits, processes=False))
        except (SandboxGone, TimeoutError) as error:
            cause = sandbox.start_failure or str(error) or "it did not start in time"
            raise SandboxUnavailable(f"the Python subprocess did not start: {cause}") from error
        return sandbox


class UnconfinedSandbox(HostedSandbox):
    """A guest whose children have to be looked for."""

    mark: str

    def _end_stragglers(self) -> None:
        while found := marked(MARK, self.mark):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
