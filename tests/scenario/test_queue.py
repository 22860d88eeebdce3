# SPDX-License-Identifier: Apache-2.0
"""The bounded queue in front of each provider."""

import threading
import time

import pytest

from harness import DEADLINE, chat, wait_until
from upstream import chat_reply, fleet, metric, wait_idle

CHAT = "/v1/chat/completions"
DEPTH = metric("rolter_provider_queue_depth", provider="p0")


def queue(workers=1, capacity=1, more=""):
    return f"[queue]\nworkers = {workers}\ncapacity = {capacity}\n{more}\n"


class Gate:
    """An upstream script that holds every request until it is opened, and says how many it holds."""

    def __init__(self):
        self.open = threading.Event()
        self.now = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, call):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.open.wait(DEADLINE)
        with self.lock:
            self.now -= 1
        call.reply(200, chat_reply(call.upstream.name))


class Crowd:
    """Requests under way at a time."""

    def __init__(self, gateway):
        self.gateway, self.replies, self.threads = gateway, [], []

    def send(self, n=1, **more):
        for _ in range(n):
            thread = threading.Thread(target=lambda: self.replies.append(self.gateway.post(CHAT, chat("x"), **more)))
            thread.start()
            self.threads.append(thread)

    def join(self):
        for thread in self.threads:
            thread.join()
        return self.replies


def test_second_waits_third_is_refused(new_upstream, new_gateway):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)], more=queue()), rows=True)
    crowd = Crowd(gateway)
    crowd.send()
    wait_until(lambda: gate.now == 1)
    crowd.send()
    gateway.wait_metric(DEPTH, 1)
    assert gateway.metrics()[metric("rolter_inflight", provider="p0")] == 2  # the waiting one counts as load (R2)
    refused = gateway.post(CHAT, chat("x"))
    assert refused.status == 429 and refused.json()["error"]["code"] == "queue_full"
    assert refused.json()["error"]["type"] == "rate_limit_error" and int(refused.headers["retry-after"]) >= 1
    other = gateway.post("/v1/messages", chat("x", max_tokens=1))
    assert other.status == 429 and other.json()["error"]["type"] == "rate_limit_error"
    assert gateway.row_of(refused)["error"] == "queue_full" and gateway.row_of(refused)["attempts"] == 0
    gate.open.set()
    replies = crowd.join()
    assert [r.status for r in replies] == [200, 200] and gate.most == 1
    waits = sorted(gateway.row_of(r)["queue_ms"] for r in replies)
    assert waits[0] == 0 and waits[1] >= 0
    assert gateway.metrics()["rolter_provider_queue_rejections_total"] == 2
    wait_idle(gateway)


def test_full_queue_fails_over(new_upstream, new_gateway):
    gate = Gate()
    busy, free = new_upstream(gate), new_upstream()
    gateway = new_gateway(fleet([busy, free], more=queue()), rows=True)
    crowd = Crowd(gateway)
    crowd.send(1)
    wait_until(lambda: gate.now == 1 or len(free.calls) == 1)
    while gate.now < 1 or gateway.metrics()[DEPTH] < 1:
        crowd.send(1)
        wait_until(lambda: len(crowd.replies) + gate.now + gateway.metrics()[DEPTH] == len(crowd.threads))
    for _ in range(8):
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 200 and reply.headers["x-rolter-provider"] == "p1"
        assert gateway.row_of(reply)["attempts"] == 1  # a full queue is no attempt
    assert gateway.metrics()["rolter_retries_total"] == 0
    assert gateway.metrics()["rolter_cooldowns_tripped_total"] == 0
    gate.open.set()
    assert {r.status for r in crowd.join()} == {200}
    wait_idle(gateway, ("p0", "p1"))


def test_block_waits_and_gives_up(new_upstream, new_gateway):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)],
                                more=queue(more='backpressure = "block"\nblock_timeout_ms = 600')), rows=True)
    crowd = Crowd(gateway)
    crowd.send(2)
    gateway.wait_metric(DEPTH, 1)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 429 and reply.json()["error"]["code"] == "queue_timeout" and reply.seconds >= 0.55
    assert gateway.metrics()["rolter_provider_queue_timeouts_total"] == 1
    assert gateway.row_of(reply)["queue_ms"] >= 550  # the wait counts though it was for nothing
    gate.open.set()
    assert {r.status for r in crowd.join()} == {200}
    wait_idle(gateway)


def test_block_goes_elsewhere_first(new_upstream, new_gateway):
    """Nobody waits for one target while another is idle."""
    gate = Gate()
    busy, idle = new_upstream(gate), new_upstream()
    gateway = new_gateway(fleet([busy, idle], more=queue(more='backpressure = "block"\nblock_timeout_ms = 600')))
    crowd = Crowd(gateway)
    while len(crowd.threads) < 20 and (gate.now < 1 or gateway.metrics()[DEPTH] < 1):
        crowd.send(1)
        wait_until(lambda: len(busy.calls) + len(idle.calls) + gateway.metrics()[DEPTH] >= len(crowd.threads))
    replies = [gateway.post(CHAT, chat("x")) for _ in range(4)]
    assert [(r.status, r.headers["x-rolter-provider"]) for r in replies] == [(200, "p1")] * 4
    gate.open.set()
    assert {r.status for r in crowd.join()} == {200}
    wait_idle(gateway, ("p0", "p1"))


