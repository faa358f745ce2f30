// Keeps pages up to date. Without it, a page is as it was when it was loaded.
"use strict";

// The page of a run: what changes is asked for again after an event, at most this often (milliseconds).
const PAUSE = 2000;
// Lines that a followed log keeps.
const log = document.getElementById("log");
const now = document.getElementById("now");

document.addEventListener("keydown", event => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});

if (now) {
  const news = document.getElementById("news");
  let asked = 0, timer = null, text = null, tag = null;
  let offset = Number(now.dataset.now) * 1000 - Date.now();

  // Times that run: the elements say since when, by the server's clock.
  const duration = seconds => {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
    if (minutes) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
    return `${whole} s`;
  };
  setInterval(() => {
    if (document.hidden) return;
    for (const time of now.querySelectorAll("time[data-since]")) {
      time.textContent = duration((Date.now() + offset) / 1000 - Number(time.dataset.since));
    }
  }, 1000);

  const count = page => page.querySelectorAll(".causes li").length;

  async function refresh() {
    timer = null;
    if (document.hidden) { asked = 0; return; }
    asked = Date.now();
    try {
      const answer = await fetch(now.dataset.part, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.status === 304 || !answer.ok) return;
      tag = answer.headers.get("etag");
      const part = await answer.text();
      if (part === text) return;
      text = part;
      const template = document.createElement("template");
      template.innerHTML = part;
      // What has the focus, or was scrolled, stays so.
      const focused = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const scrolled = now.querySelector(".scroll")?.scrollLeft ?? 0;
      const before = count(now);
      now.replaceChildren(template.content);
      if (focused) now.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      const scroll = now.querySelector(".scroll");
      if (scroll) scroll.scrollLeft = scrolled;
      if (count(now) > before) news.textContent = now.querySelector(".causes li:last-child")?.textContent ?? "";
    } catch {
      // The feed says when the server is back.
    }
  }
  const soon = () => { timer ??= setTimeout(refresh, Math.max(100, asked + PAUSE - Date.now())); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });

  const feed = new EventSource(now.dataset.feed + "&live=true");
  for (const type of ["build-began", "build-ended", "stage-began", "package", "requested", "worker", "live"]) {
    feed.addEventListener(type, soon);
  }
  // The whole page is another one then.
  // Not all readers at once.
  const reload = () => setTimeout(() => location.reload(), 500 + Math.random() * 2500);
  for (const type of ["run-ended", "run-began", "published"]) feed.addEventListener(type, reload);
  feed.addEventListener("open", () => { now.classList.remove("stale"); soon(); });
  feed.addEventListener("error", () => {
    now.classList.add("stale");
    // A browser gives up where the answer was a refusal: the page says why.
    if (feed.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
  });
}

if (log?.dataset.follow) {
  const more = document.getElementById("more");
  const linesMax = Number(log.dataset.lines);
  let number = Number(log.style.getPropertyValue("--first")) + log.childElementCount;
  let rest = "", gone = 0;
  const add = line => {
    const span = document.createElement("span");
    span.id = `L${++number}`;
    // Colours and cursor movements of a terminal are no text.
    span.textContent = line.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "").slice(0, 2000);
    log.append(span, "\n");
  };
  const trim = () => {
    while (log.childElementCount > linesMax) {
      const first = log.firstElementChild;
      if (first.nextSibling?.nodeType === Node.TEXT_NODE) first.nextSibling.remove();
      first.remove();
      gone++;
    }
    if (gone) log.style.setProperty("--first", String(number - log.childElementCount));
  };
  (async () => {
    try {
      const answer = await fetch(log.dataset.follow);
      if (!answer.ok) throw new Error(answer.statusText);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      more.textContent = "The stage is running; lines are added as they come.";
      for (;;) {
        const { done, value } = await reader.read();
        const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
        const lines = (rest + (value ?? "")).split("\n");
        rest = done ? "" : lines.pop();
        for (const line of lines) if (!done || line) add(line);
        trim();
        if (isAtEnd) scrollTo(0, document.documentElement.scrollHeight);
        if (done) break;
      }
      more.textContent = "The stage has ended.";
    } catch {
      more.textContent = "The connection is gone: reload for more.";
    }
  })();
}
