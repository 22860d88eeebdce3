# SPDX-License-Identifier: Apache-2.0
"""What the tests of the response cache share."""

from harness import chat
from upstream import chat_reply, fleet

PATH = "/v1/chat/completions"
PRICES = '[[model_prices]]\nmodel = "m"\ninput_per_mtok = 1000000\noutput_per_mtok = 2000000\n'


def caching(upstreams, route="", cache="", more="", **options):
    """One route over <upstreams> that caches; <route>: more of [routes.cache], <cache>: more of [cache]."""
    routed = f"\n[routes.cache]\n{route}\n"
    return fleet(upstreams, more=f"{routed}\n[cache]\nenabled = true\n{cache}\n{more}", **options)


class Counting:
    """Answers every request with its number, so that a wrong reply shows."""

    def __init__(self, new_upstream, **more):
        self.upstream = new_upstream(self.answer)
        self.more = more

    def answer(self, call):
        body = call.json()
        n = len(self.upstream.calls)
        if body.get("stream"):
            stream_answer(call, [f"number {n} ", "goes ", "on"])
        else:
            call.reply(200, chat_reply(f"number {n}"), **self.more)

    @property
    def count(self):
        return len(self.upstream.calls)


def chunk(text=None, finish=None, **more):
    delta = {} if text is None else {"content": text}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def stream_answer(call, texts, finish="stop", done=True, usage=None):
    call.begin_events()
    for text in texts:
        call.event(chunk(text))
    if finish:
        call.event(chunk(None, finish))
    if usage:
        call.event({**chunk(), "choices": [], "usage": usage})
    if done:
        call.event("[DONE]")
    call.end()


def ask(gateway, text="hello", headers=None, **more):
    reply = gateway.post(PATH, chat(text, **more), headers)
    return reply


def kind(reply):
    """("hit", "exact"), ("miss", None)..."""
    return reply.headers.get("x-rolter-cache"), reply.headers.get("x-rolter-cache-kind")
