#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What each proxy adds to an event of many open streams: delay from the upstream's send to the client's read.

bench-stamp is the upstream and the clients, on one CPU; the proxies stand on the other, one at a time, in turns. "direct"
is bench-stamp talking to itself: what the measuring costs. The figures of a proxy contain it.

--shared: all streams ask the same, and rolter's response cache makes one upstream call for them: the delay of each event
at the leader and at its followers.

usage: bench/delay.py [--build DIR] [--streams 256] [--events 10] [--seconds 3] [--rounds 5] [--shared]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from proxy import Bench


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--streams", type=int, default=256)
    ap.add_argument("--events", type=int, default=10, help="a second, of each stream")
    ap.add_argument("--seconds", type=int, default=3)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--only")
    ap.add_argument("--shared", action="store_true")
    ap.add_argument("--keep", action="store_true")
    args = ap.parse_args()
    args.build, args.cpu = os.path.abspath(args.build), "0"
    if args.shared:
        args.only = "rolter"
    b = Bench(args)
    if args.shared:
        b.route, b.more = "[routes.cache]", "[cache]\nenabled = true\n"
    stamp = subprocess.Popen(["taskset", "-c", "1", os.path.join(args.build, "bench/bench-stamp")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        b.start_all(int(stamp.stdout.readline().split()[-1]))
        rounds = {name: [] for name in ([] if args.shared else ["direct"]) + b.names}
        for _ in range(args.rounds):
            for name in rounds:
                stamp.stdin.write(f"{b.ports[name]} {args.streams} {args.events} {args.seconds}{' shared' if args.shared else ''}\n")
                stamp.stdin.flush()
                line = stamp.stdout.readline()
                if not line:
                    sys.exit(f"{name}: the measurement failed")
                rounds[name].append(json.loads(line)["delay_us"])
        print(f"{args.streams} streams, {args.events} events a second each; microseconds, median of {args.rounds} rounds")
        for name, runs in rounds.items():
            print(f"{name:8}" + "".join(f"  {k} {statistics.median(r[k] for r in runs):7.0f}" for k in ("p50", "p99", "max")))
    finally:
        stamp.stdin.close()
        stamp.kill()
        b.stop()


main()