def test_block_gets_in(new_upstream, new_gateway):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)],
                                more=queue(more='backpressure = "block"\nblock_timeout_ms = 60000')))
    crowd = Crowd(gateway)
    crowd.send(2)
    gateway.wait_metric(DEPTH, 1)
    crowd.send(3)
    gateway.wait_metric("rolter_inflight_requests", 5)
    gate.open.set()
    assert [r.status for r in crowd.join()] == [200] * 5 and gate.most == 1
    wait_idle(gateway)


def test_drop(new_upstream, new_gateway):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)], more=queue(more='backpressure = "drop"')))
    crowd = Crowd(gateway)
    crowd.send(2)
    gateway.wait_metric(DEPTH, 1)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 503 and reply.json()["error"]["code"] == "queue_dropped"
    gate.open.set()
    assert {r.status for r in crowd.join()} == {200}


def test_who_leaves_the_queue_holds_no_place(new_upstream, new_gateway):
    gate = Gate()
    upstream = new_upstream(gate)
    gateway = new_gateway(fleet([upstream], more=queue(capacity=2)), rows=True)
    crowd = Crowd(gateway)
    crowd.send()
    wait_until(lambda: gate.now == 1)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            gateway.post(CHAT, chat("leaves"), timeout=0.1)
    gateway.wait_metric(DEPTH, 0)
    assert [r["status"] for r in gateway.wait_rows(5)] == [499] * 5
    crowd.send(2)
    gateway.wait_metric(DEPTH, 2)
    gate.open.set()
    assert [r.status for r in crowd.join()] == [200] * 3
    assert len(upstream.calls) == 3
    wait_idle(gateway)


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_concurrency_is_what_it_says(new_upstream, new_gateway, workers):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)], more=queue(workers, 100)))
    crowd = Crowd(gateway)
    crowd.send(20)
    gateway.wait_metric(DEPTH, 20 - workers)
    wait_until(lambda: gate.now == workers)
    gate.open.set()
    assert [r.status for r in crowd.join()] == [200] * 20 and gate.most == workers
    now = gateway.metrics()
    assert now[metric("rolter_provider_queue_wait_ms_count", provider="p0")] == 20 - workers
    wait_idle(gateway)


def test_a_slot_is_held_until_the_head_only(new_upstream, new_gateway):
    """R29: streams that run do not block others."""
    go = threading.Event()

    def answer(call):
        call.begin_events()
        call.event({"choices": []})
        assert go.wait(DEADLINE)
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)], more=queue()))
    streams = [gateway.stream(CHAT, chat("x", stream=True)) for _ in range(4)]
    for stream in streams:
        assert stream.status == 200
        stream.next()
    go.set()
    for stream in streams:
        assert stream.all() == [] and stream.complete
        stream.close()
    wait_idle(gateway)


def test_failures_give_the_slot_back(new_upstream, new_gateway):
    def answer(call):
        n = len(call.upstream.calls)
        if n % 3 == 0:
            call.reset()
        elif n % 3 == 1:
            call.reply(500)
        else:
            call.reply(400)

    gateway = new_gateway(fleet([new_upstream(answer)], more=queue(capacity=50) + "[cooldown]\nbase_secs = 0\n"))
    crowd = Crowd(gateway)
    crowd.send(30)
    assert {r.status for r in crowd.join()} <= {400, 500, 502}
    wait_idle(gateway)


def test_queue_switched_off(new_upstream, new_gateway):
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)], more=queue(more="enabled = false")))
    crowd = Crowd(gateway)
    crowd.send(10)
    wait_until(lambda: gate.now == 10)
    gate.open.set()
    assert [r.status for r in crowd.join()] == [200] * 10


def test_waiting_has_an_end(new_upstream, new_gateway):
    """Who waits for a slot as long as a reply's head may take is told."""
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate)], more=queue() + "[timeouts]\nrequest_secs = 1\n"), rows=True)
    begun = time.monotonic()
    crowd = Crowd(gateway)
    crowd.send(1)
    wait_until(lambda: gate.now == 1)
    reply = gateway.post(CHAT, chat("x"))
    assert time.monotonic() - begun < 6 and reply.status in (200, 429, 504)
    gate.open.set()
    crowd.join()
    wait_idle(gateway)


def test_who_has_waited_in_vain_goes_elsewhere(new_upstream, new_gateway):
    """The time for waiting is over: another target that is free takes the request."""
    gate = Gate()
    gateway = new_gateway(fleet([new_upstream(gate), new_upstream()], strategy="round_robin",
                                more=queue(capacity=2) + "[timeouts]\nrequest_secs = 1\n[retry]\nmax_retries = 0\n"
                                "[cooldown]\nbase_secs = 0\n"), rows=True)
    crowd = Crowd(gateway)
    while gateway.metrics()[DEPTH] < 2:
        crowd.send(1)
        wait_until(lambda: len(crowd.replies) + gate.now + gateway.metrics()[DEPTH] >= len(crowd.threads))
    replies = crowd.join()  # the first one holds the only slot for a second, the next one for another
    assert {r.status for r in replies} == {200, 504}
    moved = [r for r in replies if r.status == 200 and r.seconds > 0.9]
    assert moved and all(r.headers["x-rolter-provider"] == "p1" for r in moved)
    assert all(gateway.row_of(r)["attempts"] == 1 for r in moved)
    assert gateway.metrics()["rolter_provider_queue_timeouts_total"] == len(moved)
    gate.open.set()
    wait_idle(gateway, ("p0", "p1"))
