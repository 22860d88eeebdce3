# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with the openssl command."""

import ssl
import subprocess


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority in <folder>; issue() gives the paths of a certificate and its key."""

    def __init__(self, folder, name="ca"):
        self.folder = folder
        self.path, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                 "-subj", f"/CN=test {name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                 "-keyout", self.key, "-out", self.path)

    def issue(self, name, alternative):
        """<alternative>: as in IP:127.0.0.1,DNS:localhost."""
        cert, key, ask = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\nauthorityKeyIdentifier=keyid\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", key, "-out", ask)
        _openssl("x509", "-req", "-in", ask, "-CA", self.path, "-CAkey", self.key, "-CAcreateserial", "-days", "30",
                 "-extfile", extensions, "-out", cert)
        return cert, key

    def client_context(self):
        return ssl.create_default_context(cafile=str(self.path))


def server_context(cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
