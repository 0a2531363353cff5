"""Fetching of images: addresses that are never connected to, and servers that answer what they should not."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from trellm import OptionError
from trellm.serve import MediaFetcher

from ..support import FetchError, is_public

MAX = 1000
WAITS = b"WAITS"
"""An answer that ends so has no end: what stands before is sent, and the connection is kept."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
FILE = OK + b"Content-Length: 4\r\n\r\nfile"
# A key that opens nothing: of the server of these tests, whose certificate nobody else trusts.
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgS/zJGENK/L1qwn8b
tlXPpOniUkCxH4JfRQng5Pm/nyahRANCAAQt717fqWGRmQlNqMa1655FW5rzL3YE
LQTgBtZoGd0xL4JTCsgetf6xrcHzvw47shA4UiQRDk9QfVYJBr2hA8zl
-----END PRIVATE KEY-----
"""
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUXh0fzxa5TweeulDH9jEbcXqeo5IwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLaW1hZ2VzLnRlc3QwIBcNMjYxMTI4MDkwMDQzWhgPMjEyNjEx
MDQwOTAwNDNaMBYxFDASBgNVBAMMC2ltYWdlcy50ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAELe9e36lhkZkJTajGteueRVua8y92BC0E4AbWaBndMS+CUwrI
HrX+sa3B878OO7IQOFIkEQ5PUH1WCQa9oQPM5aNrMGkwHQYDVR0OBBYEFBr8VwQz
Z9jga22Gr+Nez9cbver7MB8GA1UdIwQYMBaAFBr8VwQzZ9jga22Gr+Nez9cbver7
MA8GA1UdEwEB/wQFMAMBAf8wFgYDVR0RBA8wDYILaW1hZ2VzLnRlc3QwCgYIKoZI
zj0EAwIDSAAwRQIgEu615Yw8LJjjZ0aEYmkNcSkT+65uFYKYlDyODsPIV8oCIQDP
H6CgedS6hH7IvhK44/6lCst9QCTIrFDdwRID9Y7XJA==
-----END CERTIFICATE-----
"""


class Peer:
    """A server of the loopback address. answers: by path; asked: what came, with headers; connections: how many"""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.connections = 0
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            said = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(said)
            data = self.answers[said.split()[1]]
            writer.write(data.removesuffix(WAITS).replace(b"PORT", str(self.port).encode()))
            if data.endswith(WAITS):
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):  # the fetcher went away
            pass
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


@asynccontextmanager
async def serving(answers: dict[str, bytes], context: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    peer = Peer(answers)
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0, ssl=context)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()


def at_home(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


HERE = MediaFetcher(seconds=60, allows=lambda address, port: address.is_loopback, resolve=at_home)


def fetched(
    answers: dict[str, bytes],
    fetcher: MediaFetcher = HERE,
    url: str = "http://images.test:PORT/a",
    context: ssl.SSLContext | None = None,
) -> tuple[bytes | str, Peer]:
    """The file, or why there is none; and what the server was asked."""

    async def run() -> tuple[bytes | str, Peer]:
        with ThreadPoolExecutor(2) as pool:
            async with serving(answers, context) as peer:
                try:
                    return await fetcher.fetch(url.replace("PORT", str(peer.port)), "image", MAX, pool), peer
                except FetchError as error:
                    return str(error), peer

    return asyncio.run(run())


def test_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for as an image, by its name, and whatever the environment says of proxies."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    found, peer = fetched({"/a%20b?c=%C3%A9&d": FILE}, url="http://Images.Test.:PORT/a b?c=é&d#e")
    assert found == b"file"
    (asked,) = peer.asked
    assert f"Host: images.test:{peer.port}\r\n" in asked and "Accept: image/*\r\n" in asked
    assert "Accept-Encoding: identity\r\n" in asked and "Cookie" not in asked and "Authorization" not in asked


ANSWERS: list[tuple[bytes, bytes | str]] = [
    (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nfi\r\n2\r\nle\r\n0\r\n\r\n", b"file"),
    (OK + b"\r\nfile", b"file"),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n" + FILE, b"file"),
    (FILE.replace(b"image/png", b"binary/octet-stream; a=b"), b"file"),
    (OK + b"Content-Length: 1000\r\n\r\n" + bytes(1000), bytes(1000)),
    (OK + b"Content-Length: 1001\r\n\r\n" + WAITS, "has more than 1,000 bytes"),
    (OK + b"\r\n" + bytes(1001) + WAITS, "has more than 1,000 bytes"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1001 + WAITS, "has more than 1,000 bytes"),
    (OK + b"Content-Length: 9\r\n\r\nfile", "the response of its server is malformed or broke off"),
    (b"hello\r\n\r\n", "the response of its server is malformed or broke off"),
    (b"", "the response of its server is malformed or broke off"),
    (b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 70_000, "the response of its server is malformed or broke off"),
    (FILE.replace(b"image/png", b"text/html"), "a Content-Type other than image/*"),
    (FILE.replace(b"Content-Type: image/png\r\n", b""), "a Content-Type other than image/*"),
    (FILE.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), "sends it with a Content-Encoding"),
    (FILE.replace(b"200 OK", b"404 Not Found"), "its server answers with status 404"),
    (FILE.replace(b"200 OK", b"206 Partial Content"), "its server answers with status 206"),
    (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "its server answers with status 302"),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000 + WAITS, "has too many parts"),
]


