"""A key-value store that the processes of a run share: where they find each other, and tell what they are doing.

The wire is that of torch's TCPStore, so that the one which torchrun's agent serves can be used. Integers are
little-endian, a string is its length as a u64 and its bytes; a request is one byte, then its arguments.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from genesis.ir.errors import failure
from genesis.runtime.collectives import DistNetworkError, DistStoreError
from genesis.runtime.own_threads import OwnThread

VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, KEYS, DELETE = range(9)
CANCEL_WAIT, PING = 12, 13
"""The requests of torch's protocol, by the byte that each begins with."""

MAGIC: Final = 0x3C85F7CE
"""The number that a client of it sends first."""

STOPPED, CANCELED = 0, 1
READY, NOT_READY = 0, 1
"""Answers: to a wait, and to whether keys are there."""

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
"""How long a store is waited for, as in torch."""

_PREFIX: Final = "/"
"""What torch's client puts before every key."""


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


class _Wire:
    """A connection, read and written in whole values."""

    def __init__(self, connection: socket.socket):
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise ConnectionError("the connection was closed")
            found += more
        return bytes(found)

    def number(self, form: str) -> int:
        value: int
        value, = struct.unpack("<" + form, self.read(struct.calcsize(form)))
        return value

    def text(self) -> bytes:
        return self.read(self.number("Q"))


class TCPStore:
    """A client of a store, and on one process the server as well; torch's names.

    Args:
        host_name, port: where the store is served.
        world_size: how many processes there are; not needed.
        is_master: serve it, from a thread of this process.
        timeout: how long keys, and the server itself, are waited for.

    Raises:
        DistNetworkError: nobody serves there within the timeout, or the server is gone.
        DistStoreError: a key did not come within the timeout.

    >>> store = TCPStore("127.0.0.1", 0, is_master=True)
    >>> store.set("key", "value")
    >>> store.get("key")
    b'value'
    >>> store.add("count", 2), store.add("count", 3)
    (2, 5)
    """

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
                 timeout: timedelta = DEFAULT_TIMEOUT):
        self.host, self.timeout = host_name, timeout
        self._server = StoreServer(port) if is_master else None
        self.port = port if self._server is None else self._server.port
        self._lock = threading.Lock()
        self._patience: float | None = None
        self._wire = self._connect()

    def _connect(self) -> _Wire:
        end = time.monotonic() + self.timeout.total_seconds()
        host = "127.0.0.1" if self._server is not None else self.host
        while True:
            try:
                wire = _Wire(socket.create_connection((host, self.port), timeout=10))
                wire.socket.settimeout(None)
                wire.send(bytes([VALIDATE]), struct.pack("<I", MAGIC))
                wire.send(bytes([PING]), struct.pack("<I", 7))
                if wire.number("I") != 7:
                    raise ConnectionError("it does not answer as a store does")
                return wire
            except OSError as error:
                if time.monotonic() > end:
                    raise failure("TCPStore", f"nobody serves a store at {self.host}:{self.port} ({error})",
                                  hint="check MASTER_ADDR and MASTER_PORT, and that rank 0 runs",
                                  error=DistNetworkError) from None
                time.sleep(0.05)

    @property
    def serves(self) -> bool:
        """Whether this process serves the store."""
        return self._server is not None

    def clone(self) -> TCPStore:
        """Another connection to the same store: a call of one waits for nobody who uses the other."""
        found = TCPStore.__new__(TCPStore)
        found.host, found.port, found.timeout = self.host, self.port, self.timeout
        found._server, found._lock, found._patience = None, threading.Lock(), None
        found._wire = found._connect()
        return found

    def limit_answers(self, seconds: float) -> None:
        """Take the server for gone when it does not answer for so long: a process that is stopped keeps its
        connections. Keys are not waited for longer, either."""
        self._patience = seconds
        self._wire.socket.settimeout(seconds)

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        with self._lock:
            self._sent(SET, _key(key), _text(_bytes(value)))

    def get(self, key: str) -> bytes:
        """The value of a key, waited for."""
        self.wait([key])
        with self._lock:
            self._sent(GET, _key(key))
            return self._answer().text()

    def add(self, key: str, amount: int) -> int:
        """Add to the number that a key has as text (0 if there is none); returns the sum."""
        with self._lock:
            self._sent(ADD, _key(key), struct.pack("<q", amount))
            return self._answer().number("q")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys have values."""
        with self._lock:
            self._sent(CHECK, struct.pack("<Q", len(keys)), *map(_key, keys))
            return self._answer().number("B") == READY

    def delete_key(self, key: str) -> bool:
        """Forget a key; returns whether it was there."""
        with self._lock:
            self._sent(DELETE, _key(key))
            return self._answer().number("q") > 0

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all of these keys have values."""
        limit = self.timeout if timeout is None else timeout
        if self._patience is not None:
            limit = min(limit, timedelta(seconds=self._patience))
        with self._lock:
            self._sent(WAIT, struct.pack("<Q", len(keys)), *map(_key, keys))
            answer = self._answer_within(limit)
        if answer != STOPPED:
            raise failure("TCPStore.wait", f"no value came for {', '.join(map(repr, keys))} within {limit}",
                          hint="another process may have failed: look at its output", error=DistStoreError)

    def _answer_within(self, limit: timedelta) -> int:
        """The answer to WAIT, or to cancelling it when the time is over."""
        wire = self._wire
        wire.socket.settimeout(max(limit.total_seconds(), 1e-3))
        try:
            answer = wire.number("B")
        except TimeoutError:
            wire.socket.settimeout(self._patience)
            self._sent(CANCEL_WAIT)
            answer = self._answer().number("B")
            if answer == STOPPED:  # it came in between, and the cancelling is answered as well
                self._answer().number("B")
        except OSError as error:
            raise self._gone(error) from None
        finally:
            with suppress(OSError):
                wire.socket.settimeout(self._patience)
        return answer

    def close(self) -> None:
        """Close the connection, and end the server if this process has it."""
        with suppress(OSError):
            self._wire.socket.close()
        if self._server is not None:
            self._server.close()

    def _sent(self, request: int, *parts: bytes) -> None:
        try:
            self._wire.send(bytes([request]), *parts)
        except OSError as error:
            raise self._gone(error) from None

    def _answer(self) -> _Wire:
        return _Answer(self._wire, self)  # type: ignore[return-value]

    def _gone(self, error: OSError) -> Exception:
        with suppress(OSError):
            self._wire.socket.close()  # an answer that comes now would be taken for another one's
        return DistNetworkError(f"TCPStore: the store at {self.host}:{self.port} is gone ({error})\n"
                                "  try: look at the output of the process that serves it: rank 0, or torchrun's agent")


