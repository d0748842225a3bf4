// Search in pages that are opened as files, where browsers refuse workers: the worker of the theme
// runs in a hidden frame instead. Messages are delivered later and copied, as between threads.
if (location.protocol === "file:") {
  const deliver = (target, data) => {
    const event = new MessageEvent("message", { data: structuredClone(data) });
    setTimeout(() => target.dispatchEvent(event));
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script src="${url}"></script>`;
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          this.frame.contentWindow.postMessage = (data) => deliver(this, data);
          resolve();
        };
      });
      this.addEventListener("message", (event) => this.onmessage?.(event));
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.ready.then(() => deliver(this.frame.contentWindow, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
