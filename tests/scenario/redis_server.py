# SPDX-License-Identifier: Apache-2.0
"""A real redis-server for tests, on a free port of loopback."""

import shutil
import signal
import socket
import subprocess
import tempfile

from harness import DEADLINE, free_port, wait_until


class RedisServer:
    """Without persistence. restart() comes back on the same port, empty."""

    def __init__(self, *options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="rolter-redis-")
        self.port = free_port()
        self.child = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self):
        self.child = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", self.folder, *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers)

    def answers(self):
        try:
            return self.command("PING") == "PONG"
        except OSError:
            return False

    def command(self, *words):
        """One command; strings, integers, None and lists of them come back. Errors raise."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE) as s:
            data = b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                data += b"$%d\r\n%s\r\n" % (len(word), word)
            s.sendall(data)
            return self._read(s.makefile("rb"))

    def _read(self, f):
        line = f.readline()
        if not line:
            raise ConnectionError("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = f.read(int(rest) + 2)[:-2]
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data
        return [self._read(f) for _ in range(int(rest))]

    def keys(self, pattern="*"):
        return sorted(self.command("KEYS", pattern))

    def freeze(self):
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.child.send_signal(signal.SIGCONT)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def restart(self):
        self.kill()
        self.start()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
