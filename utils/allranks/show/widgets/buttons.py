"""The radio buttons of quizzes and drills: their style, and how the keyboard moves between them."""

from __future__ import annotations

from collections.abc import Iterable

import anywidget
import ipywidgets


class Options(ipywidgets.RadioButtons):
    """Radio buttons in a column, with none of them chosen. The text of a long option wraps beside its button.

    Screen readers name the group by `tooltip`, which is not visible. The box around the buttons
    must also hold a `Keys`, which brings the style.
    """

    def __init__(self, options: Iterable[str], tooltip: str) -> None:
        layout = ipywidgets.Layout(width="auto", max_width="100%")
        super().__init__(options=tuple(options), value=None, description="", tooltip=tooltip, layout=layout)
        self.add_class("ar-options")


class Keys(anywidget.AnyWidget):
    """An invisible widget that makes each `Options` in its box one group for the keyboard and for screen readers.

    Its box is the nearest one with the class `ar-drill`, else the VBox that holds it. Without it, ipywidgets gives
    radio buttons no common name: Tab stops at each button, browsers differ in where the arrow keys go, and JupyterLab
    uses the arrow keys too. It also brings the style of all questions.
    """

    _esm = """
    const group = (list) => {
      const radios = [...list.querySelectorAll("input[type=radio]")];
      const made = () => `ar-options-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
      const name = radios.find((radio) => radio.name)?.name ?? made();
      for (const radio of radios) if (radio.name !== name) radio.name = name;
      const label = list.parentElement.querySelector(":scope > .widget-label");
      list.setAttribute("role", "radiogroup");
      list.setAttribute("aria-label", label?.textContent.trim() || label?.title || "options");
    };
    export default { render({ el }) {
      el.style.display = "none";
      // a widget is rendered first and put on the page later: in a folded box, when a reader opens it
      const wait = setInterval(() => {
        if (!el.isConnected) return;
        clearInterval(wait);
        const box = el.closest(".ar-drill") ?? el.closest(".widget-vbox");
        const groups = () => box.querySelectorAll(".ar-options .widget-radio-box").forEach(group);
        box.dataset.lmSuppressShortcuts = "true";
        box.addEventListener("keydown", (event) => { if (event.key.startsWith("Arrow")) event.stopPropagation(); });
        new MutationObserver(groups).observe(box, { childList: true, subtree: true });
        groups();
      }, 50);
      return () => clearInterval(wait);
    } };
    """

    # without this, ipywidgets gives a label the height of one line, so that a long option covers the next one
    _css = """
    .ar-options, .ar-options .widget-radio-box, .ar-options > .widget-label { height: auto; max-width: 100%; }
    .ar-options { margin: 2px 0 8px; padding-left: 4px; box-sizing: border-box; }
    .ar-options > .widget-label { width: auto; white-space: normal; }
    .ar-options .widget-radio-box { width: auto; margin: 0; padding: 0; }
    .ar-options .widget-radio-box label { display: flex; flex-direction: row-reverse; justify-content: flex-end;
      align-items: flex-start; width: auto; max-width: 100%; height: auto; margin: 0 0 3px; line-height: 20px;
      white-space: normal; overflow-wrap: anywhere; }
    .ar-options .widget-radio-box input { flex: none; width: 14px; height: 14px; margin: 3px 7px 3px 0; }
    .ar-drill { max-width: 900px; padding: 8px 12px !important; border: 1px solid var(--jp-border-color2, #bbb);
      border-radius: 4px; box-sizing: border-box; }
    .ar-drill .widget-html { height: auto; }
    .ar-drill .widget-html-content { line-height: 1.45; white-space: normal; }
    .ar-drill-said { display: block; padding: 6px 10px; margin: 4px 0; border-left: 4px solid;
      background: var(--jp-layout-color2, #eee); color: var(--jp-content-font-color1, #222); }
    .ar-drill-right { border-color: #009e73; }
    .ar-drill-wrong { border-color: #d55e00; }
    .ar-drill :focus-visible, .ar-options :focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2);
      outline-offset: 1px; }
    """
