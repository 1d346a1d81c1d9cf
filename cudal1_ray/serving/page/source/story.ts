// From a job's events to what the page shows. Plain data and no DOM.

import { isOpen, type Job, type JobEvent, type JobStatus, type Measured, type Result } from "./api";

export type Kind = "accepted" | "rejected" | "known" | "unmeasured";

/** One candidate as the chart and the table show it. */
export interface Point extends Measured {
  number: number; // of its event: unique within the job
  kind: Kind;
  round: number; // from 1; 0: known from a run before this job
  place: number; // within its round, from 0
  candidate: string;
  analysis: string;
  design: string;
  origin: string; // the run that knew it; empty for what this job's policy wrote
}

/** A second measurement of one of the fastest, at the job's end. */
export interface Confirmation extends Measured {
  number: number;
  candidate: string;
  first: number;
}

export class Story {
  readonly id: string;
  readonly source: string;
  readonly rounds: number;
  readonly samples: number;
  readonly limit: number; // seconds
  status: JobStatus;
  result: Result;
  error: string;
  points: Point[] = [];
  confirmations: Confirmation[] = [];
  roundsDone = 0;
  checked = false; // the module itself was evaluated
  note = ""; // about the module, where there is something to know
  limitReached = ""; // which limit ended the rounds, if one did
  private spent = 0; // seconds, measured at `spentAt`
  private spentAt = 0; // seconds since 1970; 0 while nothing runs

  constructor(job: Job) {
    this.id = job.id;
    this.source = job.source;
    this.rounds = job.settings.rounds;
    this.samples = job.settings.samples_per_round;
    this.limit = job.settings.time_limit_s;
    this.status = job.status;
    this.result = job.result;
    this.error = job.error;
  }

  get open(): boolean {
    return isOpen(this.status);
  }

  get accepted(): Point[] {
    return this.points.filter((point) => point.kind === "accepted");
  }

  /** Candidates that the policy wrote for this job. */
  get written(): Point[] {
    return this.points.filter((point) => point.round > 0);
  }

  get best(): Point | undefined {
    return this.accepted.reduce<Point | undefined>((a, b) => (a && a.speedup >= b.speedup ? a : b), undefined);
  }

  /** Places that a round takes on the chart; a resumed round holds more than was asked for. */
  get places(): number {
    return this.points.reduce((most, point) => Math.max(most, point.place + 1), this.samples);
  }

  /** Seconds of work so far. */
  elapsed(now: number): number {
    if (!this.open) return this.result.spent_s ?? this.spent;
    return this.spentAt ? this.spent + Math.max(0, now - this.spentAt) : 0;
  }

  add(event: JobEvent): void {
    switch (event.type) {
      case "module":
        this.checked = true;
        this.note = event.note ?? "";
        break;
      case "started":
      case "resumed":
        this.status = this.open ? "running" : this.status;
        this.spentAt = event.time;
        break;
      case "exemplar":
      case "candidate":
        this.points.push(this.point(event));
        break;
      case "round":
        this.roundsDone = event.round ?? this.roundsDone;
        this.spent = event.spent_s ?? this.spent;
        this.spentAt = event.time;
        break;
      case "confirmation":
        this.confirmations.push({
          ...measured(event),
          number: event.number,
          candidate: event.candidate ?? "",
          first: event.first ?? 0,
        });
        break;
      case "time_limit":
      case "token_limit":
        this.limitReached = event.type === "time_limit" ? "time" : "token";
        this.spent = event.spent_s ?? this.spent;
        this.spentAt = event.time;
        break;
      case "finished":
      case "failed":
      case "cancelled":
        this.status = event.type;
        this.result = event.result ?? {};
        this.error = event.error ?? "";
        break;
    }
  }

  private point(event: JobEvent): Point {
    const round = event.type === "exemplar" ? 0 : (event.round ?? 1);
    const said = measured(event);
    let kind: Kind = said.status === "accepted" ? "accepted" : said.status === "known" ? "known" : "rejected";
    if (said.reasons.includes("evaluator_error")) kind = "unmeasured";
    return {
      ...said,
      number: event.number,
      kind,
      round,
      place: this.points.filter((point) => point.round === round).length,
      candidate: event.candidate ?? "",
      analysis: event.analysis ?? "",
      design: event.design ?? "",
      origin: event.type === "exemplar" ? event.origin || "an earlier run" : "",
    };
  }
}

const measured = (event: JobEvent): Measured => ({
  status: event.status ?? "",
  detail: event.detail ?? "",
  speedup: event.speedup ?? 0,
  speedup_low: event.speedup_low ?? 0,
  speedup_high: event.speedup_high ?? 0,
  credited_speedup: event.credited_speedup ?? 0,
  runtime_ms: event.runtime_ms ?? 0,
  reference_ms: event.reference_ms ?? 0,
  device: event.device ?? "",
  reasons: event.reasons ?? [],
});
