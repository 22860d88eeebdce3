#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU per request and per relayed event of rolter beside nginx, HAProxy and a bare relay, in one run.

All proxies stand in front of the same simulated engine and get the same bytes; everything is pinned to one CPU, so no
wake-ups cross CPUs; the targets take turns within each round and medians over the rounds are compared. CPU is what the
kernel accounts to the proxy's threads (schedstat). Machines are noisy: read the ratios, not the microseconds.

usage: bench/proxy.py [--build DIR] [--rounds 5] [--seconds 2] [--cpu 0] [--json FILE] [--only NAMES] [--quick]
needs: nginx, haproxy (Debian's packages); missing ones are left out and named.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PROXIES = ["relay", "nginx", "haproxy", "rolter"]


def body_of(size, stream=False):
    head = {"model": "m", "messages": [{"role": "system", "content": "You are helpful."},
                                       {"role": "user", "content": ""}]}
    if stream:
        head["stream"] = True
        head["max_tokens"] = 50
    spare = size - len(json.dumps(head))
    text = 'He said "the quick brown fox" jumps over the lazy dog\n and more. ' * (spare // 60 + 2)
    lo, hi = 0, len(text)
    while lo < hi:  # escapes make the encoded text longer than the text
        mid = (lo + hi + 1) // 2
        head["messages"][1]["content"] = text[:mid]
        if len(json.dumps(head)) <= size:
            lo = mid
        else:
            hi = mid - 1
    head["messages"][1]["content"] = text[:lo]
    return json.dumps(head).encode()


def request_file(path, body):
    with open(path, "wb") as f:
        f.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                b"Authorization: Bearer sk-bench\r\nUser-Agent: bench/1\r\nAccept: */*\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body)


class Bench:
    def __init__(self, args):
        self.args, self.children, self.ports, self.pids = args, [], {}, {}
        self.route, self.more = "", ""  # further configuration of rolter
        self.dir = tempfile.mkdtemp(prefix="rolter-bench-")
        self.bin = lambda name: os.path.join(args.build, name)

    def start(self, name, argv, ready=None, deadline=10):
        log = open(os.path.join(self.dir, name + ".log"), "w+")
        p = subprocess.Popen(["taskset", "-c", str(self.args.cpu)] + argv, stdout=log, stderr=log, cwd=self.dir)
        self.children.append(p)
        end = time.monotonic() + deadline
        while ready and time.monotonic() < end:
            log.flush()
            with open(log.name) as f:
                line = next((l for l in f if ready in l), None)
            if line:
                return p, line
            if p.poll() is not None:
                break
            time.sleep(0.02)
        if ready:
            sys.exit(f"{name} did not start: {open(log.name).read()}")
        return p, ""

    def wait_port(self, port, deadline=10):
        import socket
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        sys.exit(f"nothing listens on {port}")

    def free_port(self):
        import socket
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        s.close()
        return port

    def upstream(self):
        _, line = self.start("sim", [self.bin("rolter-sim"), "--listen", "127.0.0.1:0", "--prefill-tps", "0",
                                     "--decode-tps", self.args.decode, "--tokens", "75", "--max-running", "20000",
                                     "--blocks", "65536"], "listening on")
        return int(line.strip().rsplit(":", 1)[1])

    def start_all(self, up):
        wanted = self.args.only.split(",") if self.args.only else PROXIES
        self.names = []
        for name in wanted:
            if name in ("nginx", "haproxy") and not self.tool(name):
                print(f"{name}: not installed, left out", file=sys.stderr)
                continue
            getattr(self, "start_" + name)(up)
            self.names.append(name)
        self.ports["direct"] = up

    def tool(self, name):
        return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")

    def start_relay(self, up):
        p, line = self.start("relay", [self.bin("bench/bench-relay"), "0", str(up)], "listening on")
        self.ports["relay"], self.pids["relay"] = int(line.split()[-1]), [p.pid]

    def start_rolter(self, up):
        with open(os.path.join(self.dir, "rolter.toml"), "w") as f:
            f.write(f"""
[server]
host = "127.0.0.1"
port = 0
workers = 1
[logging]
file = "{self.dir}/rows.jsonl"
[[providers]]
name = "sim"
kind = "openai_compatible"
api_base = "http://127.0.0.1:{up}"
[[routes]]
model = "m"
strategy = "least_load"
targets = [{{ provider = "sim" }}]
{self.route}
[[virtual_keys]]
key = "sk-bench"
name = "bench"
{self.more}
""")
        p, line = self.start("rolter", [self.bin("rolter"), "--config", "rolter.toml"], "listening on")
        self.ports["rolter"], self.pids["rolter"] = int(line.strip().rsplit(":", 1)[1]), [p.pid]

    def start_nginx(self, up):
        port = self.free_port()
        with open(os.path.join(self.dir, "nginx.conf"), "w") as f:
            f.write(f"""
user root;
worker_processes 1;
daemon off;
pid {self.dir}/nginx.pid;
error_log {self.dir}/nginx.err warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_buffer_size 64k;
  client_body_temp_path {self.dir}/n1; proxy_temp_path {self.dir}/n2; fastcgi_temp_path {self.dir}/n3;
  uwsgi_temp_path {self.dir}/n4; scgi_temp_path {self.dir}/n5;
  keepalive_requests 100000000;
  upstream sim {{ server 127.0.0.1:{up}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://sim; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
}}
""")
        env = dict(os.environ, MALLOC_TRIM_THRESHOLD_="1000000000", MALLOC_TOP_PAD_="16777216")
        log = open(os.path.join(self.dir, "nginx.log"), "w")
        p = subprocess.Popen(["taskset", "-c", str(self.args.cpu), self.tool("nginx"), "-c",
                              os.path.join(self.dir, "nginx.conf"), "-e", os.path.join(self.dir, "nginx.err")],
                             stdout=log, stderr=log, env=env)
        self.children.append(p)
        self.wait_port(port)
        kids = subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True, text=True).stdout.split()
        self.ports["nginx"], self.pids["nginx"] = port, [int(k) for k in kids]

    def start_haproxy(self, up):
        port = self.free_port()
        with open(os.path.join(self.dir, "haproxy.cfg"), "w") as f:
            f.write(f"""
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{up} pool-max-conn -1
""")
        p, _ = self.start("haproxy", [self.tool("haproxy"), "-db", "-f", "haproxy.cfg"])
        self.wait_port(port)
        self.ports["haproxy"], self.pids["haproxy"] = port, [p.pid]

    def cpu_ns(self, name):
        total = 0
        for pid in list(self.pids[name]):
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                        total += int(f.read().split()[0])
            except FileNotFoundError: # nginx ends the process that has loaded its cache after a minute
                self.pids[name].remove(pid)
        return total

    def user_share(self, name):
        user = both = 0
        for pid in self.pids[name]:
            with open(f"/proc/{pid}/stat") as f:
                part = f.read().rsplit(")", 1)[1].split()
            user, both = user + int(part[11]), both + int(part[11]) + int(part[12])
        return user, both

    def load(self, name, conns, seconds, request):
        out = subprocess.run(["taskset", "-c", str(self.args.cpu), self.bin("bench/bench-load"), str(self.ports[name]),
                              str(conns), str(seconds), request], capture_output=True, text=True)
        if out.returncode:
            sys.exit(f"load failed: {out.stderr}")
        return json.loads(out.stdout)

    def measure(self, conns, request, per):
        rounds = {n: [] for n in self.names}
        for name in self.names:  # warm up
            self.load(name, conns, 0.3, request)
        for _ in range(self.args.rounds):
            for name in self.names:
                before, (u0, b0) = self.cpu_ns(name), self.user_share(name)
                r = self.load(name, conns, self.args.seconds, request)
                cpu, (u1, b1) = self.cpu_ns(name) - before, self.user_share(name)
                if r["errors"]:
                    print(f"{name}: {r['errors']} errors", file=sys.stderr)
                n = r[per] or 1
                rounds[name].append({"us": cpu / 1000 / n, "user": (u1 - u0) / max(1, b1 - b0), "n": n,
                                     "first_byte_p50": r["first_byte_us"]["p50"],
                                     "first_byte_p99": r["first_byte_us"]["p99"]})
        return rounds

    def stop(self):
        for p in self.children:
            p.send_signal(signal.SIGTERM)
        for p in self.children:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()
        if self.args.keep:
            print("logs in", self.dir, file=sys.stderr)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


def show(title, rounds, results):
    floor = rounds.get("relay")
    row = {}
    for name, runs in rounds.items():
        us = statistics.median(r["us"] for r in runs)
        ratio = statistics.median(a["us"] / b["us"] for a, b in zip(runs, floor)) if floor else float("nan")
        row[name] = {"us": round(us, 2), "min_us": round(min(r["us"] for r in runs), 2), "x_relay": round(ratio, 3),
                     "user_us": round(us * statistics.median(r["user"] for r in runs), 2),
                     "first_byte_p50_us": statistics.median(r["first_byte_p50"] for r in runs),
                     "first_byte_p99_us": statistics.median(r["first_byte_p99"] for r in runs)}
    results[title] = row
    cells = "  ".join(f"{n} {v['us']:6.1f} us (user {v['user_us']:4.1f}) {v['x_relay']:.2f}x" for n, v in row.items())
    print(f"{title:28} {cells}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=2)
    ap.add_argument("--cpu", default="0")
    ap.add_argument("--json")
    ap.add_argument("--only")
    ap.add_argument("--quick", action="store_true", help="one round of half a second each")
    ap.add_argument("--keep", action="store_true")
    args = ap.parse_args()
    args.build = os.path.abspath(args.build)
    if args.quick:
        args.rounds, args.seconds = 1, 0.5
    results = {}
    for kind, decode in (("json", "0"), ("stream", "500")):  # paced streams: an event each 2 ms
        args.decode = decode
        b = Bench(args)
        try:
            b.start_all(b.upstream())
            path = os.path.join(b.dir, "request")
            if kind == "json":
                for size in (2048, 32768):
                    request_file(path, body_of(size))
                    for conns in (1, 32, 256):
                        show(f"json {size // 1024}k, {conns} conn", b.measure(conns, path, "requests"), results)
            else:
                request_file(path, body_of(2048, stream=True))
                for conns in (1, 8, 64):
                    show(f"events, {conns} streams", b.measure(conns, path, "events"), results)
        finally:
            b.stop()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
