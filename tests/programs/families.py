"""All families of programs, whose modules fill the table `PROGRAMS` when they are imported."""

from __future__ import annotations

from . import (
    attending,
    classical,
    decisions,
    densities,
    designs,
    directions,
    energies,
    estimates,
    fields,
    from_scratch,
    generative,
    graphs,
    imagination,
    language,
    likenesses,
    mixing,
    numerics,
    pretraining,
    reinforcement,
    scenes,
    schemes,
    searches,
    sequences,
    shared_weights,
    shortcuts,
    speech,
    structures,
    trainers,
    training,
    vision,
)
from .lab import PROGRAMS

__all__ = ["FAMILIES", "PROGRAMS"]

FAMILIES = (attending, classical, decisions, densities, designs, directions, energies, estimates, fields, from_scratch,
            generative, graphs, imagination, language, likenesses, mixing, numerics, pretraining, reinforcement, scenes,
            schemes, searches, sequences, shared_weights, shortcuts, speech, structures, trainers, training, vision)
