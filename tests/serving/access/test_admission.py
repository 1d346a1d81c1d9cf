"""Keys, rates and numbers of requests at once: by a clock that the test moves."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.serving.access.admission import Admission, retry_header
from cudal1_ray.serving.access.keys import KeyFile, KeyLimits, key_digest
from cudal1_ray.serving.config import SecurityConfig


@pytest.fixture
def keys(tmp_path):
    return KeyFile(tmp_path / "keys.json")


def test_key_file_when_written_holds_hashes_and_is_readable_by_its_owner_alone(keys):
    key = keys.add("alice")
    text = keys.path.read_text()
    assert key not in text and key_digest(key) in text
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert keys.find(key_digest(key)).name == "alice"
    assert keys.find(key_digest(key + "x")) is None
    with pytest.raises(UserError, match="alice"):
        keys.add("alice")


def test_keys_when_added_at_once_are_all_kept(keys):
    names = [f"key-{i}" for i in range(12)]
    with ThreadPoolExecutor(6) as threads:
        new_keys = list(threads.map(lambda name: KeyFile(keys.path).add(name), names))
    assert keys.names() == sorted(names)
    assert {keys.find(key_digest(key)).name for key in new_keys} == set(names)


def test_keys_when_added_or_revoked_are_noticed_by_a_running_server(keys):
    first = keys.add("alice")
    admission = Admission(SecurityConfig(keys_file=str(keys.path)))
    second = keys.add("bob")
    assert admission.ask(key_digest(second), 0.0).key_name == "bob"
    keys.revoke("alice")
    assert admission.ask(key_digest(first), 0.0).status == 401
    with pytest.raises(UserError, match="carol"):
        keys.revoke("carol")


@pytest.mark.parametrize("content", ["", "{}", '{"keys": [{"name": "a"}]}', "[1]"])
def test_key_file_when_damaged_is_named(keys, content):
    keys.path.write_text(content)
    with pytest.raises(UserError, match="keys.json"):
        keys.find("0")


def test_request_when_it_has_no_key_is_refused(keys):
    keys.add("alice")
    admission = Admission(SecurityConfig(keys_file=str(keys.path)))
    assert admission.ask(None, 0.0).status == 401
    assert admission.ask(key_digest(""), 0.0).status == 401
    assert admission.under_way(0.0) == 0


def test_rate_when_used_up_fills_again():
    admission = Admission(SecurityConfig(requests_per_minute=3, max_concurrent=100))
    assert [admission.ask(None, 0.0).status for _ in range(3)] == [0, 0, 0]
    refused = admission.ask(None, 0.0)
    assert refused.status == 429 and refused.retry_after_s == pytest.approx(20.0)
    assert admission.ask(None, 19.0).status == 429
    assert admission.ask(None, 20.5).status == 0
    assert [admission.ask(None, 1000.0).status for _ in range(4)] == [0, 0, 0, 429]  # never more than a minute's worth


def test_requests_when_concurrent_are_bounded_and_a_lost_lease_lapses():
    config = SecurityConfig(max_concurrent=2, request_timeout_s=10, body_timeout_s=5)
    admission = Admission(config)
    first, second = admission.ask(None, 0.0), admission.ask(None, 0.0)
    assert admission.ask(None, 1.0).status == 429
    admission.release(first.lease)
    admission.release(first.lease)
    assert admission.under_way(1.0) == 1
    assert admission.ask(None, 1.0).lease not in (0, first.lease, second.lease)
    assert admission.ask(None, 2.0).status == 429
    assert admission.under_way(20.5) == 1  # the one of second 0 has lapsed
    assert admission.ask(None, 20.5).status == 0


def test_limits_when_set_for_a_key_are_that_keys(keys):
    slow, quick = keys.add("slow", KeyLimits(requests_per_minute=1)), keys.add("quick")
    admission = Admission(SecurityConfig(keys_file=str(keys.path), requests_per_minute=100))
    assert [admission.ask(key_digest(slow), 0.0).status for _ in range(2)] == [0, 429]
    assert {admission.ask(key_digest(quick), 0.0).status for _ in range(50)} == {0}


def test_a_draining_server_lets_no_request_in_and_says_when_to_come_back():
    admission = Admission(SecurityConfig())
    held = admission.ask(None, 0.0)
    admission.draining = True
    refused = admission.ask(None, 0.0)
    assert refused.status == 503 and int(retry_header(refused.retry_after_s)) >= 1
    assert admission.under_way(0.0) == 1
    admission.release(held.lease)
    assert admission.under_way(0.0) == 0
