#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU per hit and hits per second of rolter's response cache beside nginx (proxy_cache) and Varnish, in one run.

All serve the same bytes, a chat completion of --reply bytes, from memory, over kept connections. nginx and Varnish are
asked with GET and key on the path; rolter is asked with POST, checks a virtual key, reads the JSON body and keys on it,
and writes a row for each request. Everything is pinned to one CPU, the targets take turns within each round, and
medians of ratios within rounds are compared. CPU is what the kernel accounts to the threads (schedstat).

usage: bench/cache.py [--build DIR] [--rounds 5] [--seconds 2] [--reply 2048] [--body 500] [--json FILE]
needs: nginx, varnish (Debian's packages); missing ones are left out and named.
"""
import argparse
import http.server
import json
import os
import statistics
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from proxy import Bench, body_of, request_file  # noqa: E402

PATH = "/v1/chat/completions"


def reply_of(size):
    reply = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1700000000, "model": "m",
             "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 100, "completion_tokens": 400, "total_tokens": 500}}
    content = reply["choices"][0]["message"]
    content["content"] = "x" * (size - len(json.dumps(reply)))
    return json.dumps(reply).encode()


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    reply = b""
    calls = 0

    def do_GET(self):
        Origin.calls += 1
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "public, max-age=3600")
        self.send_header("Content-Length", str(len(self.reply)))
        self.end_headers()
        self.wfile.write(self.reply)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class CacheBench(Bench):
    def origin(self, size):
        Origin.reply = reply_of(size)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]

    def start_rolter(self, up):
        with open(os.path.join(self.dir, "rolter.toml"), "w") as f:
            f.write(f"""
[server]
host = "127.0.0.1"
port = 0
workers = 1
[logging]
file = "{self.dir}/rows.jsonl"
[cache]
enabled = true
default_ttl_secs = 3600
[[providers]]
name = "origin"
kind = "openai_compatible"
api_base = "http://127.0.0.1:{up}"
[[routes]]
model = "m"
targets = [{{ provider = "origin" }}]
[routes.cache]
enabled = true
[[virtual_keys]]
key = "sk-bench"
name = "bench"
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
  sendfile on;
  tcp_nopush on;
  open_file_cache max=1000;
  client_body_temp_path {self.dir}/n1; proxy_temp_path {self.dir}/n2; fastcgi_temp_path {self.dir}/n3;
  uwsgi_temp_path {self.dir}/n4; scgi_temp_path {self.dir}/n5;
  proxy_cache_path {self.dir}/cache keys_zone=one:10m;
  keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://127.0.0.1:{up}; proxy_cache one; proxy_cache_valid 200 1h; }}
  }}
}}
""")
        log = open(os.path.join(self.dir, "nginx.log"), "w")
        p = subprocess.Popen(["taskset", "-c", str(self.args.cpu), self.tool("nginx"), "-c",
                              os.path.join(self.dir, "nginx.conf"), "-e", os.path.join(self.dir, "nginx.err")],
                             stdout=log, stderr=log)
        self.children.append(p)
        self.wait_port(port)
        self.ports["nginx"], self.pids["nginx"] = port, self.kids(p.pid)

    def start_varnish(self, up):
        port = self.free_port()
        p, _ = self.start("varnish", [self.tool("varnishd"), "-F", "-j", "none", "-n", os.path.join(self.dir, "v"), "-a",
                                      f"127.0.0.1:{port}", "-b", f"127.0.0.1:{up}", "-s", "malloc,256m", "-t", "3600",
                                      "-p", "thread_pools=1"])
        self.wait_port(port)
        self.ports["varnish"], self.pids["varnish"] = port, [p.pid] + self.kids(p.pid)

    @staticmethod
    def kids(pid):
        out = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
        return [int(k) for k in out.split()]

    def requests_of(self, body_bytes):
        """The request of each target: rolter's is a POST with a body, the others' a GET."""
        get = os.path.join(self.dir, "get")
        post = os.path.join(self.dir, "post")
        request_file(post, body_of(body_bytes))
        with open(get, "wb") as f:
            f.write(b"GET " + PATH.encode() + b" HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n")
        return {n: post if n == "rolter" else get for n in self.names}


def measure(bench, conns, requests):
    rounds = {n: [] for n in bench.names}
    for name in bench.names:
        bench.load(name, conns, 0.3, requests[name])
    calls = Origin.calls
    for _ in range(bench.args.rounds):
        for name in bench.names:
            before = bench.cpu_ns(name)
            r = bench.load(name, conns, bench.args.seconds, requests[name])
            if r["errors"]:
                print(f"{name}: {r['errors']} errors", file=sys.stderr)
            n = r["requests"] or 1
            rounds[name].append({"us": (bench.cpu_ns(name) - before) / 1000 / n, "per_second": n / bench.args.seconds,
                                 "p50": r["first_byte_us"]["p50"], "p99": r["first_byte_us"]["p99"]})
    if Origin.calls != calls:
        sys.exit(f"{Origin.calls - calls} requests were no hits")
    return rounds


def show(conns, rounds, results):
    floor = rounds.get("varnish") or next(iter(rounds.values()))
    for name, runs in rounds.items():
        us = statistics.median(r["us"] for r in runs)
        ratio = statistics.median(a["us"] / b["us"] for a, b in zip(runs, floor))
        per_second = statistics.median(r["per_second"] for r in runs)
        results.append({"connections": conns, "name": name, "us_per_hit": round(us, 2), "x_varnish": round(ratio, 3),
                        "hits_per_second": round(per_second), "first_byte_p50_us": statistics.median(r["p50"] for r in runs),
                        "first_byte_p99_us": statistics.median(r["p99"] for r in runs)})
        print(f"| {conns} | {name} | {us:.1f} us | {ratio:.2f}x | {per_second:,.0f} | {results[-1]['first_byte_p50_us']:.0f} us |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--cpu", type=int, default=0)
    p.add_argument("--reply", type=int, default=2048)
    p.add_argument("--body", type=int, default=500)
    p.add_argument("--connections", default="1,32,256")
    p.add_argument("--only", default="varnish,nginx,rolter")
    p.add_argument("--json")
    p.add_argument("--keep", action="store_true")
    args = p.parse_args()
    args.build = os.path.abspath(args.build)
    bench, results = CacheBench(args), []
    try:
        up = bench.origin(args.reply)
        bench.names = []
        for name in args.only.split(","):
            if name != "rolter" and not bench.tool({"varnish": "varnishd"}.get(name, name)):
                print(f"{name}: not installed, left out", file=sys.stderr)
                continue
            getattr(bench, "start_" + name)(up)
            bench.names.append(name)
        requests = bench.requests_of(args.body)
        print("| connections | | CPU per hit | beside Varnish | hits per second | first byte, p50 |\n| --- | --- | --- | --- | --- | --- |")
        for conns in (int(c) for c in args.connections.split(",")):
            show(conns, measure(bench, conns, requests), results)
    finally:
        bench.stop()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
