"""A server with a web config, and certificates and passwords for it."""

import base64
import ctypes
import ctypes.util
import os
import random
import re
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

BUILD = Path(os.environ.get("GRADVANE_BUILD_DIR", ""))


def openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Authority:
    """A CA of our own. The keys are on a curve, since those of RSA take longer to make."""

    def __init__(self, folder: Path, name: str = "ca"):
        self.folder, self.name = folder, name
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.crt", "-subj", f"/CN={name}", "-days", "2")

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, names: str = "IP:127.0.0.1,DNS:localhost", key: str = "ec") -> Path:
        """<name>.crt and <name>.key. Returns the certificate."""
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if key == "ec" else ["-newkey", key]
        openssl(self.folder, "req", *kind, "-nodes", "-keyout", f"{name}.key.new", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        openssl(self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key",
                "-CAcreateserial", "-out", f"{name}.crt.new", "-days", "2", "-extfile", f"{name}.ext")
        for end in ("key", "crt"):
            os.replace(self.folder / f"{name}.{end}.new", self.folder / f"{name}.{end}")
        return self.folder / f"{name}.crt"


def hashed(password: str, cost: int = 5) -> str:
    """bcrypt's hash, by the system's library: Python 3.13 has no module for it."""
    library = ctypes.CDLL(ctypes.util.find_library("crypt"))
    library.crypt.restype = ctypes.c_char_p
    salt = "".join(random.choice("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") for _ in range(21))
    return library.crypt(password.encode(), f"$2b${cost:02}${salt}u".encode()).decode()


class Server:
    """A made-up run of 120 steps, until the block ends."""

    def __init__(self, folder: Path, config: str, *options: str):
        self.file = folder / "web.yml"
        self.file.write_text(config)
        self.process = subprocess.Popen([BUILD / "bin" / "fake_server", "--web-config", self.file, *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.errors = ""
        if not self.url:
            self.errors = self.process.communicate(timeout=30)[1]
            return
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.errors += line

    @property
    def port(self) -> int:
        return int(re.search(r":(\d+)$", self.url).group(1))

    def wait_for(self, words: str) -> None:
        """Until it has said so."""
        until = time.monotonic() + 30
        while words not in self.errors:
            assert time.monotonic() < until and self.process.poll() is None, self.errors
            time.sleep(0.05)

    def __enter__(self):
        assert self.url, self.errors
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0, self.errors
        self.reader.join()


def refusal(folder: Path, config: str) -> str:
    """Why a server does not start."""
    server = Server(folder, config)
    assert not server.url and server.process.returncode == 1, server.url
    return server.errors


def trusting(ca: Path, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def ask(url: str, context: ssl.SSLContext | None = None, user: str | None = None, timeout: float = 20, **fields: str):
    """Status, headers and body. `user` is name:password."""
    if user is not None:
        fields["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    request = urllib.request.Request(url, headers=fields)
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()
