# SPDX-License-Identifier: Apache-2.0
"""Virtual keys: who may come in, and what they may use."""

import datetime

import pytest

from harness import chat, messages

CHAT = "/v1/chat/completions"


def instant(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat(
        timespec="seconds")


@pytest.fixture
def gateway(new_upstream, new_gateway):
    up = new_upstream()
    return new_gateway(f"""
[[providers]]
name = "p0"
kind = "openai_compatible"
api_base = "{up.url}"
[[providers]]
name = "p1"
kind = "openai_compatible"
api_base = "{up.url}"
[[routes]]
model = "both"
targets = [{{ provider = "p0" }}, {{ provider = "p1" }}]
[[routes]]
model = "zero"
targets = [{{ provider = "p0" }}]
[[routes]]
model = "ab"
variants = [{{ name = "v", targets = [{{ provider = "p1" }}] }}]
[[virtual_keys]]
key = "sk-all"
name = "all"
[[virtual_keys]]
key = "sk-off"
disabled = true
[[virtual_keys]]
key = "sk-past"
expires_at = {instant(-60)}
[[virtual_keys]]
key = "sk-past-text"
expires_at = "{instant(-60)}"
[[virtual_keys]]
key = "sk-future"
expires_at = {instant(3600)}
[[virtual_keys]]
key = "sk-zero"
models = ["zero", "p1/direct"]
[[virtual_keys]]
key = "sk-p1"
name = "second"
providers = ["p1"]
""", rows=True)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("headers", [
    {"Authorization": "Bearer sk-all"}, {"authorization": "bearer sk-all"}, {"AUTHORIZATION": "BEARER   sk-all  "},
    {"x-api-key": "sk-all"}, {"X-API-KEY": "sk-all"}, {"Authorization": "Basic eA==", "x-api-key": "sk-all"},
    {"Authorization": "Bearer sk-future"}, {"Authorization": "Bearer sk-all", "x-api-key": "wrong"}])
def test_let_in(gateway, headers):
    assert gateway.post(CHAT, chat("x", model="both"), headers).status == 200


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "}, {"Authorization": "sk-all"},
    {"Authorization": "Basic sk-all"}, {"Authorization": "Bearer sk-al"}, {"Authorization": "Bearer sk-alll"},
    {"Authorization": "Bearer SK-ALL"}, {"Authorization": "Bearer sk-all sk-all"}, {"x-api-key": ""},
    {"Authorization": "Bearer wrong", "x-api-key": "sk-all"}, {"Authorization": "Bearer sk-off"},
    {"Authorization": "Bearer sk-past"}, {"Authorization": "Bearer sk-past-text"},
    {"Authorization": "Bearer " + "x" * 10000}, {"Cookie": "key=sk-all"}, {"api-key": "sk-all"}])
def test_kept_out(gateway, headers):
    """All look the same."""
    plain = gateway.post(CHAT, chat("x", model="both"), {**headers, "x-request-id": "r"})
    unknown = gateway.post(CHAT, chat("x", model="both"), {"x-request-id": "r", "x-api-key": "nobody's"})
    assert plain.status == 401 and plain.body == unknown.body
    assert plain.json()["error"]["code"] == "invalid_api_key"
    assert plain.json()["error"]["type"] == "authentication_error"
    other = gateway.post("/v1/messages", messages("x", model="both"), headers)
    assert other.status == 401 and other.json()["type"] == "error"
    assert other.json()["error"]["type"] == "authentication_error"
    assert gateway.get("/v1/models", headers).status == 401
    assert gateway.metrics()["rolter_auth_failures_total"] == 4
    row = gateway.row_of(plain)
    assert row["status"] == 401 and row["error"] == "invalid_api_key" and row["virtual_key"] == ""


def test_open_paths(gateway):
    for path in ("/healthz", "/readyz", "/metrics"):
        assert gateway.get(path).status == 200


