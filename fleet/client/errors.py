"""What can go wrong between a client and the gateway.

ClientError
├── Unreachable     nothing answers at the URL, or the connection was cut
│   └── Silent      the connection is open and nothing comes, not even a heartbeat
├── Refusal         the gateway said no: a problem document, `problem.code` is stable
└── NotFleet        what answers there is not a Fleet gateway, or it breaks the protocol
"""

from __future__ import annotations

from gateway import api


class ClientError(Exception):
    """The gateway could not be used."""


class Unreachable(ClientError):
    """Nothing answers at the URL, or the connection was cut."""


class Silent(Unreachable):
    """An open connection on which nothing came, not even a heartbeat."""


class BadAddress(ClientError):
    """The URL is not that of an HTTP server."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} is not an address; write it as http://HOST:PORT")
        self.url = url


class NotFleet(ClientError):
    """The answer is not a Fleet gateway's."""


class Refusal(ClientError):
    """The gateway refused; `problem` says why and what to do, `token_from` where the token that was sent came from."""

    def __init__(self, problem: api.Problem, token_from: str = "") -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.token_from = token_from
