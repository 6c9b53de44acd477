# SPDX-License-Identifier: Apache-2.0
"""A parent with children: `children_client.py ADDRESS CASE [METHOD]`. Prints ok."""

import concurrent.futures
import multiprocessing
import os
import sys

import numpy as np

import arraybridge

NAMESPACE = "children"


def read_by_name(broker, name):
    assert broker.get(name)[-1] == 999
    broker.put(np.full(3, os.getpid()), f"{name}-{os.getpid()}")


def connected(address):
    return arraybridge.Broker(address, namespace=NAMESPACE, start="never")


def read_in_child(address, name, share):
    with connected(address) as broker:
        read_by_name(broker, name)
    assert share.to("numpy").sum() == 499500


def total(share):
    return int(np.asarray(share).sum())


def made_in_worker(address, count):
    with connected(address) as broker:
        return broker.put(np.arange(count))


def process(address, method):
    broker = connected(address)
    name = f"process-{method}"
    share = broker.put(np.arange(1000), name)
    held = broker.get(name)
    context = multiprocessing.get_context(method)
    child = context.Process(target=read_in_child, args=(address, name, share))
    child.start()
    child.join()
    assert child.exitcode == 0
    if method == "fork":
        # The parent's own Broker object, inherited.
        child = context.Process(target=read_by_name, args=(broker, name))
        child.start()
        child.join()
        assert child.exitcode == 0
    made = [row.share.name for row in broker.list(f"{name}-")]
    assert len(made) == (2 if method == "fork" else 1)
    assert broker.get(made[0])[0] > 0 and held[-1] == 999


def pool(address, method):
    broker = connected(address)
    shares = [broker.put(np.arange(count)) for count in range(1, 9)]
    context = multiprocessing.get_context(method)
    expected = [count * (count - 1) // 2 for count in range(1, 9)]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as workers:
        assert list(workers.map(total, shares)) == expected
    with context.Pool(2) as workers:
        assert workers.map(total, shares) == expected


def fork_release(address):
    broker = connected(address)
    broker.put(np.arange(1000), "kept", replace=True)
    held = broker.get("kept")
    before = broker.list("kept")[0].leases
    child = os.fork()
    if child == 0:
        del held
        broker.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert broker.list("kept")[0].leases == before >= 1
    assert held[-1] == 999


class Shares:
    """A torch dataset of shares: items are read in the worker, without a copy."""

    def __init__(self, shares):
        self.shares = shares

    def __len__(self):
        return len(self.shares)

    def __getitem__(self, index):
        return self.shares[index].to("torch")


def data_loader(address, method):
    import torch

    torch.set_num_threads(1)
    broker = connected(address)
    shares = [broker.put(np.full((4,), index, np.float32)) for index in range(8)]
    loader = torch.utils.data.DataLoader(Shares(shares), batch_size=2, num_workers=2, multiprocessing_context=method)
    assert [batch[:, 0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def joblib(address):
    import joblib

    broker = connected(address)
    shares = [broker.put(np.arange(count)) for count in (3, 4)]
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(total)(share) for share in shares) == [3, 6]


def worker_share(address):
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        share = workers.submit(made_in_worker, address, 5).result()
        assert share.to("numpy").tolist() == [0, 1, 2, 3, 4]


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[1], *sys.argv[3:])
    print("ok")
