# SPDX-License-Identifier: Apache-2.0
"""What the tests of the semantic cache share: a provider of embeddings, by default identical for every input, so that
each miss is the work of the partition, of a bypass or of the guard, and each hit shows that these do not split too much.
"""

import math

from cache_rig import PRICES, caching
from harness import wait_until
from upstream import metric

EMBED_PRICES = '[[model_prices]]\nmodel = "embed"\ninput_per_mtok = 500000\noutput_per_mtok = 0\n'
SAME = [0.25, -0.5, 1.0, 0.125]


class Vectors:
    """Answers POST /v1/embeddings. <vector>(text): its numbers; <answer>(call): does it all."""

    def __init__(self, new_upstream, vector=lambda text: SAME, answer=None):
        self.vector, self.own = vector, answer
        self.upstream = new_upstream(self.answer, "embed")

    def answer(self, call):
        if self.own:
            self.own(call)
            return
        self.give(call)

    def give(self, call, vector=None):
        body = call.json()
        assert set(body) == {"model", "input"} and body["model"] == "embed"
        call.reply(200, {"object": "list", "model": "embed", "usage": {"prompt_tokens": 7, "total_tokens": 7},
                         "data": [{"object": "embedding", "index": 0,
                                   "embedding": vector or self.vector(body["input"])}]})

    @property
    def count(self):
        return len(self.upstream.calls)

    @property
    def texts(self):
        return [call.json()["input"] for call in self.upstream.calls]


def semantic(upstream, vectors, keys="", route="", cache="", more="", **options):
    """A caching route over <upstream> whose texts <vectors> embeds; <keys>: more of [routes.cache.semantic]."""
    url = vectors if isinstance(vectors, str) else vectors.upstream.url
    table = f'\n[routes.cache.semantic]\nprovider = "emb"\nmodel = "embed"\n{keys}\n'
    provider = f'[[providers]]\nname = "emb"\nkind = "openai_compatible"\napi_base = "{url}"\n'
    return caching([upstream.upstream], route=route + table, cache=cache, more=PRICES + EMBED_PRICES + provider + more, **options)


def bag(text, dims=64):
    """Vectors of words: texts with the same words are near."""
    out = [0.0] * dims
    for word in text.lower().replace("?", " ").split():
        seed = sum(ord(c) * (i + 7) for i, c in enumerate(word))
        for k in range(dims):
            out[k] += math.sin(seed * (k + 1) * 0.7)
    return out


PROBE = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}


def connected(gateway, headers=None):
    """Waits until a lookup of the gateway reaches Redis. Asks neither the upstream nor for an embedding."""
    name = metric("rolter_cache_redis_total", result="miss")
    before = gateway.metrics()[name]

    def reached():
        assert gateway.post("/v1/messages", PROBE, {"cache-control": "only-if-cached", **(headers or {})}).status == 504
        return gateway.metrics()[name] > before
    wait_until(reached, "Redis behind the gateway")
