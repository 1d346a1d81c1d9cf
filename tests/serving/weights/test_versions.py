"""Weights on their way to replicas, without any: what is refused, which one loads when, what a restart remembers."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cudal1_ray.errors import UserError
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import WeightsConfig
from cudal1_ray.serving.served_policy import find_policy, newest_policy
from cudal1_ray.serving.weights.request_barrier import BarrierBroken, RequestBarrier
from cudal1_ray.serving.weights.rolling_update import Busy, RollingUpdate
from cudal1_ray.serving.weights.versions import (
    Weights,
    allowed_folder,
    check_weights,
    drop_copies,
    link_files,
    read_current,
    take_copy,
)
from tests.policy_folder import make_policy_folder
from tests.rollout.conftest import make_tiny_model

FIRST = Weights(1, "/models/first", "first")
SECOND = Weights(2, "/models/second", "second")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Path:
    return Path(make_tiny_model(tmp_path_factory.mktemp("weights") / "served", seed=0).path)


@pytest.fixture
def other(served, tmp_path) -> Path:
    """Return the same model with other weights, as a checkpoint of a run."""
    folder = tmp_path / "run" / "checkpoints" / "contrastive-000003" / "policy"
    shutil.copytree(served, folder)
    change(folder, lambda tensors: tensors.update({name: tensor + 1 for name, tensor in tensors.items()}))
    return folder


def change(folder: Path, edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def set_config(folder: Path, **values) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def spoil(tensors) -> None:
    next(iter(tensors.values()))[0] = float("nan")


DAMAGE = {
    "not finite": lambda f: change(f, spoil),
    "missing": lambda f: change(f, lambda tensors: tensors.pop(next(iter(tensors)))),
    "not there": lambda f: change(f, lambda tensors: tensors.update(surplus=torch.zeros(2))),
    r"\(2, 3\)": lambda f: change(f, lambda tensors: tensors.update({next(iter(tensors)): torch.zeros(2, 3)})),
    "damaged": lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]),
    "holds no weights": lambda f: (f / "model.safetensors").unlink(),
    "config.json: cannot be read": lambda f: (f / "config.json").write_text("{"),
    "rope_theta": lambda f: set_config(f, rope_theta=1e6),
    "not the tokenizer": lambda f: (f / "tokenizer.json").write_text('{"model": {}}'),
}


@pytest.mark.parametrize("named", DAMAGE)
def test_weights_when_they_cannot_be_served_are_refused_and_leave_nothing(named, served, other, tmp_path):
    check_weights(other, served)
    DAMAGE[named](other)
    with pytest.raises(UserError, match=named) as refusal:
        take_copy(other, tmp_path / "store", 2, served)
    assert not re.search(r"\w/\w", scrub(str(refusal.value)))  # nor does a reply with it hold a path
    assert not list((tmp_path / "store").iterdir())


def test_weights_when_copied_outlive_their_checkpoint(served, other, tmp_path):
    weights = take_copy(other, tmp_path / "store", 2, served)
    assert weights.source == "contrastive-000003" and weights.version == 2
    shutil.rmtree(other.parent)
    check_weights(Path(weights.folder), served)
    drop_copies(tmp_path / "store", keep=())
    assert not Path(weights.folder).exists()


def test_folders_when_not_allowed_are_refused(other, tmp_path):
    run = other.parents[2]
    for path in (run, other.parent, other):
        assert allowed_folder(str(path), [str(run)]) == other
    for path in (tmp_path, run / ".." / "else", "/"):
        with pytest.raises(UserError, match="weights.roots"):
            allowed_folder(str(path), [str(run)])
    (run / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="weights.roots"):
        allowed_folder(str(run / "link"), [str(run)])


def test_newest_policy_when_some_are_half_written_is_a_whole_one(other):
    run = other.parents[2]
    assert newest_policy(run) == other and find_policy(str(run)).folder == other
    shutil.copytree(other, run / "checkpoints" / ".contrastive-000004.partial" / "policy")
    (run / "checkpoints" / "contrastive-000005" / "learner").mkdir(parents=True)
    assert newest_policy(run) == other
    later = run / "checkpoints" / "contrastive-000006" / "policy"
    shutil.copytree(other, later)
    (later / "config.json").touch()
    assert newest_policy(run) == later
    assert newest_policy(run / "no") is None


def test_barrier_when_weights_change_lets_all_requests_out_first_and_none_in():
    async def scene():
        barrier, order = RequestBarrier(FIRST), []

        async def request(name: str, until: asyncio.Event) -> None:
            async with barrier.passed() as weights:
                order.append((name, weights.version))
                await until.wait()
                order.append((name, "out"))

        async def load(weights: Weights) -> None:
            order.append(("load", barrier.under_way))

        until, at_once = asyncio.Event(), asyncio.Event()
        at_once.set()
        early = asyncio.create_task(request("early", until))
        await asyncio.sleep(0)
        changing = asyncio.create_task(barrier.change(SECOND, load, 60.0))
        await asyncio.sleep(0)
        late = asyncio.create_task(request("late", at_once))
        await asyncio.sleep(0.01)
        assert barrier.updating and order == [("early", 1)]
        until.set()
        await changing
        await asyncio.gather(early, late)
        assert order == [("early", 1), ("early", "out"), ("load", 0), ("late", 2), ("late", "out")]

        stays = asyncio.Event()
        slow = asyncio.create_task(request("slow", stays))
        await asyncio.sleep(0)
        await barrier.change(Weights(3, "", ""), load, 0.01)
        assert order[-1] == ("load", 1)  # it goes on with the new ones
        stays.set()
        await slow

        async def fail(weights: Weights) -> None:
            raise RuntimeError("half of it")

        with pytest.raises(RuntimeError):
            await barrier.change(Weights(4, "", ""), fail, 1.0)
        with pytest.raises(BarrierBroken, match="half of it"):
            async with barrier.passed():
                pass

    asyncio.run(scene())


class Fleet:
    """Replicas as the roll sees them: each asks for its turn for ever. `fails`: those that cannot load."""

    def __init__(self, roll: RollingUpdate, names: str):
        self.roll, self.versions, self.fails = roll, {}, set()
        self.loading, self.most_at_once = 0, 0
        self.tasks = {name: asyncio.create_task(self.live(name)) for name in names}

    async def live(self, name: str) -> None:
        self.versions[name] = self.roll.current.version
        while True:
            weights = await self.roll.turn(name, self.versions[name])
            if weights is None:
                continue
            self.loading += 1
            self.most_at_once = max(self.most_at_once, self.loading)
            await asyncio.sleep(0.01)
            self.loading -= 1
            if name in self.fails:
                await self.roll.report_loaded(name, weights.version, "no memory")
                del self.versions[name]
                return
            self.versions[name] = weights.version
            await self.roll.report_loaded(name, weights.version, "")

    def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()


def make_roll(tmp_path: Path, server_id: str = "a", **config) -> RollingUpdate:
    async def prepare(folder: str, version: int, served: str) -> Weights:
        if "damaged" in folder:
            raise UserError(f"{folder}: damaged")
        return link_files(Path(folder), tmp_path / "store", version)

    start = tmp_path / "run" / "checkpoints" / "sft-final" / "policy"
    return RollingUpdate(WeightsConfig(**config), start, tmp_path / "store", server_id, prepare)


def make_policy(run: Path, name: str) -> Path:
    """Make a model folder, as far as finding one looks into it."""
    return make_policy_folder(run / "checkpoints" / name / "policy")


@pytest.fixture
def second(tmp_path) -> Path:
    """Return the policy that a run finished after the one that is served."""
    make_policy(tmp_path / "run", "sft-final")
    return make_policy(tmp_path / "run", "contrastive-000001")


def test_replicas_when_weights_come_load_one_after_the_other_and_remember_it(tmp_path, second):
    async def scene():
        roll = make_roll(tmp_path)
        fleet = Fleet(roll, "abc")
        await asyncio.sleep(0.01)
        rolling = asyncio.create_task(roll.change(str(second)))
        await asyncio.sleep(0.005)
        with pytest.raises(Busy):
            await roll.change(str(second))
        state = await rolling
        assert set(fleet.versions.values()) == {2} and fleet.most_at_once == 1
        assert state["policy_version"] == 2 and state["weights"] == "contrastive-000001"
        with pytest.raises(UserError, match="damaged"):
            await roll.change(str(make_policy(tmp_path / "run", "damaged-000002")))
        assert roll.state()["policy_version"] == 2 and roll.state()["turned_away"] == 1
        assert roll.state()["last_fault"] == "<path>: damaged"
        assert set(fleet.versions.values()) == {2}
        fleet.stop()

    asyncio.run(scene())
    assert make_roll(tmp_path).current.version == 2
    assert make_roll(tmp_path, server_id="b").current.version == 1  # another start of the server is not bound by it


def test_replicas_when_one_cannot_load_go_back(tmp_path, second):
    async def scene():
        roll = make_roll(tmp_path)
        fleet = Fleet(roll, "abc")
        fleet.fails = {"c"}
        with pytest.raises(UserError, match="no memory"):
            await roll.change(str(second))
        while set(fleet.versions.values()) != {1}:
            await asyncio.sleep(0.01)
        assert sorted(fleet.versions) == ["a", "b"] and roll.state()["policy_version"] == 1
        fleet.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_roll_when_its_caller_is_cancelled_ends_and_is_remembered(tmp_path, second):
    async def scene():
        roll = make_roll(tmp_path)
        fleet = Fleet(roll, "ab")
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await roll.change(str(second))
        with pytest.raises(Busy):
            await roll.change(str(second))
        while roll.state()["rolling_in"] or set(fleet.versions.values()) != {2}:
            await asyncio.sleep(0.01)
        assert roll.current.version == 2 and roll.state()["rolled_in"] == 1
        fleet.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))
    assert make_roll(tmp_path).current.version == 2


def test_following_when_a_replica_dies_over_a_copy_tries_again(tmp_path):
    make_policy(tmp_path / "run", "sft-final")

    async def scene():
        roll = make_roll(tmp_path, follow=str(tmp_path / "run"), follow_every_s=0.01)
        prepare, failures = roll._prepare, [RuntimeError("the replica died")]

        async def prepare_at_second_attempt(*arguments):
            if failures:
                raise failures.pop()
            return await prepare(*arguments)

        roll._prepare = prepare_at_second_attempt
        following = asyncio.create_task(roll.follow())
        await asyncio.sleep(0.05)
        make_policy(tmp_path / "run", "contrastive-000001")
        while roll.current.version != 2:
            assert not following.done()
            await asyncio.sleep(0.01)
        assert not failures and roll.state()["turned_away"] == 0
        following.cancel()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_checkpoint_when_its_run_deletes_it_is_served_on_and_new_weights_are_rolled_in(served, other, tmp_path):
    run, store = other.parents[2], tmp_path / "store"
    start = run / "checkpoints" / "contrastive-000001" / "policy"
    shutil.copytree(served, start)

    async def prepare(folder: str, version: int, before: str) -> Weights:
        return take_copy(Path(folder), store, version, Path(before))

    async def scene():
        roll = RollingUpdate(WeightsConfig(), start, store, "a", prepare)
        shutil.rmtree(start.parent)
        assert roll.current.source == "contrastive-000001" and read_current(store, "a") == roll.current
        check_weights(Path(roll.current.folder), served)  # a replica that starts now finds them
        assert (await roll.change(str(other)))["policy_version"] == 2

    asyncio.run(scene())
    elsewhere = RollingUpdate(WeightsConfig(), served, tmp_path / "other", "b", prepare)
    assert elsewhere.current.folder == str(served)  # no run, which might delete it


def test_run_when_followed_passes_damage_over_and_rolls_nothing_in_twice(tmp_path):
    run = tmp_path / "run"
    make_policy(run, "sft-final")

    async def until(roll, **fields) -> None:
        while {key: roll.state()[key] for key in fields} != fields:
            await asyncio.sleep(0.01)

    async def scene():
        roll = make_roll(tmp_path, follow=str(run), follow_every_s=0.01)
        fleet, following = Fleet(roll, "ab"), asyncio.create_task(roll.follow())
        await asyncio.sleep(0.05)
        assert roll.state()["policy_version"] == 1  # what is served is not rolled in again
        make_policy(run, "contrastive-000001")
        await until(roll, policy_version=2, weights="contrastive-000001")
        make_policy(run, "damaged-000002")
        await until(roll, turned_away=1)
        await asyncio.sleep(0.05)
        make_policy(run, "contrastive-000003")
        await until(roll, policy_version=3, weights="contrastive-000003", turned_away=1, rolled_in=2)
        following.cancel()
        successor = make_roll(tmp_path, follow=str(run), follow_every_s=0.01)
        following = asyncio.create_task(successor.follow())
        await asyncio.sleep(0.05)
        assert successor.state()["rolled_in"] == 0 and successor.current.version == 3
        following.cancel()
        fleet.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_run_when_followed_on_a_full_disk_is_rolled_in_once_and_served(tmp_path, monkeypatch):
    run, attempts = tmp_path / "run", []
    make_policy(run, "sft-final")

    def no_room(path: Path, text: str) -> None:
        attempts.append(path.name)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    async def scene():
        roll = make_roll(tmp_path, follow=str(run), follow_every_s=0.01)
        fleet, following = Fleet(roll, "ab"), asyncio.create_task(roll.follow())
        await asyncio.sleep(0.05)
        monkeypatch.setattr("cudal1_ray.serving.weights.versions.write_atomically", no_room)
        make_policy(run, "contrastive-000001")
        while not attempts:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert attempts == ["current.json"] and roll.state()["policy_version"] == 2
        assert "No space left on device" in roll.state()["last_fault"]
        following.cancel()
        assert (await roll.change(str(make_policy(run, "contrastive-000002"))))["policy_version"] == 3
        assert len(list((tmp_path / "store").glob("version-*"))) == 2  # no copies are left behind
        fleet.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_versions_when_a_record_was_lost_are_counted_on_from_those_of_the_replicas(tmp_path, second):
    async def scene():
        roll = make_roll(tmp_path)
        assert await roll.turn("a", 7) == roll.current
        await roll.report_loaded("a", 1, "")
        fleet = Fleet(roll, "a")
        assert (await roll.change(str(second)))["policy_version"] == 8
        fleet.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_policy_when_written_again_before_a_restart_is_rolled_in(tmp_path, second):
    run = tmp_path / "run"

    async def served_after(seconds: float) -> int:
        roll = make_roll(tmp_path, follow=str(run), follow_every_s=0.01)
        fleet, following = Fleet(roll, "a"), asyncio.create_task(roll.follow())
        await asyncio.sleep(seconds)
        following.cancel()
        fleet.stop()
        return roll.current.version

    assert asyncio.run(served_after(0.2)) == 2
    assert asyncio.run(served_after(0.2)) == 2
    shutil.rmtree(second.parent)
    make_policy(run, second.parent.name)
    assert asyncio.run(served_after(0.2)) == 3


@pytest.mark.parametrize("export", [True, False])
def test_run_when_it_exports_its_policy_has_one_at_every_checkpoint(export, tmp_path, served):
    from cudal1_ray.rewards import RewardsConfig
    from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState

    store = CheckpointStore(tmp_path / "checkpoints", keep=1, export=export)
    state = TrainingState(1, RewardsConfig())
    state.stage = "contrastive"
    for step in (1, 2):
        state.step = step
        store.write(state, lambda folder: folder.mkdir(), lambda folder: shutil.copytree(served, folder))
    place = tmp_path / "checkpoints" / "contrastive-000002" / "policy"
    assert newest_policy(tmp_path) == (place if export else None)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
