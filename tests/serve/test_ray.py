"""Ray itself, where it is installed: replicas that answer, one that is killed, and rows."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from trellm import generate, models
from trellm.serve import Settings
from trellm.serve import ray as public
from trellm.serve.cluster.routing import ranked

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


@pytest.mark.filterwarnings("ignore")
def test_a_killed_replica_loses_nothing_that_was_not_sent(cluster: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    model = models.ziplm(TEXT)
    application = public.deployment(model, Settings(name="zip", compile_seconds=300), replicas=2, cpus=0)
    public.start(application, port=port)
    try:
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
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
        until = time.monotonic() + 60
        while not cluster.get(actor.get_num_ongoing_requests.remote()):
            assert time.monotonic() < until
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
