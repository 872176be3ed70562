"""An object store over a network keeps to its contract although answers are lost."""

from typing import Any, ClassVar

import pytest

from laminar_core.store.records import create_or_confirm
from tests.objectstore.fault_proxy import Effect, Fault


class LostAnswers:
    """Goal: only the writer of the object learns that it won (ADR 0015).

    Beside a subclass there are two fixtures: ``proxy``, and ``behind_proxy``, the store behind it.
    """

    exists: ClassVar[dict[str, Any]]
    """The refusal of this server because the object exists."""
    conflict: ClassVar[dict[str, Any]]
    """A refusal that says nothing about the object."""

    def test_a_winner_whose_answer_is_lost_wins(self, behind_proxy, proxy):
        proxy.script(Fault("PutObject", Effect.LOSE_ANSWER))
        assert behind_proxy.put_if_absent("key", b"mine")
        assert proxy.requests == ["PutObject", "PutObject", "HeadObject"]

    @pytest.mark.parametrize("status", [500, 503])
    def test_so_does_one_that_was_told_of_an_error_after_the_fact(
        self, behind_proxy, proxy, status
    ):
        proxy.script(Fault("PutObject", Effect.REFUSE_AFTERWARDS, status, "InternalError"))
        assert behind_proxy.put_if_absent("key", b"mine")

    def test_a_loser_whose_answer_is_lost_loses(self, behind_proxy, proxy):
        behind_proxy.put("key", b"theirs")
        proxy.script(Fault("PutObject", Effect.LOSE_ANSWER))
        assert not behind_proxy.put_if_absent("key", b"mine")

    def test_equal_bytes_do_not_make_a_winner_of_a_loser(self, behind_proxy, proxy):
        """Two drivers may write the same bytes; the mark of the write tells whose they are."""
        assert behind_proxy.put_if_absent("key", b"same")
        proxy.script(Fault("PutObject", Effect.LOSE_ANSWER))
        assert not behind_proxy.put_if_absent("key", b"same")
        assert create_or_confirm(behind_proxy, "key", b"same")

    def test_a_first_attempt_that_finds_an_object_asks_no_further(self, behind_proxy, proxy):
        behind_proxy.put("key", b"theirs")
        proxy.script()
        assert not behind_proxy.put_if_absent("key", b"mine")
        assert proxy.requests == ["PutObject"]

    def test_a_conflict_says_nothing_about_the_object_so_it_is_tried_again(
        self, behind_proxy, proxy
    ):
        proxy.script(Fault("PutObject", Effect.REFUSE, **self.conflict, last=3))
        assert behind_proxy.put_if_absent("key", b"mine")
        assert proxy.requests == ["PutObject"] * 4

    def test_an_object_that_goes_again_is_not_in_the_way(self, behind_proxy, proxy):
        proxy.script(
            Fault("PutObject", Effect.RESET),
            Fault("PutObject", Effect.REFUSE, **self.exists, first=2, last=2),
        )
        assert behind_proxy.put_if_absent("key", b"mine")
        assert proxy.requests == ["PutObject", "PutObject", "HeadObject", "PutObject"]
