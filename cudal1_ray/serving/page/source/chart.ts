// The job as a chart: rounds from left to right, speedup upwards on a logarithmic scale, what was rejected in lanes below.

import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear, scaleLog } from "d3-scale";
import { select, type Selection } from "d3-selection";
import { curveStepAfter, line } from "d3-shape";
import { make } from "./dom";
import type { Confirmation, Kind, Point, Story } from "./story";
import { interval, times } from "./words";

const LEFT = 52;
const RIGHT = 14;
const TOP = 14;
const LANE = 24;
const AXIS = 40;
const TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const FINE_TICKS = [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3];
const LANES: Record<Exclude<Kind, "accepted">, number> = { rejected: 0, unmeasured: 0, known: 1 };
const LANE_NAMES = ["rejected", "repeated"];

/** A mark: a candidate, or a second measurement of one. */
type Mark = Point | (Confirmation & { kind: "confirmed" | "refuted"; place: number });

export class Chart {
  private svg: Selection<SVGSVGElement, unknown, null, undefined>;
  private story?: Story;
  private marks: Mark[] = [];
  private active = 0; // number of the mark that the arrow keys are at

  /** chosen: called with the mark that the user looks at, and with undefined when it is none. */
  constructor(
    private box: HTMLElement,
    private chosen: (point: Point | Confirmation | undefined) => void,
  ) {
    this.svg = select(box).append("svg").attr("id", "chart-svg");
    for (const layer of ["lanes", "axes", "best", "marks"]) this.svg.append("g").attr("class", layer);
    this.svg.select(".marks").attr("role", "presentation");
    for (const layer of ["lanes", "axes", "best"]) this.svg.select(`.${layer}`).attr("aria-hidden", "true");
    const svg = this.svg.node()!;
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("focus", () => {
      if (!this.active && this.marks.length) this.go(this.marks[0]!);
    });
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerdown", (event) => this.point(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  set(story: Story, active = 0): void {
    if (this.story !== story) this.active = active;
    this.story = story;
    this.draw();
  }

  /** Marks a candidate as the one that is looked at, without telling. */
  activate(number: number): void {
    this.active = number;
    this.draw();
  }

  private draw(): void {
    const story = this.story;
    const width = this.box.clientWidth;
    if (!story || !width) return;
    const height = Math.round(Math.min(440, Math.max(300, width * 0.5)));
    const floor = height - AXIS - LANES_HEIGHT;
    const first = story.points.some((point) => point.round === 0) ? 0 : 1; // round 0: known before the job
    const again = story.confirmations.length > 0;
    const confirmations = story.confirmations.map((said, place) => ({
      ...said,
      kind: confirms(said) ? ("confirmed" as const) : ("refuted" as const),
      place,
    }));
    this.marks = [...story.points, ...confirmations];
    const x = scaleLinear([first - 0.5, story.rounds + (again ? 1.5 : 0.5)], [LEFT, width - RIGHT]);
    const at = (mark: Mark): number => {
      if (!("round" in mark)) return x(story.rounds + 1 + spread(mark.place, Math.max(3, confirmations.length)));
      return x(mark.round + spread(mark.place, story.places));
    };
    const timed = this.marks.filter((mark) => mark.kind === "accepted" || mark.kind === "confirmed" || mark.kind === "refuted");
    const seen = timed.filter((mark) => mark.speedup > 0);
    const low = Math.min(0.8, ...seen.map((mark) => mark.speedup_low || mark.speedup)) / 1.08;
    const high = Math.max(1.6, ...seen.map((mark) => mark.speedup_high)) * 1.12;
    const y = scaleLog([low, high], [floor - 6, TOP]);
    const height_of = (mark: Mark): number => {
      if (mark.kind === "confirmed" || mark.kind === "accepted") return y(mark.speedup);
      if (mark.kind === "refuted") return mark.speedup > 0 ? y(mark.speedup) : floor + LANE / 2;
      return floor + LANE * (LANES[mark.kind] + 0.5);
    };

    this.svg
      .attr("viewBox", `0 0 ${width} ${height}`)
      .attr("width", width)
      .attr("height", height)
      .attr("role", this.marks.length ? "listbox" : "img")
      .attr("tabindex", this.marks.length ? 0 : null)
      .attr("aria-label", this.marks.length ? "Candidates, by round" : "No candidates yet")
      .attr("aria-activedescendant", this.active ? `mark-${this.active}` : null);
    this.axes(x, y, width, floor, high / low < 4 ? FINE_TICKS : TICKS, story, again);
    this.best(story, at, y, x(story.rounds + 0.5));

    const groups = this.svg
      .select(".marks")
      .selectAll<SVGGElement, Mark>("g.mark")
      .data(this.marks, (mark) => mark.number)
      .join((enter) => {
        const group = enter.append("g").attr("role", "option");
        group.append("line").attr("class", "interval");
        group.append("circle").attr("class", "halo").attr("r", 11);
        group.append("path").attr("class", "shape");
        return group;
      });
    groups
      .attr("id", (mark) => `mark-${mark.number}`)
      .attr("class", (mark) => `mark ${mark.kind}${mark.number === this.active ? " active" : ""}`)
      .attr("aria-selected", (mark) => String(mark.number === this.active))
      .attr("aria-label", describe)
      .attr("transform", (mark) => `translate(${at(mark).toFixed(1)} ${height_of(mark).toFixed(1)})`);
    groups.select(".shape").attr("d", (mark) => SHAPES[mark.kind]);
    groups
      .select(".interval")
      .attr("display", (mark) => (hasInterval(mark) ? null : "none"))
      .attr("y1", (mark) => (hasInterval(mark) ? y(mark.speedup_low) - height_of(mark) : 0))
      .attr("y2", (mark) => (hasInterval(mark) ? y(mark.speedup_high) - height_of(mark) : 0));
  }

