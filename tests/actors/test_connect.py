"""An address where no Ray cluster answers is named at once: Ray itself would go on asking for five minutes."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from cudal1_ray.actors.placement import check_answers
from cudal1_ray.errors import UserError
from tests.ports import free_port


@pytest.fixture
def closed_port() -> int:
    """Return a port of this machine on which nothing listens."""
    return free_port()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_address_when_no_cluster_answers_there_is_named(closed_port, scheme):
    with pytest.raises(UserError, match=f"cluster.address={scheme}127.0.0.1:{closed_port}: no cluster answers there"):
        check_answers(f"{scheme}127.0.0.1:{closed_port}")
    with socket.create_server(("", 0)) as server:  # as a Ray does: it is asked for at the node's own address
        check_answers(f"{scheme}127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize(
    "address", ["nonsense", "ray://", "ray://host", "127.0.0.1:0", "127.0.0.1:99999", "no-such-host.invalid:6379"]
)
def test_address_when_it_is_none_is_named(address):
    with pytest.raises(UserError, match="--ray ") as error:
        check_answers(address, "--ray ")
    assert address in str(error.value) and len(str(error.value).splitlines()) == 1


def test_port_when_out_of_range_leads_to_no_other():
    with socket.create_server(("127.0.0.1", 0)) as server:
        beyond = server.getsockname()[1] + (1 << 16)
        with pytest.raises(UserError, match=f"127.0.0.1:{beyond}: no cluster answers there .a port is a number"):
            check_answers(f"127.0.0.1:{beyond}")


def test_address_when_auto_is_that_of_the_environment(monkeypatch, closed_port):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    with pytest.raises(
        UserError, match=f"cluster.address=auto .RAY_ADDRESS=127.0.0.1:{closed_port}.: no cluster answers"
    ):
        check_answers("auto")


@pytest.mark.parametrize(
    ("object_store_mib", "reason"), [(1, "the minimum allowed is"), (100_000_000, "the amount of memory on this node")]
)
def test_amounts_when_ray_does_not_start_with_them_are_named_in_one_line(object_store_mib, reason):
    last = last_line_of(f"connect(ClusterConfig(num_cpus=2, object_store_mib={object_store_mib}))")
    assert f"cluster.num_cpus=2, cluster.object_store_mib={object_store_mib}: Ray does not start here" in last
    assert reason in last


def test_connect_when_no_cluster_answers_fails_at_once(closed_port):
    last = last_line_of(f"connect(ClusterConfig(address='127.0.0.1:{closed_port}'))")
    assert f"cluster.address=127.0.0.1:{closed_port}: no cluster answers there" in last


def last_line_of(statement: str) -> str:
    """Return the last line of what a process of its own prints as it fails: this one may have a Ray."""
    program = (
        "from cudal1_ray.actors.config import ClusterConfig\nfrom cudal1_ray.actors.placement import connect\n"
        + statement
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode
    return done.stderr.strip().splitlines()[-1]
