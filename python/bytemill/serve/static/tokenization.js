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
 * Uint8Array of flags each. Takes a pass over the tokens for each pair.
 */
export function differences(all) {
  return all.map((one) => {
    const flags = new Uint8Array(one.length);
    for (const other of all) if (other !== one) markMissing(one, other, flags);
    return flags;
  });
}

function markMissing(one, other, flags) {
  const [ends, others] = [one.ends, other.ends];
  for (let i = 0, j = 0; i < ends.length; i++) {
    while (j < others.length && others[j] < ends[i]) j += 1;
    if (others[j] !== ends[i] || other.start(j) !== one.start(i)) flags[i] = 1;
  }
}
