"""The figures of a worker: how many calls, errors and seconds, for checks of its health.

`serve` gives them to Prometheus, too, by `prometheus_client`, which is optional.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

# Observes a call: the name of its function, whether it failed, and its seconds.
Observer = Callable[[str, bool, float], None]

_LOCALHOST = "127.0.0.1"
# Seconds: a call takes some tenths of a millisecond and what its function takes.
_BUCKETS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)


class Totals(NamedTuple):
    """The calls of a worker so far. Questions for the shapes of results are none."""

    calls: int = 0
    errors: int = 0
    seconds: float = 0.0  # the sum over the calls
    slowest: float = 0.0  # the seconds of the call that took longest


class Metrics:
    """The calls of a worker, counted; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals()
        self.observers: list[Observer] = []

    @property
    def totals(self) -> Totals:
        """The sums over all calls that have ended."""
        with self._lock:
            return self._totals

    def add(self, function: str, failed: bool, seconds: float) -> None:
        """Count a call that has ended."""
        with self._lock:
            before = self._totals
            self._totals = Totals(
                before.calls + 1,
                before.errors + failed,
                before.seconds + seconds,
                max(before.slowest, seconds),
            )
        for observe in self.observers:
            observe(function, failed, seconds)


def serve(address: str, metrics: Metrics, connections: Callable[[], int]) -> str:
    """Serve metrics to Prometheus at a PORT, or HOST:PORT; return the address of the page.

    Raises a ValueError for an address that makes no sense or is taken, and without the package.
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise ValueError(
            "hostcall: --metrics needs the package prometheus_client: "
            "pip install 'hostcall[prometheus]'"
        ) from error
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"hostcall: --metrics={address} is neither PORT nor HOST:PORT.")
    registry = prometheus_client.CollectorRegistry()
    seconds = prometheus_client.Histogram(
        "hostcall_worker_call_seconds",
        "Seconds of the calls of Python functions, by their outcome.",
        ["function", "outcome"],
        buckets=_BUCKETS,
        registry=registry,
    )
    clients = prometheus_client.Gauge(
        "hostcall_worker_connections", "Connected clients.", registry=registry
    )
    clients.set_function(connections)
    try:
        server, _ = prometheus_client.start_http_server(
            int(port), host or _LOCALHOST, registry=registry
        )
    except (OSError, OverflowError) as error:
        raise ValueError(f"hostcall: no metrics can be served at {address}: {error}") from error
    metrics.observers.append(
        lambda function, failed, taken: seconds.labels(
            function, "error" if failed else "success"
        ).observe(taken)
    )
    return f"http://{host or _LOCALHOST}:{server.server_port}/metrics"
