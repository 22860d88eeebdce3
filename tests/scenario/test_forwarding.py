# SPDX-License-Identifier: Apache-2.0
"""What goes up and what comes down: bytes, model, params, headers, addresses, upstream keys, dialects."""

import json

import pytest

from harness import chat, messages, wait_until
from upstream import chat_reply, fleet, metric

CHAT = "/v1/chat/completions"


def provider(url, name="p0", kind="openai_compatible", more=""):
    return f'[[providers]]\nname = "{name}"\nkind = "{kind}"\napi_base = "{url}"\n{more}\n\n'


def one(upstream, model=None, route="", more="", kind="openai_compatible", own=""):
    to = f', model = "{model}"' if model else ""
    return (provider(upstream.url, kind=kind, more=own) +
            f'[[routes]]\nmodel = "m"\n{route}\ntargets = [{{ provider = "p0"{to} }}]\n\n{more}\n')


ODD = (b'\r\n\t{ "z" : 1 ,\n"model":"m", "a" :[ 1.0, 1e5,-0, 12345678901234567890, 0.1000 ],\t"dup":1,"dup":2,'
       b'"esc":"\\u00e9\\/\\ud83d\\ude00 \xc3\xa9","messages" : [ {"content":"\\n", "role":"user"} ] , "": null }  \n')


def test_untouched_bytes(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream))
    for body in (ODD, ODD.replace(b'"m"', b'"\\u006d"')):
        assert gateway.post(CHAT, body).status == 200
    assert upstream.calls[0].body == ODD
    # The same name in another spelling is the same name: nothing changes.
    assert upstream.calls[1].body == ODD.replace(b'"m"', b'"\\u006d"')


@pytest.mark.parametrize("name", ["other", "a much longer name of the model", "ü\\\"\\\\x", "x"])
def test_only_the_model_changes(new_upstream, new_gateway, name):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, name.replace("ü", "\\u00fc")))
    reply = gateway.post(CHAT, ODD)
    assert reply.status == 200
    body = upstream.calls[0].body
    assert upstream.calls[0].json()["model"] == name.replace('\\"', '"').replace("\\\\", "\\")
    before, after = ODD.split(b'"m"')
    assert body.startswith(before) and body.endswith(after)
    assert reply.headers["x-rolter-model"] == "m"


def test_members_called_model_elsewhere_stay(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, "up"))
    body = b'{"metadata":{"model":"m"},"model":"m","messages":[{"model":"m"}]}'
    assert gateway.post(CHAT, body).status == 200
    assert upstream.calls[0].body == b'{"metadata":{"model":"m"},"model":"up","messages":[{"model":"m"}]}'


def test_two_models_are_refused(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream))
    for body in (b'{"model":"m","model":"m"}', b'{"model":"m","mod\\u0065l":"x"}'):
        reply = gateway.post(CHAT, body)
        assert reply.status == 400 and reply.json()["error"]["param"] == "model"
    assert not upstream.calls


def test_params_are_defaults(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, route='params = { temperature = 0.25, seed = 7, stop = ["a", "b"], '
                                              'nested = { x = true }, _rolter_complexity = { a = 1 }, model = "no" }'))
    assert gateway.post(CHAT, b'{ "model" : "m", "seed": 9 }').status == 200
    assert gateway.post(CHAT, b'{"model":"m"}').status == 200
    assert gateway.post(CHAT, b'{"model":"m","temperature":null,"seed":1,"stop":"x","nested":1}').status == 200
    first, second, third = upstream.calls
    assert first.json() == {"model": "m", "seed": 9, "temperature": 0.25, "stop": ["a", "b"], "nested": {"x": True}}
    assert first.body.startswith(b'{ "model" : "m", "seed": 9')
    assert second.json()["seed"] == 7
    assert third.body == b'{"model":"m","temperature":null,"seed":1,"stop":"x","nested":1}'


@pytest.mark.parametrize("policy, kept", [
    ('mode = "allow"', {"a", "b", "c"}), ('mode = "allow"\ndeny = ["a"]', {"b", "c"}),
    ('mode = "deny"\nallow = ["a"]', {"a"}), ('mode = "deny"', set())])
