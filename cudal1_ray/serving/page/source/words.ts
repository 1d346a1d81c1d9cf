// Numbers and times as people read them.

export const times = (speedup: number): string => `${speedup.toFixed(speedup < 10 ? 2 : 1)}×`;

export const interval = (low: number, high: number): string => `${times(low)} to ${times(high)}`;

export function milliseconds(ms: number): string {
  if (ms >= 100) return `${ms.toFixed(0)} ms`;
  if (ms >= 1) return `${ms.toPrecision(3)} ms`;
  return `${(ms * 1000).toPrecision(3)} µs`;
}

export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const rest = String(whole % 60).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

/** seconds since 1970 -> "today, 14:05", "12 Mar, 09:30" */
export function moment(seconds: number): string {
  const then = new Date(seconds * 1000);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (then.toDateString() === new Date().toDateString()) return `today, ${time}`;
  return `${then.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

const BASELINES: Record<string, string> = {
  eager: "eager PyTorch",
  compile: "torch.compile",
  compile_reduce_overhead: "torch.compile (reduce-overhead)",
  cuda_graph: "a CUDA graph",
  tuned_eager: "tuned eager PyTorch",
};

export const baseline = (name: string): string => BASELINES[name] ?? name;

export const count = (number: number, one: string, many = `${one}s`): string => `${number} ${number === 1 ? one : many}`;
