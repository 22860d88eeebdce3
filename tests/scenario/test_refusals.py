# SPDX-License-Identifier: Apache-2.0
"""What refusals carry beside their body."""

import pytest

from harness import messages
from upstream import chat_reply, fleet


@pytest.fixture
def gateway(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    return new_gateway(fleet([upstream]) + '\n[[virtual_keys]]\nkey = "sk-one"\n')


@pytest.mark.parametrize("method, path, allow", [("POST", "/v1/models", "GET"), ("POST", "/healthz", "GET"),
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
