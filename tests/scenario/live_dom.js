// SPDX-License-Identifier: Apache-2.0
//
// Runs the script of the admin listener's page without a browser, against a gateway that runs:
//
//   node live_dom.js URL TOKEN TEXT...
//
// A document that knows just what the page uses, and refuses everything that would make elements out of text. Polls until every
// TEXT stands in the page, uses each control once, and prints the page's tables, lists and tiles.
"use strict";
const [url, token, ...wanted] = process.argv.slice(2);
const DEADLINE = 20000;

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.style = {};
    this.dataset = {};
    this.hidden = false;
    this.className = "";
    this.value = "";
  }
  set innerHTML(v) { throw new Error("innerHTML of " + this.tag); }
  set outerHTML(v) { throw new Error("outerHTML of " + this.tag); }
  insertAdjacentHTML() { throw new Error("insertAdjacentHTML of " + this.tag); }
  setAttribute(name, value) {
    if (/^on/i.test(name) || name === "style" || /NaN|undefined|Infinity/.test(String(value)))
      throw new Error(`<${this.tag} ${name}="${value}">`);
    if (name === "class") this.className = String(value);
    else this.attributes[name] = String(value);
  }
  removeAttribute(name) { delete this.attributes[name]; }
  append(...items) {
    for (const i of items) {
      if (i === undefined || i === null) throw new Error("nothing appended to " + this.tag);
      const child = i instanceof Element ? i : Object.assign(new Element("#text"), {text: String(i)});
      child.parent = this;
      this.children.push(child);
    }
  }
  remove() { this.parent.children = this.parent.children.filter(c => c !== this); }
  replaceChildren() { this.children = []; this.text = undefined; }
  get textContent() { return this.text !== undefined ? this.text : this.children.map(c => c.textContent).join(""); }
  set textContent(v) { this.children = []; this.text = String(v); }
}

const byId = {};
const document = {
  documentElement: new Element("html"),
  title: "",
  hidden: false,
  getElementById: id => byId[id] || (byId[id] = Object.assign(new Element("#" + id), id === "span" ? {value: "minute"} : {})),
  createElement: tag => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
const kept = {};
const sessionStorage = {getItem: k => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; }};
const asked = new Set();
function ask(path, options) {
  asked.add(path);
  return fetch(new URL(path, url + "/"), options);
}
const rowsOf = t => t.children.length < 2 ? [] : t.children[1].children.map(tr => tr.children.map(td => td.textContent));
const textOf = () => Object.values(byId).map(e => e.textContent).join("\n");
const pause = ms => new Promise(done => setTimeout(done, ms));
function fail(why) {
  console.error(`${why}\n--- the page says\n${textOf()}`);
  process.exit(1);
}
process.on("unhandledRejection", e => fail(e.stack));
process.on("uncaughtException", e => fail(e.stack));

async function main() {
  const html = await (await fetch(url + "/")).text();
  const script = /<script>([\s\S]*?)<\/script>/.exec(html)[1];
  // A fault of the page would otherwise look like a gateway that does not answer.
  const soon = (fn, ms) => setTimeout(fn, Math.min(ms, 100));
  new Function("document", "sessionStorage", "fetch", "setTimeout", script)(document, sessionStorage, ask, soon);
  const end = Date.now() + DEADLINE;
  if (token) {
    while (byId.live === undefined || byId.live.textContent !== "token wanted")
      Date.now() < end ? await pause(20) : fail("no token is asked for");
    if (byId.token.hidden) fail("the form for the token is hidden");
    byId.secret.value = token;
    byId.secret.onkeydown({key: "Enter"});
  }
  while (document.documentElement.dataset.ready !== "1" || wanted.some(w => !textOf().includes(w)))
    Date.now() < end ? await pause(20) : fail("not in the page: " + wanted.filter(w => !textOf().includes(w)).join(" | "));
  byId.span.value = "start";
  byId.span.onchange();
  const all = rowsOf(byId.decisions).length;
  byId.filter.value = "no such thing anywhere";
  byId.filter.oninput();
  if (all && rowsOf(byId.decisions).length) fail("the filter leaves rows");
  byId.filter.value = "";
  byId.filter.oninput();
  if (rowsOf(byId.decisions).length !== all) fail("rows are missing after the filter");
  byId.pause.onclick();
  if (byId.live.textContent !== "paused") fail("pause");
  byId.pause.onclick();
  const tables = {}, lists = {};
  for (const id of ["fleet", "routes", "shadow", "rules", "decisions"]) tables[id] = rowsOf(byId[id] || new Element("table"));
  for (const id of ["cache", "semantic", "policy", "limits"])
    lists[id] = Object.fromEntries((byId[id] || new Element("dl")).children.map(d => d.children.map(c => c.textContent)));
  const tiles = Object.fromEntries(byId.tiles.children.map(t => [t.children[0].textContent, t.children[1].textContent]));
  const more = Object.fromEntries(["cache-more", "semantic-more"].map(id => [id, byId[id] ? byId[id].textContent : ""]));
  const hidden = Object.keys(byId).filter(id => byId[id].hidden);
  console.log(JSON.stringify({title: document.title, tables, lists, tiles, more, hidden, asked: [...asked]}));
  process.exit(0);
}
main();
