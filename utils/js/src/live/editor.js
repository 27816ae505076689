// The editor of a program: CodeMirror with Python's colours, whose Tab leaves it for readers without a mouse.

import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, RangeSet, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  drawSelection,
  EditorView,
  GutterMarker,
  gutterLineClass,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

const wrongLine = /** @type {import("@codemirror/state").StateEffectType<number | null>} */ (StateEffect.define());

const wrongMark = Decoration.line({ attributes: { class: "wrong-line", "aria-invalid": "true" } });
const wrongNumber = new (class extends GutterMarker {
  elementClass = "wrong-number";
})();

/** Where the line begins that an error names, null: none; it goes when the program is changed. */
const wrong = StateField.define({
  create: () => /** @type {number | null} */ (null),
  update(from, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(wrongLine)) continue;
      const line = effect.value;
      if (line === null || line < 1 || line > transaction.state.doc.lines) return null;
      return transaction.state.doc.line(line).from;
    }
    return transaction.docChanged ? null : from;
  },
  provide: (field) => [
    EditorView.decorations.from(field, (from) =>
      from === null ? Decoration.none : Decoration.set([wrongMark.range(from)]),
    ),
    gutterLineClass.from(field, (from) => (from === null ? RangeSet.empty : RangeSet.of([wrongNumber.range(from)]))),
  ],
});

// two weights and one soft tone: hue says whose numbers they are, so words of a program have none
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.definitionKeyword], fontWeight: "700" },
  { tag: [tags.comment, tags.string], color: "var(--ar-soft)" },
  { tag: tags.comment, fontStyle: "italic" },
]);

/**
 * Four spaces, or the chosen lines further in: Python takes no tabs beside spaces.
 *
 * @param {EditorView} view
 */
function indent(view) {
  if (!view.state.selection.main.empty) return indentMore(view);
  view.dispatch(view.state.replaceSelection("    "), { scrollIntoView: true, userEvent: "input" });
  return true;
}

export class Editor {
  /**
   * @param {HTMLElement} place whose text is the program
   * @param {string} label what a screen reader says of it
   * @param {() => void} run called on Ctrl+Enter
   */
  constructor(place, label, run) {
    const text = place.textContent ?? "";
    /** Called after each change of the reader's. */
    this.changed = () => {};
    this.setting = false;
    place.replaceChildren();
    this.view = new EditorView({
      parent: place,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          bracketMatching(),
          indentOnInput(),
          indentUnit.of("    "),
          highlightActiveLine(),
          syntaxHighlighting(COLOURS),
          python(),
          wrong,
          EditorView.updateListener.of(({ docChanged }) => {
            if (docChanged && !this.setting) this.changed();
          }),
          EditorView.contentAttributes.of({
            "aria-label": label,
            "aria-describedby": "keys",
            spellcheck: "false",
            tabindex: "0",
          }),
          keymap.of([
            {
              key: "Mod-Enter",
              run: () => {
                run();
                return true;
              },
            },
            { key: "Tab", run: (view) => !this.leaving && indent(view), shift: indentLess },
            {
              key: "Escape",
              run: () => {
                this.leaving = true; // the next Tab goes on to the next control
                return false;
              },
            },
            ...defaultKeymap,
            ...historyKeymap,
          ]),
          EditorView.domEventHandlers({
            blur: () => {
              this.leaving = false;
            },
          }),
        ],
      }),
    });
    this.leaving = false;
  }

  get text() {
    return this.view.state.doc.toString();
  }

  set text(text) {
    this.setting = true;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    this.setting = false;
  }

  /**
   * @param {number | null} line
   * @param {boolean} seek whether to scroll to it: not while the reader writes
   */
  mark(line, seek = true) {
    this.view.dispatch({ effects: wrongLine.of(line) });
    if (!seek || line === null || line < 1 || line > this.view.state.doc.lines) return;
    // the editor scrolls, and the page stays where it is
    const { scrollDOM } = this.view;
    scrollDOM.scrollTop = this.view.lineBlockAt(this.view.state.doc.line(line).from).top - scrollDOM.clientHeight / 2;
  }
}
