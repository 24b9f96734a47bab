// Uploads one file in parts, and goes on after whatever went wrong. The server knows the file again by its name, size and
// time, so a page that was loaded anew goes on where the last one was as soon as the same file is chosen.
"use strict";

const CREATE = "v1beta1/upload-resumable";
const TUS = "1.0.0";
const PART = 64 * 1024 * 1024;
const WAIT_MAX = 30;
// What the proxy responds for a PVC whose upload is complete.
const FINISHED = "already finished uploading";

const find = (id) => document.getElementById(id);
const token = find("token");
const drop = find("drop");
const chooser = find("file");
const bar = find("bar");
const statusLine = find("status-line");
const stop = find("stop");

let running = null;

function showStatus(text, how) {
  statusLine.textContent = text;
  statusLine.className = how || "";
}

// What went wrong for good: nothing that is tried again would change it.
class Refused extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

function sendRequest(method, url, headers, body, onSent) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    running.request = request;
    request.open(method, url);
    request.setRequestHeader("Authorization", "Bearer " + token.value.trim());
    request.setRequestHeader("Tus-Resumable", TUS);
    for (const [name, value] of Object.entries(headers)) {
      request.setRequestHeader(name, value);
    }
    if (onSent) {
      request.upload.onprogress = (event) => onSent(event.loaded);
    }
    request.onload = () => resolve(request);
    request.onerror = () => reject(new Error("the connection failed"));
    request.onabort = () => reject(new Refused("Stopped. Choose the same file to go on."));
    request.send(body || null);
  });
}

// Passes what is good, throws what is not: Refused for what stays so, an ordinary error for what may pass.
function check(request, good) {
  if (good.includes(request.status)) {
    return request;
  }
  const text = request.responseText || "the server responded " + request.status;
  if (request.status === 401) {
    throw new Refused("The token has expired or is none: paste another one and choose the same file.");
  }
  if ([408, 409, 423, 429].includes(request.status) || request.status >= 502) {
    throw new Error(text);
  }
  throw new Refused(text, request.status);
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

async function create(file) {
  const fingerprint = [file.name.slice(0, 100), file.size, file.lastModified].join("/");
  const request = check(
    await sendRequest("POST", CREATE, {
      "Upload-Length": String(file.size),
      "Upload-Metadata": "filename " + base64(file.name.slice(0, 100)) + ",fingerprint " + base64(fingerprint),
    }),
    [200, 201],
  );
  return new URL(request.getResponseHeader("Location"), request.responseURL).href;
}

async function offsetOf(url) {
  const request = check(await sendRequest("HEAD", url, {}), [200]);
  return Number(request.getResponseHeader("Upload-Offset"));
}

function show(file, sent) {
  bar.value = sent / file.size;
  const percent = Math.floor((1000 * sent) / file.size) / 10;
  showStatus(sent < file.size ? file.name + ": " + percent + " %" : file.name + ": waiting until it is on the disk");
}

async function send(file, url, from) {
  let at = from;
  while (at < file.size) {
    const part = file.slice(at, at + PART);
    const headers = { "Upload-Offset": String(at), "Content-Type": "application/offset+octet-stream" };
    const begin = at;
    const request = await sendRequest("PATCH", url, headers, part, (sent) => {
      running.isSent = running.isSent || begin + sent >= file.size;
      show(file, Math.min(begin + sent, file.size));
    });
    at = Number(check(request, [204]).getResponseHeader("Upload-Offset"));
    show(file, at);
    running.failures = 0;
  }
}

async function upload(file) {
  let url = null;
  for (;;) {
    try {
      url = url || (await create(file));
      let at;
      try {
        at = await offsetOf(url);
      } catch (error) {
        if (![404, 410].includes(error.status)) {
          throw error;
        }
        // The server does not know it any more: another one may have come in its place.
        url = await create(file);
        at = await offsetOf(url);
      }
      await send(file, url, at);
      return;
    } catch (error) {
      if (error instanceof Refused || running.stopped) {
        throw error;
      }
      if (error.message.includes(FINISHED)) {
        if (running.isSent) {
          return; // the response to the last part was lost
        }
        throw new Refused(error.message);
      }
      running.failures += 1;
      const seconds = Math.min(2 ** running.failures, WAIT_MAX);
      showStatus(file.name + ": " + error.message + "; retrying in " + seconds + " s");
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    }
  }
}

async function begin(file) {
  if (running || !file) {
    return;
  }
  if (!token.value.trim()) {
    showStatus("Enter a token first.", "bad");
    return;
  }
  sessionStorage.setItem("token", token.value.trim());
  running = { failures: 0, stopped: false, isSent: false, request: null };
  bar.hidden = stop.hidden = false;
  chooser.disabled = true;
  try {
    show(file, 0);
    await upload(file);
    showStatus(file.name + " is complete.", "good");
    sessionStorage.removeItem("token");
  } catch (error) {
    showStatus(error.message, "bad");
  } finally {
    running = null;
    stop.hidden = true;
    chooser.disabled = false;
    chooser.value = "";
  }
}

chooser.addEventListener("change", () => begin(chooser.files[0]));
stop.addEventListener("click", () => {
  running.stopped = true;
  if (running.request) {
    running.request.abort();
  }
});
drop.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  begin(event.dataTransfer.files[0]);
});
window.addEventListener("beforeunload", (event) => {
  if (running) {
    event.preventDefault();
  }
});
token.value = sessionStorage.getItem("token") || "";
