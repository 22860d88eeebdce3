# SPDX-License-Identifier: Apache-2.0
"""An engine's publisher of KV-cache events: real ZeroMQ sockets, msgpack from python3-msgpack.

Batches and events in the forms of vLLM 0.10 to 0.31 and of SGLang. Hashes are the publisher's own business: here they
are made of the tokens, so that two publishers agree only when their seeds do.
"""

import struct
import threading
import zlib

import msgpack
import zmq

from harness import DEADLINE, free_port, wait_until

END = b"\xff" * 8


def number(n):
    return struct.pack(">Q", n)


def block_hash(before, tokens, seed=0):
    return zlib.crc32(repr((before, tokens, seed)).encode()) << 20 | len(tokens)


class Blocks:
    """A prompt in blocks of <size>, with their hashes."""

    def __init__(self, tokens, size=4, before=None, seed=0):
        self.tokens, self.size, self.before = list(tokens), size, before
        self.hashes = []
        for i in range(0, len(self.tokens) // size * size, size):
            before = block_hash(before, tuple(self.tokens[i:i + size]), seed)
            self.hashes.append(before)


def stored_map(blocks, **more):
    return {"type": "BlockStored", "block_hashes": blocks.hashes, "parent_block_hash": blocks.before,
            "token_ids": blocks.tokens[:len(blocks.hashes) * blocks.size], "block_size": blocks.size, "lora_id": None,
            "medium": "GPU", "lora_name": None, "extra_keys": [None] * len(blocks.hashes), "group_idx": 0,
            "kv_cache_spec_kind": "full_attention", **more}


def removed_map(hashes, **more):
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", "group_idx": 0, **more}


CLEARED_MAP = {"type": "AllBlocksCleared"}


def stored_array(blocks, slots=10):
    """As many slots behind the tag as the version had: 5 (0.9), 6 (0.10), 7 (0.13), 8, 9, 11 (0.22)."""
    return ["BlockStored", blocks.hashes, blocks.before, blocks.tokens[:len(blocks.hashes) * blocks.size], blocks.size,
            None, "GPU", None, [None] * len(blocks.hashes), 0, "full_attention", None][:slots + 1]


def removed_array(hashes):
    return ["BlockRemoved", hashes, "GPU"]


class Publisher:
    """Publishes on a port of its own, or to a <connect>ed address. With <replay>: serves what it has published, the
    last <keep> batches, in the newer or the older layout."""

    def __init__(self, topic="kv-events", port=None, connect=None, replay=False, replay_port=None, first=0, keep=10000,
                 old_replay=False, holes=()):
        self.topic, self.next, self.keep, self.old_replay = topic.encode(), first, keep, old_replay
        self.holes = set(holes)  # numbers that the first replay loses on the way
        self.kept = []
        self.rounds = []  # what was asked for
        self.lock = threading.Lock()
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)  # like PUB on the wire, and tells when somebody subscribes
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # each of them
        self.socket.linger = 0
        self.socket.sndhwm = 100000
        if connect:
            self.socket.connect(connect)
        else:
            self.port = port or free_port()
            self.endpoint = f"tcp://127.0.0.1:{self.port}"
            self._bind(self.socket, self.endpoint)
        self.router = self.thread = None
        if replay:
            self.replay_port = replay_port or free_port()
            self.replay_endpoint = f"tcp://127.0.0.1:{self.replay_port}"
            self.router = self.context.socket(zmq.ROUTER)
            self.router.linger = 0
            self._bind(self.router, self.replay_endpoint)
            self.ending = threading.Event()
            self.thread = threading.Thread(target=self._serve, daemon=True)
            self.thread.start()

    @staticmethod
    def _bind(socket, endpoint):
        def bound():
            try:
                socket.bind(endpoint)
                return True
            except zmq.ZMQError:
                return False
        wait_until(bound, f"{endpoint} being free")

    def _serve(self):
        while not self.ending.is_set():
            if not self.router.poll(20):
                continue
            frames = self.router.recv_multipart()
            if len(frames) != 3 or frames[1] != b"":
                continue
            start = struct.unpack(">Q", frames[2])[0]
            with self.lock:
                self.rounds.append(start)
                kept = [x for x in self.kept if x[0] >= start]
                lost, self.holes = self.holes, set()
            head = [frames[0], b""] + ([] if self.old_replay else [self.topic])
            for n, payload in kept:
                if n not in lost:
                    self.router.send_multipart(head + [number(n), payload])
            self.router.send_multipart([frames[0], b""] + ([] if self.old_replay else [b""]) + [END, b""])

    def wait_subscriber(self):
        def subscribed():
            assert self.socket.poll(DEADLINE * 1000), "nobody subscribed"
            return self.socket.recv()[:1] == b"\x01"  # else somebody went
        wait_until(subscribed, "a subscription")
        return self

    def batch(self, events, rank=0, ts=1.5):
        return msgpack.packb([ts, list(events), rank])

    def publish(self, *events, lose=False, **more):
        """The next batch; with <lose> it never reaches anybody, but a replay has it."""
        return self.publish_bytes(self.batch(events, **more), lose)

    def publish_bytes(self, payload, lose=False):
        n, self.next = self.next, self.next + 1
        with self.lock:
            self.kept = (self.kept + [(n, payload)])[-self.keep:]
        if not lose:
            self.send(number(n), payload)
        return n

    def send(self, *frames):
        """Frames behind the topic, as they are."""
        self.socket.send_multipart([self.topic, *frames])

    def close(self):
        if self.thread:
            self.ending.set()
            self.thread.join()
            self.router.close()
        self.socket.close()
        self.context.term()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
