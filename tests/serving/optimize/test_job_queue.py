"""The job queue: sharing, limits, cancelling, and going on after a stop. What the work is, is none of its business."""

from __future__ import annotations

import ast
import asyncio

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.serving.config import OptimizeConfig
from cudal1_ray.serving.optimize.job_queue import JobQueue, Refused, Submission
from cudal1_ray.serving.optimize.job_requests import JobRequests
from cudal1_ray.serving.optimize.jobs import CANCELLED, FAILED, FINISHED, QUEUED, RUNNING, JobStore
from cudal1_ray.serving.optimize.rounds import ModuleFault

SOURCE = load_problems(ProblemsConfig())[0].source


class Work:
    """Jobs that go on until they are released."""

    def __init__(self):
        self.let_go, self.begun, self.before = asyncio.Event(), [], []

    async def __call__(self, job, before, emit):
        self.begun.append(job.job_id)
        self.before = [event["type"] for event in before]
        emit({"type": "round", "round": 1})
        await self.let_go.wait()
        return {"found": False, "message": "nothing faster found"}


def config(folder, **fields) -> OptimizeConfig:
    return OptimizeConfig(jobs_dir=str(folder), **fields)


async def submit(job_queue: JobQueue, owner: str, source: str = SOURCE, **options):
    return await job_queue.submit(owner, Submission(source, **options))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def types_of(job_queue, owner, job, after=0) -> list[str]:
    return [event["type"] async for event in job_queue.events(owner, job.job_id, after)]


def test_job_when_run_goes_from_queued_to_finished_with_numbered_events(tmp_path):
    async def scene():
        work = Work()
        job_queue = JobQueue(config(tmp_path), work)
        job, shared = await submit(job_queue, "alice")
        assert (job.status, shared) == (QUEUED, False)
        await settle()
        assert job.status == RUNNING
        reading = asyncio.create_task(types_of(job_queue, "alice", job))
        await settle()
        work.let_go.set()
        assert await reading == ["queued", "started", "round", "finished"]
        assert job.status == FINISHED and job.result["found"] is False
        assert await types_of(job_queue, "alice", job, after=3) == ["finished"]
        assert [event["number"] async for event in job_queue.events("alice", job.job_id, 0)] == [1, 2, 3, 4]

    asyncio.run(scene())


def test_requests_when_identical_share_work_and_others_do_not(tmp_path):
    async def scene():
        work = Work()
        job_queue = JobQueue(config(tmp_path), work)
        first, _ = await submit(job_queue, "alice")
        again, shared = await submit(job_queue, "bob", f"# the same, with a remark\n\n{SOURCE}")
        assert shared and again is first
        assert again.public("alice")["source"] == SOURCE and "bob" not in str(again.public("alice"))
        assert ast.unparse(ast.parse(SOURCE)).count("#") == again.public("bob")["source"].count("#") == 0
        other, shared = await submit(job_queue, "alice", rounds=2)
        assert not shared and other.job_id != first.job_id
        await settle()
        assert sorted(work.begun) == sorted([first.job_id, other.job_id])
        work.let_go.set()
        await settle()
        assert (await submit(job_queue, "carol"))[0].status == FINISHED  # a finished result is reused
        assert len(work.begun) == 2

    asyncio.run(scene())


def test_job_when_one_of_two_callers_leaves_goes_on(tmp_path):
    async def scene():
        job_queue = JobQueue(config(tmp_path), Work())
        job, _ = await submit(job_queue, "alice")
        await submit(job_queue, "bob")
        await settle()
        await job_queue.cancel("alice", job.job_id)
        assert job.status == RUNNING
        with pytest.raises(Refused, match="no such job"):
            job_queue.get("alice", job.job_id)
        await job_queue.cancel("bob", job.job_id)
        assert job.status == CANCELLED
        assert (await types_of(job_queue, "bob", job))[-1] == "cancelled"
        again, shared = await submit(job_queue, "alice")  # what was cancelled can be asked for again, from the start
        assert not shared and again.owners == ["alice"]
        await settle()
        assert again.status == RUNNING

    asyncio.run(scene())


def test_callers_when_they_list_jobs_see_their_own_only(tmp_path):
    async def scene():
        job_queue = JobQueue(config(tmp_path), Work())
        job, _ = await submit(job_queue, "alice")
        assert job_queue.of("alice") == [job] and job_queue.of("bob") == []
        assert "alice" not in str(job.public("alice"))
        for attempt in (job_queue.cancel("bob", job.job_id), types_of(job_queue, "bob", job)):
            with pytest.raises(Refused) as refused:
                await attempt
            assert refused.value.status == 404

    asyncio.run(scene())


