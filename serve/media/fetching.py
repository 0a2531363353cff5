"""Images and audio fetched from URLs in requests, protected against server-side request forgery.

A host name is resolved once, all its addresses are checked, and the connection uses one of them, so that DNS rebinding
has no effect. TLS still verifies the name. Each redirect is checked in the same way. Proxy settings are ignored.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

import httptools

from ...checks import check_int, check_positive

Address = IPv4Address | IPv6Address
_PORTS = {"http": 80, "https": 443}
_UNICAST = IPv6Network("2000::/3")
_SPECIAL = [*map(IPv4Network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24"))]
"""Special addresses that look public: metadata services of clouds, and relays."""
_REDIRECTS = (301, 302, 303, 307, 308)
_TYPE = re.compile(r"(image|audio)/[\w.+-]+|(?:application|binary)/octet-stream", re.ASCII)
_HEAD_BYTES = 1 << 16
_READ_BYTES = 1 << 16
_MAX_PARTS = 1024
_BYTES_A_PART = 256
"""Greatest number of parts of an answer, plus one per `_BYTES_A_PART` bytes, since Python handles each."""


def is_public(address: Address, port: int) -> bool:
    """Test whether an address is public, and the port not that of another service.

    Excluded are private, loopback, link-local, multicast and reserved addresses. IPv6 must be global unicast without an
    embedded IPv4 address.
    """
    if port < 1024 and port not in _PORTS.values():
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in each for each in _SPECIAL)
    return address in _UNICAST and address.is_global and address.sixtofour is None and address.teredo is None


def system_addresses(host: str, port: int) -> list[str]:
    """Resolve a host name with the system's resolver. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class FetchError(Exception):
    """An image or audio could not be fetched. The message continues a sentence that begins with it."""


@dataclass(frozen=True, slots=True)
class _Location:
    """A parsed URL. literal: the host if it is an IP address"""

    scheme: str
    host: str
    port: int
    path: str
    literal: Address | None

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises FetchError."""
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").removesuffix(".")
            host = host if ":" in host else host.encode("idna").decode()
            last = host.rpartition(".")[2]
            # Hosts that end in a number must be IP addresses; octal and integer notations are refused.
            literal = ip_address(host) if ":" in host or re.fullmatch(r"\d+|0x[0-9a-f]*", last) else None
        except ValueError:
            raise FetchError("has an address that is not valid") from None
        if parts.scheme not in _PORTS or not host:
            raise FetchError("has an address that does not begin with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise FetchError("has an address with a user name or password, which is not supported")
        path = quote(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe="%/:=&?~+!$,;'@()*[]")
        return cls(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, path, literal)

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class MediaFetcher:
    """Fetches images and audio for requests.

    seconds: time limit for each, redirects included; redirects: greatest number of them
    allows: tests whether a connection to an address and port is allowed
    resolve: resolves a host name; tls: creates the TLS context
    """

    seconds: float = 10.0
    redirects: int = 3
    allows: Callable[[Address, int], bool] = is_public
    resolve: Callable[[str, int], Sequence[str]] = system_addresses
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context

    def __post_init__(self) -> None:
        check_positive(self.seconds, "seconds", "seconds")
        check_int(self.redirects, "redirects", 0, 100)

    async def fetch(self, url: str, kind: str, most: int, pool: Executor) -> bytes:
        """Return the file of a URL. kind: "image" or "audio"; most: size limit in bytes; pool: threads for name
        resolution

        Raises FetchError.
        """
        try:
            async with asyncio.timeout(self.seconds):
                for _ in range(self.redirects + 1):
                    result = await self._request(_Location.of(url), kind, most, pool)
                    if isinstance(result, bytes):
                        return result
                    url = urljoin(url, result)
        except TimeoutError:
            raise FetchError(f"took more than {self.seconds:g} seconds to fetch") from None
        except ssl.SSLError:
            raise FetchError("cannot be fetched: TLS to its server fails") from None
        except OSError:
            raise FetchError("cannot be fetched: its server does not answer") from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError):
            raise FetchError("cannot be fetched: the response of its server is malformed or broke off") from None
        raise FetchError(f"is behind more than {self.redirects} redirects")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self.tls()

    async def _request(self, target: _Location, kind: str, most: int, pool: Executor) -> bytes | str:
        """Request a file. Return it, or the target of a redirect. Raises FetchError, OSError, and as `_answer`."""
        reader, writer = await self._connect(target, await self._addresses(target, pool))
        try:
            return await _answer(target, kind, reader, writer, most)
        finally:
            writer.transport.abort()

    async def _addresses(self, target: _Location, pool: Executor) -> list[Address]:
        """Return the addresses of a host after checking all. Raises FetchError, OSError."""
        if target.literal is not None:
            addresses = [target.literal]
        else:
            loop = asyncio.get_running_loop()
            addresses = [*map(ip_address, await loop.run_in_executor(pool, self.resolve, target.host, target.port))]
        if not all(self.allows(each, target.port) for each in addresses):
            raise FetchError("has an address in a private network or at a port that this server does not fetch from")
        return addresses

    async def _connect(
        self, target: _Location, addresses: Sequence[Address]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that accepts. Raises OSError."""
        is_https = target.scheme == "https"
        options: dict[str, Any] = {"ssl": self._context, "server_hostname": target.host} if is_https else {}
        failed = OSError("the host has no address")
        for address in addresses:
            try:
                return await asyncio.open_connection(str(address), target.port, limit=_READ_BYTES, **options)
            except ssl.SSLError:
                raise
            except OSError as error:
                failed = error
        raise failed


