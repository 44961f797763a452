"""A client of the gateway: it knows the wire types and nothing else of ours, and prints nothing."""

from fleet.client.errors import BadAddress, ClientError, NotFleet, Refusal, Unreachable
from fleet.client.following import Connected, Disconnected, Follower, Item, ends_turn
from fleet.client.requests import Client, Download

__all__ = [
    "BadAddress",
    "Client",
    "ClientError",
    "Connected",
    "Disconnected",
    "Download",
    "Follower",
    "Item",
    "NotFleet",
    "Refusal",
    "Unreachable",
    "ends_turn",
]
