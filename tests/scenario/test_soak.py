# SPDX-License-Identifier: Apache-2.0
"""Short runs of bench/soak: faults at every point of a request, and reloads under traffic. The long ones are run by hand
(docs/benchmarks.md)."""
import json
import os
import subprocess
import sys

import pytest

from harness import BUILD, DEADLINE, ROOT

# Sanitizers make everything slower; who runs under one asks for longer deadlines.
SLOW = DEADLINE > 20


def soak(*args):
    done = subprocess.run([sys.executable, ROOT / "bench/soak/soak.py", "--quick", "--build", BUILD, "--deadline",
                           str(DEADLINE), *args], capture_output=True, text=True, env={**os.environ}, timeout=600)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("cache", [[], ["--cache"], ["--redis"]], ids=["plain", "cache", "redis"])
def test_everything_goes_wrong(cache):
    report = soak("--requests", "20000", "--reload-every", "0.3", "--seed", "11", *cache)
    seen = report["client"]
    assert seen["complete"] > seen["requests"] / 2 and seen["aborted"] > 0 and seen["no_row"] > 0
    assert report["gateway"]["retries"] > 0 and report["done"]["configurations"] > 0


@pytest.mark.slow
def test_reloads_under_traffic():
    report = soak("--mode", "reloads", "--reloads", "20" if SLOW else "100", "--seed", "11")
    assert report["reloads"] >= (20 if SLOW else 100)
    assert min(report["turns"]) > 0