def test_param_policy(new_upstream, new_gateway, policy, kept):
    """A denied value loses to the default; what has no default is the caller's business."""
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, route="params = { a = 1, b = 1, c = 1 }",
                              more="") + f"\n[routes.param_policy]\n{policy}\n")
    assert gateway.post(CHAT, {"model": "m", "a": 2, "b": 2, "c": 2, "free": 2}).status == 200
    sent = upstream.calls[0].json()
    assert {k for k in "abc" if sent[k] == 2} == kept and sent["free"] == 2
    assert all(sent[k] == 1 for k in "abc" if k not in kept)


def test_denied_duplicates_do_not_slip_through(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, route="params = { a = 1 }") + '[routes.param_policy]\nmode = "deny"\n')
    assert gateway.post(CHAT, b'{"a":2,"model":"m","a":3,"\\u0061":4}').status == 200
    pairs = json.loads(upstream.calls[0].body, object_pairs_hook=list)
    assert [v for k, v in pairs if k == "a"] in ([1], [1, 1], [1, 1, 1])


def test_address_by_provider(new_upstream, new_gateway):
    upstream, other = new_upstream(), new_upstream()
    gateway = new_gateway(provider(upstream.url, "Big One", more='slug = "big"') + provider(other.url, "p1") +
                          '[[routes]]\nmodel = "big/special"\ntargets = [{ provider = "p1" }]\n', rows=True)
    for asked, sent in (("big/gpt", "gpt"), ("big/org/gpt:1", "org/gpt:1"), ("big/\"q\"\\ü", "\"q\"\\ü")):
        reply = gateway.post(CHAT, chat("x", model=asked))
        assert reply.status == 200 and upstream.calls[-1].json()["model"] == sent
        assert reply.headers["x-rolter-provider"] == "Big One"
        row = gateway.row_of(reply)
        assert (row["model"], row["provider"], row["target"]) == (asked, "Big One", sent)
    # A route by that very name wins.
    assert gateway.post(CHAT, chat("x", model="big/special")).headers["x-rolter-provider"] == "p1"
    for unknown in ("Big One/gpt", "nobody/gpt", "big/", "big", "/", ""):
        reply = gateway.post(CHAT, chat("x", model=unknown))
        assert reply.status == 404 and reply.json()["error"]["code"] == "model_not_found", unknown


@pytest.mark.parametrize("base, path", [("", CHAT), ("/", CHAT), ("/v1", CHAT), ("/v1/", CHAT),
                                        ("/deep/er", "/deep/er" + CHAT), ("/deep/v1", "/deep" + CHAT),
                                        ("/v1beta", "/v1beta" + CHAT)])
def test_paths(new_upstream, new_gateway, base, path):
    upstream = new_upstream()
    gateway = new_gateway(provider(upstream.url + base) + '[[routes]]\nmodel = "m"\ntargets = [{ provider = "p0" }]\n')
    assert gateway.post(CHAT + "?a=1&b=%20&&c", chat("x")).status == 200
    assert upstream.calls[0].target == path + "?a=1&b=%20&&c"
    assert upstream.calls[0].headers["host"] == f"127.0.0.1:{upstream.port}"


@pytest.mark.parametrize("path, body", [
    (CHAT, chat("x")), ("/v1/completions", {"model": "m", "prompt": "x"}), ("/v1/messages", messages("x")),
    ("/v1/responses", {"model": "m", "input": "x"}), ("/v1/embeddings", {"model": "m", "input": ["x"]}),
    ("/v1/rerank", {"model": "m", "query": "x", "documents": ["a", "b"]})])
def test_every_endpoint(new_sim, new_gateway, path, body):
    sim = new_sim(name="one")
    gateway = new_gateway(one(sim), rows=True)
    through, direct = gateway.post(path, body), sim.post(path, body)
    assert through.status == direct.status == 200
    assert through.headers["content-type"] == direct.headers["content-type"]

    def same(value):
        return {k: v for k, v in value.items() if k not in ("id", "created", "created_at", "output", "usage")}
    assert same(through.json()) == same(direct.json())
    assert gateway.row_of(through)["path"] == path and gateway.row_of(through)["prompt_tokens"] > 0


# ---- headers

UP = [("Accept", "text/event-stream, */*;q=0.1"), ("User-Agent", "me/1"), ("anthropic-beta", "a,b"),
      ("anthropic-version", "2020-01-01"), ("OpenAI-Organization", "org"), ("openai-project", "p"),
      ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=b"),
      ("b3", "0"), ("X-B3-TraceId", "1"), ("X-Request-Id", "mine-1"), ("X-Forwarded-Mine", "yes"),
      ("Content-Type", "application/json; charset=utf-8")]
