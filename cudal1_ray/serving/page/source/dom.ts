// The few things that plain DOM calls say too often.

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

type Child = Node | string | null | undefined;

/** An element with attributes and children; text stays text. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child): child is Node | string => child !== null && child !== undefined));
  return element;
}

/** Says it to screen readers, in their own time. */
export function announce(text: string): void {
  byId("announce").textContent = text;
}

export function show(element: HTMLElement, visible: boolean): void {
  element.hidden = !visible;
}

/** Storage may be forbidden or full; then things are kept for as long as the page is open. */
export class Kept {
  private memory = "";
  constructor(private storage: () => Storage, private name: string) {}

  get(): string {
    try {
      return this.storage().getItem(this.name) ?? this.memory;
    } catch {
      return this.memory;
    }
  }

  set(value: string): void {
    this.memory = value;
    try {
      if (value) this.storage().setItem(this.name, value);
      else this.storage().removeItem(this.name);
    } catch {
      // kept in memory
    }
  }
}

export async function copy(text: string, button: HTMLButtonElement): Promise<void> {
  const said = button.dataset.said ?? button.textContent ?? "";
  button.dataset.said = said;
  let done = true;
  try {
    await navigator.clipboard.writeText(text); // there only on https and on this machine
  } catch {
    const area = make("textarea", { class: "away", readonly: "" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Cannot copy here";
  announce(button.textContent);
  setTimeout(() => (button.textContent = said), 2000);
}
