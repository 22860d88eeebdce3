# SPDX-License-Identifier: Apache-2.0
"""rolter-sim's KV events, read with pyzmq and msgpack, and the faults that concern its cache."""

import struct
import threading
import time

import msgpack
import pytest
import zmq

from harness import chat, wait_until

CHAT = "/v1/chat/completions"
LONG = "Tell me a long story about a lighthouse keeper who counts the ships that pass. " * 6
END = b"\xff" * 8
BLOCK = 16
PORT = "tcp://127.0.0.1:*"


class Subscriber:
    """What a subscriber sees: decoded batches, in order."""

    def __init__(self, context, sim, topic=b""):
        self.sim = sim
        self.socket = context.socket(zmq.SUB)
        self.socket.subscribe(topic)
        before = sim.stats()["events"]
        self.missed = before["batches"]
        self.socket.connect(before["endpoint"])
        self.batches = []
        self.wait_subscribed(before["subscriptions"] + 1)

    def wait_subscribed(self, n=1):
        def look():
            self.poll()  # a socket that connects again subscribes when it is used
            return self.sim.stats()["events"]["subscriptions"] == n
        wait_until(look, f"{n} subscriptions")

    def poll(self, milliseconds=0):
        while self.socket.poll(milliseconds):
            self.batches.append(Batch(self.socket.recv_multipart()))
        return self.batches

    def wait(self, n):
        wait_until(lambda: len(self.poll()) >= n, f"{n} batches")
        return self.batches

    def events(self):
        """Waits for all that was published."""
        counts = self.sim.stats()["events"]
        self.wait(counts["batches"] - counts["dropped"] + counts["duplicated"] - self.missed)
        return [event for batch in self.batches for event in batch.events]


class Batch:
    def __init__(self, frames):
        self.topic, seq, self.payload = frames
        self.seq, = struct.unpack(">Q", seq)

    @property
    def body(self):
        return msgpack.unpackb(self.payload)

    @property
    def events(self):
        return self.body[1]


@pytest.fixture
def context():
    context = zmq.Context()
    context.setsockopt(zmq.LINGER, 0)
    context.setsockopt(zmq.RCVTIMEO, 15000)
    yield context
    context.destroy(linger=0)


@pytest.fixture
def publish(new_sim, context):
    """publish(options): a sim with events, and a subscriber that is connected."""
    def make(topic=b"", **options):
        sim = new_sim(**{"events": PORT, "events_replay": PORT, "model": "m", "tokens": 40, **options})
        return sim, Subscriber(context, sim, topic)
    return make


def stored_of(events):
    return [event for event in events if event["type"] == "BlockStored"]


def replay(context, sim, start=0, delimiter=True, socket_type=zmq.DEALER):
    """What a replay gives: lists of frames without the delimiter, the end marker included."""
    socket = context.socket(socket_type)
    socket.connect(sim.stats()["events"]["replay_endpoint"])
    socket.send_multipart(([b""] if delimiter else []) + [struct.pack(">Q", start)])
    replies = []
    while not replies or END not in replies[-1]:
        frames = socket.recv_multipart()
        assert frames[0] == b""
        replies.append(frames[1:])
    socket.close()
    return replies


def test_events_are_the_blocks_of_what_was_asked(publish):
    sim, subscriber = publish()
    body = chat(LONG)
    prompt = sim.post("/tokenize", body).json()["tokens"]
    reply = sim.post(CHAT, body).json()
    events = subscriber.events()
    assert {event["type"] for event in events} == {"BlockStored"}
    tokens, hashes = [], []
    for event in events:
        assert event["parent_block_hash"] == (hashes[-1] if hashes else None)
        assert event["block_size"] == BLOCK and event["medium"] == "GPU"
        assert event["lora_id"] is None and event["lora_name"] is None
        assert event["extra_keys"] == [None] * len(event["block_hashes"])
        assert event["group_idx"] == 0 and event["kv_cache_spec_kind"] == "full_attention"
        assert len(event["token_ids"]) == BLOCK * len(event["block_hashes"])
        tokens += event["token_ids"]
        hashes += event["block_hashes"]
    computed = len(prompt) + reply["usage"]["completion_tokens"] - 1
    assert len(tokens) == computed // BLOCK * BLOCK and len(set(hashes)) == len(hashes)
    assert tokens[:len(prompt)] == prompt[:len(tokens)]
    # The reply, tokenized in the next turn, is what the engine has announced.
    turns = [("user", LONG), ("assistant", reply["choices"][0]["message"]["content"]), ("user", "more")]
    longer = sim.post("/tokenize", chat(turns)).json()["tokens"]
    assert longer[:len(tokens)] == tokens
    # A follow-up brings only what is new.
    sim.post(CHAT, chat(turns))
    more = stored_of(subscriber.events())[len(events):]
    assert more[0]["parent_block_hash"] == hashes[-1]
    assert more[0]["token_ids"][:len(longer) - len(tokens)] == longer[len(tokens):]
    assert [batch.seq for batch in subscriber.batches] == list(range(len(subscriber.batches)))
    assert all(batch.body[2] == 0 and abs(batch.body[0] - time.time()) < 60 for batch in subscriber.batches)


