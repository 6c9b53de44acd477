# SPDX-License-Identifier: Apache-2.0
"""A parent that hands arrays to children and takes theirs: `reducers_client.py CASE [METHOD]`. Prints ok."""

import concurrent.futures
import functools
import gc
import multiprocessing
import os
import signal
import sys
import time

import numpy as np

import arraybridge
import arraybridge.multiprocessing as passing

LARGE = 1 << 20  # elements


def doubled(array):
    array *= 2  # an array of its own
    return array


def many(count):
    """Its argument is no array, so nothing tells a spawned child to pass results by reference but `install`."""
    return np.full(count, 7.0)


def installed_many(broker, count):
    passing.install(broker)
    return many(count)


def expect_nothing_left(broker):
    gc.collect()
    deadline = time.monotonic() + 30
    while (now := broker.stats())["shares"] or now["withdrawn_shares"] or now["leases"]:
        assert time.monotonic() < deadline, now
        broker.flush()
        time.sleep(0.01)


def published(broker):
    return broker.stats()["publishes_total"]


def pools(broker, method):
    context = multiprocessing.get_context(method)
    arrays = [np.full(LARGE, float(number)) for number in range(4)]
    before = published(broker)
    with context.Pool(2) as workers:
        results = workers.map(doubled, arrays, 1)
        assert [each[-1] for each in results] == [0, 2, 4, 6] and all(each.flags.writeable for each in results)
        assert published(broker) == before + 8  # both ways
        workers.close()
        workers.join()
    install = {} if method == "fork" else {"initializer": passing.install, "initargs": (broker,)}
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context, **install) as workers:
        assert [each[-1] for each in workers.map(doubled, arrays)] == [0, 2, 4, 6]
        assert [each.sum() for each in workers.map(many, [LARGE, 2 * LARGE])] == [7.0 * LARGE, 14.0 * LARGE]
    assert [each[0] for each in arrays] == [0, 1, 2, 3]  # nobody wrote into ours
    del results


def put_into(queue, count, broker):
    if broker is not None:
        passing.install(broker)
    for number in range(count):
        queue.put({"number": number, "array": np.full(LARGE, number, np.int32)})


def queues(broker, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=put_into, args=(queue, 3, None if method == "fork" else broker))
    before = published(broker)
    child.start()
    items = [queue.get() for _ in range(3)]
    child.join()
    assert child.exitcode == 0 and [item["array"][-1] for item in items] == [0, 1, 2]
    assert published(broker) == before + 3
    queue.close()


def killed(broker):
    """What was sent to a process that is killed goes after its lifetime."""
    passing.install(broker, lifetime=2)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=time.sleep, args=(600,))
    child.start()
    queue.put(np.ones(LARGE))
    while not broker.stats()["shares"]:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    expect_nothing_left(broker)
    try:
        queue.get()
    except arraybridge.ShareNotFound as gone:
        assert "not within 2 s; pass a longer lifetime" in str(gone), gone
    else:
        raise AssertionError("it was read")


def joblib(broker):
    import joblib

    passing.install(broker)  # registers with joblib's pickler, too
    before = published(broker)
    jobs = [joblib.delayed(doubled)(np.full(LARGE, float(number))) for number in range(3)]
    results = joblib.Parallel(n_jobs=2, max_nbytes=None)(jobs)
    assert [each[-1] for each in results] == [0, 2, 4] and published(broker) == before + 6
    # Joblib writes a large array into one file for all its jobs, which is less than a copy for each.
    array, before = np.full(LARGE, 7.0), published(broker)
    sums = joblib.Parallel(n_jobs=2)(joblib.delayed(np.sum)(array) for _ in range(8))
    assert sums == [7.0 * LARGE] * 8 and published(broker) == before
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(installed_many)(broker, LARGE) for _ in range(3))
    assert [each.size for each in results] == [LARGE] * 3 and published(broker) == before + 3
    assert joblib.Parallel(n_jobs=2)([joblib.delayed(doubled)(np.arange(3))])[0].tolist() == [0, 2, 4]
    passing.uninstall()
    before = published(broker)
    assert joblib.Parallel(n_jobs=2, max_nbytes=None)(jobs)[2][-1] == 4 and published(broker) == before


