# SPDX-License-Identifier: Apache-2.0
"""Reads the table of hostile requests that the parser's unit tests use (tests/unit/http/hostile.h)."""

import re

from harness import ROOT

TOKEN = re.compile(r'\s*(?:/\*.*?\*/\s*)*(?:("(?:[^"\\]|\\.)*")|(\w+)|([(){},]))', re.S)
SIMPLE = {"r": 13, "n": 10, "t": 9, "v": 11, "f": 12, "b": 8, "a": 7, '"': 34, "\\": 92, "'": 39}


def _literal(text):
    def one(match):
        if match[1]:
            return chr(int(match[1], 16))
        if match[2]:
            return chr(int(match[2], 8))
        return chr(SIMPLE[match[3]])
    return re.sub(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.))", one, text[1:-1]).encode("latin-1")


class _Reader:
    """Adjoining literals and macros: what the compiler's first steps do, as far as the table needs it."""

    def __init__(self, text, macros):
        self.text, self.at, self.macros = text, 0, macros

    def peek(self):
        match = TOKEN.match(self.text, self.at)
        return match.groups() if match else (None, None, None)

    def take(self, punctuation=None):
        match = TOKEN.match(self.text, self.at)
        assert match, self.text[self.at:self.at + 80]
        assert punctuation is None or match[3] == punctuation, (punctuation, self.text[self.at:self.at + 80])
        self.at = match.end()
        return match.groups()

    def bytes(self):
        out = b""
        while True:
            literal, name, _ = self.peek()
            if literal is not None:
                out += _literal(self.take()[0])
            elif name is not None:
                self.take()
                times = re.fullmatch(r"HOSTILE_X(\d+)", name)
                if times or name == "SPAN":
                    self.take("(")
                    out += self.bytes() * int(times[1] if times else 1)
                    self.take(")")
                else:
                    out += _Reader(self.macros[name], self.macros).bytes()
            else:
                return out


def requests():
    """(name, bytes, status) of each."""
    text = (ROOT / "tests/unit/http/hostile.h").read_text()
    joined = text.replace("\\\n", " ")
    macros = dict(re.findall(r"^#define (HOSTILE_\w+)[ \t]+(.+)$", joined, re.M))
    table = joined[joined.index("hostile_requests[] = {") + len("hostile_requests[] = {"):]
    reader, found = _Reader(table, macros), []
    while reader.peek()[2] == "{":
        reader.take("{")
        name = reader.bytes().decode()
        reader.take(",")
        raw = reader.bytes()
        reader.take(",")
        found.append((name, raw, int(reader.take()[1])))
        reader.take("}")
        if reader.peek()[2] == ",":
            reader.take(",")
    reader.take("}")
    assert len(found) > 100
    return found