@pytest.mark.parametrize(("answer", "wanted"), ANSWERS, ids=lambda value: str(value)[-40:])
def test_answers(answer: bytes, wanted: bytes | str) -> None:
    found, _ = fetched({"/a": answer})
    assert found == wanted if isinstance(wanted, bytes) else wanted in str(found)


def redirect(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


def test_redirects_are_followed_and_counted() -> None:
    answers = {"/a": redirect("/b", 301), "/b": redirect("c?d", 307), "/c?d": redirect("//other.test:PORT/e", 308)}
    found, peer = fetched({**answers, "/e": FILE})
    assert found == b"file" and peer.connections == 4
    assert "Host: other.test:" in peer.asked[-1]
    found, peer = fetched({**answers, "/e": FILE}, replace(HERE, redirects=2))
    assert found == "is behind more than 2 redirects" and peer.connections == 3
    found, peer = fetched({"/a": redirect("/a")})
    assert found == "is behind more than 3 redirects" and peer.connections == 4


PLACES = [
    *("http://10.0.0.1/", "http://[fd00::1]/", "http://[::ffff:10.0.0.1]/", "http://inside.test/"),
    *(
        "//169.254.169.254/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.1/",
        "file:///etc/passwd",
    ),
    *("gopher://images.test/", "http://user:word@images.test/", "data:image/png;base64,AAAA"),
]


@pytest.mark.parametrize("place", PLACES)
def test_each_redirect_is_looked_at_again(place: str) -> None:
    def resolved(host: str, port: int) -> list[str]:
        return ["10.0.0.1"] if host == "inside.test" else ["127.0.0.1"]

    found, peer = fetched({"/a": redirect(place)}, replace(HERE, resolve=resolved))
    assert isinstance(found, str) and found.startswith("has an address") and peer.connections == 1


PRIVATE = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b::10.0.0.1 64:ff9b:1::1 100::1 2001::1
2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2002:7f00:1::1 2002:808:808::1 fc00::1 fd00:ec2::254
fe80::1 fe80::1%1 fec0::1 ff02::1 ff0e::1 5f00::1 4000::1
"""
PUBLIC = """
8.8.8.8 1.1.1.1 93.184.216.34 172.15.0.1 172.32.0.1 2606:4700:4700::1111 2a00:1450:4001:81b::200e
"""


def test_addresses_that_are_public() -> None:
    assert [each for each in PRIVATE.split() if is_public(ip_address(each), 443)] == []
    assert [each for each in PUBLIC.split() if not is_public(ip_address(each), 443)] == []
    ports = [port for port in (1, 22, 25, 80, 81, 443, 445, 1023, 1024, 8080) if is_public(ip_address("8.8.8.8"), port)]
    assert ports == [80, 443, 1024, 8080]


SPELLINGS = r"""
http://127.0.0.1:PORT/a http://2130706433:PORT/a http://017700000001:PORT/a http://0177.0.0.1:PORT/a
http://0x7f000001:PORT/a http://0x7f.0.0.1:PORT/a http://127.1:PORT/a http://127.0.1:PORT/a
http://127.0.0.1.:PORT/a http://[::1]:PORT/a http://[::ffff:127.0.0.1]:PORT/a http://[::ffff:7f00:1]:PORT/a
http://[::127.0.0.1]:PORT/a http://[fe80::1%25lo]:PORT/a http://localhost:PORT/a http://LOCALHOST.:PORT/a
http://images.test:PORT/a http://１２７.0.0.1:PORT/a http://127。0。0。1:PORT/a http://①②⑦.0.0.1:PORT/a
http://0:PORT/a http://127.0.0.1%2f:PORT/a http://images.test@127.0.0.1:PORT/a
http://127.0.0.1:PORT\@images.test/a http://999.1.1.1:PORT/a http://1.2.3.4.5:PORT/a http://[::1:PORT/a
"""


@pytest.mark.parametrize("url", SPELLINGS.split())
def test_this_machine_is_not_asked_however_it_is_spelled(url: str) -> None:
    found, peer = fetched({"/a": FILE}, MediaFetcher(seconds=60, resolve=at_home), url)
    assert isinstance(found, str) and found.startswith("has an address") and peer.connections == 0
    assert "127" not in found


def test_the_system_resolves_names() -> None:
    """By the real resolver, which knows localhost on every machine, and the real rule."""
    found, peer = fetched({"/a": FILE}, MediaFetcher(seconds=60), "http://localhost:PORT/a")
    assert "in a private network" in str(found) and peer.connections == 0


def test_one_private_address_among_several_is_enough() -> None:
    fetcher = MediaFetcher(seconds=60, resolve=lambda host, port: ["8.8.8.8", "10.0.0.1"])
    found, _ = fetched({}, fetcher, "http://images.test/a")
    assert "in a private network" in str(found)


def test_names_are_resolved_once_and_the_address_is_kept() -> None:
    """A name server that says something else the second time is not asked a second time."""
    told: list[str] = []

    def resolved(host: str, port: int) -> list[str]:
        told.append(host)
        return ["127.0.0.1"] if len(told) == 1 else ["10.0.0.1"]

    found, peer = fetched({"/a": FILE}, replace(HERE, resolve=resolved))
    assert found == b"file" and told == ["images.test"] and peer.connections == 1


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    found, _ = fetched({"/a": FILE}, replace(HERE, resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"]))
    assert found == b"file"


def unresolved(host: str, port: int) -> Sequence[str]:
    raise OSError("no such host")


@pytest.mark.parametrize(
    "resolve", [unresolved, lambda host, port: [], lambda host, port: ["127.0.0.2"]], ids=["unknown", "none", "closed"]
)
def test_hosts_that_do_not_answer(resolve: Callable[[str, int], Sequence[str]]) -> None:
    found, _ = fetched({}, replace(HERE, resolve=resolve))
    assert found == "cannot be fetched: its server does not answer"


def test_what_takes_too_long_is_given_up() -> None:
    """A server that says nothing more, and a name server that does not answer at all."""
    found, _ = fetched({"/a": OK + b"\r\n" + WAITS}, replace(HERE, seconds=0.2))
    assert found == "took more than 0.2 seconds to fetch"
    ends = threading.Event()

    def resolved(host: str, port: int) -> list[str]:
        ends.wait()
        return []

    async def run() -> str:
        with ThreadPoolExecutor(1) as pool:
            try:
                await replace(HERE, seconds=0.2, resolve=resolved).fetch("http://images.test/", "image", MAX, pool)
            except FetchError as error:
                return str(error)
            finally:
                ends.set()
        return "nothing"

    assert asyncio.run(run()) == "took more than 0.2 seconds to fetch"


@pytest.fixture
def safe(tmp_path: Path) -> tuple[ssl.SSLContext, Callable[[], ssl.SSLContext]]:
    """What a server with the certificate of images.test has, and what trusts it."""
    path = tmp_path / "server.pem"
    path.write_text(KEY + CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context, lambda: ssl.create_default_context(cadata=CERTIFICATE)


def test_tls_checks_the_name_though_the_address_is_kept(safe: Any) -> None:
    context, trusting = safe
    fetcher = replace(HERE, tls=trusting)
    found, _ = fetched({"/a": FILE}, fetcher, "https://images.test:PORT/a", context)
    assert found == b"file"
    for url, each in (("https://other.test:PORT/a", fetcher), ("https://images.test:PORT/a", HERE)):
        found, peer = fetched({"/a": FILE}, each, url, context)
        assert found == "cannot be fetched: TLS to its server fails" and peer.asked == []


@pytest.mark.parametrize("options", [{"seconds": 0}, {"seconds": "1"}, {"redirects": -1}, {"redirects": 1000}])
def test_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        MediaFetcher(**options)
