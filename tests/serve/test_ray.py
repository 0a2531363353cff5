"""Ray itself, where it is installed: replicas that answer, one that is killed, and rows."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from trellm import generate, models
from trellm.serve import Settings
from trellm.serve import ray as public

from .conftest import until
from .support import ranked

TEXT = "the cat sat on the mat, and the dog sat on the cat. " * 3
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'trellm[ray]'")
    ray.init(num_cpus=4, object_store_memory=100 << 20, include_dashboard=False, logging_level="error",
             log_to_driver=False, _node_ip_address="127.0.0.1")  # fmt: skip
    yield ray
    ray.shutdown()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def begun_by(process: int) -> set[int]:
    """A process, and all that it began, and those."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(processes: set[int]) -> list[str]:
    """The addresses on which processes listen, as the system writes them."""
    sockets: set[str] = set()
    for each in processes:
        for opened in Path(f"/proc/{each}/fd").glob("*"):
            try:
                sockets.add(os.readlink(opened))
            except OSError:
                continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="where sockets are is read from /proc")
def test_the_command_starts_on_as_many_processors_as_replicas_and_listens_to_this_machine() -> None:
    ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'trellm[ray]'")
    port = free_port()
    count = str(max(2, int(ray._private.utils.get_num_cpus())))
    command = [sys.executable, "-m", "trellm", "serve", "--ray", "--replicas", count, "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            status = 0
            while status != 200:
                assert process.poll() is None
                try:
                    status = httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).status_code
                except httpx.TransportError:
                    time.sleep(0.5)
            found = listening(begun_by(process.pid))
            # Ray lets nobody choose where the port of each replica and door is that others of Ray's ask it by.
            assert len(found) > 8 and len([each for each in found if each not in LOOPBACK]) <= int(count) + 1
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore")
def test_a_killed_replica_loses_nothing_that_was_not_sent(cluster: Any) -> None:
    port = free_port()
    model = models.ziplm(TEXT)
    application = public.deployment(model, Settings(name="zip", compile_seconds=300), replicas=2, cpus=0)
    public.start(application, port=port)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            expected = generate.regex(model, "[a-c]{3}").run("the cat ").text
            body = {"model": "zip", "prompt": "the cat ", "regex": "[a-c]{3}", "temperature": 0}
            for _ in range(3):
                answer = client.post("/v1/completions", json=body)
                assert answer.json()["choices"][0]["text"] == expected
            with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as events:
                assert list(events.iter_lines())[-2] == "data: [DONE]"
            names = [each["name"] for each in cluster.util.list_named_actors(all_namespaces=True)]
            actors = {name.rpartition("#")[2]: name for name in names if "#replica#" in name}
            home = ranked('["the dog "]', dict.fromkeys(actors, 0))[0]
            long = {"model": "zip", "prompt": "the dog ", "regex": "[a-c]{4000}", "temperature": 0, "max_tokens": 4500}
            found: list[httpx.Response] = []
            asking = threading.Thread(target=lambda: found.append(client.post("/v1/completions", json=long)))
            asking.start()
            actor = cluster.get_actor(actors[home], namespace="serve")
            until(lambda: bool(cluster.get(actor.get_num_ongoing_requests.remote())))
            cluster.kill(actor, no_restart=True)
            asking.join()
            assert found[0].status_code == 200 and len(found[0].json()["choices"][0]["text"]) == 4000
            assert found[0].headers["x-trellm-tries"] == "2"
    finally:
        public.stop("trellm", False)


@pytest.mark.filterwarnings("ignore")
def test_rows_by_a_generator_that_is_sent(cluster: Any) -> None:
    model = models.ziplm(TEXT)
    generator = generate.json(model, {"enum": ["cat", "dog"]})
    rows = cluster.data.from_items([{"id": number, "prompt": f"the {number} "} for number in range(6)])
    found = rows.map_batches(
        public.Generate, fn_constructor_args=(generator,), batch_size=4, concurrency=1, num_cpus=0
    ).take_all()
    assert sorted(row["id"] for row in found) == [*range(6)]
    for row in found:
        assert row["text"] == generator.run(row["prompt"]).text and row["finish_reason"] == "complete"
        assert json.loads(row["value"]) in ("cat", "dog") and row["error"] is None
