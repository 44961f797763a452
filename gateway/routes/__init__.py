"""One module per family of routes; `ROUTES` is all of them."""

from gateway.routes import audit, events, files, health, history, sessions, turns

ROUTES = (sessions.routes, turns.routes, events.routes, history.routes, files.routes, audit.routes, health.routes)
