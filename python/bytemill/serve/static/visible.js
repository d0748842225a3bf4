// Bytes as text without invisible characters, as `look.visible` of the library shows them.

const SIGNS = { " ": "·", "\t": "→", "\n": "↵", "\r": "␍" };
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zs}\p{Zl}\p{Zp}]/u;
const MARK = /^\p{M}/u;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const hex = (bytes) => Array.from(bytes, byte).join(" ");
const byte = (b) => b.toString(16).padStart(2, "0");

/** "e28099" → bytes. */
export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/**
 * The signs of a token: spaces `·`, tabs `→`, newlines `↵`, bytes that are not UTF-8 `‹e2›`, other
 * invisible characters `‹U+200B›`. With `spaces` false, spaces and tabs stay as they are.
 */
export function visible(bytes, { spaces = true } = {}) {
  let signs = "";
  for (const part of characters(bytes)) {
    if (typeof part === "number") signs += `‹${byte(part)}›`;
    else if (!spaces && (part === " " || part === "\t")) signs += part;
    else if (part in SIGNS) signs += SIGNS[part];
    else if (HIDDEN.test(part)) signs += `‹U+${code(part)}›`;
    else signs += part;
  }
  return MARK.test(signs) ? `◌${signs}` : signs;
}

const code = (char) => char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

/** The characters of bytes; those that are not UTF-8 as numbers. */
function* characters(bytes) {
  try {
    yield* strict.decode(bytes);
    return;
  } catch {
    // Cut characters: one at a time.
  }
  for (let at = 0; at < bytes.length; ) {
    const lead = bytes[at];
    const size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    try {
      yield* strict.decode(bytes.subarray(at, at + size));
      at += size;
    } catch {
      yield lead;
      at += 1;
    }
  }
}
