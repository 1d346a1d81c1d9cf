// One candidate, in words and in a table.

import type { Measured } from "./api";
import { make } from "./dom";
import type { Confirmation, Point, Story } from "./story";
import { interval, milliseconds, times } from "./words";

const KINDS: Record<Point["kind"], string> = {
  accepted: "right, and timed",
  rejected: "rejected",
  known: "repeated",
  unmeasured: "not evaluated",
};

/** The panel beside the chart. meanings: what each reason of a rejection says, by its name. */
export function detail(mark: Point | Confirmation, meanings: Record<string, string>): Node[] {
  const again = !("round" in mark);
  const parts: Node[] = [];
  const kind = again ? "again" : mark.kind;
  const written = again || mark.origin ? "" : `Round ${mark.round}, candidate ${mark.place + 1}`;
  const where = again ? "Measured again" : written || `Known from ${mark.origin}`;
  parts.push(
    make(
      "p",
      { class: "detail-head" },
      make("span", { class: "where" }, where),
      make("span", { class: `status ${kind}` }, again ? "second measurement" : KINDS[mark.kind]),
    ),
  );
  if (mark.speedup > 0) {
    parts.push(
      make(
        "p",
        { class: "detail-speedup" },
        make("strong", {}, times(mark.speedup)),
        make("span", {}, ` 95% interval ${interval(mark.speedup_low, mark.speedup_high)}`),
      ),
    );
    const time = `${milliseconds(mark.reference_ms)} → ${milliseconds(mark.runtime_ms)} a call on ${mark.device}`;
    parts.push(make("p", { class: "soft" }, time));
  }
  if (again) parts.push(make("p", {}, `The first measurement said ${times(mark.first)}.`));
  parts.push(...reasons(mark, meanings));
  if (!again && mark.kind === "known") {
    parts.push(make("p", {}, "The policy wrote this one before; the same text is evaluated once."));
  }
  if (!again) {
    if (mark.analysis) parts.push(make("h3", {}, "Analysis"), prose(mark.analysis));
    if (mark.design) parts.push(make("h3", {}, "Design"), prose(mark.design));
  }
  return parts;
}

export function reasons(said: Measured, meanings: Record<string, string>): Node[] {
  if (!said.reasons.length) return [];
  const list = make("ul", { class: "reasons" });
  for (const name of said.reasons) {
    list.append(make("li", {}, make("code", {}, name), meanings[name] ? ` ${meanings[name]}` : ""));
  }
  return said.detail ? [list, make("p", { class: "soft breakable" }, said.detail)] : [list];
}

/** Text of the policy, as it wrote it. */
export const prose = (text: string): HTMLElement => make("p", { class: "prose" }, text.trim());

/** All candidates; the chart's content as text, for screen readers. */
export function table(story: Story): HTMLTableElement {
  const head = ["Round", "Candidate", "Verdict", "Speedup", "95% interval", "Why not"];
  const rows = story.points.map((point) =>
    make(
      "tr",
      {},
      make("td", {}, point.origin ? "known" : String(point.round)),
      make("td", {}, make("code", {}, point.candidate.slice(0, 8) || "none")),
      make("td", {}, KINDS[point.kind]),
      make("td", { class: "number" }, point.speedup > 0 ? times(point.speedup) : ""),
      make("td", { class: "number" }, point.speedup > 0 ? interval(point.speedup_low, point.speedup_high) : ""),
      make("td", {}, point.reasons.join(", ")),
    ),
  );
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows),
  );
}
