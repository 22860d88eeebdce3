# SPDX-License-Identifier: Apache-2.0
"""Redis as it may be met: with a password, TLS, a Unix socket, as a cluster, slow, talking nonsense."""

import socket
import subprocess
import threading
import time

from harness import free_port, wait_until
from redis_server import RedisServer


class Redis(RedisServer):
    """<tls>: (certificate, key, authority). Also listens on a Unix socket."""

    def __init__(self, *options, password=None, tls=None):
        self.password = password
        more = ["--unixsocket", "redis.sock"]
        if password:
            more += ["--requirepass", password]
        if tls:
            self.tls_port = free_port()
            more += ["--tls-port", str(self.tls_port), "--tls-cert-file", str(tls[0]), "--tls-key-file", str(tls[1]),
                     "--tls-ca-cert-file", str(tls[2]), "--tls-auth-clients", "no"]
        super().__init__(*map(str, options), *more)

    @property
    def unix_url(self):
        return f"unix://{self.folder}/redis.sock"

    @property
    def tls_url(self):
        return f"rediss://:{self.password}@127.0.0.1:{self.tls_port}"

    def answers(self):
        try:
            return self.command("PING") == "PONG"
        except OSError:
            return False
        except RuntimeError as error:  # it wants its password: it is there
            return self.password is not None and "NOAUTH" in str(error)

    def entries(self):
        """Keys of stored replies."""
        return [key for key in self.keys() if len(key.rsplit(":", 1)[-1]) == 64]


class Cluster:
    """Three nodes without replicas."""

    def __init__(self):
        self.nodes = [Redis("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port",
                            free_port(), "--cluster-node-timeout", "60000") for _ in range(3)]
        self.url = self.nodes[0].url
        subprocess.run(["redis-cli", "--cluster", "create", *[f"127.0.0.1:{n.port}" for n in self.nodes],
                        "--cluster-yes"], check=True, capture_output=True, timeout=60)
        for node in self.nodes:
            wait_until(lambda node=node: "cluster_state:ok" in node.command("CLUSTER", "INFO"), "the cluster")

    def move_slots(self, count):
        """Starts moving the first <count> slots of the first node to the second one."""
        names = [node.command("CLUSTER", "MYID") for node in self.nodes]
        return subprocess.Popen(["redis-cli", "--cluster", "reshard", f"127.0.0.1:{self.nodes[0].port}",
                                 "--cluster-from", names[0], "--cluster-to", names[1], "--cluster-slots", str(count),
                                 "--cluster-yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self):
        for node in self.nodes:
            node.close()


class SlowWay:
    """Listens, and passes everything on to <port>; answers come <delay> seconds later. <garbage>: bytes to answer
    every command with, instead, once the greeting was answered."""

    def __init__(self, port, garbage=None):
        self.port, self.delay, self.garbage = port, 0, garbage
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.open = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.open.append(client)
            if self.garbage:
                threading.Thread(target=self._babble, args=(client,), daemon=True).start()
                continue
            server = socket.create_connection(("127.0.0.1", self.port))
            self.open.append(server)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source, sink, late):
        try:
            while data := source.recv(65536):
                if late and self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _babble(self, client):
        answer = b"+PONG\r\n"
        try:
            while client.recv(65536):
                client.sendall(answer)
                answer = self.garbage
        except OSError:
            pass

    def close(self):
        for one in self.open:
            one.close()
