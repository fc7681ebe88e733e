/** Bytes of a batch as the addon gets them: the ArrayBuffer itself, or a Uint8Array over a whole
 *  SharedArrayBuffer. */
export type BatchBytes = ArrayBuffer | Uint8Array;
