"use strict";
// What every page of ours does: it lays out its sections, and again whenever its width
// or its colors change.

const DATA = JSON.parse(document.getElementById("data").textContent);
const page = { maps: [] };
const byId = (id) => document.getElementById(id);

const section = (id, title, ...children) => el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children);
// Options of commands are not broken at the end of a line.
const note = (words) => el("p", { class: "note" }, words.split(/(--[a-z-]+)/).map((part, i) => (i % 2 ? el("span", { class: "flag" }, part) : part)));

const drawMaps = () => page.maps.forEach((map) => map.draw());

function header(title, lead) {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = el("button", { type: "button", id: "theme", onclick: () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    name();
    drawMaps();
  } });
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `${button.textContent} colors`); };
  name();
  byId("top").replaceChildren(el("h1", {}, title), button, el("p", {}, lead));
}

function layOut({ title, lead, sections, foot }) {
  page.header = () => header(title, lead);
  page.header();
  const shown = sections.filter(Boolean);
  byId("page").replaceChildren(...shown);
  page.maps.forEach((map) => { map.lay(); map.draw(); });
  byId("contents").replaceChildren(el("ul", {}, shown.filter((s) => s.querySelector("h2")).map((s) =>
    el("li", {}, el("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)))));
  byId("bottom").replaceChildren(`Written by manyhands ${DATA.version}. ${foot}`);
}

// `render` lays everything out; `again` does, too, and keeps what the reader chose.
function begin(render, again = render) {
  render();
  let waiting = 0, width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return; // a phone's address bar
    width = document.documentElement.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(again, 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { page.header(); drawMaps(); });
  // Paper is white, whatever the screen is.
  let screenTheme, folded = [];
  window.addEventListener("beforeprint", () => {
    screenTheme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((d) => (d.open = true));
    drawMaps();
  });
  window.addEventListener("afterprint", () => {
    if (screenTheme) document.documentElement.dataset.theme = screenTheme;
    else delete document.documentElement.dataset.theme;
    folded.forEach((d) => (d.open = false));
    drawMaps();
  });
}
