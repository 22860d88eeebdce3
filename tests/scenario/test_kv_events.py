# SPDX-License-Identifier: Apache-2.0
"""precise_cache_aware in front of replicas whose engines publish KV-cache events over ZeroMQ."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from harness import chat, free_port, wait_until
from kv_publisher import (CLEARED_MAP, Blocks, Publisher, number, removed_array, removed_map, stored_array, stored_map)
from upstream import metric

CHAT = "/v1/chat/completions"
PROMPT = list(range(1000, 1032))  # 8 blocks of 4


class Address:
    """Where a publisher is that the test does not hold: in another process, or one that connects."""

    def __init__(self, port):
        self.endpoint, self.router = f"tcp://127.0.0.1:{port}", None

    def wait_subscriber(self):
        pass


class Bed:
    """Two replicas, p0 and p1, of which <publishers> publish; picks show what the gateway believes."""

    def __init__(self, new_sim, new_gateway, publishers, keys="", strategy="precise_cache_aware", more="", events=True):
        self.sims = [new_sim(), new_sim()]
        self.publishers = publishers
        config = ""
        for i, sim in enumerate(self.sims):
            config += (f'[[providers]]\nname = "p{i}"\nkind = "openai_compatible"\napi_base = "{sim.url}/v1"\n')
            if i < len(publishers) and events:
                config += f'[providers.kv_events]\nendpoint = "{publishers[i].endpoint}"\n'
                if publishers[i].router:
                    config += f'replay_endpoint = "{publishers[i].replay_endpoint}"\n'
                config += keys + "\n"
        config += (f'[[routes]]\nmodel = "m"\nstrategy = "{strategy}"\n'
                   'targets = [{ provider = "p0" }, { provider = "p1" }]\n' + more)
        self.config = config
        self.gateway = new_gateway(config, rows=True)
        for publisher in publishers:
            publisher.wait_subscriber()

    def pick(self, tokens=PROMPT, **more):
        """(provider, reason, resident share or why there is none)"""
        header = {"x-rolter-explain": "1"}
        if tokens is not None:
            header["x-rolter-vllm-token-ids"] = tokens if isinstance(tokens, str) else ", ".join(map(str, tokens))
        reply = self.gateway.post(CHAT, chat("x", **more), header)
        assert reply.status == 200, reply
        words = dict(re.findall(r"(\w+)=(\S+)", reply.headers["x-rolter-pick"]))
        return reply.headers["x-rolter-provider"], words["reason"], words["resident"]

    def wait(self, provider, share, tokens=PROMPT, **more):
        """Until the pick is this; a share that is wrong on the way there fails as well when it is too large."""
        wanted = (provider, "score", f"{share:.2f}")
        seen = []

        def look():
            seen[:] = self.pick(tokens, **more)
            return tuple(seen) == wanted
        try:
            wait_until(look, f"the pick {wanted}")
        except AssertionError as e:
            raise AssertionError(f"{e}; last seen {seen}") from None

    def wait_neutral(self, why="no_index", tokens=PROMPT):
        wait_until(lambda: self.pick(tokens)[1:] == ("least_load", why), f"neutral picks ({why})")

    def counts(self, name):
        return int(self.gateway.metrics().get(name, 0))


@pytest.fixture
def publisher():
    opened = []

    def make(**options):
        opened.append(Publisher(**options))
        return opened[-1]
    yield make
    for p in opened:
        p.close()


def test_the_replica_that_holds_more_gets_it(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher(), publisher()])
    a, b = bed.publishers
    a.publish(stored_map(Blocks(PROMPT[:8], seed=1)))
    b.publish(stored_map(Blocks(PROMPT[:24], seed=2)))
    bed.wait("p1", 0.75)
    # The answer's tokens, in the next batch, behind the prompt's.
    first = Blocks(PROMPT[:8], seed=1)
    a.publish(stored_map(Blocks(PROMPT[8:], before=first.hashes[-1], seed=1)))
    bed.wait("p0", 1)
    a.publish(removed_map([first.hashes[1]]))
    bed.wait("p1", 0.75)
    b.publish(CLEARED_MAP)
    bed.wait("p0", 0.13)
    reply = bed.gateway.post(CHAT, chat("x"), {"x-rolter-vllm-token-ids": ",".join(map(str, PROMPT))})
    row = bed.gateway.row_of(reply)
    assert row["pick_reason"] == "score" and row["pick_detail"].startswith("resident=0.13 load=0 least=0 score=0.375 ")
    bed.gateway.wait_metric("rolter_kv_events_total", 5)
    metrics = bed.gateway.metrics()
    assert metrics["rolter_kv_events_malformed_total"] == 0
    assert metrics["rolter_kv_cache_decisions_total"] > 0
    assert metrics[metric("rolter_kv_index_blocks", provider="p0")] == 7
    assert metrics[metric("rolter_kv_index_trusted", provider="p1")] == 1
    assert metrics[metric("rolter_cache_telemetry_age_seconds", provider="p0", source="vllm")] < 30
    # The header is for the gateway alone.
    assert "x-rolter" not in str([request["headers"] for request in bed.sims[0].requests()]).lower()


def test_without_ids_the_load_decides(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()])
    bed.publishers[0].publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    for tokens, why in ((None, "no_ids"), ("1,2,", "bad_ids"), ("1,-2", "bad_ids"), ("4294967296", "bad_ids")):
        assert {bed.pick(tokens)[0] for _ in range(4)} == {"p0", "p1"}
        assert bed.pick(tokens)[1:] == ("least_load", why)


@pytest.mark.parametrize("form", ["map", 4, 5, 6, 7, 8, 9, 11])
def test_forms(new_sim, new_gateway, publisher, form):
    bed = Bed(new_sim, new_gateway, [publisher()])
    p, blocks = bed.publishers[0], Blocks(PROMPT)
    p.publish(stored_map(blocks) if form == "map" else stored_array(blocks, form))
    bed.wait("p0", 1)
    tail = blocks.hashes[4:]
    p.publish(removed_map(tail) if form == "map" else removed_array(tail))
    bed.wait("p0", 0.5)
    p.publish(CLEARED_MAP if form == "map" else ["AllBlocksCleared"])
    wait_until(lambda: bed.pick()[2] == "0.00", "an empty index")
    bed.gateway.wait_metric("rolter_kv_events_malformed_total", 0)


def test_salts_and_adapters(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()], more='[[routes]]\nmodel = "tuned"\nstrategy = "precise_cache_aware"\n'
              'targets = [{ provider = "p0" }, { provider = "p1" }]\n')
    p = bed.publishers[0]
    plain, salted, tuned = Blocks(PROMPT[:8]), Blocks(PROMPT[:16], seed=5), Blocks(PROMPT[:24], seed=6)
    p.publish(stored_map(plain), stored_map(salted, extra_keys=[["s"], None, None, None]),
              stored_map(tuned, lora_name="tuned", extra_keys=[["tuned"]] * 6))
    bed.wait("p0", 0.25)
    bed.wait("p0", 0.5, cache_salt="s")
    assert bed.pick(cache_salt="other")[2] == "0.00"
    bed.wait("p0", 0.75, model="tuned")
    # An image ends what can be told; a number alone names no adapter.
    p.publish(stored_map(Blocks(PROMPT, seed=7), extra_keys=[None, ["img", 3], *[None] * 6]),
              stored_map(Blocks(PROMPT, seed=8), lora_id=3))
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait("p0", 1, tokens=[1, 2, 3, 4])
    bed.wait("p0", 0.25)


def test_gap_waits_for_clear(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()])
    p = bed.publishers[0]
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.publish(stored_map(Blocks([5, 6, 7, 8])), lose=True)
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait_neutral()
    assert bed.counts("rolter_kv_event_gaps_total") == 1
    assert bed.counts("rolter_kv_event_stream_failures_total") == 1
    p.publish(stored_map(Blocks(PROMPT)))
    p.publish(stored_map(Blocks([9, 9, 9, 9])), CLEARED_MAP, stored_map(Blocks(PROMPT[:16])))
    bed.wait("p0", 0.5)
    assert bed.pick([9, 9, 9, 9])[2] == "0.00"
    assert bed.counts("rolter_kv_event_gaps_total") == 1


def test_gap_resumes(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()], 'on_gap = "resume"')
    p = bed.publishers[0]
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.publish(lose=True)
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait("p0", 1, tokens=[1, 2, 3, 4])
    assert bed.pick()[1:] == ("score", "0.00")


@pytest.mark.parametrize("old", [False, True])
def test_gap_is_replayed(new_sim, new_gateway, publisher, old):
    bed = Bed(new_sim, new_gateway, [publisher(replay=True, old_replay=old)])
    p, blocks = bed.publishers[0], Blocks(PROMPT)
    p.publish(stored_map(blocks))
    bed.wait("p0", 1)
    p.publish(removed_map(blocks.hashes[2:]), lose=True)
    p.publish(stored_map(Blocks([5, 6, 7, 8])), lose=True)
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait("p0", 1, tokens=[1, 2, 3, 4])
    assert bed.pick()[2] == "0.25"
    assert bed.pick([5, 6, 7, 8])[2] == "1.00"
    assert p.rounds == [0, 0]  # at first for the history, then from the last known batch
    assert bed.counts(metric("rolter_kv_event_replays_total", outcome="complete")) == 2
    # Some are lost on the way: asked for again from there.
    p.holes = {6, 8}
    for i in range(6):
        p.publish(stored_map(Blocks([100 + i] * 4)), lose=i < 5)
    bed.wait("p0", 1, tokens=[105] * 4)
    for i in range(6):
        assert bed.pick([100 + i] * 4)[2] == "1.00"


def test_history_is_replayed_to_who_comes_late(new_sim, new_gateway, publisher):
    p = publisher(replay=True)
    p.publish(stored_map(Blocks(PROMPT)))
    for i in range(50):
        p.publish(stored_map(Blocks([i] * 8)))
    bed = Bed(new_sim, new_gateway, [p])
    bed.wait("p0", 1)
    assert bed.pick([49] * 8)[2] == "1.00"


def test_what_a_replay_cannot_bring_is_lost(new_sim, new_gateway, publisher):
    """The publisher keeps two batches only."""
    bed = Bed(new_sim, new_gateway, [publisher(replay=True, keep=2)])
    p = bed.publishers[0]
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    for i in range(4):
        p.publish(stored_map(Blocks([i] * 4)), lose=i < 3)
    wait_until(lambda: bed.counts(metric("rolter_kv_event_replays_total", outcome="incomplete")), "the vain replay")
    bed.wait_neutral()
    p.publish(CLEARED_MAP, stored_map(Blocks(PROMPT[:16])))
    bed.wait("p0", 0.5)


def test_late_without_replay(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher(first=700)])
    bed.publishers[0].publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    assert bed.counts("rolter_kv_event_gaps_total") == 0


def test_duplicates_and_copies(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()])
    p, blocks = bed.publishers[0], Blocks(PROMPT)
    payload = p.batch([stored_map(blocks)])
    p.publish_bytes(payload)
    p.send(number(0), payload)  # the same message again: no copy
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait("p0", 1, tokens=[1, 2, 3, 4])
    p.publish(stored_map(blocks))  # a copy
    p.publish(removed_map(blocks.hashes), stored_map(Blocks([5, 6, 7, 8])))
    bed.wait("p0", 1, tokens=[5, 6, 7, 8])
    assert bed.pick()[2] == "1.00"
    p.publish(removed_map(blocks.hashes))
    wait_until(lambda: bed.pick()[2] == "0.00", "both copies gone")


def test_restart(new_sim, new_gateway, publisher):
    """A new process on the same address: nothing of the old one counts, and it is trusted from its first batch on."""
    bed = Bed(new_sim, new_gateway, [publisher()])
    p = bed.publishers[0]
    for _ in range(5):
        p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.close()
    wait_until(lambda: bed.counts("rolter_kv_event_stream_failures_total") == 1, "the lost connection")
    assert bed.pick()[2] == "1.00"  # for stale_secs; nothing says that the cache is gone
    q = publisher(port=p.port).wait_subscriber()
    q.publish(stored_map(Blocks(PROMPT[:8])))
    bed.wait("p0", 0.25)
    bed.publishers[0] = q


@pytest.mark.parametrize("batches", [1, 5, 9])
def test_restart_is_seen_by_the_replay(new_sim, new_gateway, publisher, batches):
    """The new process has got less far, as far, or further than the old one by the time we are connected."""
    bed = Bed(new_sim, new_gateway, [publisher(replay=True)])
    p = bed.publishers[0]
    for _ in range(5):
        p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.close()
    q = Publisher(port=p.port, replay=True, replay_port=p.replay_port)
    for _ in range(batches):
        q.publish(stored_map(Blocks(PROMPT[:8])), ts=2.5, lose=True)
    q.wait_subscriber()
    bed.wait("p0", 0.25)
    q.publish(stored_map(Blocks(PROMPT[8:], before=Blocks(PROMPT[:8]).hashes[-1])))
    bed.wait("p0", 1)
    q.close()


def test_number_goes_back(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()])
    p = bed.publishers[0]
    for _ in range(5):
        p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.next = 0
    p.publish(stored_map(Blocks(PROMPT[:8])))
    bed.wait("p0", 0.25)
    # Its first batches were missed: as after a gap.
    p.publish(lose=True)
    p.next = 3
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait_neutral()
    # The same number with other bytes is another process too.
    p.publish(CLEARED_MAP, stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    p.next -= 1
    p.publish(stored_map(Blocks(PROMPT[:8])))
    bed.wait_neutral()


def test_malformed(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()])
    p, blocks = bed.publishers[0], Blocks(PROMPT)
    # Faulty events are skipped one by one.
    ragged = stored_map(Blocks([7] * 4), token_ids=[7] * 5)
    p.publish({"type": "Unheard"}, ["Unheard", 1], {}, [], 5, ragged, {**ragged, "block_size": 0},
              stored_map(Blocks([8] * 4, before=3), parent_block_hash=Blocks([8] * 4, before=3).hashes[0]),
              stored_map(blocks), {"type": "BlockRemoved"})
    bed.wait("p0", 1)
    bed.gateway.wait_metric("rolter_kv_events_malformed_total", 9)
    bed.gateway.wait_metric("rolter_kv_events_total", 1)
    # Messages whose number cannot be read do not count.
    p.send(b"123", p.batch([CLEARED_MAP]))
    p.send(number(1))
    p.send(number(1), b"", b"")
    p.socket.send(p.topic)
    p.publish(stored_map(Blocks([1, 2, 3, 4])))
    bed.wait("p0", 1, tokens=[1, 2, 3, 4])
    assert bed.pick()[2] == "1.00"
    bed.gateway.wait_metric("rolter_kv_events_malformed_total", 13)
    # A payload that is no batch is a gap.
    p.publish_bytes(p.batch([stored_map(blocks)])[:-3])
    bed.wait_neutral()
    assert bed.counts("rolter_kv_event_gaps_total") == 1
    p.publish(CLEARED_MAP, stored_map(blocks))
    bed.wait("p0", 1)


def test_idle_is_not_stale(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()], "stale_secs = 1")
    p = bed.publishers[0]
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    # Heartbeats are answered by the transport; no event comes.
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        assert bed.pick() == ("p0", "score", "1.00")
        time.sleep(0.05)
    p.close()
    bed.wait_neutral()


def test_a_publisher_that_hangs(new_sim, new_gateway):
    """Its connection stands, but nobody answers heartbeats; when it goes on, events may have been missed."""
    port = free_port()
    script = ("from kv_publisher import *\n"
              f"p = Publisher(port={port}).wait_subscriber()\n"
              f"p.publish(stored_map(Blocks({PROMPT})))\n"
              "input()\n")
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, cwd=Path(__file__).parent)
    there = Address(port)
    try:
        bed = Bed(new_sim, new_gateway, [there], "stale_secs = 1")
        bed.wait("p0", 1)
        child.send_signal(signal.SIGSTOP)
        bed.wait_neutral()
        child.send_signal(signal.SIGCONT)
        wait_until(lambda: bed.pick()[1:] == ("score", "0.00"), "an empty index in use")
    finally:
        child.kill()
        child.wait()


def test_not_yet_heard_of_is_fresh(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()], "stale_secs = 1")
    wait_until(lambda: bed.pick()[1:] == ("score", "0.00"), "an empty index in use")
    absent = free_port()
    bed.gateway.reload_and_wait(bed.config.replace(str(bed.publishers[0].port), str(absent)))
    bed.wait_neutral()


def test_bind(new_sim, new_gateway, publisher):
    """The engine connects; a second process of it comes while the first one's connection stands."""
    port = free_port()
    there = Address(port)
    bed = Bed(new_sim, new_gateway, [there], "bind = true")
    a = publisher(connect=there.endpoint).wait_subscriber()
    a.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    b = publisher(connect=there.endpoint).wait_subscriber()
    b.publish(stored_map(Blocks(PROMPT[:8])))
    bed.wait("p0", 0.25)


