"""What a verdict says, once."""

from allranks.checking.verdict import Case, Verdict, repeats

WAITS = "deadlock: a cycle, {}; rank 0 waits in send to rank 1 (line 5)."


def test_a_cause_is_told_once_whatever_the_ranks():
    two, three = WAITS.format("0 → 1 → 0"), WAITS.format("0 → 1 → 2 → 0")
    wrong = "Its tensor on rank 0 has 6 of 6 elements wrong."
    reasons = [two, three, wrong, f"3 ranks, 0 elements, strided: {three}", wrong.replace("6", "8")]
    cases = list(zip("abcde", reasons, strict=True))
    top = "as at the top"
    assert repeats(f"2 ranks, 1 element: {two}", cases) == [top, top, "", top, 'as for "c"']
    assert repeats("the all-gather half is missing", cases) == ["", 'as for "a"', "", 'as for "a"', 'as for "c"']
    assert repeats("", [("a", ""), ("b", "")]) == ["", ""]
    assert repeats("", []) == []


def test_a_group_that_says_nothing_new_says_so():
    cases = (
        Case("sum: 2 ranks", False, WAITS.format("0 → 1 → 0"), "sum"),
        Case("sum: 3 ranks", False, WAITS.format("0 → 1 → 2 → 0"), "sum"),
        Case("size: 1 rank", True, "", "size"),
        Case("size: 3 ranks", False, "It returned nothing.", "size"),
        Case("dtype: int64", False, "It returned nothing.", "dtype"),
    )
    verdict = Verdict("ring", False, 0.2, cases, f"2 ranks: {cases[0].reason}")
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
