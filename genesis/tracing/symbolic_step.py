"""A captured step over symbols: the replays of steps that differ in sizes alone (`symbolic_call.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genesis.autograd.graph_release import is_freed
from genesis.engine.capture import Captured
from genesis.engine.plan_lookup import plan_for
from genesis.frontend.state import lock
from genesis.ir.node import Node
from genesis.tracing.leaf_hooks import LeafHooks
from genesis.tracing.replay import computing_anew
from genesis.tracing.replay_sources import equal_constant
from genesis.tracing.replay_step import StepReplay
from genesis.tracing.results import Result
from genesis.tracing.snapshot import NotReplayable
from genesis.tracing.step_program import CallProgram, StepProgram
from genesis.tracing.trial import Trial


class SymbolicStep:
    """What a step did in a trial, on stand-ins: the captured step, for other sizes. Made before the trial ends.

    Attributes:
        numbers: the numbers of its program, formulas among them.

    Args:
        replay: the captured step.
        ended: whether an optimizer ended it.
        trial: what the step did on stand-ins.
        shape: the result of that.
        tensors: the tensors that it was given, stand-ins among them.
        world: the other tensors that it could reach.
        known: nodes that stood for contents before.

    Raises:
        NotReplayable: it did something else than the captured step, and what.
    """

    def __init__(self, replay: StepReplay, ended: bool, trial: Trial, shape: Result, tensors: Sequence[Any],
                 world: Sequence[Any], known: set[Node]):
        trial.forget_made({id(x) for x in (*tensors, *world)})
        _check_effects(replay, ended, trial, tensors)
        shape.free(lambda node: is_freed(node, trial.freed))
        outputs, asked = replay.outputs_of(shape.fresh)
        updated = replay.targets(tensors)
        written = [storage.node for storage in updated]
        sources: dict[Any, Any] = {storage.cell: storage for storage in replay.storages}
        sources |= {x.storage.cell: i for i, x in enumerate(tensors)}
        sources |= {cell: storage for cell, made in trial.of_values.items()
                    if (storage := equal_constant(made)) in replay.storages}
        self._questions = [(again, len(nodes)) for nodes, again in trial.numbers]
        live = {node: (q, n) for q, (nodes, _) in enumerate(trial.numbers) for n, node in enumerate(nodes)}
        values = [storage.node for storage in outputs]
        with computing_anew([*values, *written], known):
            self._program = StepProgram(values, asked, written, updated, sources, live)
        self.numbers = self._program.numbers
        self._kinds = [storage.type for storage in shape.fresh]

    def filled(self, replay: StepReplay, number: Callable[[Any], Any], shape: Result) -> StepReplay:
        """The replay of a call in which the symbols have these numbers.

        Args:
            replay: the captured step.
            shape: what it makes its result of.

        Raises:
            NotReplayable: there is no such call.
        """
        with lock:
            call = self._program.of_call(number)
            with computing_anew(call.roots, set()):
                captured = call.captured()
                sources = call.sources(captured)
                compiled = plan_for(captured, replay.device, moves=True)
        kinds = [kind.with_shape(tuple(map(number, kind.shape))) for kind in self._kinds]
        places: list[list[int]] = [[] for _ in self.numbers]
        for at, node in enumerate(captured.number_nodes):
            if node in call.numbered:
                places[call.numbered[node]].append(at)
        return replay.of_other_sizes(compiled, sources, list(captured.numbers), places, self._live(call, captured),
                                     shape, kinds)

    def _live(self, call: CallProgram, captured: Captured) -> list[tuple[Any, list[list[int]]]]:
        """What `live_positions` gives of a captured call."""
        found: list[tuple[Any, list[list[int]]]] = [
            (again, [[] for _ in range(count)]) for again, count in self._questions]
        for at, node in enumerate(captured.number_nodes):
            if node in call.live:
                question, which = call.live[node]
                found[question][1][which].append(at)
        return found


def _check_effects(replay: StepReplay, ended: bool, trial: Trial, tensors: Sequence[Any]) -> None:
    """Raise NotReplayable unless the trial changed what the captured step changed."""
    cleared, graded = replay.set_gradients
    written = {storage for storage in trial.writes if storage.cell is not None}
    set_there = {id(x) for x, _ in trial.grads.values()}
    if trial.ended is not ended or written != set(replay.targets(tensors)) or (
            set_there != set(_ids([*cleared, *graded]))):
        raise NotReplayable("on stand-ins it does something else")
    if any(x._grad is not None for x in cleared) or not replay.given_last.are_like([x._grad for x in graded]):
        raise NotReplayable("on stand-ins it leaves other gradients")
    slots = replay.slots
    given = {id(x) for x, _ in slots.gradients} if slots is not None else set()
    entry = [(x, grad) for key, (x, grad) in trial.entry_grads.items() if key not in given]
    if not replay.finds([x for x, _ in entry], [grad for _, grad in entry]):
        raise NotReplayable("it finds gradients that the captured call did not find")
    if not replay.hooks.same_as(LeafHooks(trial, tensors)):
        raise NotReplayable("on stand-ins it differentiates by something else")


def _ids(values: Iterable[Any]) -> list[int]:
    return list(map(id, values))