def test_the_topic_filters(publish, context):
    sim, subscriber = publish(topic=b"kv-", events_topic="kv-events")
    other = Subscriber(context, sim, b"other")
    sim.post(CHAT, chat(LONG))
    assert subscriber.events() and {batch.topic for batch in subscriber.batches} == {b"kv-events"}
    assert other.poll() == []


def test_eviction_and_reset(publish):
    sim, subscriber = publish(blocks=64)
    resident = set()
    for i in range(12):
        sim.post(CHAT, chat(f"{i} {LONG}"))
    events = subscriber.events()
    removed = 0
    for event in events:
        if event["type"] == "BlockStored":
            assert resident.isdisjoint(event["block_hashes"])
            resident.update(event["block_hashes"])
        else:
            assert event["type"] == "BlockRemoved" and event["medium"] == "GPU" and event["group_idx"] == 0
            [gone] = event["block_hashes"]
            resident.remove(gone)
            removed += 1
    assert removed > 50 and len(resident) == sim.stats()["blocks_resident"]
    n = len(events)
    sim.post("/reset_prefix_cache", {})
    assert subscriber.events()[n:] == [{"type": "AllBlocksCleared"}]


def test_adapters_and_salts(publish):
    sim, subscriber = publish(lora=["french", "german"])
    models = {model["id"]: model["parent"] for model in sim.get("/v1/models").json()["data"]}
    assert models == {"m": None, "french": "m", "german": "m"}
    base, german, salted = (chat(LONG), chat(LONG, "german"), {**chat(LONG), "cache_salt": "pepper"})
    hashes = []
    for body in (base, german, salted):
        n = len(subscriber.events())
        assert sim.post(CHAT, body).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        first = stored_of(subscriber.events())[n]
        blocks = len(first["block_hashes"])
        hashes.append(first["block_hashes"][0])
        is_german, is_salted = body is german, body is salted
        assert first["lora_name"] == ("german" if is_german else None)
        assert first["lora_id"] == (2 if is_german else None)
        assert first["extra_keys"][0] == (["german"] if is_german else ["pepper"] if is_salted else None)
        assert first["extra_keys"][1:] == [["german"] if is_german else None] * (blocks - 1)
    assert len(set(hashes)) == 3


def as_map(event, vllm):
    """An event of the array form under the names of the map form."""
    names = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"]
    if event[0] == "BlockRemoved":
        names = ["block_hashes", "medium"] + (["group_idx"] if vllm else [])
    elif vllm:
        names += ["lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"]
    assert len(event) == 1 + len(names)
    return {"type": event[0], **dict(zip(names, event[1:]))}


@pytest.mark.parametrize("style", ["vllm-array", "sglang-map", "sglang-array"])
def test_other_formats_say_the_same(publish, style):
    sims = [publish(blocks=40), publish(blocks=40, events_format=style)]
    said = []
    for sim, subscriber in sims:
        for i in range(4):
            sim.post(CHAT, chat(f"{i} {LONG}"))
        said.append(subscriber.events())
    expected, got = said
    if style.endswith("array"):
        got = [as_map(event, style.startswith("vllm")) for event in got]
    for event in got:
        if style == "vllm-array":
            assert event.pop("kv_cache_spec_sliding_window", None) is None
    if style.startswith("sglang"):
        signed = [h for event in got for h in event["block_hashes"]]
        assert min(signed) < 0 and max(signed) < 2**63
        for event in got:
            event["block_hashes"] = [h % 2**64 for h in event["block_hashes"]]
            if event.get("parent_block_hash"):
                event["parent_block_hash"] %= 2**64
        for event in expected:
            for name in ("lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"):
                event.pop(name, None)
    assert got == expected


def test_salts_of_sglang_and_its_greeting(publish, context):
    for style, last in (("sglang-array", {"cache_salt": "pepper"}), ("sglang-map", None)):
        sim, subscriber = publish(events_format=style)
        sim.post(CHAT, {**chat(LONG), "cache_salt": "pepper"})
        wait_until(lambda: subscriber.poll(), "events")
        event = subscriber.batches[-1].events[0]
        assert (event[-1] == last and len(event) == 8) if last else event["cache_salt"] == "pepper"
        first = replay(context, sim)[0]
        [clear] = Batch([b"", *first]).events
        assert first[0] == struct.pack(">Q", 0) and clear in (["AllBlocksCleared"], {"type": "AllBlocksCleared"})


