/** Bytes of a batch as they cross: the ArrayBuffer itself, or a Uint8Array over all of a SharedArrayBuffer. */
export type BatchBytes = ArrayBuffer | Uint8Array;
