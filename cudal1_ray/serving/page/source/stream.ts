// One job's events, over however many connections it takes: each goes on where the one before broke off.

import { createParser } from "eventsource-parser";
import { ask, getJob, isOpen, Refusal, type Job, type JobEvent } from "./api";

const QUIET_MS = 30_000; // after so long without an event, ask whether the server is still there
const LONGEST_WAIT_S = 15;
const ENDS = new Set(["finished", "failed", "cancelled"]);

export interface Listener {
  event(event: JobEvent): void;
  connected(): void;
  /** No connection; the next attempt is in `seconds`. */
  lost(why: string, seconds: number): void;
  /** The job has ended, and no event says so. */
  over(job: Job): void;
  /** The server says no, and asking again would not help. */
  refused(refusal: Refusal): void;
}

/** EventSource cannot send a key, so this is fetch; `retry()` ends a wait early, `stop()` ends it all. */
export class Stream {
  private stopped = new AbortController();
  private hurry: () => void = () => {};
  private last = 0;
  private ended = false;

  constructor(
    private id: string,
    private listener: Listener,
  ) {
    void this.run();
  }

  retry(): void {
    this.hurry();
  }

  stop(): void {
    this.stopped.abort();
    this.hurry();
  }

  private async run(): Promise<void> {
    const stopped = this.stopped.signal;
    for (let failures = 0; !this.ended && !stopped.aborted; ) {
      const before = this.last;
      let why = "";
      let least = 0;
      try {
        await this.once();
      } catch (error) {
        if (stopped.aborted) return;
        const refusal = error instanceof Refusal ? error : new Refusal(0, "The connection broke.");
        if (!refusal.passing) return this.listener.refused(refusal);
        why = refusal.message;
        least = refusal.retryAfter;
      }
      if (this.ended || stopped.aborted) return;
      failures = this.last > before ? 0 : failures + 1;
      const seconds = Math.max(least, Math.min(LONGEST_WAIT_S, 2 ** failures));
      // A server ends every answer after a while: one that still answers is not lost.
      if (why || failures > 2) this.listener.lost(why || "The stream of events keeps ending.", seconds);
      await this.wait(seconds);
    }
  }

  private async once(): Promise<void> {
    const connection = new AbortController();
    const stop = () => connection.abort();
    this.stopped.signal.addEventListener("abort", stop);
    let heard = Date.now();
    let asking = false;
    const watch = setInterval(async () => {
      if (asking || Date.now() - heard < QUIET_MS) return;
      asking = true;
      // Only silence of the whole server breaks the stream: a slow candidate is no fault.
      await getJob(this.id).then(() => (heard = Date.now()), () => connection.abort());
      asking = false;
    }, 5000);
    try {
      const answer = await ask(`/v1/optimize/${encodeURIComponent(this.id)}/events`, {
        headers: { "last-event-id": String(this.last), accept: "text/event-stream" },
        signal: connection.signal,
      });
      this.listener.connected();
      const parser = createParser({
        onEvent: ({ data }) => {
          const event = JSON.parse(data) as JobEvent;
          if (event.number <= this.last) return;
          this.last = event.number;
          this.ended = ENDS.has(event.type);
          this.listener.event(event);
        },
      });
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        heard = Date.now();
        parser.feed(value);
      }
      if (!this.ended) {
        const job = await getJob(this.id); // a job that a kill left without its last event has ended all the same
        this.ended = !isOpen(job.status);
        if (this.ended) this.listener.over(job);
      }
    } finally {
      clearInterval(watch);
      this.stopped.signal.removeEventListener("abort", stop);
    }
  }

  private wait(seconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