def test_another_topic_where_the_engine_connects(new_sim, new_gateway, publisher):
    """Listening goes on at the same address with the topic of the new configuration."""
    port = free_port()
    there = Address(port)
    bed = Bed(new_sim, new_gateway, [there], 'bind = true\ntopic = "a"')
    a, b = publisher(connect=there.endpoint, topic="a"), publisher(connect=there.endpoint, topic="b")
    a.wait_subscriber().publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    b.wait_subscriber()
    bed.gateway.reload_and_wait(bed.config.replace('topic = "a"', 'topic = "b"'))
    a.wait_subscriber().publish(stored_map(Blocks(PROMPT)))
    b.wait_subscriber().publish(stored_map(Blocks(PROMPT[:8])))
    bed.wait("p0", 0.25)
    assert "cannot listen" not in bed.gateway.stderr


def free_ports(n):
    """The first of <n> ports in a row that are free."""
    def look():
        base = free_port()
        opened = []
        try:
            for port in range(base, base + n):
                opened.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            return None
        finally:
            for one in opened:
                one.close()
    return wait_until(look, "free ports in a row")


def test_ranks(new_sim, new_gateway, publisher):
    base = free_ports(2)
    a, b = publisher(port=base), publisher(port=base + 1)
    bed = Bed(new_sim, new_gateway, [a], "dp_ranks = 2")
    b.wait_subscriber()
    a.publish(stored_map(Blocks(PROMPT[:8])))
    b.publish(stored_map(Blocks(PROMPT[:16], seed=9)), rank=1)
    bed.wait("p0", 0.5)
    b.publish(CLEARED_MAP, rank=1)
    bed.wait("p0", 0.25)
    assert bed.gateway.metrics()[metric("rolter_kv_index_blocks", provider="p0")] == 2


