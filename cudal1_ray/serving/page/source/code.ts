// Editors and differences. Each lives in a shadow root: there CodeMirror's styles are adopted style sheets, which the
// content security policy lets through; in the document they would be inline styles, which it does not.

import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState, Prec, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const highlighting = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName)], color: "var(--code-name)" },
  { tag: [tags.className, tags.definition(tags.className)], color: "var(--code-class)" },
  { tag: [tags.function(tags.propertyName)], color: "var(--code-name)" },
]);

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "transparent", fontSize: "var(--code-size)" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px", borderRadius: "6px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", fontFeatureSettings: '"calt" 0' },
  ".cm-content": { caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--soft)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--line-tint)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)" },
});

const differences = Prec.highest(
  EditorView.theme({
    "&.cm-merge-a .cm-changedLine, .cm-deletedChunk": { backgroundColor: "var(--removed)" },
    "&.cm-merge-b .cm-changedLine, .cm-changedLine": { backgroundColor: "var(--added)" },
    "&.cm-merge-a .cm-changedText, .cm-deletedChunk .cm-deletedText": { background: "var(--removed-strong)" },
    "&.cm-merge-b .cm-changedText, .cm-changedText": { background: "var(--added-strong)" },
    "&.cm-merge-a .cm-changedLineGutter, .cm-deletedLineGutter": { background: "var(--red)" },
    "&.cm-merge-b .cm-changedLineGutter, .cm-changedLineGutter": { background: "var(--accent)" },
    ".cm-changeGutter": { width: "3px", paddingLeft: "0" },
    ".cm-insertedLine, .cm-deletedLine, .cm-deletedLine del": { textDecoration: "none" },
    ".cm-collapsedLines": { color: "var(--soft)", background: "var(--sunken)", padding: "5px 8px", fontSize: "12px" },
  }),
);

const LAYOUT = `
  :host { display: block; min-width: 0; }
  .cm-editor.cm-alone, .cm-alone .cm-scroller { min-height: inherit; max-height: inherit; }
  .cm-mergeView { overflow: auto; max-height: inherit; }
  .cm-mergeViewEditor { min-width: 0; }
  .cm-mergeViewEditor + .cm-mergeViewEditor { border-left: 1px solid var(--line); }
  .cm-scroller { overscroll-behavior-x: contain; }
`;

/** The shadow root of a box, made on the first call, empty. */
function rootOf(box: HTMLElement): ShadowRoot {
  const root = box.shadowRoot ?? box.attachShadow({ mode: "open" });
  root.replaceChildren();
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(LAYOUT);
  root.adoptedStyleSheets = [sheet];
  return root;
}

const common = (label: string, described?: string): Extension => [
  lineNumbers(),
  python(),
  syntaxHighlighting(highlighting),
  look,
  EditorState.tabSize.of(4),
  // tabindex: what can only be read is scrolled by keys too
  EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0", ...(described ? { "aria-description": described } : {}) }),
];

const unchangeable = (label: string): Extension => [
  common(label),
  EditorState.readOnly.of(true),
  EditorView.editable.of(false),
];

// Left to itself, a browser that types over a selection keeps its looks by inline styles, which the policy forbids.
const typingOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.data === null || view.composing) return false;
    if (view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** An editor for a module. Tab is left alone, so that it leaves the editor as it leaves any other field. */
export class Editor {
  private view: EditorView;

  constructor(box: HTMLElement, text: string, changed: (text: string) => void, submit: () => void) {
    const root = rootOf(box);
    this.view = new EditorView({
      doc: text,
      root,
      parent: root,
      extensions: [
        keymap.of([{ key: "Mod-Enter", run: () => (submit(), true) }, ...defaultKeymap, ...historyKeymap]),
        history(),
        typingOver,
        drawSelection(),
        indentOnInput(),
        indentUnit.of("    "),
        bracketMatching(),
        highlightActiveLine(),
        placeholder("import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    ..."),
        common("Module source", "Tab leaves the editor. Control and bracket keys indent, Control and Enter start."),
        EditorView.updateListener.of((update) => update.docChanged && changed(this.text)),
      ],
    });
    this.view.dom.classList.add("cm-alone");
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  set text(text: string) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  focus(): void {
    this.view.focus();
  }
}

// An editor outside the window guesses how high its lines are until it is scrolled to, and a picture of the whole page
// shows the guess: line numbers beside other lines. What is to be scrolled to is measured at once; nothing is scrolled.
const STAYING = EditorView.scrollHandler.of(() => true);

function measure(view: EditorView): void {
  view.dispatch({ effects: EditorView.scrollIntoView(0) });
}

/** Source that is only read. */
export function reader(box: HTMLElement, text: string, label: string): void {
  const root = rootOf(box);
  const view = new EditorView({ doc: text, root, parent: root, extensions: [unchangeable(label), STAYING] });
  view.dom.classList.add("cm-alone");
  measure(view);
}

/** Two texts and what differs between them, side by side or in one column. */
export function difference(box: HTMLElement, before: string, after: string, split: boolean): void {
  const root = rootOf(box);
  const collapse = { margin: 3, minSize: 6 };
  if (split) {
    const side = (doc: string, label: string) => ({ doc, extensions: [unchangeable(label), differences, STAYING] });
    const both = new MergeView({
      a: side(before, "Your module"),
      b: side(after, "The winner"),
      root,
      parent: root,
      collapseUnchanged: collapse,
      gutter: true,
    });
    measure(both.a);
    measure(both.b);
    return;
  }
  const view = new EditorView({
    doc: after,
    root,
    parent: root,
    extensions: [
      unchangeable("The winner, with what it replaces"),
      differences,
      STAYING,
      unifiedMergeView({ original: before, mergeControls: false, collapseUnchanged: collapse, gutter: true }),
    ],
  });
  view.dom.classList.add("cm-alone");
  measure(view);
}
