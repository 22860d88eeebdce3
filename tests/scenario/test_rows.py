# SPDX-License-Identifier: Apache-2.0
"""Request rows (file, stdout, ClickHouse) and metrics."""

import collections
import json
import os
import re
import resource
import signal
import subprocess
import threading
import time

import pytest

from harness import BUILD, DEADLINE, Client, chat, messages, request, wait_until
from upstream import fleet, metric

CHAT = "/v1/chat/completions"
FIELDS = ["ts", "request_id", "trace_id", "virtual_key", "virtual_key_id", "path", "model", "provider", "target",
          "variant", "upstream_request_id", "status", "stream", "cache_hit", "withheld", "usage_unknown",
          "prompt_tokens", "completion_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd",
          "saved_tokens", "saved_cost_usd", "latency_ms", "ttft_ms", "queue_ms", "attempts", "pick_reason", "pick_detail",
          "cache_reason", "cache_scope", "error", "annotations"]
PRICES = ('[[model_prices]]\nmodel = "up"\ninput_per_mtok = 2.0\noutput_per_mtok = 10.0\n'
          'cached_input_per_mtok = 0.5\n')


def usage_reply(call):
    call.reply(200, {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
                                              "prompt_tokens_details": {"cached_tokens": 400}}},
               [("x-request-id", "theirs")])


def priced(upstream, more=""):
    return (f'[[providers]]\nname = "p0"\nkind = "openai_compatible"\napi_base = "{upstream.url}"\n'
            f'[[routes]]\nmodel = "m"\ntargets = [{{ provider = "p0", model = "up" }}]\n{PRICES}{more}\n')


def test_all_fields(new_upstream, new_gateway):
    gateway = new_gateway(priced(new_upstream(usage_reply), '[[virtual_keys]]\nkey = "k"\nname = "team \\"ü\\""\n'),
                          rows=True)
    before = time.time()
    reply = gateway.post(CHAT, chat("x"), {
        "Authorization": "Bearer k", "x-request-id": "r-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    assert reply.status == 200
    row = gateway.row_of(reply)
    assert list(row) == FIELDS
    stamp = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)\.(\d{3})Z?", row["ts"])
    assert stamp and abs(time.mktime(tuple(map(int, stamp.groups()[:6])) + (0, 0, 0)) - time.timezone - before) < 60
    key_id = row["virtual_key_id"]
    assert re.fullmatch(r"[0-9a-f]{16}", key_id)
    assert 0 <= row["ttft_ms"] <= row["latency_ms"] < 10000
    for name in ("ts", "latency_ms", "ttft_ms", "queue_ms"):
        del row[name]
    assert row == {
        "request_id": "r-1", "trace_id": "0af7651916cd43dd8448eb211c80319c", "virtual_key": 'team "ü"',
        "virtual_key_id": key_id, "path": CHAT, "model": "m", "provider": "p0", "target": "up", "variant": "",
        "upstream_request_id": "theirs", "status": 200, "stream": 0, "cache_hit": 0, "withheld": 0,
        "usage_unknown": 0, "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
        "cache_read_tokens": 400, "cache_write_tokens": 0,
        "cost_usd": pytest.approx(600 * 2e-6 + 400 * 0.5e-6 + 100 * 10e-6), "saved_tokens": 0, "saved_cost_usd": 0,
        "attempts": 1, "pick_reason": "only", "pick_detail": "", "cache_reason": "", "cache_scope": "", "error": "", "annotations": ""}


@pytest.mark.parametrize("pieces", ["one", "bytes"])
def test_usage_of_streams(new_upstream, new_gateway, pieces):
    """The last word counts, however the stream was sliced."""
    events = [{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}}
              for n in (1, 2, 3)]
    text = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"

    def answer(call):
        call.begin_events()
        for piece in ([text] if pieces == "one" else [text[i:i + 1] for i in range(len(text))]):
            call.chunk(piece)
        call.end()

    gateway = new_gateway(priced(new_upstream(answer)), rows=True)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        assert len(stream.all()) == 4
        row = gateway.row_of(stream)
    assert (row["prompt_tokens"], row["completion_tokens"], row["total_tokens"]) == (10, 3, 13)
    assert row["stream"] == 1 and row["cost_usd"] == pytest.approx(10 * 2e-6 + 3 * 10e-6)