def test_topic(new_sim, new_gateway, publisher):
    a, b = publisher(topic="kv@10.0.0.1@m"), publisher(topic="")
    bed = Bed(new_sim, new_gateway, [a, b], 'topic = ""')
    a.publish(stored_map(Blocks(PROMPT[:8])))
    b.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p1", 1)


def test_cleared_caches_lose_their_warmth_everywhere(new_sim, new_gateway, publisher):
    """An AllBlocksCleared also makes the replica cold for cache_aware (A18)."""
    bed = Bed(new_sim, new_gateway, [publisher()], strategy="cache_aware")
    text = "a long prompt that one of them has served before " * 10

    def ask():
        reply = bed.gateway.post(CHAT, chat(text), {"x-rolter-explain": "1"})
        return reply.headers["x-rolter-provider"], reply.headers["x-rolter-pick"]
    while ask()[0] != "p0":  # until p0 has it
        bed.gateway.reload_and_wait(bed.config.replace('name = "m"', 'name = "m"'))
        text += "x"
    provider, why = ask()
    assert provider == "p0" and "reason=affinity share=1.00" in why
    bed.publishers[0].publish(CLEARED_MAP)
    bed.gateway.wait_metric("rolter_kv_events_total", 1)
    assert "reason=affinity" not in ask()[1]