NOT_UP = [("Authorization", "Bearer client-secret"), ("X-Api-Key", "client-secret"), ("api-key", "client-secret"),
          ("Cookie", "a=b"), ("X-Rolter-Anything", "1"), ("x-rolter-vllm-token-ids", "1,2"), ("Keep-Alive", "timeout=5"),
          ("Proxy-Authorization", "Basic eA=="), ("TE", "trailers"), ("Upgrade", "h2c"), ("X-Custom", "1"),
          ("X-Session-Id", "s"), ("Origin", "http://evil"), ("Accept-Encoding", "gzip"), ("Forwarded", "for=1"),
          ("X-Listed", "hop"), ("anthropic-hop", "1")]


def test_request_headers(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, more='[client]\nforwarded_headers = ["x-FORWARDED-mine", "x-listed", '
                                             '"x-rolter-anything", "X-Rolter-Vllm-Token-Ids"]\n'
                                             'injected_headers = { "X-Team" = "blue", "x-region" = "eu", x-odd = "a \\"b\\" \\\\ ü" }\n'))
    headers = dict(UP + NOT_UP + [("Connection", "keep-alive, X-Listed, anthropic-hop")])
    assert gateway.post(CHAT, chat("x"), headers).status == 200
    got = upstream.calls[0].headers
    for name, value in UP:
        assert got.all(name) == [value], name
    for name, _ in NOT_UP:
        assert name not in got, name
    assert "client-secret" not in repr(got)
    assert got["x-team"] == "blue" and got["x-region"] == "eu"
    assert got["x-odd"].encode("latin-1").decode() == 'a "b" \\ ü'
    assert "transfer-encoding" not in got and got["content-length"] == str(len(upstream.calls[0].body))


def test_injected_headers_win(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, kind="anthropic", more='[client]\ninjected_headers = { "User-Agent" = "us", '
                                                               '"anthropic-version" = "1", "Content-Type" = "a/b" }\n'))
    for headers in ({}, {"user-agent": "them", "Anthropic-Version": "2"}):
        assert gateway.post("/v1/messages", messages("x"), headers).status == 200
        got = upstream.calls[-1].headers
        assert [got.all(n) for n in ("user-agent", "anthropic-version", "content-type")] == [["us"], ["1"], ["a/b"]]


def test_response_headers(new_upstream, new_gateway):
    down = [("X-Other", "1"), ("X-Other", "2"), ("Openai-Processing-Ms", "12"), ("Retry-After", "3"),
            ("anthropic-ratelimit-tokens-remaining", "99"), ("Content-Type", "application/json; odd"),
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("Server", "mine")]
    dropped = [("Set-Cookie", "a=b"), ("Connection", "X-Hop"), ("X-Hop", "1"),
               ("Keep-Alive", "timeout=5"), ("Proxy-Authenticate", "Basic"), ("Trailer", "x"), ("Upgrade", "h2c"),
               ("X-Rolter-Provider", "liar"), ("x-rolter-cache", "hit"), ("X-ROLTER-ODD", "1")]

    def answer(call):
        call.reply(200, chat_reply("x"), down + dropped + [("X-Request-Id", "theirs-1")])

    gateway = new_gateway(one(new_upstream(answer)), rows=True)
    reply = gateway.post(CHAT, chat("x"), {"x-request-id": "mine-1"})
    for name in {n for n, _ in down}:
        assert reply.headers.all(name) == [v for n, v in down if n == name], name
    for name, _ in dropped:
        assert name in ("Connection", "X-Rolter-Provider") or name not in reply.headers, name
    assert reply.headers.all("x-request-id") == ["mine-1"]
    assert reply.headers.all("x-upstream-request-id") == ["theirs-1"]
    assert reply.headers.all("x-rolter-provider") == ["p0"]
    assert gateway.row_of(reply)["upstream_request_id"] == "theirs-1"


@pytest.mark.parametrize("given, taken", [("a", True), ("x" * 128, True), ("!~", True), ("x" * 129, False),
                                          ("", False), ("two words", False), ("\xe9", False)])
def test_request_ids(new_upstream, new_gateway, given, taken):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream))
    for path in (CHAT, "/nowhere"):
        reply = gateway.post(path, chat("x"), {"x-request-id": given})
        [ident] = reply.headers.all("x-request-id")
        assert (ident == given) is taken
        if not taken:
            assert len(ident) == 36 and ident[14] == "4"
    assert upstream.calls[0].headers.all("x-request-id") != [""]


