"""The buffer in memory and on disk, without crashes (those have a file of their own)."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, exemplar_id


def candidate(number: int, problem_id: str = "p", speedup: float = 1.0, **fields) -> Exemplar:
    return Exemplar.new(problem_id, f"x = {number}\n", speedup, **fields)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_same_views(buffer, model):
    """Assert that the columns that selection reads equal a plain list of the exemplars."""
    for problem_id in {exemplar.problem_id for exemplar in model}:
        ours, view = [e for e in model if e.problem_id == problem_id], buffer.view(problem_id)
        assert [i.decode() for i in view.ids] == [e.exemplar_id for e in ours]
        for name in ("speedup", "step"):
            assert getattr(view, name).tolist() == [getattr(e, name) for e in ours]
        for name in ("length", "operations", "sketch"):
            assert getattr(view, name).tolist() == [getattr(e.features, name) for e in ours]
        assert [view.reason_sets[number] for number in view.reason] == [e.reasons for e in ours]
        position = {e.exemplar_id: at for at, e in enumerate(ours)}
        earlier = [[position.get(p, len(ours)) for p in e.parent_ids] for e in ours]
        parents = [tuple(p for p in each if p < at) for at, each in enumerate(earlier)]
        assert list(view.parents) == parents == view.parents[:]
        children = [sum(each.count(at) for each in parents) for at in range(len(ours))]
        assert view.parents.child_counts().tolist() == children


def test_exemplars_when_saved_are_read_back(tmp_path):
    parent = candidate(0, speedup=1.25)
    child = candidate(1, speedup=0.0, policy_version=7, step=9, parent_ids=(parent.exemplar_id,), reasons=("crash",))
    buffer = ExemplarBuffer.open(tmp_path / "exemplars", create=True)
    assert buffer.insert([parent, child]) == 2
    assert buffer.of("p") == [parent, child]
    buffer.save()
    assert ExemplarBuffer.open(tmp_path / "exemplars").of("p") == [parent, child]
    assert ExemplarBuffer.open(tmp_path / "exemplars").of("unknown") == []


def test_folder_when_there_is_none_is_named_and_not_created(tmp_path):
    with pytest.raises(UserError, match="no folder .*typo.*create=True"):
        ExemplarBuffer.open(tmp_path / "typo")
    assert list(tmp_path.iterdir()) == []


def test_folder_when_it_is_a_runs_is_refused_with_that_of_its_exemplars(tmp_path):
    ExemplarBuffer.open(tmp_path / "exemplars", create=True)
    with pytest.raises(UserError, match=f"its exemplars are in {tmp_path / 'exemplars'}"):
        ExemplarBuffer.open(tmp_path)


def test_insert_when_code_is_equal_keeps_the_first_measurement():
    buffer = ExemplarBuffer()
    assert buffer.insert([Exemplar.new("p", "x = 1", 1.5), Exemplar.new("p", "x=1  # again", 9.0)]) == 1
    assert buffer.insert([Exemplar.new("p", "\n\nx = 1", 3.0), Exemplar.new("q", "x = 1", 2.0)]) == 1
    assert [e.speedup for e in buffer.of("p")] == [1.5]
    assert len(buffer) == 2
    assert buffer.problem_ids() == ("p", "q")


def test_insert_when_code_is_on_disk_adds_no_duplicate(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(1)])
    buffer.save()
    again = ExemplarBuffer.open(tmp_path)
    assert again.insert([candidate(1, speedup=4.0), candidate(2)]) == 1
    assert len(again) == 2


def test_find_when_formatting_differs_returns_the_exemplar():
    buffer = ExemplarBuffer()
    buffer.insert([candidate(5, speedup=2.0)])
    assert buffer.find("p", "# five\nx=5").speedup == 2.0
    assert buffer.find("p", "x = 6") is None
    assert buffer.find("q", "x = 5") is None


def test_best_when_exemplars_failed_is_the_fastest_accepted():
    buffer = ExemplarBuffer()
    assert buffer.best("p") is None
    buffer.insert([candidate(0, speedup=0.0)])
    assert buffer.best("p") is None
    buffer.insert([candidate(1, speedup=1.2), candidate(2, speedup=3.4), candidate(3, speedup=3.4)])
    assert buffer.best("p") == candidate(2, speedup=3.4)


def test_view_when_exemplars_are_inserted_later_does_not_change():
    buffer = ExemplarBuffer()
    buffer.insert([candidate(0, speedup=1.0, step=4), candidate(1, speedup=0.0, step=5)])
    old = buffer.view("p")
    parents = tuple(e.exemplar_id for e in buffer.of("p"))
    buffer.insert([candidate(n, speedup=float(n), step=n, parent_ids=parents) for n in range(2, 40)])
    view = buffer.view("p")
    assert len(old) == 2 and old.speedup.tolist() == [1.0, 0.0] and old.step.tolist() == [4, 5]
    assert len(view) == 40 and view.speedup[2:].tolist() == [float(n) for n in range(2, 40)]
    assert view.ids[1].decode() == exemplar_id("p", "x = 1")
    assert view.parents[39] == (0, 1)
    assert view.accepted().tolist() == [0, *range(2, 40)]
    with pytest.raises(ValueError):
        view.speedup[0] = 5.0


@pytest.mark.parametrize("speedup", [math.nan, math.inf, -1.0])
def test_insert_when_a_speedup_is_impossible_adds_nothing(speedup):
    buffer = ExemplarBuffer()
    with pytest.raises(ValueError, match="speedup"):
        buffer.insert([candidate(0), candidate(1, speedup=speedup)])
    assert len(buffer) == 0


def test_insert_when_an_id_is_not_the_codes_is_refused():
    with pytest.raises(ValueError, match="is not that of"):
        ExemplarBuffer().insert([Exemplar("mine", "p", "x = 1", 1.0)])


def test_code_when_it_is_no_unicode_can_be_saved(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([Exemplar.new("p", "x = '\ud800 é'", 0.0, reasons=("unparsable",))])
    buffer.save()
    again = ExemplarBuffer.open(tmp_path)
    assert again.insert([Exemplar.new("p", "x = '\ud800 é'", 0.0)]) == 0
    assert "é" in again.of("p")[0].code


def test_shards_when_saves_are_many_are_few_and_in_order(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path, shard_rows=64)
    for save in range(100):
        buffer.insert([candidate(3 * save + i, f"p{i}", speedup=1.0 + save) for i in range(3)])
        assert buffer.save() == save + 1
    shards = [name for name in files(tmp_path) if name.endswith(".parquet")]
    assert len(shards) <= 300 / 64 * 2 + 8
    assert max(pq.read_metadata(tmp_path / name).num_rows for name in shards) <= 64
    again = ExemplarBuffer.open(tmp_path)
    expected = [(f"p{i}", f"x = {3 * save + i}\n", 1.0 + save) for save in range(100) for i in range(3)]
    assert [(e.problem_id, e.code, e.speedup) for e in again] == expected
    assert [(e.problem_id, e.code, e.speedup) for e in buffer] == expected


def test_insert_when_large_is_cut_into_shards(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path, shard_rows=500)
    buffer.insert(candidate(n, f"p{n % 7}", speedup=n / 10) for n in range(3000))
    buffer.save()
    assert len([name for name in files(tmp_path) if name.endswith(".parquet")]) == 6
    for each in (buffer, ExemplarBuffer.open(tmp_path)):
        assert [e.code for e in each] == [f"x = {n}\n" for n in range(3000)]
        assert each.of("p3")[10] == candidate(73, "p3", speedup=7.3)


def test_save_when_nothing_is_new_writes_nothing(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(0)])
    assert buffer.save() == 1
    before = files(tmp_path)
    assert buffer.save() == 1
    assert ExemplarBuffer.open(tmp_path).save() == 1
    assert files(tmp_path) == before


def test_state_when_opened_from_a_checkpoint_is_exactly_that(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(n) for n in range(10)])
    state = json.loads(json.dumps(buffer.state()))
    buffer.insert([candidate(n) for n in range(10, 25)])  # merges the first shard away
    later = buffer.state()
    assert len(ExemplarBuffer.open(tmp_path, later)) == 25
    back = ExemplarBuffer.open(tmp_path, state)
    assert [e.code for e in back] == [f"x = {n}\n" for n in range(10)]
    assert len(ExemplarBuffer.open(tmp_path)) == 25, "going back commits nothing before a save"
    assert back.insert([candidate(n) for n in (5, 12, 99)]) == 2
    back.save()
    assert [e.code for e in ExemplarBuffer.open(tmp_path)] == [f"x = {n}\n" for n in [*range(10), 12, 99]]
    assert len(ExemplarBuffer.open(tmp_path, state)) == 10
    with pytest.raises(UserError, match="no longer holds"):
        ExemplarBuffer.open(tmp_path, later)


def test_state_when_gone_back_to_can_be_committed(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    empty = buffer.state()
    buffer.insert([candidate(0)])
    buffer.save()
    back = ExemplarBuffer.open(tmp_path, empty)
    assert back.save() == 2
    assert len(ExemplarBuffer.open(tmp_path)) == 0
    assert files(tmp_path) == ["manifest.json"]


def test_leftovers_when_a_save_crashed_are_ignored_and_removed_by_the_next(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(0)])
    buffer.save()
    (tmp_path / "shard-00000009-deadbeef.parquet").write_bytes(b"half a file")
    (tmp_path / "shard-00000009-deadbeef.codes.arrow").write_bytes(b"ARROW1")
    (tmp_path / ".shard-00000009-deadbeef.parquet.17.partial").write_bytes(b"PAR1")
    (tmp_path / ".manifest.json.17.partial").write_text('{"format"')
    again = ExemplarBuffer.open(tmp_path)
    assert len(again) == 1
    again.insert([candidate(1)])
    again.save()
    assert not [name for name in files(tmp_path) if "deadbeef" in name or name.endswith(".partial")]
    assert len(ExemplarBuffer.open(tmp_path)) == 2


def damaged_manifest(folder):
    (folder / "manifest.json").write_text("{")
    return "manifest.json"


def future_format(folder):
    (folder / "manifest.json").write_text('{"format": 99}')
    return "format 99"


def missing_shard(folder):
    shard = next(folder.glob("shard-*.parquet"))
    shard.unlink()
    return shard.name


def cut_shard(folder):
    shard = next(folder.glob("shard-*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-20])
    return shard.name


def foreign_shard(folder):
    shard = next(folder.glob("shard-*.parquet"))
    pq.write_table(pa.table({"code": ["x = 1"], "speedup": [1.0]}), shard)
    return shard.name


@pytest.mark.parametrize("damage", [damaged_manifest, future_format, missing_shard, cut_shard, foreign_shard])
def test_buffer_when_a_file_is_damaged_names_it(tmp_path, damage):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(0)])
    buffer.save()
    named = damage(tmp_path)
    with pytest.raises(UserError, match=named) as caught:
        ExemplarBuffer.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_buffer_when_its_folder_cannot_be_made_is_a_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        ExemplarBuffer.open(tmp_path / "file" / "exemplars", create=True)


def test_save_when_it_failed_can_be_repeated(tmp_path, monkeypatch):
    buffer = ExemplarBuffer.open(tmp_path)
    buffer.insert([candidate(0)])
    buffer.save()
    buffer.insert([candidate(1)])

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_space)
        with pytest.raises(UserError, match="No space left"):
            buffer.save()
    assert len(buffer) == 2 and len(ExemplarBuffer.open(tmp_path)) == 1
    buffer.save()
    assert len(ExemplarBuffer.open(tmp_path)) == 2


def test_save_when_a_buffer_has_no_folder_is_an_error():
    with pytest.raises(ValueError, match="folder"):
        ExemplarBuffer().save()


def test_buffer_when_histories_are_random_equals_a_list(tmp_path):
    """Inserts, saves, reopenings and rollbacks in random order, against the obvious model of them."""
    rng = np.random.default_rng(5)
    buffer, model = ExemplarBuffer.open(tmp_path, shard_rows=16), []
    saved, states = [], []
    for _ in range(300):
        action = rng.choice(["insert", "insert", "save", "state", "reopen", "rollback"])
        if action == "insert":
            for number in rng.integers(0, 400, rng.integers(1, 9)).tolist():
                speedup = float(rng.integers(0, 5))
                parents = [e.exemplar_id for e in model if rng.random() < 0.02]
                reasons = ((), ("crash",), ("timeout", "crash"))[number % 3] if speedup == 0.0 else ()
                exemplar = candidate(
                    number, f"p{number % 3}", speedup, step=number, parent_ids=tuple(parents), reasons=reasons
                )
                new = all(e.exemplar_id != exemplar.exemplar_id for e in model)
                assert buffer.insert([exemplar]) == int(new)
                model += [exemplar] * new
        elif action == "save":
            buffer.save()
            saved = list(model)
        elif action == "state":
            states.append((buffer.state(), list(model)))
            saved = list(model)
        elif action == "reopen":
            buffer, model = ExemplarBuffer.open(tmp_path, shard_rows=16), list(saved)
        elif states:
            state, model = states.pop(int(rng.integers(len(states))))
            states = [(s, m) for s, m in states if len(m) <= len(model) and m == model[: len(m)]]
            buffer, model, saved = ExemplarBuffer.open(tmp_path, state, shard_rows=16), list(model), None
            buffer.save()
            saved = list(model)
        assert list(buffer) == model
        if rng.random() < 0.15:
            assert_same_views(buffer, model)
    assert_same_views(buffer, model)