def frameworks(broker):
    import jax
    import tensorflow as tf
    import torch

    passing.install(broker)
    dumps, loads = multiprocessing.reduction.ForkingPickler.dumps, multiprocessing.reduction.ForkingPickler.loads
    tensor = torch.arange(LARGE, dtype=torch.bfloat16)
    before = published(broker)
    for array in tensor, jax.numpy.arange(LARGE), tf.range(LARGE), np.arange(LARGE):
        pickled = dumps(array)
        assert len(pickled) < 4096
        read = loads(pickled)
        assert type(read) is type(array) and read.dtype == array.dtype and (np.asarray(read[-3:] == array[-3:])).all()
    assert published(broker) == before + 4
    read = loads(dumps(tensor))
    read[0] = 9
    assert tensor[0] == 0
    # Torch's own reducer passes these.
    before = published(broker)
    shared = torch.ones(LARGE).share_memory_()
    loads(dumps(shared))[0] = 5
    assert shared[0] == 5
    assert loads(dumps(torch.ones(LARGE, requires_grad=True))).requires_grad
    assert loads(dumps(torch.nn.Parameter(torch.ones(LARGE)))).requires_grad
    assert loads(dumps(torch.ones(LARGE).to_sparse())).is_sparse
    assert published(broker) == before
    passing.uninstall()
    loads(dumps(tensor))[0] = 9
    assert tensor[0] == 9  # torch's own way
    del read, shared


def tied(weights):
    """Returns its argument, and whether its tensors share a storage here."""
    weights["head"] *= 2
    return weights, weights["embed"].eq(2).all().item()


def storages(broker, method):
    import torch

    passing.install(broker)
    whole = torch.ones(LARGE)
    weights = {"embed": whole, "head": whole.view(-1, 1024), "part": whole[5:], "name": "model"}
    before = published(broker)
    install = {} if method == "fork" else {"initializer": passing.install, "initargs": (broker,)}
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context, **install) as workers:
        read, are_tied = workers.submit(tied, weights).result()
    assert are_tied and published(broker) == before + 2 and whole.eq(1).all()
    assert read["embed"].eq(2).all() and read["part"].shape == (LARGE - 5,)
    read["part"][0] = 3
    assert read["embed"][5] == 3 == read["head"][0, 5]
    del read


class Samples:
    """A torch dataset."""

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 24

    def __getitem__(self, index):
        import torch

        image = np.full((256, 256), index, np.float32)
        if self.kind == "ragged":
            return torch.ones(index % 2 + 1)
        return {"image": torch.from_numpy(image), "mask": (image, index), "name": f"image {index}"}


def loader(broker, method):
    import torch

    import arraybridge.data

    torch.set_num_threads(1)
    collate = functools.partial(arraybridge.data.collate, broker=broker)
    before, copied = published(broker), broker.stats()["convert_copies"]
    options = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": method}
    batches = list(torch.utils.data.DataLoader(Samples("tensors"), collate_fn=collate, **options))
    for number, batch in enumerate(batches):
        expected = range(4 * number, 4 * number + 4)
        assert batch["image"][:, 7, 7].tolist() == [*expected] == batch["mask"][0][:, 0, 0].tolist() == batch["mask"][1].tolist()
        assert batch["name"] == [f"image {index}" for index in expected]
        batch["image"][0] = -1  # the loader's own, to write
        assert batch["image"].dtype == torch.float32 and batch["image"].is_contiguous()
    assert published(broker) == before + 12 and broker.stats()["convert_copies"] == copied
    # In this process nothing is shared.
    assert len(list(torch.utils.data.DataLoader(Samples("tensors"), batch_size=4, collate_fn=collate))) == 6
    assert published(broker) == before + 12
    if method != "fork":
        return  # workers that are still being started when their loader ends say so on stderr, with and without us
    try:
        list(torch.utils.data.DataLoader(Samples("ragged"), collate_fn=collate, **options))
    except RuntimeError as refused:
        assert "equal size" in str(refused), refused
    else:
        raise AssertionError("samples of several sizes were collated")


if __name__ == "__main__":
    with arraybridge.Broker(start="private") as broker:
        passing.install(broker)
        globals()[sys.argv[1]](broker, *sys.argv[2:])
        expect_nothing_left(broker)
    print("ok")