def test_jobs_when_beyond_a_limit_wait_or_are_refused(tmp_path):
    async def scene():
        work = Work()
        job_queue = JobQueue(config(tmp_path, max_running=1, max_jobs_per_key=2), work)
        first, second = [(await submit(job_queue, "alice", rounds=n))[0] for n in (1, 2)]
        await settle()
        assert (first.status, second.status) == (RUNNING, QUEUED)
        with pytest.raises(Refused) as refused:
            await submit(job_queue, "alice", rounds=3)
        assert refused.value.status == 429
        await submit(job_queue, "bob", rounds=3)
        await job_queue.cancel("alice", second.job_id)  # one that never started
        assert second.status == CANCELLED
        await submit(job_queue, "alice", rounds=4)

    asyncio.run(scene())


@pytest.mark.parametrize(
    "source, options, status",
    [
        ("", {}, 400),
        ("class Model: pass", {}, 400),
        ("(" * 5000, {}, 400),
        ("-" * 50000 + "1", {}, 400),
        ("\ud800", {}, 400),
        ("\x00", {}, 400),
        ("#" * 70000, {}, 413),
        (SOURCE, {"rounds": 0}, 400),
        (SOURCE, {"samples_per_round": 65}, 400),
        (SOURCE, {"time_limit_s": 601.0}, 400),
    ],
)
def test_submission_when_no_module_or_too_large_is_refused(tmp_path, source, options, status):
    async def scene():
        with pytest.raises(Refused) as refused:
            await JobQueue(config(tmp_path), Work()).submit("alice", Submission(source, **options))
        assert refused.value.status == status

    asyncio.run(scene())


def test_jobs_when_a_server_stops_stay_open_and_go_on_at_the_next_start(tmp_path):
    async def stopped():
        work = Work()
        job_queue = JobQueue(config(tmp_path, max_running=1), work)
        jobs = [(await submit(job_queue, "alice", rounds=n))[0] for n in (1, 2)]
        await settle()
        reading = asyncio.create_task(types_of(job_queue, "alice", jobs[0]))
        await settle()
        await job_queue.close()
        assert (await reading)[-1] == "round"  # the stream ends; the job does not
        return jobs

    async def continued(jobs):
        with open(tmp_path / jobs[0].job_id / "events.jsonl", "ab") as file:
            file.write(b'{"number": 4, "ty')  # what a kill leaves
        (tmp_path / "stray").mkdir()
        (tmp_path / "stray" / "job.json").write_text("{")
        work = Work()
        work.let_go.set()
        job_queue = JobQueue(config(tmp_path, max_running=1), work)
        job_queue.resume()
        await settle()
        for job in jobs:
            assert job_queue.get("alice", job.job_id).status == FINISHED
        resumed = ["queued", "started", "round", "resumed", "round", "finished"]
        assert await types_of(job_queue, "alice", jobs[0]) == resumed
        assert await types_of(job_queue, "alice", jobs[1]) == ["queued", "started", "round", "finished"]

    jobs = asyncio.run(stopped())
    asyncio.run(continued(jobs))
    third = JobQueue(config(tmp_path), None)
    assert [event["number"] for event in JobStore(tmp_path).events(jobs[0].job_id)] == [1, 2, 3, 4, 5, 6]
    assert third.get("alice", jobs[1].job_id).result["message"] == "nothing faster found"


def test_job_when_it_cannot_be_done_states_why_and_one_that_breaks_reveals_nothing(tmp_path):
    async def scene():
        async def faulty(job, before, emit):
            if job.settings.rounds == 1:
                raise ModuleFault("the module itself fails: no such layer")
            raise RuntimeError("secret")

        job_queue = JobQueue(config(tmp_path), faulty)
        jobs = [(await submit(job_queue, "alice", rounds=n))[0] for n in (1, 2)]
        await settle()
        assert [job.status for job in jobs] == [FAILED, FAILED]
        assert "no such layer" in jobs[0].error and "secret" not in str(jobs[1].public("alice"))
        assert (await submit(job_queue, "alice", rounds=1))[1] is False  # asked again, it is tried again

    asyncio.run(scene())


