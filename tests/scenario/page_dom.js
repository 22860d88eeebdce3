// SPDX-License-Identifier: Apache-2.0
//
// Runs the script of a replay's page without a browser: node page_dom.js PAGE.html. A document that knows just what the
// page uses; prints how many elements of each kind were made and whether the script came to its end.
"use strict";
const html = require("fs").readFileSync(process.argv[2], "utf8");
const data = /<script id="data" type="application\/json">([\s\S]*?)<\/script>/.exec(html)[1];
const script = /<script>([\s\S]*?)<\/script>/.exec(html)[1];
const made = {};
const byId = {};

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.style = {};
    this.dataset = {};
    this.textContent = "";
    made[tag] = (made[tag] || 0) + 1;
  }
  setAttribute(name, value) {
    if (/NaN|undefined|Infinity/.test(String(value))) throw new Error(`<${this.tag} ${name}="${value}">`);
    this.attributes[name] = String(value);
  }
  getAttribute(name) { return this.attributes[name]; }
  append(...items) {
    for (const i of items) if (i === undefined || i === null) throw new Error("nothing appended to " + this.tag);
    this.children.push(...items);
  }
  replaceChildren() { this.children = []; }
  get value() { return this.chosen === undefined ? "0" : this.chosen; }
  set value(v) { this.chosen = v; }
}
const document = {
  documentElement: new Element("html"),
  getElementById: id => byId[id] || (byId[id] = Object.assign(new Element("#" + id), id === "data" ? {textContent: data} : {})),
  createElement: tag => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
new Function("document", script)(document);

// Every choice and every button once.
function each(e, visit) {
  if (!(e instanceof Element)) return;
  visit(e);
  [...e.children].forEach(c => each(c, visit));
}
each(byId.plots, e => {
  if (e.tag !== "select") return;
  e.children.forEach((_, i) => { e.value = String(i); e.onchange(); });
});
each(byId.plots, e => { if (e.tag === "button") { e.onclick(); e.onclick(); } });
console.log(JSON.stringify({ready: document.documentElement.dataset.ready, made, rows: byId.runs.children.length - 1,
                            title: byId.title.textContent}));
