#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Endurance of the gateway: a long run in which everything goes wrong at random, and reloads under traffic.

    bench/soak/soak.py --requests 1000000            faults everywhere; nothing may be left behind
    bench/soak/soak.py --mode reloads --reloads 1000 nothing goes wrong; not one request may

faults: four simulated engines that fail, stall, cut their replies, ask for patience, restart and are killed; clients
(soak-load) that leave at every point of a request; configurations that take targets and providers away and bring them
back, change strategies, limits and time-outs. Afterwards every gauge must be zero, every row must fit what the client
saw, memory must be flat, no descriptor left, and SIGTERM must end the process with 0 and no sanitizer's report.

reloads: configurations that say the same in another order. Every request must succeed, the rotation must go on as if
there had been no reload, a target that cools down must go on doing so, no load may be counted twice or below zero.

usage: soak.py [--mode faults|reloads] [--requests N] [--seconds S] [--reloads N] [--seed N] [--build DIR]
               [--connections N] [--rss-growth 0.05] [--quick] [--keep DIR] [--cache] [--redis]

--cache: routes cache, each as it likes, and most questions are asked again and again (single flight, replays, stale
entries, renewals; purges now and then). --redis: with a redis-server behind it that is frozen, killed and emptied.
Prints JSON; exit status 1 when something does not hold. Runs in a folder of its own under TMPDIR.
"""
import argparse
import collections
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STRATEGIES = ["round_robin", "random", "weighted", "power_of_two", "least_load", "consistent_hash", "cache_aware",
              "pipeline", "least_prefill", "cheapest", "fastest", "predicted_latency"]
KEY = "sk-soak"
COMPLETE, ABORTED, BROKEN, LOST, NO_ROW, WRONG = range(1, 7)
HEAD_SEEN = 8
SLOW = 7
ROW = re.compile(rb'"request_id":"s(\d+)-(\d+)"')
FIELD = {name: re.compile(rb'"%s":"?([^",}]*)' % name.encode()) for name in ("status", "model", "provider", "attempts")}
ROTATE_BYTES = 64 << 20
SIM = {"record": 0, "blocks": 65536, "tokens": 64, "max_running": 1000}


class Faults(list):
    def check(self, ok, text):
        if not ok:
            self.append(text)
            print("FAULT:", text, file=sys.stderr, flush=True)


class Rows:
    """Rows by request number, from files that are rotated while the gateway writes."""

    def __init__(self, path, seed, n):
        self.path, self.seed = path, seed
        self.count, self.status = bytearray(n), [0] * n
        self.total, self.by_status, self.foreign = 0, collections.Counter(), 0
        self.served = collections.Counter()  # (model, provider) of those that took one attempt
        self.old = []

    def rotate(self):
        """To be followed by a reload. What was rotated before the last one is read, and removed."""
        if not self.path.exists() or self.path.stat().st_size < ROTATE_BYTES:
            return
        self.read_old()
        beside = self.path.with_name(f"rows.{time.monotonic_ns()}")
        self.path.rename(beside)
        self.old.append(beside)

    def read_old(self):
        for path in self.old:
            self.read(path)
            path.unlink()
        self.old = []

    def read(self, path):
        with open(path, "rb") as f:
            for line in f:
                assert line.endswith(b"}\n"), line
                self.total += 1
                if b'"cache_reason":"revalidate"' in line:
                    self.total -= 1  # nobody's request, under the id of one
                    continue
                status = int(FIELD["status"].search(line)[1])
                self.by_status[status] += 1
                match = ROW.search(line)
                if b'"request_id":"warm-up"' in line:
                    continue
                if not match or int(match[1]) != self.seed or int(match[2]) >= len(self.count):
                    self.foreign += 1
                    continue
                number = int(match[2])
                self.count[number] = min(self.count[number] + 1, 255)
                self.status[number] = status
                if FIELD["attempts"].search(line)[1] == b"1":
                    self.served[FIELD["model"].search(line)[1].decode(), FIELD["provider"].search(line)[1].decode()] += 1

    def read_all(self):
        self.read_old()
        self.read(self.path)


class Load:
    """The client. progress: requests done so far."""

    def __init__(self, build, folder, port, args, names, *flags):
        self.records = folder / "records"
        self.progress, self.result = 0, None
        self.child = subprocess.Popen(
            [build / "bench" / "soak-load", "--port", str(port), "--requests", str(args.requests), "--connections",
             str(args.connections), "--seed", str(args.seed), "--key", KEY, "--out", self.records,
             *[x for k, v in names.items() for x in ("--" + k, ",".join(v))], *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.complaints = []
        self.threads = [threading.Thread(target=self._read, daemon=True),
                        threading.Thread(target=self._complain, daemon=True)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.child.stdout:
            if line.startswith(b"done "):
                self.progress = int(line[5:])
            else:
                self.result = json.loads(line)

    def _complain(self):
        for line in self.child.stderr:
            self.complaints.append(line.decode("utf-8", "replace"))
            sys.stderr.write(self.complaints[-1])

    def is_running(self):
        return self.child.poll() is None

    def stop(self):
        """Lets what is under way end."""
        if not self.child.stdin.closed:
            self.child.stdin.close()
        self.child.wait()
        for thread in self.threads:
            thread.join(5)
        return self.result


def process_memory(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    found = {k: re.search(rf"^{k}:\s+(\d+) kB", status, re.M) for k in ("VmRSS", "VmHWM")}
    return {k: int(m[1]) if m else 0 for k, m in found.items()}  # a process that has just ended has none


def descriptors(pid):
    """What each one is, without the numbers: socket, pipe, anon_inode, a path."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}").split(":")[0])
        except FileNotFoundError:
            pass
    return found


