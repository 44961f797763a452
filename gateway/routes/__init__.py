"""One module per family of routes; `ROUTES` is all of them."""

from gateway.routes import events

ROUTES = (events.routes,)
