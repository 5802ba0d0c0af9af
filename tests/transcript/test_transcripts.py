"""Every conversation of the folder `cases` goes as it is written there.

pytest tests/transcript --update writes what was heard into the cases; review the diff.
"""

from __future__ import annotations

import pytest

from tests.support.parts import need_peer_python
from tests.support.transcripts import Case, Play, all_cases, updated_text

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.path.stem for case in CASES])
def test_the_conversation_goes_as_it_is_written(case: Case, request: pytest.FixtureRequest) -> None:
    may_update = bool(request.config.getoption("--update"))
    play = Play(case, may_update=may_update)
    play.run()
    if play.changed or play.added:
        case.path.write_text(updated_text(case, play), encoding="utf-8")
        pytest.fail(f"{case.path.name} was written anew: review it", pytrace=False)


def test_each_case_says_what_it_shows() -> None:
    assert [case.path.name for case in CASES if not case.title or not case.covers] == []


def test_the_frames_of_the_conversations_are_checked_against_the_official_types() -> None:
    need_peer_python("mcp2")