  private axes(
    x: ReturnType<typeof scaleLinear<number, number>>,
    y: ReturnType<typeof scaleLog<number, number>>,
    width: number,
    floor: number,
    candidates: number[],
    story: Story,
    again: boolean,
  ): void {
    const [low, high] = y.domain() as [number, number];
    const ticks = candidates.filter((tick) => tick >= low && tick <= high);
    const axes = this.svg.select<SVGGElement>(".axes");
    axes.selectAll("*").remove();
    const left = axisLeft(y).tickValues(ticks).tickFormat((tick) => `${tick}×`).tickSize(-(width - LEFT - RIGHT));
    axes.append("g").attr("class", "y").attr("transform", `translate(${LEFT} 0)`).call(left);
    axes.selectAll<SVGGElement, number>(".y .tick").classed("one", (tick) => tick === 1);
    const room = (x(2) - x(1)) / 26; // a number wants about so many pixels
    const every = Math.max(1, Math.ceil(1 / room));
    const rounds = [...Array(story.rounds).keys()].filter((round) => round % every === 0).map((round) => round + 1);
    if (x.domain()[0]! < 0) rounds.unshift(0);
    const bottom = axisBottom(x)
      .tickValues([...rounds, ...(again ? [story.rounds + 1] : [])])
      .tickFormat((round) => (Number(round) > story.rounds ? "again" : Number(round) ? String(round) : "known"))
      .tickSize(0)
      .tickPadding(8);
    axes.append("g").attr("class", "x").attr("transform", `translate(0 ${floor + LANES_HEIGHT})`).call(bottom);
    axes
      .append("text")
      .attr("class", "title")
      .attr("x", (LEFT + width - RIGHT) / 2)
      .attr("y", floor + LANES_HEIGHT + 36)
      .text("round");
    const lanes = this.svg.select(".lanes");
    lanes.selectAll("*").remove();
    if (again) {
      const from = x(story.rounds + 0.5);
      lanes.append("rect").attr("class", "again").attr("x", from).attr("y", TOP).attr("width", width - RIGHT - from);
      lanes.select(".again").attr("height", floor + LANES_HEIGHT - TOP);
    }
    for (const [index, name] of LANE_NAMES.entries()) {
      const top = floor + index * LANE;
      const lane = lanes.append("rect").attr("class", "lane").attr("x", LEFT).attr("y", top);
      lane.attr("width", width - LEFT - RIGHT).attr("height", LANE - 2);
      lanes.append("text").attr("class", "lane-name").attr("x", LEFT - 6).attr("y", top + LANE / 2 + 2).text(name);
    }
  }

