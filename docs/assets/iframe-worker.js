/* A page that was opened from a folder may not start workers. Run the worker of the search in a frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = (this.inner = frame.contentWindow);
      const reply = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.postMessage = reply;
      inner.importScripts = (...urls) => this.all(urls);
      this.ready = this.all([url]);
    }
    /* Load scripts one after the other. */
    all(urls) {
      return urls.reduce((before, url) => before.then(() => this.one(url)), Promise.resolve());
    }
    one(url) {
      return new Promise((done, failed) => {
        const script = this.inner.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = done;
        script.onerror = failed;
        this.inner.document.body.appendChild(script);
      });
    }
    postMessage(data) {
      this.ready.then(() =>
        this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
