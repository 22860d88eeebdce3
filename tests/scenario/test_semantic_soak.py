# SPDX-License-Identifier: Apache-2.0
"""The semantic cache while everything goes wrong: embeddings that fail and come late, upstreams that fail, clients that
leave, purges, reloads, a Redis that freezes and restarts. Whatever answers, it answers the question that was asked."""

import json
import random
import socket
import threading
import time

import pytest

from cache_rig import PATH, stream_answer
from harness import chat, request
from redis_server import RedisServer
from semantic_rig import Vectors, bag, semantic
from test_admin import admin_of
from upstream import chat_reply, wait_idle

WORDINGS = ["what is the answer to question {}", "What is the answer to question {}?", "what is question {} 's answer",
            "tell me the answer to question {}"]
THREADS, EACH, QUESTIONS = 8, 60, 12


class Model:
    """Answers with the number that was asked for; now and then not."""

    def __init__(self, new_upstream):
        self.upstream = new_upstream(self.answer)

    def answer(self, call):
        body, luck = call.json(), random.random()
        number = next(w for w in body["messages"][-1]["content"].replace("?", "").split() if w.isdigit())
        if luck < 0.05:
            call.reply(503, {"error": {}})
        elif luck < 0.08:
            call.reset()
        else:
            time.sleep(random.random() * 0.04 if luck < 0.4 else 0)
            if body.get("stream"):
                stream_answer(call, ["the answer ", "to ", number])
            else:
                call.reply(200, chat_reply("the answer to " + number))


def text_of(reply, stream):
    if not stream:
        return reply.json()["choices"][0]["message"]["content"]
    events = [json.loads(line[6:]) for line in reply.body.decode().split("\n") if line.startswith("data: {")]
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events)


class Client(threading.Thread):
    def __init__(self, gateway, admin, seed):
        super().__init__()
        self.gateway, self.admin, self.rng = gateway, admin, random.Random(seed)
        self.wrong, self.kinds = [], set()

    def run(self):
        for _ in range(EACH):
            number, stream = self.rng.randrange(QUESTIONS), self.rng.random() < 0.5
            text = self.rng.choice(WORDINGS).format(number).replace(" ", " " * self.rng.randrange(1, 4))
            body = chat(text, **({"stream": True} if stream else {}))
            if self.rng.random() < 0.1:
                self.leave(json.dumps(body).encode())
                continue
            control = self.rng.choice([None, None, None, {"cache-control": "no-cache"}, {"cache-control": "max-age=1"}])
            reply = self.gateway.post(PATH, body, control)
            self.kinds.add(reply.headers.get("x-rolter-cache-kind"))
            if reply.status == 200 and text_of(reply, stream) != f"the answer to {number}":
                self.wrong.append((text, dict(reply.headers), reply.body))
            if self.rng.random() < 0.2:
                asked = {"body": body, "embed": self.rng.random() < 0.5}
                assert request("POST", self.admin + "/cache/explain", json.dumps(asked).encode()).status == 200
                request("GET", f"{self.admin}/cache/explain?request_id={reply.headers['x-request-id']}")

    def leave(self, body):
        with socket.create_connection(("127.0.0.1", self.gateway.port)) as s:
            s.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                      % (PATH.encode(), len(body), body))
            time.sleep(self.rng.random() * 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("lookup", ["wait", "race"])
@pytest.mark.parametrize("shared", [False, True], ids=["memory", "redis"])
def test_everything_goes_wrong_by_meaning(new_upstream, new_gateway, lookup, shared):
    rng = random.Random(f"{lookup} {shared}")

    def embed(call):
        luck = random.random()
        if luck < 0.05:
            call.reply(500, {})
        elif luck < 0.07:
            call.reset()
        else:
            time.sleep(random.random() * 0.02 if luck < 0.5 else 0)
            vectors.give(call)

    model, vectors = Model(new_upstream), Vectors(new_upstream, bag, embed)
    redis = RedisServer() if shared else None

    def config():
        return semantic(
            model, vectors, f'guard = "lexical"\nlookup = "{lookup}"\nthreshold = 0.8\nshadow_ratio = {rng.choice([0, 0.3])}\n'
            f"embedding_timeout_ms = {rng.choice([5, 500])}",
            route=f"ttl_secs = {rng.choice([1, 3])}\nstale_while_revalidate_secs = {rng.choice([0, 2])}\n"
            f"stale_if_error_secs = {rng.choice([0, 5])}\ncoalesce = {rng.choice(['true', 'false'])}\n",
            more=(f'[redis]\nurl = "{redis.url}"\n' if redis else "") + "[admin]\nport = 0\n[retry]\nbase_backoff_ms = 1\n"
            "[cooldown]\nbase_secs = 0\n[breaker]\nenabled = false\n[server]\nport = 0\nworkers = 2\n")

    gateway = new_gateway(config(), rows=True)
    admin = admin_of(gateway)
    clients = [Client(gateway, admin, f"{lookup} {shared} {i}") for i in range(THREADS)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        time.sleep(0.1)
        if rng.random() < 0.2:
            gateway.reload(config())
        if rng.random() < 0.15:
            request("POST", admin + "/cache/purge", b'{"all": true}')
        if redis and rng.random() < 0.1:
            redis.restart()
        if redis and rng.random() < 0.1:
            redis.freeze()
            time.sleep(0.1)
            redis.thaw()
    assert [wrong for client in clients for wrong in client.wrong] == []
    assert "exact" in set().union(*(client.kinds for client in clients))
    wait_idle(gateway)
    if redis:
        redis.close()
