// Server-sent events, decoded as bytes arrive: a network may cut anywhere, also inside a character.

export type SseItem = { kind: 'data'; data: string } | { kind: 'comment'; text: string };

export class SseParser {
  private readonly decoder = new TextDecoder('utf-8');
  private rest = '';
  private lines: string[] = [];

  /** Takes the next bytes of the stream and returns what they complete. */
  push(bytes: Uint8Array): SseItem[] {
    this.rest += this.decoder.decode(bytes, { stream: true });
    const items: SseItem[] = [];
    let begin = 0;
    for (;;) {
      const end = this.lineEnd(begin);
      if (end === null) break;
      this.takeLine(this.rest.slice(begin, end.at), items);
      begin = end.next;
    }
    this.rest = this.rest.slice(begin);
    return items;
  }

  /** A line ends with LF, CR or CR LF. A CR at the very end may be half of a pair: wait for the next byte. */
  private lineEnd(from: number): { at: number; next: number } | null {
    for (let at = from; at < this.rest.length; at++) {
      const c = this.rest.charCodeAt(at);
      if (c === 10) return { at, next: at + 1 };
      if (c !== 13) continue;
      if (at + 1 === this.rest.length) return null;
      return { at, next: this.rest.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
    }
    return null;
  }

  private takeLine(line: string, items: SseItem[]): void {
    if (line === '') {
      if (this.lines.length > 0) items.push({ kind: 'data', data: this.lines.join('\n') });
      this.lines = [];
    } else if (line.startsWith(':')) {
      items.push({ kind: 'comment', text: line.slice(1).trim() });
    } else if (line === 'data' || line.startsWith('data:')) {
      const value = line.slice(5);
      this.lines.push(value.startsWith(' ') ? value.slice(1) : value);
    }
    // Names, ids and retry times mean nothing here.
  }
}
