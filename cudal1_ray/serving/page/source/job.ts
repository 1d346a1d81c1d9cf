// One job: followed while it is open, read when it has ended.

import * as api from "./api";
import { detail, table } from "./candidate";
import { Chart, legend } from "./chart";
import { difference, reader } from "./code";
import { outcome, tone } from "./compose";
import { announce, byId, copy, make, show } from "./dom";
import { ending } from "./outcome";
import { Story, type Confirmation, type Point } from "./story";
import { Stream } from "./stream";
import { clock, count, times } from "./words";

const WIDE = matchMedia("(min-width: 900px)");

export interface Host {
  lost(why: string, seconds: number, retry: () => void): void;
  found(): void; // the connection, again
  refused(refusal: api.Refusal): void;
  again(source: string): void;
  settings(): api.Settings | undefined;
}

export class JobView {
  private chart: Chart;
  private story?: Story;
  private stream?: Stream;
  private following = true; // the panel goes along with the best candidate, until the user chooses one
  private split: boolean | undefined; // how the difference is shown, where the user has said so
  private drawing = 0;
  private ticking = 0;

  constructor(private host: Host) {
    legend(byId("legend"));
    this.chart = new Chart(byId("chart"), (mark) => {
      this.following = false;
      this.panel(mark);
    });
    byId("job-link").addEventListener("click", (event) => copy(location.href, event.currentTarget as HTMLButtonElement));
    byId("job-again").addEventListener("click", () => this.story && this.host.again(this.story.source));
    byId("job-cancel").addEventListener("click", () => void this.cancel());
    byId("diff-split").addEventListener("click", () => this.layout(true));
    byId("diff-unified").addEventListener("click", () => this.layout(false));
    WIDE.addEventListener("change", () => this.split === undefined && this.showDifference());
    byId("copy").addEventListener("click", (event) => copy(this.code, event.currentTarget as HTMLButtonElement));
    byId("download").addEventListener("click", () => this.download());
  }

  /** Shows a job, from its first event on. */
  open(job: api.Job): void {
    this.close();
    const story = new Story(job);
    this.story = story;
    this.following = true;
    byId("job-id").textContent = job.id.slice(0, 8);
    byId("job-id").title = job.id;
    byId("detail").replaceChildren(make("p", { class: "soft" }, "Nothing was written yet."));
    for (const part of ["diff", "source"]) byId(part).shadowRoot?.replaceChildren();
    reader(byId("source"), job.source, "The module of this job");
    this.chart.set(story);
    this.render();
    this.stream = new Stream(job.id, {
      event: (event) => {
        story.add(event);
        this.tell(event);
        this.later();
      },
      connected: () => this.host.found(),
      lost: (why, seconds) => this.host.lost(why, seconds, () => this.stream?.retry()),
      over: (ended) => {
        story.status = ended.status;
        story.result = ended.result;
        story.error = ended.error;
        this.later();
      },
      refused: (refusal) => this.host.refused(refusal),
    });
    this.ticking = window.setInterval(() => this.figures(), 1000);
  }

  close(): void {
    this.stream?.stop();
    clearInterval(this.ticking);
    this.stream = this.story = undefined;
  }

  private get code(): string {
    return `${(this.story?.result.code ?? "").trimEnd()}\n`;
  }