def test_usage_of_messages(new_upstream, new_gateway):
    start = {"type": "message_start", "message": {"usage": {
        "input_tokens": 20, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7}}}

    def answer(call):
        call.begin_events()
        call.chunk(b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n")
        call.chunk(b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":9}}\n\n')
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)], kind="anthropic", more=PRICES.replace('"up"', '"m"')), rows=True)
    with gateway.stream("/v1/messages", messages("x", stream=True)) as stream:
        stream.all()
        row = gateway.row_of(stream)
    assert (row["completion_tokens"], row["cache_read_tokens"], row["cache_write_tokens"]) == (9, 5, 7)
    assert row["prompt_tokens"] == 20 and row["total_tokens"] == 29  # as reported, but everything is paid for
    assert row["cost_usd"] == pytest.approx((20 + 7) * 2e-6 + 5 * 0.5e-6 + 9 * 10e-6)


def test_reply_without_usage(new_upstream, new_gateway):
    gateway = new_gateway(priced(new_upstream(lambda call: call.reply(200, {"choices": []}))), rows=True)
    row = gateway.row_of(gateway.post(CHAT, chat("x")))
    assert row["usage_unknown"] == 1 and row["total_tokens"] == 0 and row["cost_usd"] == 0
    row = gateway.row_of(gateway.post(CHAT, chat("x", model="nobody")))
    assert row["usage_unknown"] == 0 and row["status"] == 404 and row["error"] == "model_not_found"
    assert (row["provider"], row["target"], row["attempts"], row["pick_reason"]) == ("", "", 0, "")


def test_who_has_a_row(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()]), rows=True)
    for path in ("/healthz", "/readyz", "/metrics"):
        gateway.get(path)
    replies = [gateway.get("/v1/models"), gateway.get("/nowhere"), gateway.post(CHAT, b"{"), gateway.get(CHAT)]
    assert [gateway.row_of(r)["status"] for r in replies] == [200, 404, 400, 405]
    assert len(gateway.rows()) == 4


def test_hostile_text_in_rows(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()]), rows=True)
    for name in ('a"b\\c', "new\nline", "\u2028", "\U0001F600" * 50, "x" * 20000, "\x00\x1f\x7f"):
        reply = gateway.post(CHAT, chat("x", model=name))
        assert reply.status == 404 and reply.json()["error"]["param"] == "model"
        assert gateway.row_of(reply)["model"] == name
    assert gateway.post(CHAT, b'{"model":"\\ud800"}').status in (400, 404)


def test_latency_counts_the_last_attempt_too(new_upstream, new_gateway):
    """A refusal that came in one read, then an upstream that takes its time and brings no reply."""
    def never(call):
        call.wait_gone()

    busy, hangs = new_upstream(lambda call: call.reply(503, b"{}")), new_upstream(never)
    gateway = new_gateway(fleet([busy, hangs], more="[timeouts]\nrequest_secs = 1\n[retry]\nmax_retries = 1"),
                          rows=True)
    reply = gateway.post(CHAT, chat("x"))
    row = gateway.row_of(reply)
    assert reply.status == 503 and row["attempts"] == 2 and row["latency_ms"] >= 900


