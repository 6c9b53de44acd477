# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: states of a program that outlive it, in memory at once and on the disk soon after."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Self

from arraybridge import _core, autograph
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundled_tree import unpacked
from arraybridge.broker.keep.caching import made_by
from arraybridge.broker.share import Share
from arraybridge.conversion import tree
from arraybridge.errors import BrokerError, InvalidRequest, ShareNotFound
from arraybridge.keep.checkpoint_files import CheckpointFiles, DamagedFile, check_step, check_storable, named_leaves

_UNWRITTEN_MAX: Final = 2  # states that wait for the disk; each takes memory


class Checkpoint(NamedTuple):
    """A state that was saved, as `Checkpoints.latest` returns it.

    Attributes:
        step: the number that it was saved with.
        state: the tree of arrays and plain values.

    Example:
        >>> with arraybridge.Checkpoints("run8", "checkpoints", broker=broker) as saved:
        ...     saved.save(10, {"weight": np.ones(3)})
        >>> saved.latest().step
        10
    """

    step: int
    state: Any


class Checkpoints:
    """A series of states of one program, such as a training run. `save` copies a state into broker memory and returns; a thread
    writes it to the disk behind.

    The promises, by what dies:

    - This process, also by kill -9: the latest state is in broker memory, complete, and the next process gets it from there
      without reading the disk.
    - The broker, or the host: the latest state that was on the disk. `flush` waits for that. A file has its name when all of
      it is on the disk, so there is no half of one.
    - A damaged file: `latest` finds it by its SHA-256, warns, gives it the ending .damaged, and returns the state before.

    The files are safetensors, one a step: NAME-STEP.safetensors. Their arrays are named by their paths in the tree, so that other
    programs can read them. One process saves; any number of them may read, and a state that several read from the disk
    is read once for all.

    Args:
        name: of the series: at most 64 letters, digits, "_", "." and "-".
        directory: of the files; it is made. On a file system that all hosts see, they restore from each other's files.
        keep: how many of the latest files stay; None: all.
        broker: None: `Broker()`. The latest state lies in its namespace, as the share `checkpoints/NAME-ID/STEP`.

    Raises:
        InvalidRequest: a name or number that cannot be. OSError: the directory cannot be made or read.

    Example:
        >>> with arraybridge.Checkpoints("run7", "checkpoints", broker=broker) as checkpoints:
        ...     checkpoints.save(100, {"model": {"weight": np.ones((2, 3))}, "rate": 0.1})
        >>> step, state = checkpoints.latest("torch")    # also in the next process
        >>> step, state["rate"], state["model"]["weight"].shape
        (100, 0.1, torch.Size([2, 3]))
    """

    def __init__(self, name: str, directory: str | os.PathLike[str], *, keep: int | None = 3, broker: Broker | None = None) -> None:
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise InvalidRequest(f"keep must be 1 or more files, or None for all, not {keep!r}")
        self._files, self._keep = CheckpointFiles(name, directory), keep
        self._broker: Final = broker or Broker()
        self._prefix = f"checkpoints/{name}-{self._files.id}/"
        self._writer: ThreadPoolExecutor | None = None
        self._writes: list[Future[None]] = []
        self._process = os.getpid()
        self._saved = -1  # the latest step

    def save(self, step: int, state: Any) -> None:
        """Saves a state under a step that is later than all before. Returns when it is copied; two states may wait for the disk,
        and a third waits for the first of them.

        Args:
            state: a tree of arrays and plain values, as for `Broker.put`, for example
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()}; without tables.

        Raises:
            InvalidRequest: the step is not later than the latest; the state is no tree, or contains what a file cannot have; another
                process saves this series. OSError: an *earlier* state could not be written, for instance because the disk is
                full; this state is not saved then: save it again. OutOfMemory and other errors of `put`.
        """
        check_step(step)
        if not tree.is_tree(state):
            raise InvalidRequest(f"a state must be a tree, such as a state_dict, not {type(state).__name__}: save {{'x': x}}")
        self._begin()
        if step <= (latest := max([self._saved, *self._files.steps()])):
            raise InvalidRequest(f"step {step} is not later than {latest}, the latest of this series: go back with rewind({step - 1})")
        self._await_writes(_UNWRITTEN_MAX - 1)
        share = self._broker.put(state, self._prefix + str(step), replace=True)
        try:
            check_storable(share)
            self._enqueue(step, share)
        except BaseException:
            share.withdraw()
            raise
        self._saved = step
        self._withdraw_written()

    def latest(self, framework: str = "numpy", **wishes: Any) -> Checkpoint | None:
        """The latest state, from broker memory if it is there, else from the disk; None: nothing was saved.

        Args:
            framework, wishes: of the arrays, as in `Broker.get`.

        Raises:
            OSError: the files cannot be read. Errors of `get` and of `put`.
        """
        while True:
            steps = self.steps(memory=True)
            if not steps:
                return None
            step = steps[-1]
            try:
                return Checkpoint(step, self._state(step, framework, wishes))
            except (FileNotFoundError, ShareNotFound):
                continue  # removed for a later one
            except DamagedFile as error:
                aside = self._files.set_aside(step)
                warnings.warn(
                    f"{error.message}; it is {aside.name} now, and the checkpoint before it is used", RuntimeWarning, stacklevel=2
                )

    def load(self, step: int, framework: str = "numpy", **wishes: Any) -> Any:
        """The state of one step, from broker memory if it is there, else from the disk.

        Args:
            framework, wishes: of the arrays, as in `Broker.get`.

        Raises:
            ShareNotFound: the series has no such step. InvalidRequest: its file is damaged. OSError: the file cannot be read.
            Errors of `get` and of `put`.
        """
        check_step(step)
        try:
            return self._state(step, framework, wishes)
        except FileNotFoundError:
            have = ", ".join(map(str, self.steps())) or "none"
            raise ShareNotFound(f"there is no checkpoint {step}: not in memory, nor in {self._files.path(step)}; steps: {have}") from None

    def rewind(self, step: int) -> None:
        """Removes every state after this step (-1: all), in memory and on the disk, so that the series goes on from it.

        Raises:
            InvalidRequest: another process saves this series. OSError: a file cannot be removed, or an earlier state not be written.

        Example:
            >>> with arraybridge.Checkpoints("run10", "checkpoints", broker=broker) as saved:
            ...     for step in 1, 2, 3:
            ...         saved.save(step, {"weight": np.full(3, step)})
            ...     saved.rewind(2)
            ...     saved.latest().step
            2
        """
        check_step(0 if step == -1 else step)
        self._begin()
        if max([self._saved, *self.steps(memory=True)]) <= step:
            return
        self._await_writes(0)
        self._files.remove([each for each in self.steps() if each > step])
        self._withdraw(each for each in self._in_memory() if each > step)
        self._saved = min(self._saved, step)

    def steps(self, *, memory: bool = False) -> list[int]:
        """The steps whose files are on the disk, ascending; with `memory` also those that are in broker memory alone."""
        return sorted({*self._files.steps(), *(self._in_memory() if memory else ())})

    def flush(self) -> None:
        """Returns when all states are on the disk.

        Raises:
            OSError: one could not be written; the latest state stays in broker memory.
        """
        self._await_writes(0)

    def close(self) -> None:
        """`flush`, and lets another process save this series. The latest state stays in broker memory."""
        try:
            self.flush()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            self._writer = None
            self._files.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Makes this process the one that saves; writes what an earlier one could not any more."""
        if self._process != os.getpid():
            raise InvalidRequest("Checkpoints were made before a fork: make new ones in the child, if its parent does not save")
        if self._writer is not None:
            return
        self._files.lock()
        self._writer = ThreadPoolExecutor(1, "arraybridge-checkpoints")
        on_disk = max(self._files.steps(), default=-1)
        for step in self._in_memory():
            if step > on_disk:
                with contextlib.suppress(ShareNotFound):
                    self._enqueue(step, self._broker.get(self._prefix + str(step), info=True).share)
                    self._saved = step

    def _enqueue(self, step: int, share: Share) -> None:
        info, views = self._broker._acquired(share, False)
        structure, leaves = unpacked(info.structure, views)
        ranked, names = named_leaves(structure)
        assert self._writer is not None
        self._writes.append(self._writer.submit(self._write, step, ranked, dict(zip(names, leaves, strict=True))))

    def _write(self, step: int, structure: bytes, views: Mapping[str, _core.View]) -> None:
        self._files.write(step, structure, views)
        if self._keep is not None:
            self._files.remove([each for each in self._files.steps() if each <= step][: -self._keep])
        with contextlib.suppress(BrokerError):  # without a broker nothing is to be withdrawn; the next save does it else
            self._withdraw_written()

    def _await_writes(self, most: int) -> None:
        while len(self._writes) > most:
            self._writes[0].exception()
            self._writes.pop(0).result()

    def _state(self, step: int, framework: str, wishes: dict[str, Any]) -> Any:
        name = self._prefix + str(step)
        while True:
            try:
                return self._broker.get(name, framework, **wishes)
            except ShareNotFound:
                share = made_by(self._broker, name, lambda: self._files.read(step, self._broker, name), None)
            if share is not None:
                return self._broker.get(share, framework, **wishes)

    def _in_memory(self) -> list[int]:
        """The steps that the broker has, ascending."""
        names = [listed.share.name.removeprefix(self._prefix) for listed in self._broker.list(self._prefix)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _withdraw_written(self) -> None:
        """Memory keeps the latest state, and those before it that the disk has not got yet."""
        on_disk = self._files.steps()
        self._withdraw(each for each in self._in_memory() if each < self._saved and each in on_disk)

    def _withdraw(self, steps: Iterable[int]) -> None:
        for step in steps:
            with contextlib.suppress(ShareNotFound):
                self._broker.withdraw(self._prefix + str(step))


autograph.mark_module(__name__)
