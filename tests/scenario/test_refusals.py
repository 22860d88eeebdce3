# SPDX-License-Identifier: Apache-2.0
"""What refusals carry beside their body."""

import pytest

from harness import messages
from upstream import chat_reply, fleet


@pytest.fixture
def gateway(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    return new_gateway(fleet([upstream]) + '\n[[virtual_keys]]\nkey = "sk-one"\n')


@pytest.mark.parametrize("method, path, allow", [("POST", "/v1/models", "GET, HEAD"), ("POST", "/healthz", "GET, HEAD"),
                                                 ("GET", "/v1/chat/completions", "POST"),
                                                 ("DELETE", "/v1/messages", "POST")])
def test_wrong_method(gateway, method, path, allow):
    reply = gateway.request(method, path, b"" if method == "POST" else None)
    assert reply.status == 405 and reply.headers["allow"] == allow
    error = reply.json()["error"]
    assert error.get("code") in ("method_not_allowed", None)


def test_missing_key(gateway):
    reply = gateway.post("/v1/messages", messages("x"))
    assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
    # Anthropic's clients read `request-id`; the body has it as well.
    assert reply.headers["request-id"] == reply.headers["x-request-id"] == reply.json()["request_id"]
    reply = gateway.post("/v1/chat/completions", b"{}")
    assert reply.status == 401 and "request-id" not in reply.headers


def test_paths_of_anthropic_that_are_not_served(gateway):
    reply = gateway.post("/v1/messages/count_tokens", messages("x"), headers={"x-api-key": "sk-one"})
    assert reply.status == 404 and reply.json()["type"] == "error"
    assert reply.json()["error"]["type"] == "not_found_error"
    reply = gateway.post("/v1/nothing", b"{}", headers={"x-api-key": "sk-one"})
    assert reply.status == 404 and reply.json()["error"]["code"] == "not_found"


def test_a_broken_stream_says_that_its_usage_is_unknown(new_upstream, new_gateway):
    def answer(call):
        call.begin_events()
        call.event({"choices": []})
        call.reset()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with gateway.stream("/v1/chat/completions", {"model": "m", "stream": True, "messages": []}) as stream:
        stream.read()
    gateway.wait_rows(1)
    (row,) = gateway.rows()
    assert row["status"] == 502 and row["usage_unknown"] == 1 and row["total_tokens"] == 0