def base_of(harness, gateway, probes):
    """Descriptors that stay: the listeners, and what the first requests and probes make every thread open."""
    sockets = 2  # a listener for each worker
    if probes:
        harness.wait_until(lambda: total(gateway.metrics(), "rolter_metrics_scrapes_total"), "a scrape")
    for _ in range(100):
        gateway.get("/v1/models", {"authorization": f"Bearer {KEY}", "x-request-id": "warm-up"})
    return sockets + sum(d != "socket" for d in descriptors(gateway.pid))


def usable_strategies(build, folder):
    def works(name):
        path = folder / "probe.toml"
        path.write_text(f'[[providers]]\nname = "p"\nkind = "openai_compatible"\napi_base = "http://127.0.0.1:9"\n'
                        f'[[routes]]\nmodel = "m"\nstrategy = "{name}"\ntargets = [{{ provider = "p" }}]\n')
        return subprocess.run([build / "rolter", "check", "--config", path], capture_output=True).returncode == 0
    return [name for name in STRATEGIES if works(name)]


def target(rng, i, weighted=False):
    return f'{{ provider = "p{i}", model = "m{i}"' + (f", weight = {rng.randint(1, 4)}" if weighted else "") + " }"


def cache_of(rng):
    """How a route caches, as a line of its table."""
    return (f'cache = {{ enabled = {rng.choice(["true", "true", "true", "false"])}, ttl_secs = {rng.choice([1, 1, 5, 60])}, '
            f'scope = "{rng.choice(["key", "route"])}", coalesce = {rng.choice(["true", "true", "false"])}, '
            f'stale_while_revalidate_secs = {rng.choice([0, 2])}, stale_if_error_secs = {rng.choice([0, 0, 5])} }}\n')