def test_hashes_as_bytes(publish):
    sims = [publish(), publish(events_hash_bytes=True)]
    numbers, digests = [[h for event in subscriber.events() for h in event["block_hashes"]]
                        for sim, subscriber in sims if sim.post(CHAT, chat(LONG)).status == 200]
    assert all(len(digest) == 32 for digest in digests)
    assert [int.from_bytes(digest[-8:], "big") for digest in digests] == numbers


@pytest.mark.parametrize("topic", [False, True])
def test_replay(publish, context, topic):
    sim, subscriber = publish(events_replay_topic=topic, events_topic="t")
    for i in range(5):
        sim.post(CHAT, chat(f"{i} {LONG}"))
    subscriber.events()
    live = [(batch.seq, batch.payload) for batch in subscriber.batches]
    assert len(live) >= 5
    for start in (0, 3, len(live), 10**9):
        *replies, end = replay(context, sim, start)
        assert end == ([b""] if topic else []) + [END, b""]
        assert all(reply[:-2] == ([b"t"] if topic else []) for reply in replies)
        assert [(struct.unpack(">Q", reply[-2])[0], reply[-1]) for reply in replies] == live[start:]
    # A REQ gets one reply a request, and no more: what replays are not for.
    assert len(live) > 2
    request = context.socket(zmq.REQ)
    request.connect(sim.stats()["events"]["replay_endpoint"])
    request.send(struct.pack(">Q", 1))
    assert request.recv_multipart()[-1] == live[1][1]
    # What is no request gets no answer, and harms nobody.
    for frames in ([b"x"], [b"", b"1234567"], [b"", struct.pack(">Q", 0), b"more"]):
        strange = context.socket(zmq.DEALER)
        strange.connect(sim.stats()["events"]["replay_endpoint"])
        strange.send_multipart(frames)
    assert len(replay(context, sim)) == len(live) + 1


def test_the_replay_buffer_is_bounded(publish, context):
    sim, subscriber = publish(events_keep=3)
    for i in range(6):
        sim.post(CHAT, chat(f"{i} {LONG}"))
    subscriber.events()
    n = len(subscriber.batches)
    *replies, _ = replay(context, sim)
    assert [struct.unpack(">Q", reply[0])[0] for reply in replies] == [n - 3, n - 2, n - 1]
    sim.faults(events_keep=0)
    assert len(replay(context, sim)) == 1


def test_faults_of_the_stream(publish, context):
    sim, subscriber = publish(events_drop_every=3)
    for i in range(9):
        sim.post(CHAT, chat(f"{i} {LONG}"))
    subscriber.events()
    seqs = [batch.seq for batch in subscriber.batches]
    assert seqs[:5] == [0, 1, 3, 4, 6]
    assert len(replay(context, sim)) - 1 == sim.stats()["events"]["batches"]  # a replay fills the gaps
    sim.faults(events_drop_every=0, events_malformed_every=1)
    n = len(subscriber.batches)
    sim.post(CHAT, chat(f"malformed {LONG}"))
    wait_until(lambda: len(subscriber.poll()) > n, "the malformed batch")
    with pytest.raises(ValueError):
        msgpack.unpackb(subscriber.batches[n].payload)
    sim.faults(events_malformed_every=0, events_duplicate_every=1)
    n = len(subscriber.poll())
    sim.post(CHAT, chat(f"twice {LONG}"))
    wait_until(lambda: len(subscriber.poll()) >= n + 2, "both copies")
    first, second = subscriber.batches[n:n + 2]
    assert (first.seq, first.payload) == (second.seq, second.payload)


def test_a_restart_begins_with_number_0(publish, context):
    sim, subscriber = publish()
    sim.post(CHAT, chat(LONG))
    subscriber.events()
    n = len(subscriber.batches)
    assert n
    endpoints = sim.stats()["events"]
    sim.restart()
    after = sim.stats()["events"]
    assert (after["endpoint"], after["replay_endpoint"]) == (endpoints["endpoint"], endpoints["replay_endpoint"])
    assert after["batches"] == 0 and len(replay(context, sim)) == 1
    subscriber.wait_subscribed()  # the socket connects again by itself
    sim.post(CHAT, chat(LONG))
    wait_until(lambda: len(subscriber.poll()) > n, "a batch after the restart")
    assert subscriber.batches[n].seq == 0
    assert subscriber.batches[n].events[0]["parent_block_hash"] is None


def test_numbers_may_begin_anew_without_a_restart(publish):
    sim, subscriber = publish()
    sim.post(CHAT, chat(f"a {LONG}"))
    n = len(subscriber.events())
    resident = sim.stats()["blocks_resident"]
    assert sim.post("/sim/restart-events", {}).status == 200
    assert sim.stats()["blocks_resident"] == resident
    sim.post(CHAT, chat(f"b {LONG}"))
    assert len(subscriber.events()) > n
    assert [batch.seq for batch in subscriber.batches].count(0) == 2


