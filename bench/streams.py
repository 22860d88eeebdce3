#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Memory for each open stream, and how evenly events come through when thousands of streams are open.

Opens N streams through the gateway (bench-load --hold) in front of a simulated engine that gives each an event a second,
waits until all have begun, reads memory, watches for some seconds, lets go, and reads memory and descriptors again.

usage: bench/streams.py [--build DIR] [--streams 9900] [--seconds 10] [--bodies 2048,32768]
A stream takes two descriptors of the gateway: the limit of open files bounds N (ulimit -n).
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def request_of(size):
    def body(text):
        return json.dumps({"model": "m", "stream": True, "max_tokens": 100000,
                           "messages": [{"role": "user", "content": text}]}).encode()
    words = "The quick brown fox jumps over the lazy dog. " * (size // 45 + 1)
    data = body(words[:size - len(body(""))])
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(data)) + data


def memory(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1])


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(harness, args, size):
    # Enough cache for all: nothing waits in the engine.
    blocks = args.streams * (size // 200 + 60)
    with harness.Sim(record=0, decode_tps=1, tokens=3000, max_running=args.streams + 10, blocks=blocks,
                     max_model_len=60000, block_size=64) as sim:
        config = (f'[queue]\nworkers = 1000000\ncapacity = 1000000\n[[providers]]\nname = "p"\n'
                  f'kind = "openai_compatible"\napi_base = "http://127.0.0.1:{sim.port}"\n'
                  '[[routes]]\nmodel = "m"\ntargets = [{ provider = "p" }]\n')
        with harness.Gateway(config) as gateway, tempfile.NamedTemporaryFile() as file:
            file.write(request_of(size))
            file.flush()
            idle = memory(gateway.pid)
            load = subprocess.Popen([harness.BUILD / "bench" / "bench-load", str(gateway.port), str(args.streams),
                                     "60", file.name, "--hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            opened = int(load.stdout.readline().split()[1])
            time.sleep(2)
            cpu, at = cpu_seconds(gateway.pid), time.monotonic()
            open_kib = memory(gateway.pid)
            time.sleep(args.seconds)
            cpu = (cpu_seconds(gateway.pid) - cpu) / (time.monotonic() - at)
            held_kib = memory(gateway.pid)
            load.stdin.close()
            result = json.loads(load.stdout.read())
            load.wait()
            harness.wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 0, "the streams' end", 60)
            return {"body_bytes": size, "streams": opened, "idle_kib": idle, "open_kib": open_kib, "held_kib": held_kib,
                    "kib_per_stream": round((held_kib - idle) / max(opened, 1), 2), "after_kib": memory(gateway.pid),
                    "gap_ms": {k: round(v / 1000, 1) for k, v in result["gap_us"].items()},
                    "first_byte_ms": {k: round(v / 1000, 1) for k, v in result["first_byte_us"].items()},
                    "events": result["events"], "errors": result["errors"], "cpu_share": round(cpu, 3)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--streams", type=int, default=9900)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--bodies", default="2048,32768")
    args = p.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.streams * 2 + 100 > hard:
        sys.exit(f"{args.streams} streams need {args.streams * 2 + 100} descriptors, the limit is {hard}")
    os.environ["ROLTER_BUILD"] = str(Path(args.build).resolve())
    sys.path.insert(0, str(ROOT / "tests" / "scenario"))
    import harness
    for size in args.bodies.split(","):
        print(json.dumps(run(harness, args, int(size))), flush=True)


if __name__ == "__main__":
    main()