def fault_config(rng, sims, strategies, rows, first=False, caches=False, redis=None):
    """A configuration at random. All routes exist in each; providers and targets come and go."""
    n = len(sims)
    alive = list(range(n)) if first or rng.random() < 0.6 else sorted(rng.sample(range(n), rng.randint(2, n)))
    rng.shuffle(alive)

    def pool(weighted=False):
        chosen = rng.sample(alive, rng.randint(1, len(alive)))
        return "[" + ", ".join(target(rng, i, weighted) for i in chosen) + "]"

    block = rng.choice(["error", "block", "drop"])
    parts = [f'''[server]
host = "127.0.0.1"
port = 0
workers = 2
max_body_bytes = 1048576
[logging]
file = "{rows}"
flush_ms = 50
[timeouts]
connect_secs = 1
request_secs = {rng.choice([1, 1, 2])}
stream_idle_secs = {rng.choice([1, 1, 2])}
head_secs = 5
body_secs = 5
idle_secs = {rng.choice([3, 10, 60])}
[retry]
max_retries = {2 if first else rng.choice([0, 1, 2, 2, 4])}
base_backoff_ms = {rng.choice([1, 20, 100])}
max_backoff_ms = 200
[cooldown]
base_secs = {rng.choice([0, 0, 1])}
max_secs = 1
[breaker]
enabled = {rng.choice(["true", "false"])}
failure_threshold = {rng.choice([3, 10])}
open_secs = 1
[queue]
enabled = {"true" if rng.random() < 0.9 else "false"}
capacity = {rng.choice([1, 64, 256])}
workers = {rng.choice([1, 8, 32, 64])}
backpressure = "{block}"
block_timeout_ms = {rng.choice([50, 200])}
[health]
enabled = {rng.choice(["true", "true", "true" if first else "false"])}
interval_secs = 1
timeout_secs = 1
path = "/health"
consecutive_failure_threshold = 2
recovery_success_threshold = 1
[metrics_scrape]
enabled = {rng.choice(["true", "true", "true" if first else "false"])}
interval_secs = 1
timeout_secs = 1
[[virtual_keys]]
key = "{KEY}"
name = "soak"
''']
    parts += [f'[[providers]]\nname = "p{i}"\nkind = "openai_compatible"\napi_base = "http://127.0.0.1:{sims[i].port}"\n'
              for i in alive]
    routes = []
    # Prompt indexes are at their limit early: what they hold then is no growth.
    bounds = "affinity = { max_nodes = 2000, max_bytes = 262144 }\n"
    for name in strategies:
        routes.append(f'[[routes]]\nmodel = "r-{name}"\nstrategy = "{name}"\ntargets = {pool(name == "weighted")}\n'
                      + (f"params = {{ seed = {rng.randint(1, 9)} }}\n" if rng.random() < 0.3 else ""))
        if name in ("cache_aware", "pipeline", "least_prefill"):
            routes[-1] += bounds
    routes.append(f'[[routes]]\nmodel = "r-any"\nstrategy = "{rng.choice(strategies)}"\ntargets = {pool(True)}\n'
                  + bounds)
    routes.append(f'[[routes]]\nmodel = "r-embed"\ntargets = {pool()}\n')
    routes.append('[[routes]]\nmodel = "r-variants"\nvariants = [' + ", ".join(
        f'{{ name = "v{v}", weight = {rng.randint(1, 3)}, targets = {pool()} }}'
        for v in range(rng.randint(1, 3))) + "]\n")
    if caches:
        routes = [route + cache_of(rng) for route in routes]
        parts.append(f"[cache]\nenabled = {'true' if first or rng.random() < 0.9 else 'false'}\nmemory_bytes = 8388608\n"
                     "max_entry_bytes = 65536\n[admin]\nport = 0\n")
    if redis:
        parts.append(f'[redis]\nurl = "{redis.url}"\n')
    rng.shuffle(routes)
    return "\n".join(parts + routes)


def random_faults(rng):
    """What a replica does wrong for a while; often nothing."""
    if rng.random() < 0.35:
        return {"fail_rate": 0, "stall_rate": 0, "cut_rate": 0, "head_delay_ms": 0, "health_status": 200}
    return {"fail_rate": rng.choice([0, 0.02, 0.1, 0.5]), "fail_status": rng.choice([429, 500, 502, 503]),
            "stall_rate": rng.choice([0, 0.0005, 0.002]), "cut_rate": rng.choice([0, 0.01, 0.05]),
            "retry_after": rng.choice([0, 1]),
            "head_delay_ms": rng.choice([0, 0, 0, 1, 20]),
            "health_status": rng.choice([200, 200, 200, 500])}