  private best(story: Story, at: (mark: Mark) => number, y: (speedup: number) => number, end: number): void {
    const steps: [number, number][] = [];
    for (const point of story.accepted) {
      const last = steps.at(-1);
      if (!last || point.speedup > last[1]) steps.push([at(point), point.speedup]);
    }
    const last = steps.at(-1);
    const seen = this.marks.filter((mark): mark is Point => "round" in mark).at(-1);
    if (last && seen) steps.push([story.open ? at(seen) : end, last[1]]);
    const path = line<[number, number]>().x((step) => step[0]).y((step) => y(step[1])).curve(curveStepAfter);
    this.svg.select(".best").selectAll("path").data([steps]).join("path").attr("d", path);
  }

  private key(event: KeyboardEvent): void {
    const here = this.marks.findIndex((mark) => mark.number === this.active);
    const places: Record<string, number> = {
      ArrowRight: here + 1,
      ArrowDown: here + 1,
      ArrowLeft: here - 1,
      ArrowUp: here - 1,
      Home: 0,
      End: this.marks.length - 1,
    };
    const place = places[event.key];
    if (place === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const mark = this.marks[Math.max(0, Math.min(this.marks.length - 1, place))];
    if (mark) this.go(mark);
  }

  private point(event: PointerEvent): void {
    const group = (event.target as Element).closest("g.mark");
    const mark = this.marks.find((mark) => group?.id === `mark-${mark.number}`);
    if (mark && mark.number !== this.active) this.go(mark);
  }

  private go(mark: Mark): void {
    this.activate(mark.number);
    this.chosen(mark);
  }
}

const LANES_HEIGHT = LANE * LANE_NAMES.length;
const CROSS = "M-4 -4L4 4M-4 4L4 -4";
const DIAMOND = "M0 -6.5L6.5 0L0 6.5L-6.5 0Z";
const disc = (radius: number): string => `M${-radius} 0a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0`;
const SHAPES: Record<Mark["kind"], string> = {
  accepted: disc(5),
  rejected: CROSS,
  unmeasured: "M-4 0L4 0",
  known: disc(3.5),
  confirmed: DIAMOND,
  refuted: CROSS,
};

const confirms = (said: Confirmation): boolean => said.status === "accepted" && said.speedup_low > 1;
const hasInterval = (mark: Mark): boolean =>
  mark.speedup_low > 0 && (mark.kind === "accepted" || mark.kind === "confirmed" || mark.kind === "refuted");
/** Where in its column a mark stands: between -0.42 and 0.42. */
const spread = (place: number, places: number): number => ((place + 0.5) / places - 0.5) * 0.84;

export function describe(mark: Mark): string {
  if (!("round" in mark)) {
    const said = mark.speedup > 0 ? `${times(mark.speedup)}, ${interval(mark.speedup_low, mark.speedup_high)}` : mark.status;
    return `measured again: first ${times(mark.first)}, now ${said}`;
  }
  const where = mark.origin ? `known from ${mark.origin}` : `round ${mark.round}, candidate ${mark.place + 1}`;
  switch (mark.kind) {
    case "accepted":
      return `${where}: ${times(mark.speedup)}, 95% interval ${interval(mark.speedup_low, mark.speedup_high)}`;
    case "known":
      return `${where}: repeated, evaluated before`;
    case "unmeasured":
      return `${where}: the evaluator failed on it`;
    default:
      return `${where}: rejected, ${mark.reasons.join(", ")}`;
  }
}

/** What the marks mean, drawn with the marks themselves. */
export function legend(list: HTMLElement): void {
  const entries: [Mark["kind"] | "line", string][] = [
    ["accepted", "right, and timed"],
    ["line", "best so far"],
    ["rejected", "rejected"],
    ["known", "repeated"],
    ["confirmed", "measured again"],
  ];
  for (const [kind, text] of entries) {
    const item = make("li");
    const svg = select(item).append("svg").attr("viewBox", "-10 -8 20 16").attr("width", 20).attr("height", 16);
    svg.attr("aria-hidden", "true");
    if (kind === "line") svg.append("g").attr("class", "best").append("path").attr("d", "M-9 4H0V-4H9");
    else svg.append("g").attr("class", `mark ${kind}`).append("path").attr("class", "shape").attr("d", SHAPES[kind]);
    item.append(text);
    list.append(item);
  }
}
