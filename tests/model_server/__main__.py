"""Run the stub server by hand: `python -m tests.model_server --port 0`."""

from __future__ import annotations

import argparse
import asyncio

from tests.model_server.server import ModelServer


async def serve(port: int) -> None:
    server = ModelServer()
    print(await server.start(port), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 is any free port")
    arguments = parser.parse_args()
    try:
        asyncio.run(serve(arguments.port))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
