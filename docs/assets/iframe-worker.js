// A page that is opened as a file may start no worker, and the search of the site is one. There it
// runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (message) => {
        const data = structuredClone(message); // each side owns what it has, as with a worker
        setTimeout(() => {
          const event = new MessageEvent("message", { data });
          this.onmessage?.(event);
          this.dispatchEvent(event);
        });
      };
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      script.src = url;
      this.inside.document.body.append(script);
    }

    postMessage(message) {
      const data = structuredClone(message);
      this.loaded.then(
        () => this.inside.dispatchEvent(new MessageEvent("message", { data })),
        () => this.dispatchEvent(new Event("error")),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
