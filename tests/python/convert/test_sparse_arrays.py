# SPDX-License-Identifier: Apache-2.0
"""Sparse arrays: SciPy's, torch's, JAX's and TensorFlow's become each other's own, part by part; CuPy's on a simulated GPU."""

import json

import numpy as np
import pytest
import simulated

import arraybridge
from arraybridge import InvalidRequest, UnsupportedArray, UnsupportedDtype, ZeroCopyUnavailable, _core, convert_memory
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.conversion import sparse

scipy_sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax_sparse = pytest.importorskip("jax.experimental.sparse", reason="jax is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning"),
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC) tensor support is in beta:UserWarning"),
]
DENSE = np.array([[0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 4, 0]], "f4")
# Framework, and how it makes a sparse array of DENSE.
MAKE = {
    "csr_array": ("numpy", lambda: scipy_sparse.csr_array(DENSE)),
    "csr_matrix": ("numpy", lambda: scipy_sparse.csr_matrix(DENSE)),
    "csc_array": ("numpy", lambda: scipy_sparse.csc_array(DENSE)),
    "coo_array": ("numpy", lambda: scipy_sparse.coo_array(DENSE)),
    "torch csr": ("torch", lambda: torch.from_numpy(DENSE).to_sparse_csr()),
    "torch csc": ("torch", lambda: torch.from_numpy(DENSE).to_sparse_csc()),
    "torch coo": ("torch", lambda: torch.from_numpy(DENSE).to_sparse()),
    "bcoo": ("jax", lambda: jax_sparse.BCOO.fromdense(DENSE)),
    "bcsr": ("jax", lambda: jax_sparse.BCSR.fromdense(DENSE)),
    "SparseTensor": ("tensorflow", lambda: tf.sparse.from_dense(DENSE)),
}
# What each becomes, and the copy that rearranges it; "": every part is where it was.
TO_NUMPY = dict.fromkeys(MAKE, "")
TO_TORCH = {
    "csr_array": "", "csr_matrix": "", "csc_array": "", "coo_array": "layout", "torch csr": "", "torch csc": "", "torch coo": "",
    "bcoo": "dtype", "bcsr": "", "SparseTensor": "",
}  # fmt: skip
TO_JAX = {
    "csr_array": "", "csr_matrix": "", "csc_array": "layout", "coo_array": "layout", "torch csr": "", "torch csc": "layout",
    "torch coo": "layout", "bcoo": "", "bcsr": "", "SparseTensor": "",
}  # fmt: skip
TO_TENSORFLOW = dict.fromkeys(MAKE, "layout") | {"bcoo": "dtype", "SparseTensor": ""}
REARRANGED = {"numpy": TO_NUMPY, "torch": TO_TORCH, "jax": TO_JAX, "tensorflow": TO_TENSORFLOW}
OWN = {
    "numpy": (scipy_sparse.sparray, scipy_sparse.spmatrix),
    "torch": torch.Tensor,
    "jax": (jax_sparse.BCOO, jax_sparse.BCSR),
    "tensorflow": tf.SparseTensor,
}


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):  # torch's and TensorFlow's indices are int64
        yield


def dense(array):
    if isinstance(array, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(array)).numpy()
    return array.to_dense().numpy() if isinstance(array, torch.Tensor) else np.asarray(array.todense())


def addresses(array):
    """Where its parts are."""
    return [convert_memory(part, None, "numpy").ctypes.data for part in sparse.taken_apart(array).parts]


@pytest.mark.parametrize("target", REARRANGED)
@pytest.mark.parametrize("source", MAKE)
def test_a_share_of_each_is_everybodys_own(broker, source, target):
    broker.put({"m": MAKE[source][1](), "n": 1}, "sparse")
    got, plan = broker.get("sparse", target, explain=True)
    assert isinstance(got["m"], OWN[target]) and (dense(got["m"]) == DENSE).all() and got["n"] == 1
    said = REARRANGED[target][source]
    assert (plan.copies, plan.reasons != ()) == (1, True) if said else plan.zero_copy and not plan.reasons, plan
    assert all(reason.startswith(said) for reason in plan.reasons)
    if said:
        with pytest.raises(ZeroCopyUnavailable, match=r"^\['m'\]: .*" + said):
            broker.get("sparse", target, require="zero-copy")


