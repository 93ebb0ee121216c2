"""What others may do to a server with TLS and a password. python attack.py PORT CERTIFICATE: one line on the
standard input begins all of it, the next one ends it, and so on; each is answered by a line."""

import random
import socket
import ssl
import sys
import threading
from pathlib import Path

from web_server import ask, trusting

HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


class Attack:
    """One way, again and again until it is over."""

    def __init__(self, port, certificate):
        self.port, self.over, self.count = port, threading.Event(), 0
        self.context, self.random = trusting(certificate), random.Random(1)

    def plain(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def wire(self):
        return self.context.wrap_socket(self.plain(), server_hostname="127.0.0.1")

    def connects_without_a_word(self):
        self.plain()  # left to the garbage collector, or to the server

    def connects_and_holds(self):
        held = [self.plain() for _ in range(50)]
        self.over.wait(0.5)
        for one in held:
            one.close()

    def begins_a_handshake(self):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        with self.plain() as wire:
            wire.sendall(outgoing.read()[:self.random.randrange(1, 400)])
            self.over.wait(0.05)

    def sends_records_of_garbage(self):
        with self.plain() as wire:
            size = self.random.randrange(1, 65536)
            wire.sendall(bytes([self.random.choice((20, 21, 22, 23, 128)), 3, self.random.randrange(5)]) + size.to_bytes(2, "big") +
                         self.random.randbytes(self.random.randrange(0, 20000)))
            wire.recv(100)

    def sends_garbage_after_the_handshake(self):
        with self.wire() as wire:
            raw = socket.socket(fileno=socket.dup(wire.fileno()))
            raw.sendall(self.random.randbytes(1000))
            raw.close()
            wire.recv(100)

    def sends_headers_slowly(self):
        with self.wire() as wire:
            for byte in HEAD:
                wire.sendall(bytes([byte]))
                if self.over.wait(0.05):
                    return

    def sends_headers_without_end(self):
        with self.wire() as wire:
            wire.sendall(HEAD)
            for number in range(10000):
                wire.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))

    def sends_a_body(self):
        with self.wire() as wire:
            wire.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n")
            for _ in range(1000):
                wire.sendall(b"\0" * 1000)

    def asks_and_does_not_read(self):
        with self.wire() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.sendall((HEAD + b"Authorization: Basic YWxpY2U6cmlnaHQ=\r\n\r\n") * 50)
            self.over.wait(2)

    def guesses_passwords(self):
        ask(f"https://127.0.0.1:{self.port}/metrics", self.context, user=f"alice:{self.random.random()}", timeout=5)

    def run(self, way):
        while not self.over.is_set():
            try:
                getattr(self, way)()
            except (OSError, ValueError):
                pass
            self.count += 1


WAYS = [name for name in vars(Attack) if name.split("_")[0] in ("connects", "begins", "sends", "asks", "guesses")]


class All:
    """All ways at once, from the beginning of the block to its end."""

    def __init__(self, port, certificate):
        self.attacks = {way: Attack(port, certificate) for way in WAYS}
        self.threads = [threading.Thread(target=attack.run, args=(way,)) for way, attack in self.attacks.items()]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for attack in self.attacks.values():
            attack.over.set()
        for thread in self.threads:
            thread.join()

    def counts(self):
        return {way: attack.count for way, attack in self.attacks.items()}


if __name__ == "__main__":
    for _ in sys.stdin:
        with All(int(sys.argv[1]), Path(sys.argv[2])):
            print("begun", flush=True)
            sys.stdin.readline()
        print("ended", flush=True)