def test_models_of_a_key(gateway):
    assert gateway.post(CHAT, chat("x", model="zero"), bearer("sk-zero")).status == 200
    assert gateway.post(CHAT, chat("x", model="p1/direct"), bearer("sk-zero")).status == 200
    # A model that the key may not use is refused whether it exists or not.
    for model in ("both", "p1/other", "nothing"):
        reply = gateway.post(CHAT, chat("x", model=model), bearer("sk-zero"))
        assert reply.status == 403 and reply.json()["error"]["code"] == "model_not_allowed"
        assert reply.json()["error"]["type"] == "permission_error"
    assert gateway.post(CHAT, chat("x", model="nothing"), bearer("sk-all")).status == 404


def test_providers_of_a_key(gateway):
    for _ in range(6):
        reply = gateway.post(CHAT, chat("x", model="both"), bearer("sk-p1"))
        assert reply.status == 200 and reply.headers["x-rolter-provider"] == "p1"
    assert gateway.post(CHAT, chat("x", model="ab"), bearer("sk-p1")).status == 200
    assert gateway.post(CHAT, chat("x", model="p1/any"), bearer("sk-p1")).status == 200
    for model in ("zero", "p0/any"):
        reply = gateway.post(CHAT, chat("x", model=model), bearer("sk-p1"))
        assert reply.status == 403 and reply.json()["error"]["code"] == "provider_not_allowed", model


def test_a_keys_rule_never_fails_open(new_upstream, new_gateway):
    bad, good = new_upstream(lambda call: call.reply(500)), new_upstream()
    gateway = new_gateway(f"""
[[providers]]
name = "p0"
kind = "openai_compatible"
api_base = "{bad.url}"
[[providers]]
name = "p1"
kind = "openai_compatible"
api_base = "{good.url}"
[[routes]]
model = "m"
targets = [{{ provider = "p0" }}, {{ provider = "p1" }}]
[[virtual_keys]]
key = "k"
providers = ["p0"]
""")
    for _ in range(4):  # parked after the first: still nowhere else
        assert gateway.post(CHAT, chat("x"), bearer("k")).status == 500
    assert not good.calls


@pytest.mark.parametrize("key, models", [("sk-all", ["both", "zero", "ab"]), ("sk-zero", ["zero"]),
                                         ("sk-p1", ["both", "ab"])])
def test_list_of_models(gateway, key, models):
    reply = gateway.get("/v1/models", bearer(key))
    assert reply.status == 200 and reply.json()["object"] == "list"
    listed = [m["id"] for m in reply.json()["data"]]
    assert [m for m in listed if "/" not in m] == models
    assert all(m["object"] == "model" and m["owned_by"] == "rolter" for m in reply.json()["data"])


def test_rows_name_the_key(gateway):
    reply = gateway.post(CHAT, chat("x", model="both"), bearer("sk-p1"))
    row = gateway.row_of(reply)
    assert row["virtual_key"] == "second" and len(row["virtual_key_id"]) == 16
    again = gateway.row_of(gateway.post(CHAT, chat("x", model="both"), bearer("sk-p1")))
    other = gateway.row_of(gateway.post(CHAT, chat("x", model="both"), bearer("sk-all")))
    assert again["virtual_key_id"] == row["virtual_key_id"] != other["virtual_key_id"]
    assert "sk-p1" not in gateway.rows_path.read_text() + gateway.stderr


def test_open_gateway(new_upstream, new_gateway):
    text = f'[[providers]]\nname = "p"\nkind = "openai_compatible"\napi_base = "{new_upstream().url}"\n'
    gateway = new_gateway(text)
    for headers in ({}, bearer("anything")):
        assert gateway.post(CHAT, chat("x", model="p/m"), headers).status == 200
    closed = new_gateway(text, server="require_auth = true")
    assert closed.post(CHAT, chat("x", model="p/m")).status == 401


def test_pepper(new_upstream, new_gateway):
    text = (f'[[providers]]\nname = "p"\nkind = "openai_compatible"\napi_base = "{new_upstream().url}"\n'
            '[[virtual_keys]]\nkey = "k"\n')
    ids = []
    for options in ({}, {"server": 'key_pepper = "salt"'}, {"env": {"ROLTER_KEY_PEPPER": "salt"}}):
        gateway = new_gateway(text, rows=True, **options)
        reply = gateway.post(CHAT, chat("x", model="p/m"), bearer("k"))
        assert reply.status == 200
        ids.append(gateway.row_of(reply)["virtual_key_id"])
    assert ids[0] != ids[1] == ids[2]
