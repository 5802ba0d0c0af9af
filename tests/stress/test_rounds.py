"""Start-stop rounds: whatever the state and the way to end it, nothing is left, in time."""

from __future__ import annotations

import pytest

from tests.stress.rounds import KINDS, run_rounds, table
from tests.stress.scale import FACTOR

pytestmark = pytest.mark.stress
ROUNDS = 3 * len(KINDS) * FACTOR


@pytest.mark.parametrize("seed", [1])
def test_rounds_leave_no_process_and_keep_the_bound(seed: int) -> None:
    rounds = run_rounds(ROUNDS, at_once=6, seed=seed)
    assert len(rounds) == ROUNDS
    assert not [one for one in rounds if one.problem], table(rounds)
