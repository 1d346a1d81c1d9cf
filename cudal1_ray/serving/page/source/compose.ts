// The start page: a module, what the job may cost, and earlier jobs.

import * as api from "./api";
import { Editor } from "./code";
import { byId, Kept, make, show } from "./dom";
import { EXAMPLES } from "./examples";
import { count, moment, times } from "./words";

const draft = new Kept(() => sessionStorage, "cudal1.draft");
const NUMBERS: [id: string, name: "rounds" | "samples_per_round" | "time_limit_s", label: string][] = [
  ["rounds", "rounds", "Rounds"],
  ["samples", "samples_per_round", "Candidates a round"],
  ["limit", "time_limit_s", "Time limit"],
];

const ARGUMENTS: [id: string, name: string][] = [
  ["inputs", "inputs"],
  ["init-inputs", "init_inputs"],
];

export class Compose {
  private editor: Editor;
  private settings?: api.Settings;
  private busy = false;

  /** wanted: called with the job once the server has taken it; refused: where a key is at fault. */
  constructor(
    private wanted: (job: api.Job) => void,
    private refused: (refusal: api.Refusal) => void,
  ) {
    this.editor = new Editor(byId("editor"), draft.get(), (text) => this.changed(text), () => void this.start());
    const choice = byId<HTMLSelectElement>("example");
    EXAMPLES.forEach(({ name }, index) => choice.append(make("option", { value: String(index) }, name)));
    choice.addEventListener("change", () => {
      const example = EXAMPLES[Number(choice.value)];
      if (choice.value && example) this.load(example.source);
    });
    const file = byId<HTMLInputElement>("file");
    byId("open-file").addEventListener("click", () => file.click());
    file.addEventListener("change", async () => {
      const chosen = file.files?.[0];
      if (chosen) this.load(await chosen.text());
      file.value = "";
    });
    byId("start-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.start();
    });
  }

  configure(settings: api.Settings): void {
    this.settings = settings;
    for (const [id, name] of NUMBERS) {
      const field = byId<HTMLInputElement>(id);
      const [usual, most] = settings[name];
      field.max = String(most);
      field.placeholder = String(usual);
      field.title = `at most ${most}; ${usual} where nothing is said`;
    }
  }

  load(source: string): void {
    this.editor.text = source;
    this.fault("");
  }

  async list(): Promise<void> {
    const list = byId("jobs");
    const hint = byId("jobs-hint");
    if (this.settings?.needs_key && !api.key.get()) {
      list.replaceChildren();
      hint.textContent = "This server wants an API key; with it you see your jobs.";
      return;
    }
    try {
      const jobs = await api.listJobs();
      list.replaceChildren(...jobs.map(entry));
      hint.textContent = jobs.length ? "" : "None yet. What you start appears here, and stays over restarts of the server.";
    } catch (error) {
      list.replaceChildren();
      if (!(error instanceof api.Refusal)) throw error;
      hint.textContent = error.message;
      if (error.status === 401) this.refused(error);
    }
  }

  private changed(text: string): void {
    draft.set(text);
    byId<HTMLSelectElement>("example").value = String(EXAMPLES.findIndex((example) => example.source === text));
    if (byId<HTMLSelectElement>("example").selectedIndex < 0) byId<HTMLSelectElement>("example").value = "";
  }

  private async start(): Promise<void> {
    if (this.busy) return;
    const asked: Record<string, unknown> = { source: this.editor.text };
    if (!this.editor.text.trim()) return this.fault("There is no module yet: paste one, or choose an example.");
    for (const [id, name, label] of NUMBERS) {
      const field = byId<HTMLInputElement>(id);
      if (!field.validity.valid) return this.fault(`${label}: ${field.validationMessage}`, field);
      if (field.value) asked[name] = Number(field.value);
    }
    try {
      for (const [id, name] of ARGUMENTS) {
        const given = examples(byId<HTMLTextAreaElement>(id).value);
        if (given) asked[name] = given;
      }
    } catch (error) {
      return this.fault((error as Error).message, byId("inputs"));
    }
    const className = byId<HTMLInputElement>("class-name").value.trim();
    if (className) asked.class_name = className;
    if (byId<HTMLInputElement>("fresh").checked) asked.fresh = true;
    this.fault("");
    this.working(true);
    try {
      this.wanted(await api.submit(asked));
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.status === 401) this.refused(error);
      else this.fault(plainly(error), /get_inputs|inputs|which class/.test(error.message) ? byId("inputs") : undefined);
    } finally {
      this.working(false);
    }
  }

  private working(busy: boolean): void {
    this.busy = busy;
    const button = byId("start");
    button.setAttribute("aria-disabled", String(busy)); // a button that is disabled loses the focus
    button.textContent = busy ? "Asking…" : "Make it faster";
  }

  private fault(text: string, field?: HTMLElement): void {
    const place = byId("start-fault");
    place.textContent = text;
    show(place, Boolean(text));
    if (!text) return;
    const details = field?.closest("details");
    if (details) details.open = true;
    if (field) field.focus();
    else this.editor.focus();
  }
}

/** Lines like `randn(64, 128)` or, all of them, like `x = randn(64, 128)`; nothing where there are none. */
function examples(text: string): string[] | Record<string, string> | undefined {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const named = lines.map((line) => /^([A-Za-z_]\w*)\s*=(?!=)\s*(.+)$/.exec(line));
  if (!lines.length) return undefined;
  if (named.every((match) => !match)) return lines;
  if (named.some((match) => !match)) throw new Error("Examples go either all by position or all by name: one a line.");
  return Object.fromEntries(named.map((match) => [match![1]!, match![2]!]));
}

function plainly(refusal: api.Refusal): string {
  if (refusal.status === 0) return "The server does not answer. Nothing was started; your module is still here.";
  const again = refusal.retryAfter ? ` Try again in ${count(refusal.retryAfter, "second")}.` : "";
  return refusal.message.replace(/[^.!?]$/, "$&.") + again;
}

function entry(job: api.Job): HTMLLIElement {
  const { rounds, samples_per_round: samples } = job.settings;
  return make(
    "li",
    {},
    make(
      "a",
      { href: `#job=${job.id}` },
      make("code", {}, job.id.slice(0, 8)),
      make("span", { class: `status ${tone(job)}` }, outcome(job)),
      make("span", { class: "when" }, `${moment(job.created_at)} · ${rounds} × ${samples}`),
    ),
  );
}

/** How a job stands, in a word or two. */
export function outcome(job: Pick<api.Job, "status" | "result">): string {
  if (job.status !== "finished") return job.status;
  if (job.result.found === undefined) return "finished";
  return job.result.found ? times(job.result.speedup ?? 0) : "nothing faster";
}

/** The class that colours it. */
export function tone(job: Pick<api.Job, "status" | "result">): string {
  return job.status === "finished" && job.result.found ? "won" : job.status;
}
