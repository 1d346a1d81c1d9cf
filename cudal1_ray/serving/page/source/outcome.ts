// How a job ended, said as it is.

import type { Result, Row } from "./api";
import { prose } from "./candidate";
import { make } from "./dom";
import type { Story } from "./story";
import { baseline, clock, count, interval, milliseconds, times } from "./words";

/** The card at the top of a job that has ended; empty while it is open. */
export function ending(story: Story, minSpeedup: number): { tone: string; parts: Node[] } {
  const { result } = story;
  switch (story.status) {
    case "finished":
      return result.found
        ? { tone: "won", parts: winner(story) }
        : { tone: "nothing", parts: nothing(story, minSpeedup) };
    case "failed":
      return {
        tone: "failed",
        parts: [
          make("h2", {}, "The job failed"),
          make("p", { class: "breakable" }, story.error || "The server does not say why."),
          make("p", { class: "soft" }, "Nothing was concluded. Asked again, it is tried again from the start."),
        ],
      };
    case "cancelled":
      return {
        tone: "cancelled",
        parts: [
          make("h2", {}, "Cancelled"),
          make("p", {}, `${tally(story)} No winner was confirmed: what the chart shows was measured once only.`),
        ],
      };
    default:
      return { tone: "", parts: [] };
  }
}

function winner(story: Story): Node[] {
  const { result } = story;
  const low = result.speedup_low ?? 0;
  const high = result.speedup_high ?? 0;
  const before = result.reference_ms ?? 0;
  const after = result.runtime_ms ?? 0;
  const first = story.confirmations.findLast((said) => said.speedup === result.speedup)?.first;
  const parts: Node[] = [
    make(
      "div",
      { class: "headline" },
      make("p", { class: "big" }, times(result.speedup ?? 0)),
      make(
        "div",
        {},
        make("h2", {}, `the speed of ${baseline(result.against ?? "eager")}`),
        make("p", { class: "soft" }, `95% interval ${interval(low, high)} · on ${result.device_name || result.device} · ${tally(story)}`),
      ),
    ),
    make("div", { class: "bars" }, bar("Before", before, before, ""), bar("Now", after, before, "now")),
    verdict(result, first),
  ];
  if (result.origin === "known") {
    parts.push(make("p", {}, "It was known from an earlier run, and measured here; the policy found nothing faster."));
  }
  if (result.baselines?.length) parts.push(baselines(result.baselines));
  const said = make("div", { class: "said" });
  if (result.analysis) said.append(make("section", {}, make("h3", {}, "Analysis, in the policy's words"), prose(result.analysis)));
  if (result.design) said.append(make("section", {}, make("h3", {}, "Design"), prose(result.design)));
  if (said.childElementCount) parts.push(said);
  return parts;
}

function verdict(result: Result, first?: number): HTMLElement {
  const again = first ? `, first as ${times(first)}, then as ${times(result.speedup ?? 0)}; the second is the answer` : "";
  return make(
    "p",
    { class: "verdict" },
    make("span", { class: "status accepted" }, "verified"),
    ` Same outputs as your module on fresh inputs, and timed twice${again}.`,
  );
}

/** The winner beside everything that it was measured against. */
function baselines(rows: Row[]): HTMLElement {
  const cells = (row: Row): HTMLElement[] => {
    if (row.missing) {
      const why = make("details", {}, make("summary", {}, "not measured"), row.missing);
      return [make("td", { colspan: "3", class: "soft missing" }, why)];
    }
    return [
      make(
        "td",
        { class: "number" },
        make("strong", {}, times(row.speedup)),
        make("span", { class: "soft" }, ` ${interval(row.speedup_low, row.speedup_high)}`),
      ),
      make("td", { class: "number" }, milliseconds(row.baseline_ms)),
      make("td", { class: "number" }, milliseconds(row.runtime_ms)),
    ];
  };
  const head = ["Against", "Speedup, 95% interval", "It takes", "The winner takes"];
  const table = make(
    "table",
    { class: "baselines" },
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
    make(
      "tbody",
      {},
      ...rows.map((row) => make("tr", {}, make("th", { scope: "row" }, baseline(row.baseline)), ...cells(row))),
    ),
  );
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Baselines" }, table);
}

function nothing(story: Story, minSpeedup: number): Node[] {
  const best = story.result.best_tried ?? 0;
  const refuted = story.confirmations.length > 0;
  let why = "No candidate was both right and different.";
  if (best > 0 && refuted) why = `The best one measured ${times(best)} at first, and that did not hold when it was measured again.`;
  else if (best > 0) why = `The best one that was right measured ${times(best)}; ${times(minSpeedup)} is what counts as faster here.`;
  return [
    make("h2", {}, "Nothing faster found"),
    make("p", {}, `${tally(story)} ${why}`),
    make("p", { class: "soft" }, "More rounds or more candidates may find something; they may also not."),
  ];
}

function tally(story: Story): string {
  const written = story.result.candidates ?? story.written.length;
  const accepted = story.result.accepted ?? new Set(story.accepted.map((point) => point.candidate)).size;
  const time = clock(story.result.spent_s ?? story.elapsed(0));
  const limit = story.limitReached ? ` (the ${story.limitReached} limit)` : "";
  return `${count(written, "candidate")}, ${accepted} right and different, in ${time}${limit}.`;
}

function bar(name: string, value: number, most: number, kind: string): HTMLElement {
  const meter = make("span", { class: `bar-fill ${kind}` });
  meter.style.width = `${Math.max(0.5, most > 0 ? (100 * value) / most : 0)}%`;
  const track = make("span", { class: "bar-track", "aria-hidden": "true" }, meter);
  return make("p", {}, make("span", { class: "bar-name" }, name), track, make("span", { class: "bar-value" }, milliseconds(value)));
}
