"""All families of programs, whose modules fill the table `PROGRAMS` when they are imported."""

from __future__ import annotations

from . import (
    classical,
    decisions,
    designs,
    energies,
    fields,
    generative,
    graphs,
    language,
    mixing,
    numerics,
    pretraining,
    reinforcement,
    scenes,
    schemes,
    searches,
    sequences,
    speech,
    structures,
    trainers,
    training,
    vision,
)
from .lab import PROGRAMS

__all__ = ["FAMILIES", "PROGRAMS"]

FAMILIES = (classical, decisions, designs, energies, fields, generative, graphs, language, mixing, numerics,
            pretraining, reinforcement, scenes, schemes, searches, sequences, speech, structures, trainers, training,
            vision)
