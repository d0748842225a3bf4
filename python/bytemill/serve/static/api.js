// Requests to the server, and the banner that appears while it does not answer.

/** An error that the server explained, or its absence (status 0). */
export class ApiError extends Error {
  constructor(message, hint = null, status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

export const isAbort = (error) => error.name === "AbortError";

/** GETs JSON. */
export async function get(path, { signal } = {}) {
  return (await request(path, { signal })).json();
}

/** POSTs JSON, and returns JSON. */
export async function post(path, body, { signal } = {}) {
  return (await request(path, posted(body, signal))).json();
}

/** POSTs JSON; the events of the reply, each an object. */
export async function* events(path, body, { signal } = {}) {
  const response = await request(path, posted(body, signal));
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for await (const bytes of chunks(response.body)) {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
      }
    }
  } catch (error) {
    if (isAbort(error) || error instanceof ApiError) throw error;
    throw new ApiError("the connection to the server was lost", "what arrived is kept");
  }
}

// Safari's streams cannot be iterated.
async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function posted(body, signal) {
  const headers = { "Content-Type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    watch();
    throw new ApiError("the server does not answer", "is bytemill serve still running?");
  }
  banner(false);
  if (response.ok) return response;
  const { message, hint } = (await response.json().catch(() => ({}))).error ?? {};
  throw new ApiError(message ?? `the server replied ${response.status}`, hint, response.status);
}

// --- the banner -------------------------------------------------------------------------------

let timer = 0;

function banner(shown) {
  document.getElementById("offline").hidden = !shown;
}

/** Shows the banner until the server answers again, then sends `server-back` to the page. */
function watch() {
  banner(true);
  if (timer) return;
  timer = setInterval(async () => {
    try {
      await fetch("/api/catalog", { cache: "no-store" });
    } catch {
      return;
    }
    clearInterval(timer);
    timer = 0;
    banner(false);
    document.dispatchEvent(new Event("server-back"));
  }, 2000);
}
