"""The letters in the chapters' pictures, in Chromium: large enough at every width, inside the picture, and not over each other."""

from __future__ import annotations

import pytest
from allranks.show.pictures import hero

pytestmark = pytest.mark.browser
_LETTERS = """() => {
  const svg = document.querySelector("svg");
  const outer = svg.getBoundingClientRect();
  const scale = outer.width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll("text")].filter((t) => getComputedStyle(t).display !== "none").map((t) => {
    const r = t.getBoundingClientRect();
    return { said: t.textContent, px: parseFloat(getComputedStyle(t).fontSize) * scale, left: r.left - outer.left, right: r.right - outer.left,
      top: r.top, bottom: r.bottom, wide: outer.width };
  });
}"""


@pytest.mark.parametrize("width", [340, 500, 560, 800])
def test_letters(plain_page, width):
    plain_page.set_viewport_size({"width": width, "height": 700})
    for chapter in hero.CHAPTERS:
        svg = hero.hero(chapter).replace("<svg ", '<svg style="width:100%;height:auto;display:block" ', 1)
        plain_page.set_content(f"<body style='margin:0'>{svg}")
        letters = plain_page.evaluate(_LETTERS)
        assert letters or chapter == "45_when_it_hangs"
        for i, one in enumerate(letters):
            where = f"{chapter} at {width} px: {one['said']}"
            assert one["px"] >= 12, where
            assert one["left"] >= 0 and one["right"] <= one["wide"] + 0.5, where
            for other in letters[:i]:
                apart = one["right"] <= other["left"] or other["right"] <= one["left"]
                # a line's box is taller than its letters
                assert apart or min(one["bottom"], other["bottom"]) - max(one["top"], other["top"]) < 6, (
                    f"{where} over {other['said']}"
                )
    plain_page.set_viewport_size({"width": 1280, "height": 1000})
