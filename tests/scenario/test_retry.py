# SPDX-License-Identifier: Apache-2.0
"""Fail-over, what is told when nothing is left, back-off, cooldown, breaker, health probes, fail-open."""

import threading
import time

import pytest

from harness import DEADLINE, chat, wait_until
from upstream import chat_reply, dead_port, fleet, metric, wait_idle

CHAT = "/v1/chat/completions"
NO_COOLDOWN = "[cooldown]\nbase_secs = 0\n"


def failing(status, headers=(), body=None):
    def answer(call):
        call.reply(status, body or {"error": {"message": f"made to fail with {status}", "who": call.upstream.name}},
                   headers)
    return answer


def resetting(call):
    call.reset()


def closing(call):
    call.close()


def silent(call):
    call.wait_gone()


def garbage(call):
    call.send(b"SMTP ready when you are\r\n\r\n")
    call.close()


def both_lengths(call):
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    call.close()


FAILURES = {"500": failing(500), "502": failing(502), "503": failing(503), "429": failing(429), "408": failing(408),
            "529": failing(529), "reset": resetting, "close": closing, "garbage": garbage, "lengths": both_lengths}


@pytest.mark.parametrize("how", FAILURES)
def test_fails_over_at_once(new_upstream, new_gateway, how):
    bad, good = new_upstream(FAILURES[how]), new_upstream()
    # A back-off that would not pass unnoticed: it is for the same provider only.
    gateway = new_gateway(fleet([bad, good], more="[retry]\nbase_backoff_ms = 60000\nmax_backoff_ms = 60000"),
                          rows=True)
    replies = [gateway.post(CHAT, chat("x")) for _ in range(2)]
    for reply in replies:
        assert reply.status == 200 and reply.json()["choices"][0]["message"]["content"] == good.name
        assert reply.headers["x-rolter-provider"] == "p1" and reply.seconds < 10
    first, second = map(gateway.row_of, replies)
    assert first["attempts"] == 2 and first["provider"] == "p1" and first["status"] == 200 and first["error"] == ""
    assert second["attempts"] == 1  # the bad one rests
    assert len(bad.calls) == 1 and len(good.calls) == 2
    assert bad.calls[0].body == good.calls[0].body
    assert bad.calls[0].headers["x-request-id"] == good.calls[0].headers["x-request-id"]
    now = gateway.metrics()
    assert now["rolter_retries_total"] == 1 and now["rolter_cooldowns_tripped_total"] == 1
    assert now[metric("rolter_target_requests_total", provider="p0", target="m", outcome="error")] == 1
    wait_idle(gateway, ("p0", "p1"))


def test_fails_over_from_nobody(new_upstream, new_gateway):
    held, port = dead_port()
    with held:
        gateway = new_gateway(fleet([f"http://127.0.0.1:{port}", new_upstream()]), rows=True)
        assert gateway.post(CHAT, chat("x")).status == 200
        now = gateway.metrics()
        assert now[metric("rolter_upstream_errors_total", provider="p0", reason="connect")] == 1
        # The pool's own counts reach the metrics when the request has ended, a moment after its reply.
        wait_until(lambda: gateway.metrics()["rolter_upstream_connect_errors_total"] == 1)


