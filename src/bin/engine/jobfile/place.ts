/** Places in a job file, and the texts that were read there. */
export interface FilePlace {
  /** From 1. */
  readonly line: number;
  readonly column: number;
}

/** Part of a list, or the only text of a value. */
export interface Part extends FilePlace {
  readonly text: string;
  /** FilePlace of a character of the text. */
  readonly placeOf: (at: number) => FilePlace;
}
