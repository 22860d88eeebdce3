# SPDX-License-Identifier: Apache-2.0
"""Stub services that a gateway's policy asks: plugins, the guardrail webhook, a PII sanitizer.

    service = Service(lambda asked: {"action": "allow"})     # asked: the envelope; an int is a status, bytes go as they are
    sanitizer = Sanitizer()                                  # hides e-mail addresses, restores them by token
"""

import json
import re
import secrets
import threading

from upstream import Upstream

ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+\.[a-z]{2,}")


class Service(Upstream):
    """Answers with what <judge> says about the envelope. asked: the envelopes so far."""

    def __init__(self, judge=None, name="service"):
        self.judge = judge or (lambda asked: {"action": "allow"})
        self.asked = []
        super().__init__(self._judge, name)

    def _judge(self, call):
        asked = call.json()
        self.asked.append(asked)
        said = self.judge(asked)
        if said is None:                 # no answer until the other side gives up
            call.wait_gone()
        elif isinstance(said, int):
            call.reply(said, {"action": "allow"})
        else:
            call.reply(200, said)


class Sanitizer(Upstream):
    """Placeholders <EMAIL_1>... for addresses; POST /sanitize and /restore. <fail>: answers 500 instead."""

    def __init__(self):
        self.asked, self.restores, self.tokens = [], [], {}
        self.fail = set()
        self._guard = threading.Lock()
        super().__init__(self._answer, "sanitizer")

    def _answer(self, call):
        asked = call.json()
        leg = call.target.strip("/")
        with self._guard:
            (self.restores if leg == "restore" else self.asked).append(asked)
        if leg in self.fail:
            call.reply(500, {})
        elif leg == "restore":
            text, n = json.dumps(asked["content"]), 0
            for placeholder, original in self.tokens[asked["restoration_token"]].items():
                n += text.count(placeholder)
                text = text.replace(placeholder, original)
            call.reply(200, {"content": json.loads(text), "restored": n})
        else:
            found = []
            text = json.dumps(asked["content"])
            for address in ADDRESS.findall(text):
                if address not in found:
                    found.append(address)
            names = {f"<EMAIL_{i + 1}>": address for i, address in enumerate(found)}
            for placeholder, address in names.items():
                text = text.replace(address, placeholder)
            token = secrets.token_hex(8)
            self.tokens[token] = names
            call.reply(200, {"content": json.loads(text), "restoration_token": token,
                             "findings": [{"entity_type": "EMAIL", "count": len(found), "placeholders": list(names)}]})
