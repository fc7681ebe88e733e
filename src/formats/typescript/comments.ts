/** Comments of a .proto text as documentation of its declarations.
 *
 *  A comment documents the declaration that follows it without an empty line between them, or else
 *  the declaration before it on its line. Source: descriptor.proto, "SourceCodeInfo". */
import type { Position } from '../protobuf/syntax/ast.ts';

/** Comment, string, line break, or another character that is not a blank. */
const PIECE = /\/\/([^\n]*)|\/\*([\s\S]*?)\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\n|[^\s]/g;

interface Comment {
  readonly from: number;
  to: number;
  text: string;
  readonly isLine: boolean;
  /** True where code precedes the comment on its line. */
  readonly isTrailing: boolean;
}

export class ProtoComments {
  /** By the last line of the comment. */
  private readonly leading = new Map<number, Comment>();
  /** By the line of the code before the comment. */
  private readonly trailing = new Map<number, Comment>();
  /** Column of the first code of each line. */
  private readonly firstColumns = new Map<number, number>();

  constructor(source: string) {
    let line = 1;
    let lineStart = source.startsWith('\ufeff') ? 1 : 0;
    let last: Comment | undefined;
    for (const found of source.matchAll(PIECE)) {
      const [piece, lineText, blockText] = found;
      if (piece === '\n') {
        line++;
        lineStart = found.index + 1;
        continue;
      }
      const text = lineText ?? blockText;
      if (text === undefined) {
        if (!this.firstColumns.has(line)) this.firstColumns.set(line, found.index - lineStart + 1);
        last = undefined;
        continue;
      }
      const isLine = lineText !== undefined;
      const from = line;
      for (const end of piece.matchAll(/\n/g)) {
        line++;
        lineStart = found.index + end.index + 1;
      }
      const isTrailing = this.firstColumns.has(from);
      // Line comments on successive lines are one comment.
      if (isLine && last?.isLine === true && !last.isTrailing && last.to === from - 1) {
        this.leading.delete(last.to);
        last.text += `\n${text}`;
        last.to = from;
      } else last = { from, to: line, text, isLine, isTrailing };
      if (!last.isTrailing) this.leading.set(last.to, last);
      else if (!this.trailing.has(from)) this.trailing.set(from, last);
    }
  }

  /** Documentation of the declaration at a position; undefined without a comment. */
  docOf({ line, column }: Position): string | undefined {
    const first = this.firstColumns.get(line);
    // Comments belong to the first of several declarations in a line.
    if (first !== undefined && first < column) return undefined;
    const before = this.leading.get(line) ?? this.leading.get(line - 1);
    return textOf(before) ?? textOf(this.trailing.get(line));
  }
}

function textOf(comment: Comment | undefined): string | undefined {
  if (comment === undefined) return undefined;
  const lines = comment.text
    .split(/\r?\n/)
    .map((line) => (comment.isLine ? line : line.replace(/^\s*\*+/, '')).replace(/^ /, '').trimEnd());
  const text = lines.join('\n').replace(/^\n+/, '').trimEnd();
  return text.trim() === '' ? undefined : text;
}
