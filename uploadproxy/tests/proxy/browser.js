// As much of a browser as the page needs: elements that remember, and XMLHttpRequest over https. No rendering, no layout.
// node browser.js PAGE.js PORT CA TOKEN IMAGE CUTS: the n-th PATCH breaks after CUTS[n] bytes. Prints the page's last status.
"use strict";
const fs = require("node:fs");
const https = require("node:https");
const vm = require("node:vm");

const [script, port, authority, token, image, cuts] = process.argv.slice(2);
const base = "https://localhost:" + port + "/";
const agent = new https.Agent({ ca: fs.readFileSync(authority), keepAlive: false });
const limits = cuts ? cuts.split(",").map(Number) : [];
let patches = 0;

class Request {
  constructor() {
    this.upload = {};
    this.headers = {};
    this.status = 0;
    this.responseText = "";
  }
  open(method, url) {
    this.method = method;
    this.responseURL = new URL(url, base).href;
  }
  setRequestHeader(name, value) {
    this.headers[name] = value;
  }
  getResponseHeader(name) {
    return this.answer.headers[name.toLowerCase()] ?? null;
  }
  abort() {
    this.request.destroy();
    this.onabort();
  }
  async send(body) {
    const bytes = body ? Buffer.from(await body.arrayBuffer()) : Buffer.alloc(0);
    const headers = { ...this.headers, Origin: "https://localhost:" + port, "Content-Length": bytes.length };
    const limit = this.method === "PATCH" ? limits[patches++] : undefined;
    let over = false;
    const fail = () => {
      if (!over) {
        over = true;
        this.onerror();
      }
    };
    const request = https.request(this.responseURL, { method: this.method, headers, agent }, (answer) => {
      answer.on("data", (piece) => (this.responseText += piece));
      answer.on("error", fail);
      answer.on("end", () => {
        if (!over) {
          over = true;
          [this.answer, this.status] = [answer, answer.statusCode];
          this.onload();
        }
      });
    });
    this.request = request;
    request.on("error", fail);
    if (limit === undefined) {
      request.end(bytes);
    } else {
      request.write(bytes.subarray(0, limit), () => request.destroy());
      request.flushHeaders();
      request.on("close", fail);
    }
    if (this.upload.onprogress) {
      this.upload.onprogress({ loaded: bytes.length });
    }
  }
}

class Element {
  constructor() {
    this.listeners = {};
    this.value = "";
    this.classList = { add() {}, remove() {} };
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
}

const elements = {};
const find = (id) => (elements[id] ??= new Element());
const stored = { token };
const world = {
  document: { getElementById: find },
  sessionStorage: {
    getItem: (key) => stored[key] ?? null,
    setItem: (key, value) => (stored[key] = value),
    removeItem: (key) => delete stored[key],
  },
  window: { addEventListener() {} },
  XMLHttpRequest: Request,
  setTimeout: (work) => setImmediate(work), // nobody waits here
  TextEncoder,
  URL,
  btoa,
};
vm.runInNewContext(fs.readFileSync(script, "utf8"), world);

const file = new File([fs.readFileSync(image)], "disk.img", { lastModified: 7 });
find("file").files = [file];
Promise.resolve(find("file").listeners.change()).then(() => {
  console.log(find("status-line").className + ": " + find("status-line").textContent);
});
