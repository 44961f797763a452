from contextlib import asynccontextmanager
@asynccontextmanager
async def open_log(database):
    from tests.gateway.fakes import FakeLog
    yield FakeLog(), None, None