def test_trace_id_is_hexadecimal(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()]), rows=True)
    for trace, shown in (("0af7651916cd43dd8448eb211c80319c", True), ("z" * 32, False)):
        reply = gateway.post(CHAT, chat("x"), {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        assert gateway.row_of(reply)["trace_id"] == (trace if shown else "")


def test_sampling(new_upstream, new_gateway, tmp_path):
    path = tmp_path / "rows.jsonl"
    text = fleet([new_upstream()]) + f'[logging]\nfile = "{path}"\nsample_rate = '

    def sampled():
        return {json.loads(line)["request_id"] for line in path.read_text().splitlines()}

    gateway = new_gateway(text + "0.5")
    for _ in range(2):  # the same ones each time: the id decides
        with gateway.client() as client:
            for i in range(200):
                client.post(CHAT, chat("x"), {"x-request-id": f"r{i}"})
    gateway.stop()
    lines = path.read_text().splitlines()
    chosen = sampled()
    assert 60 < len(chosen) < 140 and len(lines) == 2 * len(chosen)
    path.unlink()
    gateway = new_gateway(text + "0.0")
    gateway.post(CHAT, chat("x"))
    gateway.stop()
    assert path.read_text() == ""


def test_file_is_opened_anew(new_upstream, new_gateway, tmp_path):
    """What logrotate does: rename, SIGHUP."""
    path, old = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.1"
    gateway = new_gateway(fleet([new_upstream()]) + f'[logging]\nfile = "{path}"\n')
    gateway.post(CHAT, chat("x"), {"x-request-id": "before"})
    wait_until(lambda: "before" in path.read_text())
    path.rename(old)
    gateway.signal(signal.SIGHUP)
    gateway.wait_version(2)
    gateway.post(CHAT, chat("x"), {"x-request-id": "after"})
    wait_until(lambda: path.exists() and "after" in path.read_text())
    assert "after" not in old.read_text() and "before" not in path.read_text()


def test_a_pipe_without_a_reader_is_refused(new_upstream, new_gateway, tmp_path):
    pipe = tmp_path / "rows"
    os.mkfifo(pipe)
    text = fleet([new_upstream()])
    gateway = new_gateway(text)
    gateway.reload(text + f'[logging]\nfile = "{pipe}"\n')
    gateway.wait_stderr("nobody reads this pipe")
    assert gateway.post(CHAT, chat("x")).status == 200


def test_a_full_disk_leaves_no_torn_line(new_upstream, new_gateway, tmp_path):
    """The limit on the size of files does what a full disk does: the last write is taken in part."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"from":"before"}\n')
    gateway = new_gateway(fleet([new_upstream()]) + f'[logging]\nfile = "{path}"\n')
    gateway.post(CHAT, chat("x"), {"x-request-id": "first"})
    wait_until(lambda: "first" in path.read_text())
    size = path.stat().st_size
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    gateway.post(CHAT, chat("x"), {"x-request-id": "torn"})
    wait_until(lambda: gateway.metrics()["rolter_logs_dropped_total"] == 1)
    assert path.stat().st_size == size
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    gateway.post(CHAT, chat("x"), {"x-request-id": "later"})
    wait_until(lambda: "later" in path.read_text())
    assert [json.loads(line).get("request_id") for line in path.read_text().splitlines()] == [None, "first", "later"]


def test_rows_on_stdout_are_clean(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()]) + '[logging]\nfile = "-"\n')
    for _ in range(3):
        gateway.post(CHAT, chat("x"))
    wait_until(lambda: len(gateway.stdout.splitlines()) >= 4)
    ready, *rows = gateway.stdout.splitlines()
    assert ready.startswith("listening on ") and all(json.loads(r)["status"] == 200 for r in rows)


# ---- ClickHouse

def clickhouse(upstream, sink, more=""):
    return fleet([upstream]) + f'[logging]\nclickhouse_url = "{sink.url}/base"\nflush_ms = 20\n{more}\n'


def sunk(sink):
    return [json.loads(line) for call in sink.calls for line in call.body.splitlines()]


def test_reader_of_stdout_that_stops(new_upstream, tmp_path):
    """A pipe that nobody empties holds up neither requests nor a reload nor the end."""
    upstream = new_upstream()
    config = tmp_path / "rolter.toml"
    config.write_text(fleet([upstream], more='[logging]\nfile = "-"\n[server]\nhost = "127.0.0.1"\nport = 0\n'))
    child = subprocess.Popen([BUILD / "rolter", "--config", config], stdout=subprocess.PIPE)
    try:
        url = child.stdout.readline().decode().split()[-1]
        with Client(url) as client:
            for _ in range(300):  # more than a pipe takes
                assert client.post(CHAT, chat("x")).status == 200
        child.send_signal(signal.SIGHUP)
        wait_until(lambda: "rolter_config_version 2" in request("GET", url + "/metrics").text())
        first = [child.stdout.readline() for _ in range(200)]  # what was held comes, nothing is lost
        wait_until(lambda: "rolter_logs_written_total 300" in request("GET", url + "/metrics").text())
        child.send_signal(signal.SIGTERM)
        rows = [json.loads(line) for line in first + child.stdout.readlines()]
        assert child.wait(DEADLINE) == 0 and len(rows) == 300
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_stop_with_a_full_pipe(new_upstream, tmp_path):
    config = tmp_path / "rolter.toml"
    config.write_text(fleet([new_upstream()], more='[logging]\nfile = "-"\n[server]\nhost = "127.0.0.1"\nport = 0\n'))
    child = subprocess.Popen([BUILD / "rolter", "--config", config], stdout=subprocess.PIPE)
    try:
        with Client(child.stdout.readline().decode().split()[-1]) as client:
            for _ in range(300):
                client.post(CHAT, chat("x"))
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_clickhouse(new_upstream, new_gateway):
    sink = new_upstream(lambda call: call.reply(200, b""))
    gateway = new_gateway(clickhouse(new_upstream(), sink, "batch_max = 10"))
    with gateway.client() as client:
        for i in range(100):
            assert client.post(CHAT, chat("x"), {"x-request-id": f"r{i}"}).status == 200
    wait_until(lambda: len(sunk(sink)) == 100, "100 rows in the sink")
    assert {r["request_id"] for r in sunk(sink)} == {f"r{i}" for i in range(100)}
    for call in sink.calls:
        assert call.method == "POST" and call.target.startswith("/base/?query=INSERT%20INTO%20request_logs")
        assert list(json.loads(call.body.splitlines()[0])) == FIELDS
    gateway.wait_metric("rolter_logs_written_total", 100)
    assert gateway.metrics()["rolter_logs_dropped_total"] == 0


def test_a_row_too_large_is_dropped(new_upstream, new_gateway):
    """A name of a megabyte must not make a row of no bytes that counts as one."""
    sink = new_upstream(lambda call: call.reply(200, b""))
    gateway = new_gateway(clickhouse(new_upstream(), sink, "batch_max = 10"), server="max_head_bytes = 16777216")
    reply = gateway.post(CHAT, chat("x", model="\u00e4" * 600_000))
    assert reply.status == 404 and len(reply.body) < 1000
    wait_until(lambda: len(sunk(sink)) == 1)
    assert sunk(sink)[0]["model"] == "\u00e4" * 100
    assert gateway.get("/" + "x" * 1_200_000).status == 404
    gateway.wait_metric("rolter_logs_dropped_total", 1)
    assert gateway.post(CHAT, chat("x")).status == 200
    wait_until(lambda: len(sunk(sink)) == 2)


@pytest.mark.parametrize("how", ["error", "nobody", "silent"])
def test_sink_that_fails(new_upstream, new_gateway, how):
    sink = new_upstream({"error": lambda call: call.reply(500, b"no"), "silent": lambda call: call.wait_gone(),
                         "nobody": None}[how])
    if how == "nobody":
        sink.close()
    gateway = new_gateway(clickhouse(new_upstream(), sink, "queue_capacity = 20"))
    with gateway.client() as client:
        for _ in range(60):
            reply = client.post(CHAT, chat("x"))
            assert reply.status == 200 and reply.seconds < 5
    dropped = 1 if how == "silent" else 60
    wait_until(lambda: gateway.metrics()["rolter_logs_dropped_total"] >= dropped, "the drops")
    assert gateway.metrics()["rolter_logs_written_total"] == 0
    if how != "silent":
        gateway.wait_stderr("ClickHouse does not take rows")
        assert gateway.stderr.count("does not take rows") == 1
    begun = time.monotonic()
    gateway.stop()
    assert time.monotonic() - begun < 8


def test_sink_that_recovers(new_upstream, new_gateway):
    broken = threading.Event()
    broken.set()
    sink = new_upstream(lambda call: call.reply(500 if broken.is_set() else 200, b""))
    gateway = new_gateway(clickhouse(new_upstream(), sink))
    gateway.post(CHAT, chat("x"))
    gateway.wait_metric("rolter_logs_dropped_total", 1)
    broken.clear()
    gateway.post(CHAT, chat("x"))
    gateway.wait_metric("rolter_logs_written_total", 1)
    gateway.wait_stderr("takes rows again")


def test_last_rows_reach_the_sink(new_upstream, new_gateway):
    sink = new_upstream(lambda call: call.reply(200, b""))
    gateway = new_gateway(clickhouse(new_upstream(), sink).replace("flush_ms = 20", "flush_ms = 60000"))
    with gateway.client() as client:
        for _ in range(25):
            client.post(CHAT, chat("x"))
    assert not sink.calls
    gateway.stop()
    assert len(sunk(sink)) == 25


# ---- metrics

LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')


def parse(text):
    """The text format, strictly: {family: (type, help, {(suffix, labels): value})}."""
    families, current = {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, text_of_help = line.split(" ", 3)
            assert name not in families and text_of_help
            families[name] = [None, text_of_help, {}]
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge", "histogram") and families[name][0] is None
            families[name][0] = kind
        else:
            match = LINE.match(line)
            assert match, line
            name, labels, value = match.groups()
            assert name.startswith(current), (name, current)
            suffix, pairs, at = name[len(current):], [], 0
            kind = families[current][0]
            assert suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)), line
            while labels and at < len(labels):
                label = LABEL.match(labels, at)
                assert label, line
                pairs.append((label[1], label[2]))
                at = label.end()
            key = (suffix, tuple(pairs))
            assert key not in families[current][2], line
            families[current][2][key] = float(value)
    return families


def check_histogram(series):
    groups = collections.defaultdict(list)
    for (suffix, labels), value in series.items():
        if suffix == "_bucket":
            *rest, (name, bound) = labels
            assert name == "le"
            groups[tuple(rest)].append((float(bound), value))
    for labels, buckets in groups.items():
        bounds = [b for b, _ in buckets]
        counts = [c for _, c in buckets]
        assert bounds == sorted(bounds) and bounds[-1] == float("inf") and counts == sorted(counts)
        assert series[("_count", labels)] == counts[-1] and ("_sum", labels) in series


def documented():
    text = subprocess.run([str(BUILD / "rolter"), "docs", "metrics"], capture_output=True, text=True, check=True).stdout
    rows = {}
    for line in text.splitlines():
        match = re.match(r"\| `(\w+)` \| (\w+) \|(.*?) \| (.+) \|$", line)
        if match:
            rows[match[1]] = (match[2], set(re.findall(r"`(\w+)`", match[3])))
    assert len(rows) > 20
    return rows


def test_metrics_are_well_formed_and_documented(new_upstream, new_gateway):
    name = 'odd "name"\\ with\\n'
    text = f"""
[[providers]]
name = 'odd "name"\\'
kind = "openai_compatible"
api_base = "{new_upstream().url}"
[[routes]]
model = 'm "x"'
targets = [{{ provider = 'odd "name"\\' }}]
"""
    gateway = new_gateway(text)
    reply = gateway.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    first = parse(reply.text())
    gateway.post(CHAT, chat("x", model='m "x"'))
    gateway.post(CHAT, chat("x", model=name))
    families = parse(gateway.get("/metrics").text())
    docs = documented()
    assert set(families) == set(docs)
    for family, (kind, _, series) in families.items():
        assert docs[family][0] == kind
        for (_, labels) in series:
            assert {k for k, _ in labels} - {"le"} == docs[family][1], family
        if kind == "histogram":
            check_histogram(series)
        if kind == "counter":
            assert family.endswith("_total")
            for key, value in first[family][2].items():
                assert series[key] >= value
    # Counters are there from the start (R42).
    for family, (kind, _, series) in first.items():
        if kind == "counter" and not docs[family][1]:
            assert series == {("", ()): 0.0}, family
    assert ("", (("model", 'm \\"x\\"'), ("status", "2xx"))) in first["rolter_responses_total"][2]


def test_labels_are_bounded(new_upstream, new_gateway):
    """What clients write never becomes a series."""
    gateway = new_gateway(fleet([new_upstream()]))
    gateway.post(CHAT, chat("x"))
    before = set(gateway.metrics())
    with gateway.client() as client:
        for i in range(50):
            client.post(CHAT, chat("x", model=f"unknown-{i}"))
            client.post(CHAT, chat("x", model=f"p0/direct-{i}"))
            client.post(CHAT, chat("x", model=f"nobody/x-{i}"))
            client.get(f"/path-{i}")
    after = set(gateway.metrics())
    assert not [s for s in after if "unknown" in s or "direct-" in s or "path-" in s]
    assert len(after - before) < 10, after - before
    assert gateway.metrics()[metric("rolter_responses_total", model="provider/*", status="2xx")] == 50


def test_numbers_add_up(new_upstream, new_gateway):
    def answer(call):
        usage_reply(call)

    gateway = new_gateway(priced(new_upstream(answer)))
    for _ in range(10):
        gateway.post(CHAT, chat("x"))
    gateway.get("/v1/models")
    now = gateway.metrics()
    assert now["rolter_requests_total"] == 11  # health and metrics are not counted
    assert now[metric("rolter_responses_total", model="m", status="2xx")] == 10
    assert now[metric("rolter_tokens_total", model="m", kind="prompt")] == 10000
    assert now[metric("rolter_tokens_total", model="m", kind="completion")] == 1000
    assert now[metric("rolter_tokens_total", model="m", kind="cache_read")] == 4000
    assert now[metric("rolter_target_requests_total", provider="p0", target="up", outcome="ok")] == 10
    assert now[metric("rolter_request_latency_ms_count", model="m")] == 10
    assert now["rolter_upstream_connections_total"] <= 10
    assert now[metric("rolter_inflight", provider="p0")] == 0 and now["rolter_client_connections"] >= 1


def test_path_of_the_metrics(new_gateway):
    gateway = new_gateway("", server='metrics_path = "/internal/numbers"')
    assert gateway.get("/internal/numbers").status == 200 and gateway.get("/metrics").status == 404