def test_it_connects_when_the_endpoint_is_somebody_elses(new_sim, context):
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"")
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    sim = new_sim(events=f"tcp://127.0.0.1:{port}")
    def arrived():
        sim.post(CHAT, chat(f"{time.monotonic()} {LONG}"))
        return socket.poll(10)
    wait_until(arrived, "events")
    assert Batch(socket.recv_multipart()).events[0]["type"] == "BlockStored"


# ---- faults of the cache

def cached(sim, text=LONG):
    usage = sim.post(CHAT, chat(text)).json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_silent_restart(publish):
    sim, subscriber = publish()
    cached(sim)
    assert cached(sim) > 0
    events, before, stats = len(subscriber.events()), sim.metrics(), sim.stats()
    assert sim.post("/sim/silent-restart", {}).status == 200
    now = sim.metrics()
    told = {name for name in now if now[name] != before[name]}
    assert told == {"lmcache_mp_l1_usage_ratio"}
    assert sim.stats() == {**stats, "blocks_resident": 0} and len(subscriber.events()) == events
    assert cached(sim) == 0


def test_resize(publish):
    sim, subscriber = publish(blocks=400, told_blocks=400)
    texts = [f"{i} {LONG}" for i in range(10)]
    for text in texts:
        cached(sim, text)
    assert all(cached(sim, text) > 0 for text in texts)
    sim.faults(blocks=60)
    stats = sim.stats()
    assert stats["blocks"] == 60 and stats["blocks_resident"] <= 60
    assert 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="400"}' in sim.metrics()
    assert sum(cached(sim, text) > 0 for text in texts) < 3
    sim.faults(blocks=4000, told_blocks=0)
    assert 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="4000"}' in sim.metrics()
    for text in texts:
        cached(sim, text)
    assert all(cached(sim, text) > 0 for text in texts)
    resident = set()
    for event in subscriber.events():
        for h in event["block_hashes"]:
            (resident.add if event["type"] == "BlockStored" else resident.remove)(h)
    assert len(resident) == sim.stats()["blocks_resident"]


def test_a_waiting_request_that_fits_no_longer_is_refused(new_sim, context):
    sim = new_sim(blocks=400, max_running=1, decode_tps=20)
    replies = []
    waiting = threading.Thread(target=lambda: replies.append(sim.post(CHAT, chat(LONG * 5))))
    with sim.stream(CHAT, chat("short", stream=True, max_tokens=200, ignore_eos=True)) as running:
        running.next()
        waiting.start()
        sim.wait_stats(running=1, waiting=1)
        sim.faults(blocks=20)
        waiting.join()
        assert replies[0].status == 400
        sim.wait_stats(running=1, waiting=0)


def test_another_template(publish):
    sim, _ = publish()
    body = chat(LONG)
    ids = {}
    for n in (0, 3, 4):
        sim.faults(template_tokens=n)
        ids[n] = sim.post("/tokenize", body).json()["tokens"]
        assert ids[n][n:] == ids[0]
        assert cached(sim) == 0 and cached(sim) > 0
    assert ids[4][:3] != ids[3][:3]
    sim.faults(template_tokens=0)
    plain = sim.post("/tokenize", {"prompt": LONG}).json()["tokens"]
    sim.faults(template_tokens=3)
    assert sim.post("/tokenize", {"prompt": LONG}).json()["tokens"] == plain  # a bare prompt has no template


# ---- LMCache's signal

def test_lmcache(sim):
    assert sim.get("/lmcache").json() == {"occupancy": 0, "cache_available": True}
    sim.post(CHAT, chat(LONG))
    stats = sim.stats()
    occupancy = sim.get("/lmcache").json()["occupancy"]
    assert occupancy == pytest.approx(stats["blocks_resident"] / stats["blocks"])
    assert sim.metrics()["lmcache_mp_l1_usage_ratio"] == pytest.approx(occupancy)
    sim.faults(lmcache_occupancy="1.7")
    assert sim.get("/lmcache").json() == {"occupancy": 1.7, "cache_available": True}
    assert sim.metrics()["lmcache_mp_l1_usage_ratio"] == 1.7
    sim.faults(lmcache_body="{", lmcache_status=503)
    reply = sim.get("/lmcache")
    assert (reply.status, reply.text()) == (503, "{")
    sim.faults(lmcache_body=None, lmcache_status=200, lmcache_occupancy=None, lmcache_stall=True)
    with pytest.raises(TimeoutError):
        sim.request("GET", "/lmcache", timeout=0.2)
    sim.faults(lmcache_stall=False)
    assert sim.get("/lmcache").json()["occupancy"] == occupancy
