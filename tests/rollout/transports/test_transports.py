"""Packing, and the transports between two processes: what was sent is what arrives."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch

from cudal1_ray.errors import UserError
from cudal1_ray.rollout import RolloutConfig
from cudal1_ray.rollout.config import WeightSyncConfig, check_rollout_config
from cudal1_ray.rollout.transports import build_publisher, open_receiver
from cudal1_ray.rollout.transports.buckets import pack


def some_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a": torch.randn(7, 5, generator=generator),
        "b": torch.randn(3, generator=generator, dtype=torch.float64),
        "scalar": torch.tensor(2.5),
        "mask": torch.tensor([True, False, True]),
        "large": torch.randn(300, 40, generator=generator).t(),  # not contiguous
        "half": torch.randn(11, generator=generator).to(torch.bfloat16),
        "count": torch.arange(9),
    }


@pytest.mark.parametrize("bucket_bytes", [0, 64, 1000, 1 << 20])
def test_tensors_when_packed_into_buckets_come_out_the_same(bucket_bytes):
    weights = some_weights()
    buckets = list(pack(weights.items(), bucket_bytes, "cpu"))
    views = {name: view for layout, buffer in buckets for name, view in layout.views(buffer)}
    assert list(views) == list(weights)
    for name, tensor in weights.items():
        assert views[name].dtype == tensor.dtype and torch.equal(views[name], tensor)
    assert all(layout.nbytes <= bucket_bytes or len(layout.entries) == 1 for layout, _ in buckets)
    assert (len(buckets) == len(weights)) if bucket_bytes == 0 else (len(buckets) < len(weights))


def test_weights_when_floating_point_are_sent_as_the_engine_holds_them():
    weights = some_weights()
    ((layout, buffer),) = pack(weights.items(), 1 << 20, "cpu", torch.bfloat16)
    views = dict(layout.views(buffer))
    assert views.keys() == weights.keys()
    for name, view in views.items():
        expected = weights[name].to(torch.bfloat16) if weights[name].is_floating_point() else weights[name]
        assert torch.equal(view, expected)


def receive_all(connection) -> None:
    """Open a channel once and fetch every version that is offered, as an engine's worker does."""
    receiver = None
    while (offer := connection.recv()) is not None:
        arguments = dict(offer.arguments)
        worker = arguments.pop("worker")
        device = torch.device(arguments.pop("device"))
        receiver = receiver or open_receiver(offer.transport, arguments, worker, device)
        received = {k: v.cpu().clone() for bucket in offer.buckets for k, v in receiver.receive(bucket)}
        connection.send({name: (str(tensor.dtype), tensor.double().tolist()) for name, tensor in received.items()})
    receiver.close()


def check_between_processes(transport: str, device: str, workers: int, bucket_mib: int) -> None:
    config = WeightSyncConfig(transport=transport, bucket_mib=bucket_mib, transfer_timeout_s=60)
    publisher = build_publisher(config, "auto", "127.0.0.1")
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(workers)]
    processes = [context.Process(target=receive_all, args=(theirs,), daemon=True) for _, theirs in pipes]
    for process in processes:
        process.start()
    try:
        for version in range(2):
            weights = {k: v.to(device) + version if v.dtype != torch.bool else v for k, v in some_weights().items()}
            assert publisher.publish(iter(weights.items())) >= sum(t.nbytes for t in weights.values())
            offer = publisher.offer("engine", workers)
            for worker, (ours, _) in enumerate(pipes):
                place = f"cuda:{worker + 1}" if transport == "nccl" else device
                offer.arguments.update(worker=worker, device=place)
                ours.send(offer)
            for ours, _ in pipes:
                assert ours.poll(120)
                received = ours.recv()
                assert list(received) == list(weights)
                for name, (dtype, values) in received.items():
                    assert dtype == str(weights[name].dtype) and values == weights[name].double().tolist()
        for ours, _ in pipes:
            ours.send(None)
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
        publisher.close()


@pytest.mark.parametrize(("workers", "bucket_mib"), [(1, 0), (2, 1)])
def test_gloo_when_there_are_several_workers_carries_two_versions_to_each(workers, bucket_mib):
    check_between_processes("gloo", "cpu", workers, bucket_mib)


@pytest.mark.gpu
def test_nccl_when_there_are_several_gpus_carries_two_versions():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    check_between_processes("nccl", "cuda", torch.cuda.device_count() - 1, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("bucket_mib", [0, 1])
def test_ipc_when_on_one_gpu_carries_two_versions(bucket_mib):
    check_between_processes("ipc", "cuda:0", 1, bucket_mib)


def test_channels_when_never_asked_for_are_forgotten():
    publisher = build_publisher(WeightSyncConfig(transport="gloo"), "auto", "127.0.0.1")
    with pytest.raises(RuntimeError, match="published"):
        publisher.offer("early", 1)
    with pytest.raises(ValueError, match="no weights"):
        publisher.publish(iter(()))
    weights = some_weights()
    publisher.publish(weights.items())
    offers = {name: publisher.offer(name, 1) for name in ("kept", "dropped")}
    receivers = {}

    def open_channel(name: str) -> None:
        receivers[name] = open_receiver("gloo", offers[name].arguments, 0, torch.device("cpu"))
        for bucket in offers[name].buckets:
            receivers[name].receive(bucket)

    threads = [threading.Thread(target=open_channel, args=(name,)) for name in offers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    publisher.publish(weights.items())
    again = publisher.offer("kept", 1)
    assert again.arguments == offers["kept"].arguments
    for bucket in again.buckets:
        receivers["kept"].receive(bucket)
    publisher.publish(weights.items())  # "dropped" was not asked for since the publish before
    publisher.connect_timeout_s = 0.5  # no engine comes to the new channel, for which `close` waits
    assert publisher.offer("dropped", 1).arguments["port"] != offers["dropped"].arguments["port"]
    publisher.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight_sync": WeightSyncConfig(transport="carrier_pigeon")}, "rollout.weight_sync.transport=carrier_pigeon"),
        ({"weight_sync": WeightSyncConfig(transport="nccl")}, "rollout.device=cuda"),
        ({"weight_sync": WeightSyncConfig(transport="gloo"), "engine": "transformers"}, "in_process only"),
        ({"weight_sync": WeightSyncConfig(transport="ipc"), "device": "cuda", "tensor_parallel": 2}, "use nccl"),
        ({"weight_sync": WeightSyncConfig(bucket_mib=-1)}, "bucket_mib=-1"),
        ({"weight_sync": WeightSyncConfig(finish_timeout_s=0)}, "finish_timeout_s=0"),
        ({"sleep_mode": True}, "sleep_mode"),
        ({"drift_band": 0.0}, "drift_band=0"),
    ],
)
def test_rollout_config_when_it_cannot_work_is_refused_before_anything_starts(fields, message):
    with pytest.raises(UserError, match=message):
        check_rollout_config(RolloutConfig(**fields))