class Chaos:
    """What happens to the replicas and to the configuration during a run."""

    def __init__(self, harness, args, rng, gateway, sims, rows, strategies, redis=None):
        self.caches, self.redis, self.is_frozen = args.cache, redis, False
        self.harness, self.rng, self.gateway, self.sims, self.rows = harness, rng, gateway, sims, rows
        self.strategies = strategies
        self.counts = collections.Counter()
        self.next_reload = self.next_fault = 0
        self.reload_every = args.reload_every

    def turn(self):
        now = time.monotonic()
        if now >= self.next_reload:
            self.next_reload = now + self.rng.uniform(0.3, 1.7) * self.reload_every
            self.rows.rotate()
            self.gateway.write_config(fault_config(self.rng, self.sims, self.strategies, self.rows.path,
                                                   caches=self.caches, redis=self.redis))
            if self.rng.random() < 0.7 or self.rows.old:
                self.gateway.signal(1)
            self.counts["configurations"] += 1
        if now >= self.next_fault:
            self.next_fault = now + self.rng.uniform(0.1, 0.9)
            self.disturb()
            if self.caches and self.rng.random() < 0.3:
                self.purge()
            if self.redis:
                self.disturb_redis()

    def purge(self):
        admin = re.search(r"admin listener on (http://\S+)", self.gateway.stderr)[1]
        what = self.rng.choice([{"all": True}, {"route": "r-any"}, {"key": "soak"}])
        self.harness.request("POST", admin + "/cache/purge", json.dumps(what).encode())
        self.counts["purges"] += 1

    def disturb_redis(self):
        if self.is_frozen:
            self.redis.thaw()
            self.is_frozen = False
        elif self.rng.random() < 0.1:
            self.redis.freeze()
            self.is_frozen = True
            self.counts["redis freezes"] += 1
        elif self.rng.random() < 0.05:
            self.redis.restart()
            self.counts["redis restarts"] += 1

    def disturb(self):
        i, what = self.rng.randrange(len(self.sims)), self.rng.random()
        if what < 0.7:
            self.sims[i].faults(**random_faults(self.rng))
            self.counts["fault changes"] += 1
        elif what < 0.85:
            self.sims[i].restart()
            self.counts["replica restarts"] += 1
        else:
            self.kill(i)
            self.counts["replica kills"] += 1

    def kill(self, i):
        port = self.sims[i].port
        self.sims[i].kill()
        time.sleep(self.rng.uniform(0, 0.3))

        def again():
            # A connection of ours may have been given that port meanwhile.
            sim = self.harness.Sim(listen=f"127.0.0.1:{port}", name=f"s{i}", **SIM, **SIM_SPEED[i])
            sim.start()
            try:
                return sim.wait_ready()
            except AssertionError:
                return None
        self.sims[i] = self.harness.wait_until(again, f"port {port}")

    def calm(self):
        if self.is_frozen:
            self.redis.thaw()
        for sim in self.sims:
            sim.faults(fail_rate=0, stall_rate=0, cut_rate=0, head_delay_ms=0, health_status=200)


SIM_SPEED = [{"decode_tps": 2000}, {"decode_tps": 500}, {}, {}]


def check_rows(faults, rows, records):
    """Every request's row against what the client saw."""
    n, bad = len(records) // 4, collections.Counter()
    examples = {}
    for i, (kind, outcome, status) in enumerate(struct.iter_unpack("=BBH", records)):
        seen, outcome, kind, fault = outcome & HEAD_SEEN, outcome & 7, kind & 15, kind >> 4
        count = rows.count[i]
        if outcome == COMPLETE:
            ok = count == 1 and rows.status[i] == status
        elif outcome == BROKEN:
            # Who reads too slowly is cut off, perhaps with the end of a complete reply still in the queue.
            ok = count == 1 and (rows.status[i] == 502 or (fault == SLOW and rows.status[i] in (200, 499)))
        elif outcome == ABORTED:
            ok = count == 1 if seen else count <= 1
        elif outcome == LOST:
            ok = count <= 1
        elif outcome == NO_ROW:
            ok = count == 0
        else:
            ok = outcome == WRONG
        if not ok:
            bad[kind, outcome, fault] += 1
            examples.setdefault((kind, outcome, fault), (i, status, count, rows.status[i]))
    for what, many in bad.items():
        faults.check(False, f"{many} rows do not fit (kind, outcome, client's fault {what}; number, status, rows, row's status: "
                            f"{examples[what]})")
    faults.check(rows.foreign == 0, f"{rows.foreign} rows of nobody")
    return n


GAUGES = ("rolter_inflight", "rolter_provider_queue_depth", "rolter_inflight_requests")


def gauges_left(metrics):
    return {k: v for k, v in metrics.items() if k.split("{")[0] in GAUGES and v != 0}


def total(metrics, name):
    return int(sum(v for k, v in metrics.items() if k.split("{")[0] == name))


def memory_growth(samples, requests):
    """RSS in KiB around 20 %, 60 % and the end of the requests."""
    def around(a, b):
        values = [rss for done, rss in samples if a * requests <= done <= b * requests]
        return int(statistics.median(values)) if values else 0
    return around(0.15, 0.25), around(0.55, 0.65), around(0.93, 1)


