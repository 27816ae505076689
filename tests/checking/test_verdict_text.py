"""What a verdict says, once."""

from allranks.checking.verdict import Case, Verdict, already_said

WAITS = "deadlock: a cycle, {}; rank 0 waits in send to rank 1 (line 5)."


WAIT, WRONG, NOTHING = ("deadlock",), ("values",), ("returned",)


def test_a_cause_is_told_once_whatever_the_ranks():
    codes = [WAIT, WAIT, WRONG, WAIT, WRONG]
    cases = [Case(name, False, "why", "", code) for name, code in zip("abcde", codes, strict=True)]
    top = "as at the top"
    assert already_said(WAIT, cases) == [top, top, "", top, 'as for "c"']
    assert already_said(("another",), cases) == ["", 'as for "a"', "", 'as for "a"', 'as for "c"']
    assert already_said((), [Case("a", False, "why"), Case("b", False, "why")]) == ["", ""]
    assert already_said((), []) == []


def test_a_group_that_says_nothing_new_says_so():
    cases = (
        Case("sum: 2 ranks", False, WAITS.format("0 → 1 → 0"), "sum", WAIT),
        Case("sum: 3 ranks", False, WAITS.format("0 → 1 → 2 → 0"), "sum", WAIT),
        Case("size: 1 rank", True, "", "size"),
        Case("size: 3 ranks", False, "It returned nothing.", "size", NOTHING),
        Case("dtype: int64", False, "It returned nothing.", "dtype", NOTHING),
    )
    verdict = Verdict("ring", False, 0.2, cases, f"2 ranks: {cases[0].reason}", code=WAIT)
    text = verdict.text()
    assert text.splitlines()[4:] == [
        "  ✗ sum 0/2, as above",
        "  ✗ size 1/2",
        "      3 ranks: It returned nothing.",
        "  ✗ dtype, as above",
    ]
    card = verdict.html()
    assert card.count("as at the top") == 2
    assert card.count("It returned nothing.") == 1 and "as for &quot;3 ranks&quot;" in card
