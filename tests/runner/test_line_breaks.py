"""Texts on a terminal: broken between words, with every command in one piece."""

from __future__ import annotations

from batchwright.runner.line_breaks import fitted


def test_lines_are_broken_at_blanks_and_go_on_further_in() -> None:
    assert fitted("one two three", 8) == "one two\nthree"
    assert fitted("  tokens: 186,450 in, 60,000 out", 20) == "  tokens: 186,450\n    in, 60,000 out"
    assert fitted("ok       house: found this", 16, hang=9) == "ok       house:\n         found\n         this"
    assert fitted("a-hyphened-word-that-is-long", 8) == "a-hyphened-word-that-is-long", "a name is copied too"
    assert fitted("short\n\nlonger than that", 8) == "short\n\nlonger\nthan\nthat"
    assert fitted("as long as it is", 0) == "as long as it is"


def test_a_command_stays_in_one_piece() -> None:
    last = "Nothing is lost. With a higher cap it goes on: batchwright resume batch_1 --max-cost 2.00"
    assert fitted(last, 30).splitlines()[-1] == "batchwright resume batch_1 --max-cost 2.00"
    within = "Once it may spend more (batchwright keys budget key_7 USD), and `batchwright work` is there"
    lines = fitted(within, 24).splitlines()
    assert "(batchwright keys budget key_7 USD)," in lines
    assert any("`batchwright work`" in line for line in lines)
