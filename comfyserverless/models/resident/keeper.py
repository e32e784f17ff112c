"""Own the weights of a worker: load layers in the background while a run computes, free others for them.

The layer table decides, this class acts. One lock guards the table and the runs; loading happens outside of it,
on one thread that lives as long as some run has layers to wait for. A run holds only the layers of the step
that it is at, and nothing while it waits, so two runs never wait for each other for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from comfyserverless.core.errors import CapacityError, InvariantError
from comfyserverless.models.interruption import check_interrupt
from comfyserverless.models.resident.layers import Layer
from comfyserverless.models.resident.profiles import ProfileStore
from comfyserverless.models.resident.run import ResidentModel, Run
from comfyserverless.models.resident.transfer import Transfer
from comfyserverless.residency.policy import LayerKey, PolicyName
from comfyserverless.residency.table import LayerTable, ModelState, Reservation

_INTERRUPT_POLL_S = 0.1
"""How often a run that waits for a load looks whether it is interrupted; nobody wakes it for that."""


class Keeper:
    """The weights of one device; safe for several threads.

    budget_bytes: of all layers on the device. policy: how weights leave; all but `layers` load whole models
    before they run. profiles: where prefixes are known from.
    """

    def __init__(
        self,
        transfer: Transfer,
        budget_bytes: int,
        policy: PolicyName = "layers",
        profiles: ProfileStore | None = None,
    ) -> None:
        self.transfer = transfer
        self.profiles = profiles or ProfileStore(None, str(transfer.device))
        self._table = LayerTable(budget_bytes, policy)
        self._changed = threading.Condition()
        #: all and only models that the table knows, by key
        self._models: dict[str, ResidentModel] = {}
        #: runs in progress that have, or had, layers to wait for; oldest first
        self._runs: list[Run] = []
        self._loader: threading.Thread | None = None
        self._waits = threading.local()

    @property
    def resident_bytes(self) -> int:
        """Return the bytes of all layers that are resident or loading; never waits."""
        return self._table.total_bytes

    def present(self, model: ResidentModel) -> list[int]:
        """List the layers of a model that are resident."""
        with self._changed:
            return self._table.present(model.key) if model.key in self._table else []

    def look(self) -> tuple[LayerTable, list[tuple[ResidentModel, ModelState]]]:
        """Return the table, for its figures only, and the state of each model, least recently used first."""
        with self._changed:
            return self._table, [(self._models[each.model], each) for each in self._table.look()]

    def take_waited_s(self) -> float:
        """Return how long runs of this thread waited for loads since the last call."""
        waited_ns: int = getattr(self._waits, "ns", 0)
        self._waits.ns = 0
        return waited_ns / 1e9

    @contextmanager
    def running(self, models: Sequence[ResidentModel]) -> Iterator[Run]:
        """Run a model and its private layers within the block, which begins at the first step.

        models: equally many layers each. Raises CapacityError if a layer is larger than the budget, and
        whatever loading one raises, here or from `enter`.
        """
        run = self._begin(models)
        try:
            self.enter(run, 0)
            yield run
        finally:
            self._end(run)

    def enter(self, run: Run, number: int) -> None:
        """Go on to a step: let the one before it go, and wait until the layers of this one are there.

        Raises what the check of `models.interruption` raises, too.
        """
        check_interrupt()
        if run.is_complete:
            if run.is_stepwise:
                run.clock.stop()
                run.clock.start()
            return
        if number and not run.is_stepwise:
            return
        run.clock.stop()
        with self._changed:
            self._leave(run)
            run.loaded_to = max(run.loaded_to, number)
            self._changed.notify_all()
            self._wait(run, number)
            for layer in self._layers(run.steps[number]):
                if layer.block is not None:
                    self.transfer.wait(layer.block)
        run.clock.start()

    def claim(self, claimed_bytes: int) -> int:
        """Give this many bytes of the budget to communication, now or as soon as runs let go of them.

        Returns how many bytes are still held beyond what is left to weights.
        """
        with self._changed:
            self._free(self._table.claim(claimed_bytes))
            return max(0, self._table.total_bytes - self._table.limit_bytes)

    def shrink(self, model: ResidentModel, layers: int) -> None:
        """Free the layers of a model from this number on, as far as they are not in use."""
        with self._changed:
            if model.key in self._table:
                self._free(self._table.shrink(model.key, layers))

    def free_all(self) -> None:
        """Free all layers that are not in use, and the host tier."""
        with self._changed:
            for key in self._table.models():
                self._free(self._table.shrink(key, 0))
            self.transfer.host.clear()

    def forget(self, model: ResidentModel) -> bool:
        """Drop what is known of a model, and return True, unless some of it is resident or in use."""
        with self._changed:
            if model.key in self._table:
                if self._table.is_in_use(model.key) or self._table.present(model.key):
                    return False
                self._table.remove(model.key)
                del self._models[model.key]
            return True

    def _begin(self, models: Sequence[ResidentModel]) -> Run:
        with self._changed:
            for model in models:
                if model.key not in self._table:
                    sizes_bytes = [layer.size_bytes for layer in model.layers]
                    # Private layers are computed from the base's where they are needed: nothing to hide.
                    prefix = model.profile.prefix() if model is models[0] else 0
                    self._table.add(model.key, sizes_bytes, model.group, prefix)
                    self._models[model.key] = model
                self._table.touch(model.key)
            is_complete = all(self._table.is_complete(model.key) for model in models)
            is_layered = self._table.policy == "layers"
            is_measured = models[0].profile.is_settled
            run = Run(models, is_complete, is_layered and not (is_complete and is_measured))
            if is_complete:
                for model in models:
                    self._table.pin_whole(model.key)
            else:
                for step in run.steps:
                    self._table.want(step)
                self._runs.append(run)
                self._start_loader()
            return run

    def _take(self, run: Run, number: int) -> None:
        """Make a run hold the layers of a step, which are resident."""
        run.at, run.waits_for = number, None
        self._table.pin(run.steps[number])
        self._unwant(run, number + 1)

    def _wait(self, run: Run, number: int) -> None:
        """Wait until a step's layers are there and held; the run holds nothing meanwhile."""
        begin_ns = time.perf_counter_ns()
        run.waits_for = number
        self._grant()
        while run.at != number:
            try:
                if run.error is not None:
                    raise run.error
                check_interrupt()
            except BaseException:
                run.waits_for = None
                raise
            self._changed.wait(_INTERRUPT_POLL_S)
        run.waited_ns += time.perf_counter_ns() - begin_ns

    def _grant(self) -> None:
        """Give runs that wait the layers that are there now, before a load for another run can take them."""
        for run in self._runs:
            if run.waits_for is not None and self._table.are_resident(run.steps[run.waits_for]):
                self._take(run, run.waits_for)

    def _end(self, run: Run) -> None:
        run.clock.stop()
        with self._changed:
            if run.is_complete:
                for model in run.models:
                    self._table.unpin_whole(model.key)
            else:
                self._leave(run)
                self._unwant(run, len(run.steps))
                self._runs.remove(run)
            self._free(self._table.trim())
            self._changed.notify_all()
        self._waits.ns = getattr(self._waits, "ns", 0) + run.waited_ns
        if run.is_stepwise and run.error is None:
            self._learn(run)

    def _leave(self, run: Run) -> None:
        """Let go of the step that a run is at."""
        if run.at < 0:
            return
        keys, run.at = run.steps[run.at], -1
        for layer in self._layers(keys):
            if layer.block is not None:
                self.transfer.keep_until_done(layer.block)
        self._table.unpin(keys)
        self._free(self._table.trim())

    def _unwant(self, run: Run, number: int) -> None:
        """Say that a run does not need the steps before this one any more."""
        for step in run.steps[run.unwanted_to : number]:
            self._table.want(step, by=-1)
        run.unwanted_to = max(run.unwanted_to, number)

    def _learn(self, run: Run) -> None:
        """Take a run's times into its model's profile, and the prefix that follows from them into the table."""
        if not run.is_complete and self.transfer.device.type == "cuda":
            return
        spent_ns, profile = run.clock.spent_ns(), run.models[0].profile
        if spent_ns is None:
            return
        was_settled = profile.is_settled
        profile.saw_run(spent_ns, has_waited=not run.is_complete)
        prefix = profile.prefix()
        with self._changed:
            if prefix is not None and run.models[0].key in self._table:
                self._table.set_prefix(run.models[0].key, prefix)
        if profile.is_settled and not was_settled:
            self.profiles.save(run.models[0].name, profile)

    def _layers(self, keys: Iterable[LayerKey]) -> list[Layer]:
        return [self._models[model].layers[number] for model, number in keys]

    def _free(self, keys: Iterable[LayerKey]) -> None:
        for layer in self._layers(keys):
            layer.release()

    def _start_loader(self) -> None:
        self._changed.notify_all()
        if self._loader is None:
            self._loader = threading.Thread(target=self._load_for_runs, name="weights", daemon=True)
            self._loader.start()

    def _load_for_runs(self) -> None:
        """Load what runs need, until no run is in progress; the body of the loader's thread."""
        while True:
            with self._changed:
                while (job := self._next_job()) is None:
                    if not self._runs:
                        self._loader = None
                        return
                    self._changed.wait()
            self._load(*job)

    def _next_job(self) -> tuple[Run, Reservation] | None:
        """Take space for the next step to load: of runs that wait before those that will."""
        for run in self._runs:
            if run.waits_for is not None and run.error is None:
                reservation = self._reserve(run, run.waits_for, is_urgent=True)
                if reservation is not None:
                    return run, reservation
        for run in self._runs:
            while run.error is None and run.loaded_to < len(run.steps):
                if not self._table.are_resident(run.steps[run.loaded_to]):
                    reservation = self._reserve(run, run.loaded_to, is_urgent=False)
                    if reservation is None:
                        break
                    run.loaded_to += 1
                    return run, reservation
                run.loaded_to += 1
        return None

    def _reserve(self, run: Run, number: int, is_urgent: bool) -> Reservation | None:
        keys = run.steps[number]
        if self._table.are_resident(keys):
            return None
        try:
            reservation = self._table.reserve(keys, is_urgent)
            if reservation is None and is_urgent and self._table.is_idle():
                raise InvariantError(f"nothing is in use, and there is no room for {keys}")
        except (CapacityError, InvariantError) as exc:  # the run waits for it: raised there
            run.error = exc
            self._changed.notify_all()
            return None
        if reservation is not None:
            self._free(reservation.evicted)
        return reservation

    def _load(self, run: Run, reservation: Reservation) -> None:
        """Load and bind what a reservation lacks; a failure is the run's, and raised where it waits."""
        error: Exception | None = None
        try:
            for key in reservation.missing:
                self._models[key[0]].load(key[1], self.transfer)
        except Exception as exc:  # noqa: BLE001 - driver loop: the thread must outlive what it loads
            error = exc
        with self._changed:
            if error is None:
                self._table.loaded(reservation)
                self._grant()
            else:
                self._table.failed(reservation)
                self._free(reservation.missing)
                run.error = error
            self._free(self._table.trim())
            self._changed.notify_all()