  /** Once per frame, however many events a frame brings. */
  private later(): void {
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      this.render();
    });
  }

  private render(): void {
    const { story } = this;
    if (!story) return;
    const status = byId("job-status");
    status.textContent = outcome(story);
    status.className = `status ${tone(story)}`;
    show(byId("job-cancel"), story.open);
    show(byId("job-again"), !story.open);
    const end = ending(story, this.host.settings()?.min_speedup ?? 1);
    const card = byId("outcome");
    card.replaceChildren(...end.parts);
    card.className = `card outcome ${end.tone}`;
    show(card, end.parts.length > 0);
    show(byId("progress-card"), story.open);
    byId("note").textContent = story.note && `Note: ${story.note}`;
    show(byId("note"), Boolean(story.note));
    this.figures();
    this.chart.set(story);
    const best = story.best ?? story.points.at(-1);
    if (this.following && best) {
      this.chart.activate(best.number);
      this.panel(best);
    }
    byId("table").replaceChildren(table(story));
    this.showDifference();
    document.title = `${outcome(story)} · ${story.id.slice(0, 8)} · cudal1`;
  }

  private figures(): void {
    const { story } = this;
    if (!story) return;
    const total = story.rounds * story.samples;
    const written = story.written.length;
    const best = story.best;
    const figures: [string, string, string][] = [
      ["Round", `${Math.min(story.roundsDone + 1, story.rounds)}`, `of ${story.rounds}`],
      ["Candidates", `${written}`, `of ${total}`],
      ["Best so far", best ? times(best.speedup) : "none", best ? "measured once" : ""],
      ["Time", clock(story.elapsed(api.now())), `of ${clock(story.limit)}`],
    ];
    if (story.status === "queued") figures[0] = ["Round", "waiting", "for a place"];
    else if (!story.checked && !story.points.length) figures[0] = ["Round", "none yet", "measuring your module"];
    else if (story.confirmations.length || story.roundsDone === story.rounds) figures[0] = ["Round", "done", "measuring again"];
    byId("figures").replaceChildren(
      ...figures.map(([name, value, more]) =>
        make("p", {}, make("span", { class: "name" }, name), make("strong", {}, value), make("span", { class: "soft" }, more)),
      ),
    );
    const progress = byId<HTMLProgressElement>("progress");
    progress.max = total;
    progress.value = Math.min(written, total);
  }

  /** To screen readers: rounds and ends, not every candidate. */
  private tell(event: api.JobEvent): void {
    const { story } = this;
    if (!story) return;
    if (event.type === "round") {
      const best = event.best_speedup ? `best so far ${times(event.best_speedup)}` : "nothing right yet";
      announce(`Round ${event.round} of ${event.rounds} done, ${best}.`);
    } else if (event.type === "finished") {
      announce(story.result.found ? `Finished: ${times(story.result.speedup ?? 0)}.` : "Finished: nothing faster found.");
    } else if (event.type === "failed" || event.type === "cancelled") {
      announce(`The job ${event.type === "failed" ? "failed" : "was cancelled"}.`);
    }
  }

  private panel(mark: Point | Confirmation | undefined): void {
    if (mark) byId("detail").replaceChildren(...detail(mark, this.host.settings()?.reasons ?? {}));
  }

  private layout(split: boolean): void {
    this.split = split;
    byId("diff").dataset.shown = "";
    this.showDifference();
  }

  private showDifference(): void {
    const { story } = this;
    const found = Boolean(story?.result.found && story.result.code);
    show(byId("diff-card"), found);
    show(byId("source-card"), !found);
    if (!story || !found) return;
    const split = this.split ?? WIDE.matches;
    byId("diff-split").setAttribute("aria-pressed", String(split));
    byId("diff-unified").setAttribute("aria-pressed", String(!split));
    const box = byId("diff");
    const shown = `${story.id} ${split}`;
    if (box.dataset.shown === shown && box.shadowRoot?.childElementCount) return;
    box.dataset.shown = shown;
    difference(box, `${story.source.trimEnd()}\n`, this.code, split);
  }

  private async cancel(): Promise<void> {
    const { story } = this;
    const button = byId("job-cancel");
    if (!story || button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
      const job = await api.cancelJob(story.id);
      if (api.isOpen(job.status)) announce("Others asked for this job too: it goes on for them, and you have left it.");
      if (api.isOpen(job.status)) location.hash = "";
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.passing) announce(`Not cancelled: ${error.message}`);
      this.host.refused(error);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  }

  private download(): void {
    const address = URL.createObjectURL(new Blob([this.code], { type: "text/x-python" }));
    const link = make("a", { href: address, download: "module_fast.py" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    announce(`${count(this.code.split("\n").length - 1, "line")} saved as module_fast.py.`);
  }
}