def test_name_of_the_request_id(new_upstream, new_gateway):
    """[client] request_id_header: in both directions."""
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, more='[client]\nrequest_id_header = "X-Correlation-Id"\n'
                                             'forwarded_headers = ["x-correlation-id"]\n'))
    reply = gateway.post(CHAT, chat("x"), {"x-correlation-id": "c-1", "x-request-id": "r-1"})
    assert reply.headers.all("x-correlation-id") == ["c-1"] == reply.headers.all("x-request-id")
    got = upstream.calls[0].headers
    assert got.all("x-correlation-id") == ["c-1"] == got.all("x-request-id")


# ---- upstream keys and kinds

def test_keys_of_kinds(new_upstream, new_gateway):
    upstream = new_upstream()
    text = "".join(provider(upstream.url, kind.replace("_", "-"), kind, 'api_key_env = "KEY_FOR_TEST"')
                   for kind in ("openai_compatible", "openai", "anthropic", "azure_openai", "ollama"))
    gateway = new_gateway(text, env={"KEY_FOR_TEST": "sk-test"})
    for slug, name, value in (("openai-compatible", "authorization", "Bearer sk-test"),
                              ("openai", "authorization", "Bearer sk-test"), ("anthropic", "x-api-key", "sk-test"),
                              ("azure-openai", "api-key", "sk-test"), ("ollama", "authorization", "Bearer sk-test")):
        reply = gateway.post("/v1/messages", messages("x", model=f"{slug}/m"),
                             {"Authorization": "Bearer client", "x-api-key": "client"})
        assert reply.status == 200, (slug, reply)
        got = upstream.calls[-1].headers
        assert got.all(name) == [value], slug
        assert [n for n in ("authorization", "x-api-key", "api-key") if n in got] == [name]
    assert "sk-test" not in gateway.stderr


def test_anthropic(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, kind="anthropic"))
    assert gateway.post("/v1/messages", messages("x")).status == 200
    assert gateway.post("/v1/messages", messages("x"), {"anthropic-version": "2024-01-01"}).status == 200
    assert [c.headers.all("anthropic-version") for c in upstream.calls] == [["2023-06-01"], ["2024-01-01"]]
    for path, body in ((CHAT, chat("x")), ("/v1/responses", {"model": "m", "input": "x"}),
                       ("/v1/embeddings", {"model": "m", "input": "x"})):
        reply = gateway.post(path, body)
        assert reply.status == 400 and reply.json()["error"]["code"] == "dialect_not_supported", path
    assert len(upstream.calls) == 2


def test_mixed_route_uses_who_speaks_the_dialect(new_upstream, new_gateway):
    a, b = new_upstream(), new_upstream()
    gateway = new_gateway(provider(a.url, "a", "anthropic") + provider(b.url, "b") +
                          '[[routes]]\nmodel = "m"\ntargets = [{ provider = "a" }, { provider = "b" }]\n')
    for _ in range(4):
        assert gateway.post(CHAT, chat("x")).headers["x-rolter-provider"] == "b"
    for _ in range(4):
        assert gateway.post("/v1/messages", messages("x")).status == 200
    assert len(a.calls) == 2 and len(b.calls) == 6


KEYS = 'api_keys = [{ key = "k-one" }, { key = "k-two" }]'


def used(upstream):
    return [c.headers["authorization"].removeprefix("Bearer ") for c in upstream.calls]