def check_memory(faults, args, rss):
    """Kept buffers and objects reach the most that was ever needed at a time; after that nothing may be added."""
    flat = rss[2] <= rss[1] * (1 + args.rss_growth) and rss[2] <= rss[0] * (1 + 2 * args.rss_growth)
    faults.check(flat or args.quick, f"memory grows: {rss} KiB")


def wait_quiet(harness, faults, gateway, deadline):
    """Nothing is in flight any more, and every gauge knows."""
    try:
        harness.wait_until(lambda: not gauges_left(gateway.metrics()), "gauges back to zero", deadline)
    except AssertionError:
        faults.check(False, f"gauges that are not zero: {gauges_left(gateway.metrics())}")
    return gateway.metrics()


def check_end(harness, faults, gateway, base, deadline):
    """Upstreams are gone: so must be every descriptor but those of the start."""
    try:
        harness.wait_until(lambda: len(descriptors(gateway.pid)) <= base, "descriptors", deadline)
    except AssertionError:
        faults.check(False, f"descriptors: {base} at the start, now "
                            f"{collections.Counter(descriptors(gateway.pid))}")
    left = len(descriptors(gateway.pid))
    try:
        gateway.stop(deadline)
    except AssertionError as error:
        faults.check(False, f"the end: {error}")
    return left


def run_faults(harness, args, folder, faults):
    rng = random.Random(args.seed)
    build = harness.BUILD
    strategies = args.strategies.split(",") if args.strategies else usable_strategies(build, folder)
    sims = [harness.Sim(name=f"s{i}", **SIM, **SIM_SPEED[i]) for i in range(4)]
    for sim in sims:
        sim.start().wait_ready()
    redis = None
    if args.redis:
        from redis_server import RedisServer
        redis = RedisServer()
    rows = Rows(folder / "rows.jsonl", args.seed, args.requests)
    gateway = harness.Gateway(fault_config(rng, sims, strategies, rows.path, True, args.cache, redis), folder=folder)
    gateway.start().wait_ready()
    idle = process_memory(gateway.pid)["VmRSS"]
    base = base_of(harness, gateway, True) + args.cache  # the admin listener
    names = {"routes": [f"r-{s}" for s in strategies] + ["r-any", "r-variants"], "embeds": ["r-embed"],
             "providers": [f"p{i}" for i in range(4)]}
    # However short the run is.
    sims[0].faults(fail_rate=0.1, fail_status=503)
    sims[1].faults(cut_rate=0.05)
    sims[2].faults(stall_rate=0.001)
    load = Load(build, folder, gateway.port, args, names, *(["--repeats", "1000"] if args.cache else []))
    chaos = Chaos(harness, args, rng, gateway, sims, rows, strategies, redis)
    samples, end, peak = [], time.monotonic() + args.seconds, 0
    while load.is_running() and time.monotonic() <= end:
        if not gateway.is_running():
            break
        samples.append((load.progress, process_memory(gateway.pid)["VmRSS"]))
        peak = max(peak, len(descriptors(gateway.pid)))
        chaos.turn()
        time.sleep(0.05)
    result = load.stop()
    if not gateway.is_running():
        print(json.dumps({"faults": [f"the gateway ended: {gateway.stderr[-8000:]}"]}, indent=1))
        sys.exit(1)
    faults.check(result and load.child.returncode == 0 and not load.complaints, "the client complains")
    chaos.calm()
    metrics = wait_quiet(harness, faults, gateway, args.deadline)
    for sim in sims:
        busy = {k: v for k, v in sim.metrics().items() if "requests_running" in k or "requests_waiting" in k}
        faults.check(not any(busy.values()), f"an upstream is still at work: {busy}")
    for sim in sims:
        sim.stop()
    if redis:
        redis.close()
    left = check_end(harness, faults, gateway, base, args.deadline)
    rows.read_all()
    check_rows(faults, rows, load.records.read_bytes())
    requests = result["requests"] if result else 0
    faults.check(total(metrics, "rolter_requests_total") == rows.total,
                 f"{total(metrics, 'rolter_requests_total')} requests counted, {rows.total} rows")
    faults.check(total(metrics, "rolter_client_disconnects_total") == rows.by_status[499],
                 f"{total(metrics, 'rolter_client_disconnects_total')} disconnects counted, {rows.by_status[499]} rows 499")
    faults.check(total(metrics, "rolter_logs_dropped_total") == 0, "rows were dropped")
    rss = memory_growth(samples, requests)
    check_memory(faults, args, rss)
    counted = ("retries", "cooldowns_tripped", "breaker_opened", "breaker_closed", "health_down", "health_recovered",
               "provider_queue_rejections", "provider_queue_timeouts", "upstream_errors", "upstream_connections",
               "upstream_connect_errors", "client_disconnects", "http_rejects", "config_reloads",
               "config_reload_failures")
    if args.cache:
        counted += ("cache_hits", "cache_misses", "cache_stores", "coalesced_requests", "cache_revalidations")
        faults.check(total(metrics, "rolter_cache_hits_total") > 0, "there was no hit")
    return {"client": result, "rows": rows.total, "rows_499": rows.by_status[499], "idle_rss_kib": idle,
            "rss_kib_20_60_100": rss, "descriptors_start_peak_end": (base, peak, left), "done": dict(chaos.counts),
            "gateway": {k: total(metrics, f"rolter_{k}_total") for k in counted}, "strategies": strategies}


