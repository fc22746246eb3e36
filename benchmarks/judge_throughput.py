"""Judge reach: how close requests come to what the server allows.

Run: `PYTHONPATH=platform:schemas python benchmarks/judge_throughput.py [--requests 400] [--latency 0.5]`. A server in a
process of its own answers every request after a fixed time, however many there are at once; at concurrency C it
allows C / latency requests a second. Target: at least 90% of that at every concurrency measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from machine import Report

from fairwitness.judges.config import EndpointConfig
from fairwitness.judges.endpoint import Endpoint
from fairwitness.judges.protocol import ChatPrompt

TARGET = 0.9
REPLY = json.dumps(
    {
        "choices": [{"message": {"content": "Both argue for B.\nverdict: same"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 12},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


async def serve(latency_s: float, ready: Connection) -> None:
    """Answers on a free port of this machine until the process is ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                await asyncio.sleep(latency_s)
                writer.write(HEAD % len(REPLY) + REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_server(latency_s: float, ready: Connection) -> None:
    """Body of the server's process."""
    asyncio.run(serve(latency_s, ready))


@contextmanager
def started(latency_s: float) -> Iterator[str]:
    """Base URL of a server that lives as long as the block."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=run_server, args=(latency_s, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}/v1"
    finally:
        process.terminate()
        process.join()


def measure(url: str, concurrency: int, num_requests: int) -> tuple[float, float]:
    """Wall and CPU seconds of this process for so many prompts."""
    config = EndpointConfig(base_url=url, model="m", api_key_env=None, max_concurrency=concurrency)
    prompts = [ChatPrompt(f"Question {number}. " + "Some reasoning. " * 60) for number in range(num_requests)]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    replies = list(Endpoint(config).replies(prompts, max_tokens=100))
    took = (time.perf_counter() - wall_s, time.process_time() - cpu_s)
    errors = [one.reply.error for one in replies if one.reply.error]
    if errors or len(replies) != num_requests:
        raise SystemExit(f"{len(replies)} replies, {len(errors)} errors: {errors[:1]}")
    return took


def main() -> int:
    """Prints the table; returns 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20, help="requests per place, so that every run takes as long")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds that the server takes for a request")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--trial", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    report = Report("judge_throughput", is_kept=not args.trial)
    report.say(f"{args.requests} requests per place, {args.latency:g} s each")
    rows, shares = [], []
    with started(args.latency) as url:
        measure(url, 1, 1)  # imports and the first connection
        for concurrency in args.concurrency:
            number = concurrency * args.requests
            wall_s, cpu_s = measure(url, concurrency, number)
            achieved = number * args.latency / wall_s
            shares.append(achieved / concurrency)
            cells = (f"{number / wall_s:.1f}", f"{achieved:.1f}", f"{shares[-1]:.1%}", f"{1000 * cpu_s / number:.1f}")
            rows.append([concurrency, number, *cells])
    report.table(["max_concurrency", "requests", "per s", "achieved", "of ideal", "CPU ms each"], rows)
    met = min(shares) >= TARGET
    report.say(f"target: at least {TARGET:.0%} of the ideal: {'met' if met else 'MISSED'}")
    report.close()
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