def test_several_keys_rotate(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(one(upstream, own=KEYS))
    for _ in range(8):
        assert gateway.post(CHAT, chat("x")).status == 200
    assert sorted(used(upstream)) == ["k-one"] * 4 + ["k-two"] * 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_told_once(new_upstream, new_gateway, monkeypatch, status):
    """An operator sees which key of which provider is refused, once and not for each request; never the key itself."""
    monkeypatch.setenv("KEY_FOR_TEST", "k-secret")
    refuses = True
    upstream = new_upstream(lambda call: call.reply(status, {"error": {}}) if refuses else call.reply(200, chat_reply("x")))
    config = one(upstream, own='api_key_env = "KEY_FOR_TEST"')
    gateway = new_gateway(config)
    for _ in range(6):
        assert gateway.post(CHAT, chat("x")).status == status
    gateway.reload_and_wait(config + "\n[queue]\nworkers = 9\n")
    assert gateway.post(CHAT, chat("x")).status == status
    refuses = False
    assert gateway.post(CHAT, chat("x")).status == 200
    told = [line for line in gateway.stderr.split("\n") if "KEY_FOR_TEST" in line]
    assert len(told) == 1 and told[0].endswith(f"warn provider p0 refuses key 1 (KEY_FOR_TEST) with status {status}")
    assert "k-secret" not in gateway.stderr


@pytest.mark.parametrize("status", [401, 429])
def test_a_spent_key_is_parked(new_upstream, new_gateway, status):
    def answer(call):
        if call.headers["authorization"] == "Bearer k-one":
            call.reply(status, {"error": {"message": "spent"}}, [("Retry-After", "60")])
        else:
            call.reply(200, chat_reply("x"))

    upstream = new_upstream(answer)
    gateway = new_gateway(one(upstream, own=KEYS), rows=True)
    replies = [gateway.post(CHAT, chat("x")) for _ in range(10)]
    assert {r.status for r in replies} == {200} and max(r.seconds for r in replies) < 5
    assert used(upstream).count("k-one") == 1 and used(upstream).count("k-two") == 10
    assert gateway.metrics()["rolter_key_cooldowns_tripped_total"] == 1
    assert gateway.metrics()["rolter_cooldowns_tripped_total"] == 0
    assert sum(gateway.row_of(r)["attempts"] for r in replies) == 11


def test_all_keys_spent(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(429, {"who": call.headers["authorization"]},
                                                    [("Retry-After", "30")]))
    gateway = new_gateway(one(upstream, own=KEYS))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 429 and reply.headers["retry-after"] == "30"
    assert sorted(used(upstream)) == ["k-one", "k-two"]


def test_a_single_wrong_key_is_the_clients_to_see(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(401, {"error": {"message": "bad key"}}))
    gateway = new_gateway(one(upstream, own='api_key = "k-one"'))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 401 and len(upstream.calls) == 1


# ---- replies of any kind

@pytest.mark.parametrize("status, body", [(200, b""), (201, b'{"made":1}'), (204, b""), (302, b"moved"), (418, b"tea"),
                                          (200, b"\x00\xff binary"), (299, b"x" * 300000)],
                         ids=lambda value: str(value)[:12])
def test_statuses_and_bodies_pass(new_upstream, new_gateway, status, body):
    def answer(call):
        if status == 204:
            call.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            call.reply(status, body, [("Content-Type", "a/b"), ("Location", "/x")])

    gateway = new_gateway(one(new_upstream(answer)), rows=True)
    with gateway.client() as client:
        for _ in range(2):
            reply = client.post(CHAT, chat("x"))
            assert (reply.status, len(reply.body), reply.complete) == (status, len(body), True) and reply.body == body
            assert gateway.row_of(reply)["status"] == status


def test_egress_by_name(new_upstream, new_gateway):
    """R40: a name is refused when it turns out to lead where it must not."""
    upstream = new_upstream()
    url = upstream.url.replace("127.0.0.1", "localhost")
    text = provider(url) + '[[routes]]\nmodel = "m"\ntargets = [{ provider = "p0" }]\n'
    gateway = new_gateway(text + "[egress]\nblock_loopback = true\n", rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 502 and reply.json()["error"]["code"] == "egress_blocked"
    assert gateway.row_of(reply)["error"] == "egress_blocked" and not upstream.calls
    assert gateway.metrics()[metric("rolter_upstream_errors_total", provider="p0", reason="egress_blocked")] == 1
    gateway.reload_and_wait(text + '[egress]\nblock_loopback = true\nallow_hosts = ["localhost"]\n')
    wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200, "the allowed name")


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://[fe80::1]:80", "http://[::ffff:169.254.1.1]"])
def test_egress_of_literals(new_gateway, url):
    with pytest.raises(AssertionError, match=r"ended with 1(.|\n)*rolter.toml:\d+:\d+: .*api_base"):
        new_gateway(provider(url))


def test_egress_fails_over(new_upstream, new_gateway):
    good = new_upstream()
    gateway = new_gateway(fleet([good.url.replace("127.0.0.1", "localhost"), good],
                                more='[egress]\nblock_loopback = true\nallow_hosts = ["127.0.0.1"]\n'))
    assert gateway.post(CHAT, chat("x")).status == 200