def test_restarted_engines_lose_their_warmth_everywhere(new_sim, new_gateway, publisher):
    """So does a new process that shows by its numbers (A18), once for all its ranks."""
    base = free_ports(2)
    a, b = publisher(port=base), publisher(port=base + 1)
    bed = Bed(new_sim, new_gateway, [a], "dp_ranks = 2", strategy="cache_aware")
    b.wait_subscriber()
    text = "a long prompt that one of them has served before " * 10
    for p in (a, b):
        p.publish(stored_map(Blocks(PROMPT[:8])))
        p.publish(stored_map(Blocks(PROMPT[8:16])))
    bed.gateway.wait_metric("rolter_kv_events_total", 4)

    def ask():
        reply = bed.gateway.post(CHAT, chat(text), {"x-rolter-explain": "1"})
        return reply.headers["x-rolter-provider"], reply.headers["x-rolter-pick"]

    def warm():
        """Until p0 has it."""
        nonlocal text
        for _ in range(200):
            if ask()[0] == "p0" and "reason=affinity" in ask()[1]:
                return
            text = "x" + text
        raise AssertionError("p0 is never asked first")
    warm()
    a.close()
    b.close()
    a, b = publisher(port=base), publisher(port=base + 1)
    a.wait_subscriber()
    b.wait_subscriber()
    assert "reason=affinity" in ask()[1]  # nobody has said that it is another process
    a.publish(stored_map(Blocks(PROMPT[:8])))
    bed.gateway.wait_metric("rolter_kv_events_total", 5)
    assert "reason=affinity" not in ask()[1]
    warm()
    b.publish(stored_map(Blocks(PROMPT[:8])))  # the same restart, by its other rank
    bed.gateway.wait_metric("rolter_kv_events_total", 6)
    assert "reason=affinity" in ask()[1]