def test_job_when_fresh_or_of_a_key_that_does_not_share_is_its_own(tmp_path):
    async def scene():
        job_queue = JobQueue(config(tmp_path / "shared"), Work())
        first, _ = await submit(job_queue, "alice")
        fresh, shared = await submit(job_queue, "alice", fresh=True)
        assert not shared and fresh.job_id != first.job_id
        assert (await submit(job_queue, "alice"))[0] is first
        apart = JobQueue(config(tmp_path / "apart", share_between_keys=False), Work())
        mine, theirs = (await submit(apart, "alice"))[0], (await submit(apart, "bob"))[0]
        assert mine.job_id != theirs.job_id and mine.owners == ["alice"]
        assert (await submit(apart, "bob")) == (theirs, True)

    asyncio.run(scene())


def test_module_when_plain_is_completed_and_refused_when_arguments_do_not_fit(tmp_path):
    source = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x, y):\n        return x + y\n"

    async def scene():
        job_queue = JobQueue(config(tmp_path), Work())
        job, _ = await submit(job_queue, "alice", source, inputs=("randn(4)", "randn(4)"))
        assert "class Model(nn.Module)" in job.source and "torch.randn(4)" in job.source
        again, shared = await submit(job_queue, "bob", source, inputs={"y": "torch.randn(4)", "x": "randn( 4 )"})
        assert shared and again is job
        with pytest.raises(Refused, match="'y' is missing") as refused:
            await submit(job_queue, "alice", source, inputs=("randn(4)",))
        assert refused.value.status == 400

    asyncio.run(scene())


def test_jobs_when_too_many_are_dropped_oldest_first_and_ended_ones_are_read_from_disk(tmp_path):
    async def scene():
        work = Work()
        work.let_go.set()
        job_queue = JobQueue(config(tmp_path, keep_jobs=2), work)
        jobs = []
        for rounds in (1, 2, 3):
            jobs.append((await submit(job_queue, "alice", rounds=rounds))[0])
            await settle()
        assert job_queue.of("alice") == [jobs[2], jobs[1]]
        with pytest.raises(Refused):
            job_queue.get("alice", jobs[0].job_id)
        assert not (tmp_path / jobs[0].job_id).exists()
        assert await types_of(job_queue, "alice", jobs[2]) == ["queued", "started", "round", "finished"]
        assert job_queue._events == {}  # nothing of them is held in memory

    asyncio.run(scene())


def test_jobs_folder_when_a_server_has_it_is_refused_to_another(tmp_path):
    first = JobStore(tmp_path)
    first.claim(0.0)
    with pytest.raises(UserError, match="belongs to a server"):
        JobStore(tmp_path).claim(0.1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="jobs_dir"):
        JobStore(tmp_path / "file" / "jobs")


def test_job_when_the_disk_is_full_ends_and_no_request_waits_for_ever(tmp_path, monkeypatch):
    async def scene():
        work = Work()
        job_queue = JobQueue(config(tmp_path), work)
        job, _ = await submit(job_queue, "alice")
        await settle()
        reading = asyncio.create_task(types_of(job_queue, "alice", job))
        await settle()

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(JobStore, "append", full)
        monkeypatch.setattr(JobStore, "save", full)
        work.let_go.set()
        assert (await asyncio.wait_for(reading, 60))[:3] == ["queued", "started", "round"]
        assert job.status in (FINISHED, FAILED)

    asyncio.run(scene())


def test_job_list_when_long_comes_in_pages_without_sources(tmp_path):
    async def scene():
        work = Work()
        work.let_go.set()
        counter = JobRequests(JobQueue(config(tmp_path), work))
        ids = [(await counter.answer("submit", "alice", Submission(SOURCE, rounds=n)))["id"] for n in (1, 2, 3)]
        await settle()
        first = await counter.answer("list", "alice", 2, "")
        assert [job["id"] for job in first["data"]] == ids[:0:-1] and first["has_more"]
        assert "source" not in first["data"][0] and first["data"][0]["result"] == {"found": False}
        rest = await counter.answer("list", "alice", 2, ids[1])
        assert [job["id"] for job in rest["data"]] == ids[:1] and not rest["has_more"]
        assert (await counter.answer("list", "alice", 2, "../x"))["refused"] == 404
        assert (await counter.answer("list", "bob", 2, ids[1]))["refused"] == 404
        assert (await counter.answer("cancel", "alice", ids[0]))["status"] == FINISHED

    asyncio.run(scene())
