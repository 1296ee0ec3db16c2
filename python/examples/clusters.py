"""One measurement in four parts, with Ray and with Dask on this machine: `pip install ray dask distributed`."""

import sigprop

GIVEN = {"layers": 4, "width": 64, "seq_len": 32, "replicates": 40, "seed": 3, "threads": 1}
PARTS = range(1, 5)


def part(number: int) -> sigprop.Shard:
    """One of the parts, computed on any machine."""
    return sigprop.measure_shard(number, len(PARTS), **GIVEN)


def by_ray() -> sigprop.Validation:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    task = ray.remote(num_cpus=1)(part)
    found = sigprop.merge(ray.get([task.remote(number) for number in PARTS]))
    ray.shutdown()
    return found


def by_dask() -> sigprop.Validation:
    from dask.distributed import Client

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        return sigprop.merge(client.gather(client.map(part, PARTS)))


if __name__ == "__main__":
    whole = sigprop.validate(**GIVEN)
    for name, run in (("ray", by_ray), ("dask", by_dask)):
        assert run() == whole, f"{name}: expected the numbers of one run"
        print(f"{name}: the numbers of one run")