def test_reload_keeps_what_is_known(new_sim, new_gateway, publisher):
    bed = Bed(new_sim, new_gateway, [publisher()], "max_blocks = 1000")
    p = bed.publishers[0]
    p.publish(stored_map(Blocks(PROMPT)))
    bed.wait("p0", 1)
    bed.gateway.reload_and_wait(bed.config.replace("max_blocks = 1000", "max_blocks = 4"))
    assert bed.pick() == ("p0", "score", "1.00")
    p.publish(stored_map(Blocks([1, 2, 3, 4])))  # the smaller cap holds now: the tail goes
    bed.wait("p0", 0.38)
    bed.gateway.reload_and_wait(bed.config.replace("[providers.kv_events]", "[providers.lmcache]")
                                .replace(p.endpoint, "http://127.0.0.1:1/").replace("max_blocks = 1000", ""))
    bed.wait_neutral()
    bed.gateway.reload_and_wait(bed.config)
    p.wait_subscriber()
    wait_until(lambda: bed.pick()[1:] == ("score", "0.00"), "an empty index in use")


def test_requests_do_not_wait_for_a_flood(new_sim, new_gateway, publisher):
    """While a publisher sends as fast as it can, picks and the metrics page go on."""
    bed = Bed(new_sim, new_gateway, [publisher()], "max_blocks = 20000")
    p = bed.publishers[0]
    ending = threading.Event()

    def flood():
        n = 0
        while not ending.is_set():
            p.publish(*[stored_map(Blocks(range(n + i * 400, n + i * 400 + 400), size=16)) for i in range(20)])
            n += 8000
    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    try:
        bed.gateway.wait_metric(metric("rolter_kv_index_blocks", provider="p0"), 20000)
        slowest = 0
        for _ in range(100):
            from_ = time.monotonic()
            bed.pick()
            bed.gateway.metrics()
            slowest = max(slowest, time.monotonic() - from_)
        assert slowest < 1
    finally:
        ending.set()
        thread.join()
    assert bed.gateway.metrics()[metric("rolter_kv_index_blocks", provider="p0")] <= 20000


