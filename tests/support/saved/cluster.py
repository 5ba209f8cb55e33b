"""A job of several processes, and programs whose Python functions run in those of its workers."""

import contextlib
import functools
import itertools
import json
import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

_HOST = "localhost"


def _in_other_process(serve: Callable[[], str]) -> str:
    """Start a process that serves until this one ends, and return its first message."""
    return _said(_begin(serve))


def _begin(serve: Callable[[], str]) -> int:
    """Starts such a process, and returns the pipe to read from what it says."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.close(reader)
            os.write(writer, serve().encode())
            os.close(writer)
            signal.pause()
        finally:  # the child does not return to the caller
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    return reader


def _said(reader: int) -> str:
    with open(reader) as said:
        text = said.read()
    assert text, "the process has ended before it could serve"
    return text


def _free_ports(count: int) -> list[str]:
    """Addresses that nobody listens at, below the ports that the system hands out by itself.

    Those of another process of the tests are others, too.
    """
    found: list[str] = []
    ports = itertools.count(20_000 + os.getpid() * 16 % 10_000)
    while len(found) < count:
        port = next(ports)
        with contextlib.suppress(OSError), socket.create_server((_HOST, port)):
            found.append(f"{_HOST}:{port}")
    return found


def start(workers: int) -> tuple[tf.train.ClusterSpec, list[int]]:
    """Starts the tasks of a cluster: its spec, and the ids of the processes of its workers.

    Before anything of TensorFlow runs here.
    """
    *addresses, server, chief = _free_ports(workers + 2)
    cluster = tf.train.ClusterSpec({"worker": addresses, "ps": [server], "chief": [chief]})
    servers = []

    def task(job: str, index: int) -> str:
        hostcall.allow("tests.support.saved.functions")
        servers.append(tf.distribute.Server(cluster, job, index, protocol="grpc"))
        return str(os.getpid())

    ids = [_in_other_process(lambda index=i: task("worker", index)) for i in range(workers)]  # type: ignore[misc]
    _in_other_process(lambda: task("ps", 0))
    return cluster, [int(one) for one in ids]


def start_data_service() -> tuple[str, int]:
    """Starts a service of tf.data: its address, and the id of its process."""
    servers: list[Any] = []
    service = tf.data.experimental.service

    def serve() -> str:
        hostcall.allow("tests.support.saved.functions")
        dispatcher = service.DispatchServer()
        address = dispatcher.target.partition("://")[2]
        config = service.WorkerConfig(dispatcher_address=address)
        servers.extend([dispatcher, service.WorkerServer(config)])
        return f"{dispatcher.target} {os.getpid()}"

    target, process = _in_other_process(serve).split()
    return target, int(process)


def train_together(workers: int) -> list[dict[str, Any]]:
    """Train by a MultiWorkerMirroredStrategy, and return the report of each worker."""
    addresses = _free_ports(workers)

    def train(index: int) -> str:
        task = {"type": "worker", "index": index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        from tests.support.saved import multi_worker

        return json.dumps(multi_worker.train(index))

    pipes = [_begin(functools.partial(train, index)) for index in range(workers)]
    return [json.loads(_said(pipe)) for pipe in pipes]


def run_all() -> dict[str, Any]:
    """Run the programs below; return their results by name, and the ids of the processes."""
    together = train_together(2)
    cluster, workers = start(2)
    service, server = start_data_service()
    from tests.support.saved import job  # TensorFlow may run from here on

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return {
        "here": os.getpid(),
        "workers": workers,
        "server": server,
        "together": together,
        "parameter_server": job.parameter_server(strategy),
        "parameter_server_training": job.parameter_server_training(strategy),
        "remote_device": job.remote_device(),
        "version_1": job.version_1(cluster),
        "data_service": job.data_service(service),
        # Of a module that nobody has allowed the worker to import.
        "not_allowed": job.error_of(lambda: job.calling(np.sin)),
        "not_named": job.error_of(lambda: job.calling(lambda v: v)),
        "not_named_in_version_1": job.error_of(lambda: job.not_named_in_version_1(cluster)),
    }
