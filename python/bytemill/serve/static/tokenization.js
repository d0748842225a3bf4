// A text as tokens, and where several tokenizers cut it differently.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class Tokenization {
  /**
   * `bytes` is the text in UTF-8, `ends` the end of each token in it; `tokenizer`
   * identifies the tokenizer, `special` is the set of its special tokens, as text.
   */
  constructor(tokenizer, bytes, ids, ends, special) {
    this.tokenizer = tokenizer;
    this.bytes = bytes;
    this.ids = ids;
    this.ends = ends;
    this.special = special;
  }

  get length() {
    return this.ids.length;
  }

  start(i) {
    return i ? this.ends[i - 1] : 0;
  }

  token(i) {
    return this.bytes.subarray(this.start(i), this.ends[i]);
  }

  isSpecial(i) {
    return this.special.size > 0 && this.special.has(decoder.decode(this.token(i)));
  }

  /** The token that contains byte `at`. */
  at(at) {
    let [low, high] = [0, this.ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > at) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

export const utf8 = (text) => encoder.encode(text);

/**
 * For each of several tokenizations of one text, which of its tokens are not in all others: a
 * Uint8Array of flags each. Time is linear in the number of tokens.
 */
export function differences(all) {
  const shared = all.map((one) => new Uint8Array(one.length));
  const at = all.map(() => 0);
  while (all.every((one, k) => at[k] < one.length)) {
    const ends = all.map((one, k) => one.ends[at[k]]);
    const last = Math.max(...ends);
    if (ends.every((end) => end === last)) {
      const start = all[0].start(at[0]);
      const same = all.every((one, k) => one.start(at[k]) === start);
      all.forEach((_, k) => {
        shared[k][at[k]] = same ? 1 : 0;
        at[k] += 1;
      });
    } else {
      all.forEach((_, k) => {
        if (ends[k] < last) at[k] += 1;
      });
    }
  }
  return shared.map((flags) => flags.map((flag) => 1 - flag));
}