def calm_config(rng, sims, rows, i):
    """The same thing each time, said in another order; route "turns" has its targets in one order always. Few names of
    routes: each has its series in the metrics for as long as the process lives."""
    def pool(fixed=False, weights=None):
        order = list(range(len(sims) - 1))
        if not fixed:
            rng.shuffle(order)
        return "[" + ", ".join(f'{{ provider = "p{k}", model = "m{k}"'
                               + (f", weight = {weights[k]}" if weights else "") + " }" for k in order) + "]"
    weights = [3, 1, 2]
    tables = [f'[logging]\nfile = "{rows}"\nflush_ms = {rng.choice([10, 20])}\n',
              '[cooldown]\nbase_secs = 3600\nmax_secs = 3600\n', f'[retry]\nmax_retries = {rng.choice([2, 3])}\n',
              f'[[virtual_keys]]\nkey = "{KEY}"\nname = "k{i}"\n', f'[[virtual_keys]]\nkey = "other-{i}"\n']
    tables += [f'[[providers]]\nname = "p{k}"\nkind = "openai_compatible"\napi_base = "http://127.0.0.1:{s.port}"\n'
               for k, s in enumerate(sims)]
    tables += [f'[[routes]]\nmodel = "turns"\nstrategy = "round_robin"\ntargets = {pool(True)}\n',
               f'[[routes]]\nmodel = "shuffled"\nstrategy = "round_robin"\ntargets = {pool()}\n'
               f'params = {{ seed = {i} }}\n',
               f'[[routes]]\nmodel = "weighted"\nstrategy = "weighted"\ntargets = {pool(True, weights)}\n',
               f'[[routes]]\nmodel = "loads"\nstrategy = "{rng.choice(["least_load", "power_of_two"])}"\n'
               f'targets = {pool()}\n',
               '[[routes]]\nmodel = "cooling"\ntargets = ['
               + ", ".join(rng.sample(['{ provider = "p3", model = "m3" }', '{ provider = "p0", model = "m0" }'], 2))
               + "]\n",
               f'[[routes]]\nmodel = "came-{i % 8}"\ntargets = {pool()}\n']
    rng.shuffle(tables)
    return f'# {i}\n[server]\nhost = "127.0.0.1"\nport = 0\nworkers = 2\n\n' + "\n".join(tables)


def spread(rows, model):
    return [rows.served[model, f"p{k}"] for k in range(3)]