class _Answer:
    """A wire whose errors are told as the store's."""

    def __init__(self, wire: _Wire, store: TCPStore):
        self._wire, self._store = wire, store

    def number(self, form: str) -> int:
        try:
            return self._wire.number(form)
        except OSError as error:
            raise self._store._gone(error) from None

    def text(self) -> bytes:
        try:
            return self._wire.text()
        except OSError as error:
            raise self._store._gone(error) from None


class PrefixStore:
    """A store whose keys begin with a prefix: groups and restarts have keys of their own."""

    def __init__(self, prefix: str, store: TCPStore | PrefixStore):
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:
        """How long keys are waited for."""
        return self.underlying_store.timeout

    def limit_answers(self, seconds: float) -> None:
        """See `TCPStore.limit_answers`."""
        self.underlying_store.limit_answers(seconds)

    def clone(self) -> PrefixStore:
        """The same over another connection."""
        return PrefixStore(self.prefix, self.underlying_store.clone())

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        self.underlying_store.set(f"{self.prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        """The value of a key, waited for."""
        return self.underlying_store.get(f"{self.prefix}/{key}")

    def add(self, key: str, amount: int) -> int:
        """Add to a key's number; returns the sum."""
        return self.underlying_store.add(f"{self.prefix}/{key}", amount)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys have values."""
        return self.underlying_store.check([f"{self.prefix}/{key}" for key in keys])

    def delete_key(self, key: str) -> bool:
        """Forget a key; returns whether it was there."""
        return self.underlying_store.delete_key(f"{self.prefix}/{key}")

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all of these keys have values."""
        self.underlying_store.wait([f"{self.prefix}/{key}" for key in keys], timeout)

    def close(self) -> None:
        """Close the connection."""
        self.underlying_store.close()


Store = TCPStore | PrefixStore


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _key(key: str) -> bytes:
    return _text((_PREFIX + key).encode())


class StoreServer:
    """Serves a store, a thread a connection; threads of a few connections that mostly wait.

    Raises:
        DistNetworkError: the port is taken.
    """

    def __init__(self, port: int):
        try:
            self._listening = socket.create_server(("", port), backlog=1024)
        except OSError as error:
            raise failure("TCPStore", f"port {port} cannot be served ({error})", hint="another MASTER_PORT",
                          error=DistNetworkError) from None
        self.port: int = self._listening.getsockname()[1]
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        OwnThread(target=self._accept, name="genesis store", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._listening.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.add(connection)
            OwnThread(target=self._serve, args=(connection,), name="genesis store", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            wire = _Wire(connection)
            while True:
                request = wire.number("B")
                if request not in (VALIDATE, SET, GET, ADD, CHECK, WAIT, KEYS, DELETE, PING, CANCEL_WAIT):
                    return
                self._handle(request, wire)
        except OSError:
            pass
        finally:
            self._open.discard(connection)
            connection.close()

    def _handle(self, request: int, wire: _Wire) -> None:
        changed, values = self._changed, self._values
        if request == VALIDATE:
            if wire.number("I") != MAGIC:
                raise ConnectionError("a client of another protocol")
        elif request == PING:
            wire.send(wire.read(4))
        elif request == SET:
            key, value = wire.text(), wire.text()
            with changed:
                values[key] = value
                changed.notify_all()
        elif request == GET:
            wire.send(_text(values[wire.text()]))
        elif request == ADD:
            key, amount = wire.text(), wire.number("q")
            with changed:
                total = int(values.get(key, b"0")) + amount
                values[key] = str(total).encode()
                changed.notify_all()
            wire.send(struct.pack("<q", total))
        elif request == DELETE:
            key = wire.text()
            with changed:
                gone = values.pop(key, None) is not None
            wire.send(struct.pack("<q", gone))
        elif request == KEYS:
            wire.send(struct.pack("<q", len(values)))
        elif request == CANCEL_WAIT:
            wire.send(bytes([CANCELED]))
        else:
            keys = [wire.text() for _ in range(wire.number("Q"))]
            if request == CHECK:
                wire.send(bytes([READY if all(key in values for key in keys) else NOT_READY]))
            else:
                self._wait(keys, wire)

    def _wait(self, keys: list[bytes], wire: _Wire) -> None:
        """Answer when the keys are there, or when the client says that it no longer waits."""
        connection = wire.socket
        while True:
            with self._changed:
                if all(key in self._values for key in keys) or self._changed.wait_for(
                        lambda: all(key in self._values for key in keys), timeout=0.2):
                    wire.send(bytes([STOPPED]))
                    return
            connection.setblocking(False)
            try:
                said = connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            finally:
                connection.setblocking(True)
            if not said:
                raise ConnectionError("the client is gone")
            return  # the cancelling is the next request