class RawPublisher:
    """Speaks ZMTP 3.0 by itself, for messages that libzmq would not send."""

    router = None

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.connection = None

    def wait_subscriber(self):
        self.connection = self.listener.accept()[0]
        self.connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31))
        ready = b"\x05READY\x0bSocket-Type" + (3).to_bytes(4, "big") + b"PUB"
        self.connection.sendall(b"\x04" + bytes([len(ready)]) + ready)
        got = b""
        while b"\x01kv-events" not in got:
            got += self.connection.recv(4096)
        return self

    def frame(self, data, more=False):
        self.connection.sendall(bytes([2 | more]) + len(data).to_bytes(8, "big") + data)

    def close(self):
        self.listener.close()
        self.connection.close()


@pytest.mark.parametrize("what", ["frames", "frame"])
def test_a_message_without_end_does_not_fill_memory(new_sim, new_gateway, what):
    """Frames that go on for ever, or one that is said to be very large: the connection is given up."""
    p = RawPublisher()
    bed = Bed(new_sim, new_gateway, [p])
    for data in (b"kv-events", number(0), Publisher.batch(None, [stored_map(Blocks(PROMPT))])):
        p.frame(data, more=data[:1] != b"\x93")
    bed.wait("p0", 1)
    most = 0
    if what == "frame":
        p.connection.sendall(b"\x03" + (1 << 40).to_bytes(8, "big"))

    def given_up():
        nonlocal most
        try:
            for _ in range(16):
                if what == "frames":
                    p.frame(b"x" * (1 << 20), more=True)
                else:
                    p.connection.sendall(b"x" * (1 << 20))
        except OSError:
            pass
        with open(f"/proc/{bed.gateway.pid}/statm") as f:
            most = max(most, int(f.read().split()[1]) * 4096)
        return bed.counts("rolter_kv_event_stream_failures_total") > 0
    wait_until(given_up, "the connection to be given up")
    assert most < 1 << 30
    assert bed.pick()[0] in ("p0", "p1")
    p.close()


def test_faults_in_the_configuration(new_sim, new_gateway):
    from harness import Gateway
    base = ('[[providers]]\nname = "p"\nkind = "openai_compatible"\napi_base = "http://127.0.0.1:1"\n'
            '[providers.kv_events]\n%s\n[[routes]]\nmodel = "m"\nstrategy = "precise_cache_aware"\n'
            'targets = [{ provider = "p" }]\n')
    for keys, fault in (('endpoint = "http://x:1"', "must be tcp://HOST:PORT or ipc://PATH"),
                        ('endpoint = "tcp://*:5557"', "needs bind = true"),
                        ('endpoint = "tcp://h:65535"\ndp_ranks = 2', "above 65535"),
                        ('endpoint = "tcp://h:1"\nreplay_endpoint = "tcp://h"', "replay_endpoint: must be tcp://"),
                        ('topic = "x"', "endpoint")):
        gateway = Gateway(base % keys).start()
        assert gateway.wait() == 1
        assert fault in gateway.stderr, (keys, gateway.stderr)
        gateway._clean()