def run_reloads(harness, args, folder, faults):
    rng = random.Random(args.seed)
    sims = [harness.Sim(name=f"s{i}", **SIM) for i in range(3)]
    sims.append(harness.Sim(name="s3", fail_rate=1, **SIM))
    for sim in sims:
        sim.start().wait_ready()
    rows = Rows(folder / "rows.jsonl", args.seed, args.requests)
    gateway = harness.Gateway(calm_config(rng, sims, rows.path, 0), folder=folder)
    gateway.start().wait_ready()
    base = base_of(harness, gateway, False)
    # The fourth is made to fail once before the traffic begins; it must never be asked again.
    while not sims[3].stats()["requests"]:
        body = {"model": "cooling", "messages": [{"role": "user", "content": "x"}]}
        faults.check(gateway.post("/v1/chat/completions", body, {"authorization": f"Bearer {KEY}", "x-request-id": "warm-up"}).status == 200,
                     "a retry that did not help")
    names = {"routes": ["turns", "shuffled", "weighted", "loads", "cooling"], "embeds": ["loads"],
             "providers": [f"p{i}" for i in range(3)]}
    load = Load(harness.BUILD, folder, gateway.port, args, names, "--calm", "--plain")
    harness.wait_until(lambda: load.progress > 0, "traffic")
    samples, version, begun = [], 1, time.monotonic()
    for i in range(1, args.reloads + 1):
        rows.rotate()
        gateway.write_config(calm_config(rng, sims, rows.path, i))
        gateway.signal(1)
        metrics = harness.wait_until(
            lambda: (m := gateway.metrics())["rolter_config_version"] > version and m, f"reload {i}")
        version = metrics["rolter_config_version"]
        negative = {k: v for k, v in metrics.items() if k.split("{")[0] in GAUGES and v < 0}
        faults.check(not negative, f"below zero: {negative}")
        samples.append((i, process_memory(gateway.pid)["VmRSS"]))
        if not load.is_running():
            faults.check(False, f"the traffic ended after {i} reloads")
            break
    seconds = time.monotonic() - begun
    result = load.stop()
    faults.check(result and load.child.returncode == 0 and not load.complaints, "failed or wrong requests")
    metrics = wait_quiet(harness, faults, gateway, args.deadline)
    asked = sims[3].stats()["requests"]
    faults.check(asked == 1, f"the target that cools down was asked {asked} times")
    for sim in sims:
        sim.stop()
    left = check_end(harness, faults, gateway, base, args.deadline)
    rows.read_all()
    check_rows(faults, rows, load.records.read_bytes())
    turns, weighted = spread(rows, "turns"), spread(rows, "weighted")
    faults.check(max(turns) - min(turns) <= 1, f"turns are not equal: {turns}")
    parts = [w / s for w, s in zip(weighted, (3, 1, 2))]
    faults.check(max(parts) - min(parts) <= 1, f"weights 3, 1, 2 are not kept: {weighted}")
    faults.check(total(metrics, "rolter_retries_total") == 1, "requests were tried again")
    rss = memory_growth(samples, args.reloads)
    check_memory(faults, args, rss)
    return {"client": result, "reloads": int(version) - 1, "seconds": round(seconds, 1), "turns": turns,
            "shuffled": spread(rows, "shuffled"), "weighted_3_1_2": weighted, "rss_kib_20_60_100": rss,
            "descriptors_start_end": (base, left)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mode", choices=("faults", "reloads"), default="faults")
    p.add_argument("--requests", type=int)
    p.add_argument("--seconds", type=float, default=1e9, help="ends earlier")
    p.add_argument("--reloads", type=int, default=1000)
    p.add_argument("--reload-every", type=float, default=1.0, help="seconds between configurations, on average (faults)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--strategies", help="of the routes, with commas; all")
    p.add_argument("--build", default="build")
    p.add_argument("--connections", type=int)
    p.add_argument("--rss-growth", type=float, default=0.05, help="from 60 %% to the end; twice as much from 20 %%")
    p.add_argument("--deadline", type=float, default=60)
    p.add_argument("--quick", action="store_true", help="some seconds; memory is not judged")
    p.add_argument("--cache", action="store_true", help="with the response cache (faults)")
    p.add_argument("--redis", action="store_true", help="and Redis behind it")
    p.add_argument("--keep", help="folder for configuration, rows and records; kept")
    args = p.parse_args()
    calm = args.mode == "reloads"
    args.cache |= args.redis
    args.requests = args.requests or (20000 if args.quick else 1000000) * (10 if calm else 1)
    args.connections = args.connections or (50 if calm else 200)
    if args.quick and calm:
        args.reloads = min(args.reloads, 100)
    os.environ["ROLTER_BUILD"] = str(Path(args.build).resolve())
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:quarantine_size_mb=16:malloc_context_size=10")
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "scenario"))
    import harness
    faults = Faults()
    with tempfile.TemporaryDirectory(prefix="rolter-soak-") as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(exist_ok=True)
        report = {"faults": run_faults, "reloads": run_reloads}[args.mode](harness, args, folder, faults)
    print(json.dumps({**report, "faults": faults}, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
