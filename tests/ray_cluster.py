"""A Ray of several processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Ray kills the process that runs the tests if other processes do not answer for some seconds,
# which happens on a busy machine.
PATIENT = {"health_check_failure_threshold": 100, "gcs_rpc_server_reconnect_timeout_s": 600}


@contextmanager
def ray_cluster(num_cpus: int) -> Iterator[None]:
    import ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        "local",  # a cluster of its own, also where another one runs on this machine
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _system_config=PATIENT,
    )
    try:
        yield
    finally:
        ray.shutdown()