@pytest.mark.parametrize("target", REARRANGED)
@pytest.mark.parametrize("source", MAKE)
def test_in_one_process_parts_are_shared(broker, source, target):
    framework, make = MAKE[source]
    array = make()
    said = REARRANGED[target][source]
    for convert in (
        lambda **wishes: broker.convert(array, target, **wishes),
        lambda **wishes: convert_memory(array, framework, target, None, **wishes),
    ):
        assert (dense(convert()) == DENSE).all()
        if framework == target:
            assert convert() is array
        if said or (target == "torch" and framework in ("jax", "tensorflow")):
            with pytest.raises(ZeroCopyUnavailable):  # torch would write to what is constant
                convert(copy=False)
        elif target in ("numpy", "torch"):
            # Of SciPy's COO each row of torch's indices is an array.
            there, here = addresses(convert(copy=False)), addresses(array)
            assert (there[0], there[-1]) == (here[0], here[-1])
        private = convert(copy=True)
        assert private is not array and (dense(private) == DENSE).all()
        assert not set(addresses(private)) & set(addresses(array))


def test_what_is_zero_copy_is_the_brokers_memory(broker):
    broker.put(scipy_sparse.csr_array(DENSE), "m")
    got = broker.get("m")
    assert type(got) is scipy_sparse.csr_array and got.indices.dtype == np.int32
    for part in (got.indptr, got.indices, got.data):
        assert not part.flags.owndata and not part.flags.writeable
    assert type(broker.get("m", copy=True)) is scipy_sparse.csr_array and broker.get("m", copy=True).data.flags.writeable
    assert addresses(broker.get("m")) == addresses(got)
    # torch writes into a private mapping.
    broker.get("m", "torch").values()[0] = 9
    assert (dense(broker.get("m")) == DENSE).all()


def test_the_layout_and_what_is_known_of_it_stay(broker):
    twice = torch.sparse_coo_tensor([[1, 0, 1], [0, 1, 0]], torch.tensor([1.0, 2.0, 3.0]), (2, 2))
    broker.put([twice, twice.coalesce(), scipy_sparse.csc_matrix(DENSE), MAKE["bcoo"][1]()], "all")
    loose, tight, matrix, bcoo = broker.get("all", "torch")
    assert not loose.is_coalesced() and loose._nnz() == 3 and tight.is_coalesced() and bcoo.is_coalesced()
    assert matrix.layout == torch.sparse_csc and loose.to_dense().tolist() == [[0, 2], [4, 0]]
    _, _, matrix, bcoo = broker.get("all")
    assert type(matrix) is scipy_sparse.csc_matrix and type(bcoo) is scipy_sparse.coo_array
    assert broker.get("all", "jax")[3].indices_sorted and not broker.get("all", "jax")[0].unique_indices


def test_other_shapes_and_dtypes(broker):
    cube = np.zeros((2, 3, 4), "c16")
    cube[1, 2, 3], cube[0, 0, 1] = 1j, 2
    kinds = [torch.from_numpy(cube).to_sparse(), jax_sparse.BCOO.fromdense(cube), tf.sparse.from_dense(cube)]
    line = torch.tensor([0, 5, 0], dtype=torch.int64).to_sparse()
    nothing = scipy_sparse.csr_array((3, 5), dtype="f8")
    for array in kinds:
        broker.put([array, line, nothing], "m", replace=True)
        for target in REARRANGED:
            one, two, three = broker.get("m", target)
            assert dense(one).tobytes() == cube.tobytes() and dense(two).tolist() == [0, 5, 0]
            assert dense(three).shape == (3, 5) and not dense(three).any()


def test_padding_does_not_travel(broker):
    padded = [jax_sparse.BCOO.fromdense(DENSE, nse=9), jax_sparse.BCSR.fromdense(DENSE, nse=9)]
    longer = scipy_sparse.csr_array(DENSE)
    longer.data, longer.indices = np.append(longer.data, 7).astype("f4"), np.append(longer.indices, 9).astype("i4")
    broker.put([*padded, longer], "m")
    for target in REARRANGED:
        for got in broker.get("m", target):
            assert (dense(got) == DENSE).all()
    assert broker.get("m")[0].nnz == broker.get("m")[1].nnz == broker.get("m")[2].nnz == 4


def test_gradients_stay_with_their_tensor(broker):
    tensor = torch.eye(2).to_sparse().requires_grad_()
    broker.put(tensor, "m")
    assert not broker.get("m", "torch").requires_grad and tensor.requires_grad
    assert broker.convert(tensor, "torch") is not None and broker.convert(tensor, "numpy").nnz == 2


# Rows of [2, 0, 2] and [1]: not sorted, and a position twice, as SciPy makes them (A @ A) and torch and JAX allow.
PARTS = np.array([0, 3, 4]), np.array([2, 0, 2, 1]), np.array([1.0, 2.0, 3.0, 4.0], "f4")
LOOSE = np.array([[2, 0, 4], [0, 4, 0]], "f4")


