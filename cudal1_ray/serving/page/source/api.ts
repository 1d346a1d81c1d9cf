// The server's routes, typed as cudal1_ray/serving answers them.

import { Kept } from "./dom";

export interface Measured {
  status: string;
  detail: string;
  speedup: number;
  speedup_low: number;
  speedup_high: number;
  credited_speedup: number;
  runtime_ms: number;
  reference_ms: number;
  device: string;
  reasons: string[];
  device_name?: string;
}

/** The winner beside one baseline; `missing` says why there is no figure. */
export interface Row {
  baseline: string;
  baseline_ms: number;
  runtime_ms: number;
  speedup: number;
  speedup_low: number;
  speedup_high: number;
  device: string;
  missing: string;
}

export interface Costs {
  completion_tokens: number;
  evaluations: number;
}

export interface Result extends Partial<Measured> {
  found?: boolean;
  message?: string;
  best_tried?: number;
  code?: string;
  analysis?: string;
  design?: string;
  against?: string;
  origin?: string; // policy, or known: a run had it already
  baselines?: Row[];
  note?: string;
  known?: number;
  costs?: Costs;
  candidates?: number;
  accepted?: number;
  rounds?: number;
  spent_s?: number;
}

export type JobStatus = "queued" | "running" | "finished" | "failed" | "cancelled";

export interface Job {
  id: string;
  source: string;
  settings: { rounds: number; samples_per_round: number; time_limit_s: number };
  created_at: number;
  finished_at: number;
  status: JobStatus;
  result: Result;
  error: string;
  shared?: boolean;
}

export interface JobEvent extends Partial<Measured> {
  number: number;
  time: number;
  type: string;
  round?: number;
  rounds?: number;
  candidate?: string;
  analysis?: string;
  design?: string;
  best_speedup?: number;
  candidates?: number;
  spent_s?: number;
  first?: number;
  note?: string;
  origin?: string;
  result?: Result;
  error?: string;
}

/** What the server publishes about itself without a key. */
export interface Settings {
  needs_key: boolean;
  against: string;
  rounds: [number, number]; // used where nothing is said, and the most
  samples_per_round: [number, number];
  time_limit_s: [number, number];
  max_source_kib: number;
  min_speedup: number;
  reasons: Record<string, string>;
}

/** An answer that says no; status 0: there was no answer. */
export class Refusal extends Error {
  constructor(
    public status: number,
    message: string,
    public retryAfter = 0,
  ) {
    super(message);
  }

  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export const key = new Kept(() => sessionStorage, "cudal1.key"); // gone with the tab
export const isOpen = (status: string): boolean => status === "queued" || status === "running";

let ahead = 0; // of this machine's clock, the server's, in seconds
export const now = (): number => Date.now() / 1000 + ahead;

export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("authorization", `Bearer ${key.get()}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name !== "TimeoutError") throw error;
    throw new Refusal(0, "The server does not answer.");
  }
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (date) ahead = Math.round((date - Date.now()) / 1000);
  if (answer.ok) return answer;
  let message = `The server answered ${answer.status}.`;
  try {
    message = (await answer.json()).error.message ?? message;
  } catch {
    // an answer of something between us and the server
  }
  throw new Refusal(answer.status, message, Number(answer.headers.get("retry-after")) || 0);
}

const json = async <T>(path: string, options: RequestInit = {}): Promise<T> => {
  const answer = await ask(path, { signal: AbortSignal.timeout(30_000), ...options });
  try {
    return (await answer.json()) as T;
  } catch {
    throw new Refusal(0, "The server's answer broke off.");
  }
};

export const settings = (): Promise<Settings> => json("/settings.json");
export const getJob = (id: string): Promise<Job> => json(`/v1/optimize/${encodeURIComponent(id)}`);
export const cancelJob = (id: string): Promise<Job> =>
  json(`/v1/optimize/${encodeURIComponent(id)}`, { method: "DELETE" });
export const listJobs = async (): Promise<Job[]> => (await json<{ data: Job[] }>("/v1/optimize?limit=50")).data;
export const submit = (asked: Record<string, unknown>): Promise<Job> =>
  json("/v1/optimize", {
    method: "POST",
    body: JSON.stringify(asked),
    headers: { "content-type": "application/json" },
  });
