"""What Prometheus can read of the GPU service, on a port of loopback. Needs prometheus_client, which JupyterHub brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from allranks.ranks.engines.devices import Gpu
from allranks.ranks.engines.gpu_service import GpuServeError, Watch

WAITS_S = (1, 10, 30, 60, 120, 300, 600, 1200, 2400, 3600)


class Metrics(Watch):
    """The service's figures. No person's name is in them."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._gpus = tuple(gpus)
        self.registry = CollectorRegistry()
        self._leases = Gauge(
            "allranks_gpu_leases",
            "Leases of a GPU now; more than one if it is shared.",
            ("gpu", "uuid"),
            registry=self.registry,
        )
        self._waiting = Gauge("allranks_gpu_waiting", "Processes that wait for GPUs.", registry=self.registry)
        self._stray = Gauge(
            "allranks_gpu_unleased_processes", "Processes that have a GPU open without a lease.", registry=self.registry
        )
        self._waits = Histogram(
            "allranks_gpu_wait_seconds",
            "How long a process waited for its lease.",
            buckets=WAITS_S,
            registry=self.registry,
        )
        self._ended = Counter(
            "allranks_gpu_ended_processes",
            "Processes ended because they had a GPU open after their lease.",
            registry=self.registry,
        )

    def serve(self, port: int) -> int:
        """Answers on http://127.0.0.1:PORT/metrics from now on; returns the port (0: any that is free)."""
        try:
            server, _ = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise GpuServeError(f"The metrics' port {port} can't be used: {error.strerror}.") from None
        return int(server.server_port)

    def granted(self, waited_s: float) -> None:
        """A lease began."""
        self._waits.observe(waited_s)

    def ended(self) -> None:
        """A process was ended."""
        self._ended.inc()

    def unleased(self, processes: int) -> None:
        """So many processes have a GPU open without a lease."""
        self._stray.set(processes)

    def queue(self, waiting: int, leases: Mapping[str, int]) -> None:
        """So many wait, and each GPU has so many leases (a GPU that has none is left out)."""
        self._waiting.set(waiting)
        for gpu in self._gpus:
            self._leases.labels(str(gpu.index), gpu.uuid).set(leases.get(gpu.uuid, 0))