def loose(make, swapped):
    starts, inner, data = (part.copy() for part in PARTS)
    return make(starts, inner, data, (3, 2) if swapped else (2, 3))


MAKE_LOOSE = {
    "csr_array": lambda: loose(lambda s, i, d, shape: scipy_sparse.csr_array((d, i, s), shape=shape), False),
    "csc_matrix": lambda: loose(lambda s, i, d, shape: scipy_sparse.csc_matrix((d, i, s), shape=shape), True),
    "torch csr": lambda: loose(
        lambda *parts: torch.sparse_csr_tensor(*map(torch.from_numpy, parts[:3]), parts[3], check_invariants=False), False
    ),
    "torch csc": lambda: loose(
        lambda *parts: torch.sparse_csc_tensor(*map(torch.from_numpy, parts[:3]), parts[3], check_invariants=False), True
    ),
    "bcsr": lambda: loose(lambda s, i, d, shape: jax_sparse.BCSR((d, i, s), shape=shape), False),
}


def work(target, array, dense_vector):
    """What programs do with a sparse array, as dense values."""
    if target == "numpy":
        array.sum_duplicates()  # in place: raised for read-only parts
        return [array.toarray(), array.multiply(array).toarray(), array @ dense_vector, (array @ array.T).toarray()]
    if target == "torch":
        vector = torch.from_numpy(dense_vector)
        square = (array * array).to_dense() if array.layout == torch.sparse_csr else array.to_dense() ** 2
        return [array.to_dense(), square, array @ vector, torch.sparse.mm(array, vector[:, None])[:, 0]]
    if target == "jax":
        return [array.todense(), array @ dense_vector]
    vector = tf.constant(dense_vector[:, None])
    return [tf.sparse.to_dense(array), tf.sparse.reduce_sum(array, 1), tf.sparse.sparse_dense_matmul(array, vector)[:, 0]]


@pytest.mark.parametrize("target", REARRANGED)
@pytest.mark.parametrize("source", MAKE_LOOSE)
def test_indices_that_are_not_sorted_or_twice_give_right_values(broker, source, target):
    array = MAKE_LOOSE[source]()
    right = LOOSE.T if "csc" in source else LOOSE
    vector = np.arange(1, right.shape[1] + 1, dtype="f4")
    known = {
        "numpy": [right, right * right, right @ vector, right @ right.T],
        "torch": [right, right * right, right @ vector, right @ vector],
        "jax": [right, right @ vector],
        "tensorflow": [right, right.sum(1), right @ vector],
    }[target]
    before = [np.array(part) for part in sparse.taken_apart(array).parts]
    broker.put(array, "m")
    broker.put({"model": [array]}, "tree")
    with broker.channel("loose") as sends:
        sends.send(array)
        received = broker.channel("loose").receive(target)
    framework = {"torch": "torch", "bcsr": "jax"}.get(source.split()[0], "numpy")
    results = [broker.get("m", target), broker.get("tree", target)["model"][0], received]
    if framework != target:
        converted, plan = broker.convert(array, target, explain=True)
        assert plan.copies and any("not sorted" in reason for reason in plan.reasons)
        with pytest.raises(ZeroCopyUnavailable):
            broker.convert(array, target, copy=False)
        results += [converted, convert_memory(array, None, target, None)]
    else:
        result, plan = broker.convert(array, target, explain=True)
        assert result is array and plan.route == "identity", "nothing is read, and nothing copied"
    for got in results:
        for made, wanted in zip(work(target, got, vector), known, strict=True):
            np.testing.assert_array_equal(np.asarray(made), wanted)
    for part, was in zip(sparse.taken_apart(array).parts, before, strict=True):
        assert (np.asarray(part) == was).all(), "the caller's array has changed"


def test_products_of_scipy_are_right_everywhere(broker):
    square = scipy_sparse.random(40, 40, 0.2, format="csr", random_state=1, dtype="f4")
    product, vector = square @ square, np.arange(40, dtype="f4")
    assert not product.has_sorted_indices, "SciPy sorts the indices of products now: the test needs another array"
    broker.put(product, "m")
    assert np.allclose(broker.get("m", "torch") @ torch.from_numpy(vector), product @ vector)
    scaled = broker.get("m", "torch") * torch.from_numpy(square.toarray())
    assert np.allclose(scaled.to_dense().numpy(), product.multiply(square).toarray())
    got = broker.get("m")
    for operation in (got.tocsc, got.sum, got.sort_indices, got.sum_duplicates, lambda: got[3:9], lambda: got + got):
        operation()