def test_fails_over_when_the_head_takes_too_long(new_upstream, new_gateway):
    slow, good = new_upstream(silent), new_upstream()
    gateway = new_gateway(fleet([slow, good], more="[timeouts]\nrequest_secs = 1"), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 200 and 0.9 < reply.seconds < 6
    assert gateway.wait_rows(1)[0]["attempts"] == 2
    assert gateway.metrics()[metric("rolter_upstream_errors_total", provider="p0", reason="head_timeout")] == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_a_clients_fault_is_not_tried_again(new_upstream, new_gateway, status):
    body = b'{ "error" : {"message": "your fault"} }'
    bad, other = new_upstream(failing(status, [("X-Detail", "kept")], body)), new_upstream()
    gateway = new_gateway(fleet([bad, other], more="[breaker]\nenabled = true\nfailure_threshold = 1"), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == status and reply.body == body and reply.headers["x-detail"] == "kept"
    assert reply.headers["x-rolter-provider"] == "p0"
    [row] = gateway.wait_rows(1)
    assert row["status"] == status and row["attempts"] == 1 and row["error"] == "upstream_status"
    assert not other.calls
    assert gateway.metrics()["rolter_breaker_opened_total"] == 0
    assert gateway.metrics()["rolter_cooldowns_tripped_total"] == 0


@pytest.mark.parametrize("retries, asked", [(0, 1), (1, 2), (2, 3), (5, 4)])
def test_number_of_attempts(new_upstream, new_gateway, retries, asked):
    many = [new_upstream(failing(500)) for _ in range(4)]
    gateway = new_gateway(fleet(many, more=f"[retry]\nmax_retries = {retries}\n" + NO_COOLDOWN), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 500
    assert sum(len(u.calls) for u in many) == asked and max(len(u.calls) for u in many) == 1
    assert gateway.wait_rows(1)[0]["attempts"] == asked


@pytest.mark.parametrize("status", [500, 503, 429])
def test_the_last_reply_when_nothing_is_left(new_upstream, new_gateway, status):
    """R16, R28: as it was, with its Retry-After."""
    one = new_upstream(failing(status, [("Retry-After", "7"), ("X-Who", "one")], b'{"from":  "one"}'))
    two = new_upstream(failing(status, [("Retry-After", "9"), ("X-Who", "two")], b'{"from":  "two"}'))
    gateway = new_gateway(fleet([one, two]), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == status and reply.body == b'{"from":  "two"}'
    assert reply.headers["retry-after"] == "9" and reply.headers["x-who"] == "two"
    assert reply.headers["x-rolter-provider"] == "p1"
    [row] = gateway.wait_rows(1)
    assert (row["status"], row["provider"], row["attempts"], row["error"]) == (status, "p1", 2, "upstream_status")


@pytest.mark.parametrize("then", ["nobody", "reset", "slow"])
def test_an_earlier_reply_when_the_last_attempt_brings_none(new_upstream, new_gateway, then):
    one = new_upstream(failing(503, [("Retry-After", "7")], b'{"from": "one"}'))
    held, port = dead_port()
    with held:
        two = {"nobody": lambda: f"http://127.0.0.1:{port}", "reset": lambda: new_upstream(resetting),
               "slow": lambda: new_upstream(silent)}[then]()
        gateway = new_gateway(fleet([one, two], more="[timeouts]\nrequest_secs = 1"), rows=True)
        with gateway.client() as client:
            reply = client.post(CHAT, chat("x"))
            assert reply.status == 503 and reply.body == b'{"from": "one"}'
            assert reply.headers["retry-after"] == "7" and reply.headers["x-rolter-provider"] == "p0"
            assert client.get("/healthz").status == 200  # the connection is in order
        assert gateway.wait_rows(1)[0]["attempts"] == 2


def test_nobody_there(new_gateway):
    held, port = dead_port()
    with held:
        gateway = new_gateway(fleet([f"http://127.0.0.1:{port}"] * 2), rows=True)
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 502 and reply.json()["error"]["code"] == "upstream_unavailable"
        reply = gateway.post("/v1/messages", chat("x", max_tokens=1))
        assert reply.status == 502 and reply.json()["type"] == "error"
        rows = gateway.wait_rows(2)
        assert [(r["status"], r["error"]) for r in rows] == [(502, "connect")] * 2


def test_nobody_answers(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream(silent)], more="[timeouts]\nrequest_secs = 1"), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 504 and reply.json()["error"]["code"] == "upstream_timeout"
    assert gateway.wait_rows(1)[0]["error"] == "head_timeout"


def test_very_long_limits_are_long(new_upstream, new_gateway):
    """4294968 s are 2^32 + 704 ms."""
    def late(call):
        threading.Event().wait(1)
        call.reply(200, chat_reply("x"))

    more = "[timeouts]\nrequest_secs = 4294968\nconnect_secs = 31536000\n[retry]\nmax_retries = 0"
    assert new_gateway(fleet([new_upstream(late)], more=more)).post(CHAT, chat("x")).status == 200


@pytest.mark.parametrize("answer, reason", [(garbage, "bad_reply"), (both_lengths, "bad_reply"), (resetting, "reset")])
def test_broken_replies_are_502(new_upstream, new_gateway, answer, reason):
    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 502
    assert gateway.wait_rows(1)[0]["error"] == reason


def test_interim_replies_are_skipped(new_upstream, new_gateway):
    def answer(call):
        call.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        call.reply(200, {"fine": True})

    gateway = new_gateway(fleet([new_upstream(answer)]))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 200 and reply.json() == {"fine": True} and "link" not in reply.headers


def test_stale_kept_connection_is_replaced(new_upstream, new_gateway):
    """An upstream that closes its kept connections costs nobody a request."""
    def answer(call):
        call.reply(200, chat_reply("fine"))
        call.close()

    upstream = new_upstream(answer)
    gateway = new_gateway(fleet([upstream]), rows=True)
    for _ in range(20):
        assert gateway.post(CHAT, chat("x")).status == 200
    assert all(r["attempts"] == 1 for r in gateway.wait_rows(20))


def test_same_provider_waits(new_upstream, new_gateway):
    """Two models of one provider: the second attempt waits as long as Retry-After says."""
    seen = []

    def answer(call):
        seen.append(time.monotonic())
        if len(seen) == 1:
            call.reply(503, {}, [("Retry-After", "1")])
        else:
            call.reply(200, chat_reply("late"))

    upstream = new_upstream(answer)
    gateway = new_gateway(f"""
[[providers]]
name = "p0"
kind = "openai_compatible"
api_base = "{upstream.url}"
[[routes]]
model = "m"
targets = [{{ provider = "p0", model = "a" }}, {{ provider = "p0", model = "b" }}]
""", rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 200 and seen[1] - seen[0] >= 0.9
    assert {c.json()["model"] for c in upstream.calls} == {"a", "b"}


def test_a_client_that_leaves_during_the_back_off(new_upstream, new_gateway):
    upstream = new_upstream(failing(503, [("Retry-After", "30")]))
    gateway = new_gateway(f"""
[[providers]]
name = "p0"
kind = "openai_compatible"
api_base = "{upstream.url}"
[[routes]]
model = "m"
targets = [{{ provider = "p0", model = "a" }}, {{ provider = "p0", model = "b" }}]
""", rows=True)
    with pytest.raises(TimeoutError):
        gateway.post(CHAT, chat("x"), timeout=0.5)
    assert gateway.wait_rows(1)[0]["status"] == 499
    assert len(upstream.calls) == 1
    wait_idle(gateway)


# ---- cooldown

def test_cooldown_parks_and_ends(new_upstream, new_gateway):
    broken = threading.Event()
    broken.set()

    def answer(call):
        call.reply(500 if broken.is_set() else 200, chat_reply("back"))

    flaky, good = new_upstream(answer), new_upstream()
    gateway = new_gateway(fleet([flaky, good], more="[cooldown]\nbase_secs = 1"))
    assert gateway.post(CHAT, chat("x")).status == 200
    parked = time.monotonic()
    broken.clear()
    for _ in range(5):
        assert gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p1"
    wait_until(lambda: gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p0", "the end of the cooldown")
    assert time.monotonic() - parked > 0.9


def test_cooldown_as_long_as_the_upstream_asks(new_upstream, new_gateway):
    limited, good = new_upstream(failing(429, [("Retry-After", "60")])), new_upstream()
    gateway = new_gateway(fleet([limited, good], more="[cooldown]\nbase_secs = 1\nmax_secs = 2"))
    begun = time.monotonic()
    gateway.post(CHAT, chat("x"))
    wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200 and len(limited.calls) == 2, "a second try")
    assert 1.9 < time.monotonic() - begun  # Retry-After, cut to max_secs


def test_no_cooldown(new_upstream, new_gateway):
    bad, good = new_upstream(failing(500, [("Retry-After", "60")])), new_upstream()
    gateway = new_gateway(fleet([bad, good], more=NO_COOLDOWN))
    for _ in range(8):
        assert gateway.post(CHAT, chat("x")).status == 200
    assert len(bad.calls) == 4
    assert gateway.metrics()["rolter_cooldowns_tripped_total"] == 0


def test_everything_parked_fails_open(new_upstream, new_gateway):
    broken = threading.Event()
    broken.set()

    def answer(call):
        call.reply(503 if broken.is_set() else 200, chat_reply("back"))

    many = [new_upstream(answer), new_upstream(answer)]
    gateway = new_gateway(fleet(many, more="[cooldown]\nbase_secs = 60"), rows=True)
    assert gateway.post(CHAT, chat("x")).status == 503
    broken.clear()
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 200 and gateway.row_of(reply)["pick_reason"] == "fail_open"
    assert gateway.metrics()[metric("rolter_picks_total", model="m", reason="fail_open")] >= 1


# ---- breaker

BREAKER = NO_COOLDOWN + "[breaker]\nenabled = true\nfailure_threshold = 3\nopen_secs = 1\n"


def test_breaker_opens_and_closes(new_upstream, new_gateway):
    broken = threading.Event()
    broken.set()
    waiting, go = [], threading.Event()

    def answer(call):
        if broken.is_set():
            call.reply(500)
            return
        waiting.append(call)
        assert go.wait(DEADLINE)
        call.reply(200, chat_reply("back"))

    flaky, good = new_upstream(answer), new_upstream()
    gateway = new_gateway(fleet([flaky, good], more=BREAKER))
    while gateway.metrics()["rolter_breaker_opened_total"] == 0:
        assert gateway.post(CHAT, chat("x")).status == 200
    assert len(flaky.calls) == 3
    for _ in range(6):
        gateway.post(CHAT, chat("x"))
    assert len(flaky.calls) == 3
    broken.clear()

    # Half-open: of many requests at a time exactly one is let through while it is not answered.
    def crowd():
        results = []
        threads = [threading.Thread(target=lambda: results.append(gateway.post(CHAT, chat("x")).status))
                   for _ in range(20)]
        for t in threads:
            t.start()
        return threads, results

    def probe_is_out():
        threads, results = crowd()
        wait_until(lambda: len(results) + len(waiting) >= 20)
        everybody.extend(threads)
        return len(waiting)

    everybody = []
    wait_until(probe_is_out, "a probe")
    assert len(waiting) == 1
    for _ in range(4):
        probe_is_out()
    assert len(waiting) == 1 and len(flaky.calls) == 4
    go.set()
    for t in everybody:
        t.join()
    wait_until(lambda: gateway.metrics()["rolter_breaker_closed_total"] == 1)
    for _ in range(6):
        gateway.post(CHAT, chat("x"))
    assert len(flaky.calls) == 7
    wait_idle(gateway, ("p0", "p1"))


def test_probe_that_fails_opens_again(new_upstream, new_gateway):
    bad, good = new_upstream(failing(500)), new_upstream()
    gateway = new_gateway(fleet([bad, good], more=BREAKER))
    wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200 and len(bad.calls) >= 3)
    opened = time.monotonic()
    wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200 and len(bad.calls) >= 4, "a probe")
    assert time.monotonic() - opened > 0.9
    assert gateway.metrics()["rolter_breaker_opened_total"] == 2
    for _ in range(6):
        gateway.post(CHAT, chat("x"))
    assert len(bad.calls) == 4


def test_probe_whose_client_leaves_is_free_again(new_upstream, new_gateway):
    state = {"mode": "bad"}

    def answer(call):
        if state["mode"] == "bad":
            call.reply(500)
        elif state["mode"] == "hang":
            call.wait_gone()
        else:
            call.reply(200, chat_reply("back"))

    flaky, good = new_upstream(answer), new_upstream()
    gateway = new_gateway(fleet([flaky, good], more=BREAKER))
    wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200 and len(flaky.calls) >= 3)
    state["mode"] = "hang"

    def leave():
        try:
            gateway.post(CHAT, chat("x"), timeout=0.2)
        except TimeoutError:
            pass
        return len(flaky.calls) == 4
    wait_until(leave, "a probe that hangs")
    state["mode"] = "good"
    wait_until(lambda: gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p0", "another probe")
    assert gateway.metrics()["rolter_breaker_closed_total"] == 1


def test_backpressure_is_not_breakage(new_upstream, new_gateway):
    busy, good = new_upstream(failing(503)), new_upstream()
    gateway = new_gateway(fleet([busy, good], more=BREAKER))
    for _ in range(12):
        assert gateway.post(CHAT, chat("x")).status == 200
    assert len(busy.calls) == 6 and gateway.metrics()["rolter_breaker_opened_total"] == 0


def test_everything_open_fails_open(new_upstream, new_gateway):
    bad = new_upstream(failing(500))
    gateway = new_gateway(fleet([bad], more=BREAKER.replace("open_secs = 1", "open_secs = 60")), rows=True)
    replies = [gateway.post(CHAT, chat("x")) for _ in range(6)]
    assert len(bad.calls) == 6 and {r.status for r in replies} == {500}
    assert [gateway.row_of(r)["pick_reason"] for r in replies] == ["only"] * 3 + ["fail_open"] * 3


# ---- health probes

HEALTH = ("[health]\nenabled = true\ninterval_secs = 1\ntimeout_secs = 1\npath = \"/health\"\n"
          "consecutive_failure_threshold = 1\nrecovery_success_threshold = 1\n")


def test_first_probe_at_once(new_sim, new_gateway):
    """R30: not after the first interval."""
    sim, ill = new_sim(), new_sim(health_status=500)
    gateway = new_gateway(fleet([sim, ill], more=HEALTH.replace("interval_secs = 1", "interval_secs = 3600")))
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p1"), 0)
    assert gateway.metrics()[metric("rolter_provider_healthy", provider="p0")] == 1
    assert gateway.metrics()["rolter_health_down_total"] == 1
    for _ in range(6):
        assert gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p0"
    assert ill.stats()["requests"] == 0


def test_down_and_up_again(new_sim, new_gateway):
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(fleet(sims, more=HEALTH))
    sims[0].faults(health_status=503)
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p0"), 0)
    for _ in range(4):
        assert gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p1"
    sims[0].faults(health_status=404)  # anything below 500 is alive
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p0"), 1)
    assert {gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] for _ in range(4)} == {"p0", "p1"}
    assert gateway.metrics()["rolter_health_recovered_total"] == 1


def test_unhealthy_all_of_them_fails_open(new_sim, new_gateway):
    ill = new_sim(health_status=500)
    gateway = new_gateway(fleet([ill], more=HEALTH), rows=True)
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p0"), 0)
    assert gateway.post(CHAT, chat("x")).status == 200
    assert gateway.wait_rows(1)[0]["pick_reason"] == "fail_open"


def test_probe_of_one_that_hangs(new_upstream, new_sim, new_gateway):
    hung = new_upstream(silent)
    gateway = new_gateway(fleet([hung, new_sim()], more=HEALTH))
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p0"), 0)
    assert hung.calls[0].method == "GET" and hung.calls[0].target == "/health"
    assert gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "p1"
