"""Turns: submit a task, stop a turn, stop any one agent."""

from __future__ import annotations

from aiohttp import web

from actors import commands
from actors.commands import TASK_LIMIT_CHARS
from events.errors import BadInput, BadTask
from events.paths import check_path
from gateway import api, views
from gateway.ports import agent_id_of, answer, body_of, gateway_of, key_of, session_id_of, turn_id_of
from gateway.routes.sessions import check_names

ATTACHMENTS_LIMIT = 1000
REASON_LIMIT_CHARS = 500

routes = web.RouteTableDef()


@routes.post("/v1/sessions/{session}/turns")
async def submit(request: web.Request) -> web.Response:
    """Submit a task; it runs whether or not anybody watches. The same Idempotency-Key and body give the same turn."""
    gateway = gateway_of(request)
    session_id = session_id_of(request)
    key = key_of(request)
    body = await body_of(request, api.SubmitTurn)
    check_task(body.task)
    check_names(body.model, body.sub_model)
    if len(body.attachments) > ATTACHMENTS_LIMIT:
        raise BadInput(f"a turn may name {ATTACHMENTS_LIMIT:,} attachments; name a folder's files in the task instead")
    command = commands.SubmitTurn(
        session_id=session_id,
        task=body.task,
        mode=body.mode,
        model=body.model,
        sub_model=body.sub_model,
        budget=views.budget(body.budget, gateway.settings.budget),
        attachments=[check_path(path) for path in body.attachments],
        key=key,
    )
    accepted = await gateway.commands.send(command)
    turn_id = accepted.turn_id or ""
    return answer(api.TurnAccepted(session_id, turn_id, accepted.seq, accepted.place, accepted.replayed), 202)


@routes.post("/v1/sessions/{session}/turns/{turn}/cancel")
async def cancel(request: web.Request) -> web.Response:
    """Stop a turn, running or queued; answers when it is stopped. A turn that has ended stays as it is."""
    session_id = session_id_of(request)
    turn_id = turn_id_of(request.match_info["turn"])
    reason = check_reason((await body_of(request, api.CancelTurn)).reason)
    accepted = await gateway_of(request).commands.send(commands.CancelTurn(session_id, turn_id, reason))
    return answer(api.Done(session_id, accepted.seq))


@routes.post("/v1/sessions/{session}/agents/{agent}/stop")
async def stop(request: web.Request) -> web.Response:
    """Stop one agent and all below it."""
    session_id = session_id_of(request)
    agent_id = agent_id_of(request.match_info["agent"])
    reason = check_reason((await body_of(request, api.CancelTurn)).reason)
    accepted = await gateway_of(request).commands.send(commands.StopAgent(session_id, agent_id, reason))
    return answer(api.Done(session_id, accepted.seq))


def check_task(task: str) -> None:
    """Errors: BadTask."""
    if not task.strip():
        raise BadTask("the task is empty; say what to do")
    if len(task) > TASK_LIMIT_CHARS:
        raise BadTask(
            f"the task has {len(task):,} characters, the limit is {TASK_LIMIT_CHARS:,}; attach long texts as files"
        )


def check_reason(reason: str) -> str:
    if len(reason) > REASON_LIMIT_CHARS:
        raise BadInput(f"a reason may have {REASON_LIMIT_CHARS} characters")
    return reason