def test_columns_are_in_row_major_order_for_tensorflow(broker):
    broker.put(scipy_sparse.csc_array(DENSE), "m")
    assert (tf.sparse.to_dense(broker.get("m", "tensorflow")).numpy() == DENSE).all()


def test_channels_carry_it(broker):
    with broker.channel("matrices") as sends:
        sends.send({"m": scipy_sparse.csr_array(DENSE)}, metadata=b"first")
        got = broker.channel("matrices").receive("torch", info=True)
    assert got.metadata == b"first" and (dense(got.array["m"]) == DENSE).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: scipy_sparse.dia_array(np.eye(3)), r"format dia \(dia_array\) .*use csr, csc or coo: pass array.tocsr"),
        (lambda: scipy_sparse.bsr_array(np.eye(4)), "format bsr"),
        (lambda: scipy_sparse.dok_array(np.eye(3)), r"format dok \(dok_array\) .*use csr, csc or coo: pass array.tocsr"),
        (lambda: scipy_sparse.lil_array(np.eye(3)), "format lil"),
        (lambda: torch.eye(4).to_sparse_bsr((2, 2)), "torch.sparse_bsr"),
        (lambda: torch.ones(2, 2).to_sparse(1), "torch.sparse_coo"),
        (lambda: torch.ones(2, 2, 2).to_sparse_csr(), "torch.sparse_csr"),
        (lambda: jax_sparse.BCOO.fromdense(np.ones((2, 2)), n_dense=1), "1 dense"),
        (lambda: jax_sparse.COO.fromdense(np.ones((2, 2))), "an array of COO"),
        (lambda: jax_sparse.BCOO.fromdense(np.float32(1)), "without dimensions"),
    ],
)
def test_other_forms_are_refused_by_name(broker, make, words):
    array = make()
    for ask in (
        lambda: broker.put({"k": [array]}),
        lambda: broker.convert({"k": [array]}, "tensorflow"),
        lambda: convert_memory({"k": [array]}, None, "tensorflow", None),
    ):
        with pytest.raises(UnsupportedArray, match=r"^\['k'\]\[0\]: .*" + words):
            ask()


def test_a_framework_without_sparse_arrays_says_so(broker):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    broker.put(scipy_sparse.csr_array(DENSE), "m")
    with pytest.raises(UnsupportedArray, match="pyarrow has no sparse arrays"):
        broker.get("m", "pyarrow")


def test_a_symbolic_tensor_never_reaches_memory(broker):
    def put(tensor):
        with pytest.raises(UnsupportedArray, match="symbolic"):
            broker.put(tensor, "never")
        return tensor

    tf.function(put, autograph=False)(tf.sparse.from_dense(DENSE))
    assert not broker.list()


def test_indices_that_a_framework_would_narrow_are_named(broker):
    broker.put({"m": torch.from_numpy(DENSE).to_sparse_csr()}, "m")
    with jax.enable_x64(False):
        with pytest.raises(UnsupportedDtype, match=r"^\['m'\]\.indptr: .*int64 to int32"):
            broker.get("m", "jax")
        assert (dense(broker.get("m", "jax", allow_downcast=True)["m"]) == DENSE).all()


INT = np.int32
CSR = Layout("csr", (2, 3))
BAD = {
    "index too large": (CSR, [[0, 1, 2], [0, 3]], 2),
    "index negative": (CSR, [[0, 1, 2], [0, -1]], 2),
    "indptr short": (CSR, [[0, 2], [0, 1]], 2),
    "indptr falls": (CSR, [[0, 3, 2], [0, 1]], 2),
    "indptr begins late": (CSR, [[1, 1, 2], [0, 1]], 2),
    "indptr ends beyond": (CSR, [[0, 1, 9], [0, 1]], 2),
    "too few values": (CSR, [[0, 1, 2], [0, 1]], 1),
    "csc index": (Layout("csc", (2, 3)), [[0, 1, 1, 2], [0, 2]], 2),
    "coo index": (Layout("coo", (2, 3)), [[0, 2], [0, 1]], 2),
    "coo lengths": (Layout("coo", (2, 3)), [[0, 1], [0]], 2),
    "by axis": (Layout("coo", (2, 3), "by_axis"), [[[0, 2], [0, 0]]], 2),
    "by value": (Layout("coo", (2, 3), "by_value"), [[[0, 0], [0, 3]]], 2),
    "by value, not by axis": (Layout("coo", (2, 3), "by_value"), [[[0, 0, 0], [0, 1, 2]]], 3),
    "unsorted": (Layout("coo", (2, 3), "by_axis", sorted=True), [[[1, 0], [0, 0]]], 2),
    "twice": (Layout("coo", (2, 3), "by_axis", sorted=True), [[[1, 1], [2, 2]]], 2),
    "csr unsorted": (CSR, [[0, 2, 2], [1, 0]], 2),
    "csr twice": (CSR, [[0, 2, 2], [1, 1]], 2),
    "no integers": (CSR, [[0.0, 1.0, 2.0], [0, 1]], 2),
    "values of two dimensions": (CSR, [[0, 1, 2], [0, 1]], (2, 1)),
}