class _HttpAnswer:
    """An answer, filled by httptools' callbacks. Informational responses are skipped.

    has_begun: its head is complete; is_whole: its body is complete; parts: number of heads and pieces
    """

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.parts = 0
        self.status = 0
        self.has_begun = self.is_whole = False
        self.parser = httptools.HttpResponseParser(self)

    @property
    def has_length(self) -> bool:
        """True if the answer states its end, rather than ending with the connection."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers are ignored."""
        if not self.has_begun:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Finish a head."""
        self.parts += 1
        if not self.has_begun:
            self.status = self.parser.get_status_code()
            self.has_begun = self.status >= 200
            self.headers = self.headers if self.has_begun else {}

    def on_body(self, data: bytes) -> None:
        """Append a piece of the body."""
        self.parts += 1
        if not self.is_whole:
            self.body += data

    def on_message_complete(self) -> None:
        """Finish the answer."""
        self.is_whole = self.has_begun


async def _answer(
    target: _Location, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int
) -> bytes | str:
    """Send the request. Return the file, or the target of a redirect.

    Raises FetchError; errors of httptools, or ValueError, for an incomplete answer.
    """
    writer.write(
        f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: trellm\r\nAccept: {kind}/*\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\n\r\n".encode("ascii")
    )
    await writer.drain()
    answer, head = _HttpAnswer(), 0
    while data := await reader.read(_READ_BYTES):
        had_begun = answer.has_begun
        answer.parser.feed_data(data)
        if answer.has_begun and not had_begun:
            if answer.status in _REDIRECTS and "location" in answer.headers:
                return answer.headers["location"]
            _check(answer.status, answer.headers, kind, most)
        if len(answer.body) > most:
            raise FetchError(f"has more than {most:,} bytes")
        if answer.is_whole:
            return bytes(answer.body)
        if answer.parts > _MAX_PARTS + len(answer.body) // _BYTES_A_PART:
            raise FetchError("cannot be fetched: the response of its server has too many parts")
        head += 0 if answer.has_begun else len(data)
        if head > _HEAD_BYTES:
            raise ValueError("the head has no end")
    if not answer.has_begun or answer.has_length:
        raise ValueError("the answer has no end")
    return bytes(answer.body)


def _check(status: int, headers: dict[str, str], kind: str, most: int) -> None:
    """Raise FetchError unless the head announces a file of the kind."""
    if status != 200:
        raise FetchError(f"cannot be fetched: its server answers with status {status}")
    found = _TYPE.fullmatch(headers.get("content-type", "").partition(";")[0].strip().lower())
    if found is None or found[1] not in (None, kind):
        raise FetchError(f"is sent with a Content-Type other than {kind}/*")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise FetchError("cannot be fetched: its server sends it with a Content-Encoding")
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise FetchError(f"has more than {most:,} bytes")
