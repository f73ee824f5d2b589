// Markdown that grows. Finished blocks are rendered once; only the last one changes.
import { Component, type JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { definitionsIn, mended, splitBlocks, withoutDoubtfulLine, type Split } from '../markdown/blocks';
import { renderMarkdown } from '../markdown/render';
import { announce } from './announce';
import { CopyCodeButton } from './copy';
import { NestedCode } from './NestedCode';

export function Code({ language, text }: { language: string; text: string }): JSX.Element {
  return (
    <div class="code">
      <div class="code-head">
        <span>{language}</span>
        <CopyCodeButton text={text} />
      </div>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
}

interface BlockProps {
  raw: string;
  definitions: string;
}

/** Not rendered again for the same text: selections and scroll positions inside of it stay. */
class MarkdownBlock extends Component<BlockProps> {
  override shouldComponentUpdate(next: BlockProps): boolean {
    return next.raw !== this.props.raw || next.definitions !== this.props.definitions;
  }

  override render({ raw, definitions }: BlockProps): JSX.Element {
    return <NestedCode html={renderMarkdown(raw, definitions)} />;
  }
}

export function Markdown({ text, growing }: { text: string; growing: boolean }): JSX.Element {
  const previous = useRef<Split | null>(null);
  const split = useMemo(() => {
    previous.current = splitBlocks(previous.current, growing ? withoutDoubtfulLine(text) : text);
    return previous.current;
  }, [text, growing]);
  const definitions = useMemo(() => definitionsIn(split.blocks), [split]);
  useAnnouncements(split, growing);
  const last = split.blocks.length - 1;
  return (
    <div class="markdown">
      {split.blocks.map((block, index) =>
        block.kind === 'code' ? (
          <Code key={index} language={block.language} text={block.text} />
        ) : (
          <MarkdownBlock
            key={index}
            raw={growing && index === last ? mended(block.raw) : block.raw}
            definitions={definitions}
          />
        ),
      )}
    </div>
  );
}

/** Reads blocks out when they are finished: word by word would drown a screen reader. */
function useAnnouncements(split: Split, growing: boolean): void {
  const read = useRef(growing ? 0 : split.blocks.length);
  const finished = growing ? split.blocks.length - 1 : split.blocks.length;
  useEffect(() => {
    if (finished <= read.current) return;
    announce(
      split.blocks
        .slice(read.current, finished)
        .map((block) => block.raw)
        .join('\n'),
    );
    read.current = finished;
  }, [finished]);
}