@pytest.mark.parametrize("case", BAD)
def test_a_reader_is_never_led_outside(case):
    layout, indices, count = BAD[case]
    parts = [np.asarray(each, None if isinstance(each[0], float) else INT) for each in indices]
    with pytest.raises(UnsupportedArray, match="the share's sparse array is invalid: "):
        sparse.check(layout, [_core.wrap(each) for each in [*parts, np.zeros(count)]])


def test_the_check_is_made_of_what_is_handed_over(broker):
    """No framework looks whether an index is inside."""
    bad = scipy_sparse.csr_array(DENSE)
    bad.indices[0] = 1_000_000
    broker.put({"k": bad}, "bad")
    for target in REARRANGED:
        for copy in (None, True):
            with pytest.raises(UnsupportedArray, match=r"^\['k'\]: .*an index of indices is not in 0 to 3"):
                broker.get("bad", target, copy=copy)


def test_a_hostile_layout_is_a_named_error(broker):
    good = {**Layout("csr", (2, 2))._asdict(), "shape": [2, 2]}
    for wrong in (
        {"format": "dia"}, {"format": ["csr"]}, {"indices": "x"}, {"shape": [2]}, {"shape": "22"}, {"shape": [2, -1]},
        {"shape": [2, 2.0]}, {"shape": [1 << 63, 1]}, {"shape": []}, {"shape": [1] * 65, "format": "coo"}, {"sorted": 1}, {"matrix": None}, {"more": 1},
    ):  # fmt: skip
        structure = json.dumps({"sparse": [good | wrong, [0, 1, 2]]}).encode()
        with pytest.raises(InvalidRequest, match="structure"):
            arraybridge.conversion.tree.unflatten(structure, [1, 2, 3])
    for parts in ([0, 1], [0, 1, 1], [0, 1, {"v": 1}], [0, 1, 3], [0, 1, True]):
        structure = json.dumps({"sparse": [good, parts]}).encode()
        with pytest.raises(InvalidRequest, match="structure"):
            arraybridge.conversion.tree.unflatten(structure, [1, 2, 3])


def test_the_matrix_itself_from_process_to_process(broker, client):
    """SciPy's sparse matrix, torch's eigenvalues of it, NumPy: three processes, and no dense matrix on the way between them."""
    producer = """
import sys, numpy, scipy.sparse, arraybridge
with arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never") as broker:
    size = 200
    laplacian = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(size, size), format="csr")
    broker.put({"matrix": laplacian, "largest": 2}, "laplacian")
    broker.channel("done").receive()
"""
    solver = """
import sys, torch, arraybridge
with arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never") as broker:
    problem, plan = broker.get("laplacian", "torch", wait=60, explain=True)
    matrix = problem["matrix"]
    assert matrix.layout == torch.sparse_csr and plan.zero_copy and plan.copies == 0
    torch.manual_seed(0)
    values = torch.lobpcg(matrix, k=problem["largest"], niter=-1, tol=1e-10)[0]
    broker.put(values, "eigenvalues")
"""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(client, code, broker.namespace) for code in (producer, solver)]
        found = broker.get("eigenvalues", "numpy", wait=120)
        with broker.channel("done") as done:
            done.send(np.zeros(1))
        for job in jobs:
            job.result()
    expected = 2 - 2 * np.cos(np.pi * np.array([200, 199]) / 201)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(np.sort(found)[::-1], expected, rtol=1e-5)


@pytest.fixture(scope="module")
def gpu():
    with simulated.daemon() as started:
        yield started


@pytest.mark.parametrize("name", ["cupys_are_shared_part_by_part", "between_host_and_gpu", "a_gpus_indices_are_checked"])
def test_cupys_on_the_simulated_gpu(gpu, name):
    address, environment = gpu
    assert simulated.run("convert/sparse_gpu_program.py", environment, address, name) == "done\n"
