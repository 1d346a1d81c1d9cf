"""The port that a replica holds itself, the version in every answer, and `/v1/weights`, all without an engine."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry

from cudal1_ray.serving.access.admission import ANONYMOUS, Decision
from cudal1_ray.serving.access.middleware import AccessMiddleware
from cudal1_ray.serving.config import SecurityConfig, WeightsConfig
from cudal1_ray.serving.listener import Listener
from cudal1_ray.serving.metrics import RequestMetrics
from cudal1_ray.serving.weights.request_barrier import BarrierBroken, RequestBarrier, VersionHeader
from cudal1_ray.serving.weights.routes import weights_router
from cudal1_ray.serving.weights.versions import Weights
from tests.ports import free_port


class FixedCoordinator:
    """Admits every request, and answers a change of weights with `answer`."""

    def __init__(self):
        self.answer, self.asked = {}, []

    async def ask(self, digest: str | None) -> Decision:
        return Decision(ANONYMOUS.name, lease=1)

    async def release(self, lease: int) -> None:
        pass

    async def roll_state(self) -> dict:
        return {"policy_version": 1, "last_fault": "a path"}

    async def change(self, path: str) -> dict:
        self.asked.append(path)
        return self.answer


class Site:
    """A guarded application that streams, with a barrier, at a port."""

    def __init__(self, port: int, admin_keys: list[str]):
        self.barrier, self.coordinator = RequestBarrier(Weights(1, "", "first")), FixedCoordinator()
        self.flowing = asyncio.Event()  # streams end while it is set, and wait where they are otherwise
        self.flowing.set()
        app = FastAPI()
        app.include_router(weights_router(self.coordinator, WeightsConfig(admin_keys=admin_keys)))

        @app.post("/v1/completions")
        async def stream() -> StreamingResponse:
            async def pieces():
                for number in range(5):
                    yield f"{number}\n"
                    await self.flowing.wait()

            return StreamingResponse(pieces())

        routes, metrics = VersionHeader(app, self.barrier), RequestMetrics(CollectorRegistry())
        guarded = AccessMiddleware(routes, SecurityConfig(), self.coordinator, metrics)
        self.url = f"http://127.0.0.1:{port}"
        self.listener = Listener(guarded, "127.0.0.1", port)


@pytest.fixture
def port() -> int:
    return free_port()


def test_streams_when_weights_change_name_those_that_they_began_with(port):
    async def scene():
        site = Site(port, [])
        await site.listener.start()
        async with httpx.AsyncClient(base_url=site.url, timeout=60) as http:

            async def ask() -> tuple[str, str]:
                answer = await http.post("/v1/completions", json={})
                return answer.headers["x-policy-version"], answer.text

            site.flowing.clear()
            early = [asyncio.create_task(ask()) for _ in range(4)]
            while site.barrier.under_way < 4:
                await asyncio.sleep(0.001)

            async def load(weights: Weights) -> None:
                assert not site.barrier.under_way

            changing = asyncio.create_task(site.barrier.change(Weights(2, "", "second"), load, 60.0))
            await asyncio.sleep(0)
            later = asyncio.create_task(ask())
            site.flowing.set()
            late = await later
            await changing
            whole = "0\n1\n2\n3\n4\n"
            assert await asyncio.gather(*early) == [("1", whole)] * 4 and late == ("2", whole)

            async def fail(weights: Weights) -> None:
                raise OSError("no such file")

            with pytest.raises(OSError):
                await site.barrier.change(Weights(3, "", "third"), fail, 60.0)
            with pytest.raises(BarrierBroken):
                async with site.barrier.passed():
                    pass
            answer = await http.post("/v1/completions", json={})
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
        site.listener.stop()

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_replica_when_the_port_is_taken_waits_for_the_one_before(port):
    async def scene():
        before = Site(port, [])
        await before.listener.start()
        after = Site(port, [])
        starting = asyncio.create_task(after.listener.start())
        await asyncio.sleep(0.3)
        assert not starting.done()
        before.listener.stop()
        await starting
        async with httpx.AsyncClient(base_url=after.url, timeout=60) as http:
            assert (await http.post("/v1/completions", json={})).status_code == 200
        after.listener.stop()

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_weights_when_a_client_may_not_change_them_stay(port):
    async def scene():
        stranger = Site(port, ["another-key"])
        await stranger.listener.start()
        async with httpx.AsyncClient(base_url=stranger.url, timeout=60) as http:
            assert (await http.post("/v1/weights", json={"path": "/x"})).status_code == 403
            assert "last_fault" not in (await http.get("/v1/weights")).json()
        stranger.listener.stop()
        assert not stranger.coordinator.asked

        admin = Site(port, [ANONYMOUS.name])
        await admin.listener.start()
        async with httpx.AsyncClient(base_url=admin.url, timeout=60) as http:
            for status, message in ((409, "rolled in"), (400, "damaged")):
                admin.coordinator.answer = {"refused": status, "message": message}
                answer = await http.post("/v1/weights", json={"path": "/x"})
                assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)
            admin.coordinator.answer = {"policy_version": 2}
            assert (await http.post("/v1/weights", json={"path": "/x"})).json() == {"policy_version": 2}
            assert (await http.post("/v1/weights", json={"path": "a\x00b"})).status_code == 400
            assert (await http.get("/v1/weights")).json()["last_fault"] == "a path"
        admin.listener.stop()
        assert admin.coordinator.asked == ["/x"] * 3

    asyncio.run(asyncio.wait_for(scene(), 120))
