// SPDX-License-Identifier: Apache-2.0
// The document: elements, tables, and how what is shown changes. Texts become text nodes and attributes, never markup.

import {exactly, sizeText} from './text.js';

// An attribute that is undefined or false is left out.
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export const html = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
    filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

export const section = (id, title, ...content) => html('section', {id}, html('h2', {}, title), ...content);

// `box` has x, y, width and height.
export function rectangle(box, attributes) {
  const place = ['x', 'y', 'width', 'height'].map((name) => [name, box[name].toFixed(1)]);
  return svg('rect', {...Object.fromEntries(place), ...attributes});
}

// What does not fit on the page is scrolled, with the keyboard too.
export const scrolled = (label, attributes, content) =>
    html('div', {class: 'scrolled', tabindex: 0, role: 'region', 'aria-label': label, ...attributes}, content);

export const cell = (text) => html('td', {}, text);
export const longCell = (text) => html('td', {class: 'long'}, text);  // may be broken anywhere
export const numberCell = (value) => html('td', {class: 'n'}, String(value));
export const bytesCell = (bytes) => html('td', {class: 'n', title: exactly(bytes)}, sizeText(bytes));
export const row = (...cells) => html('tr', {}, ...cells);

function headCell(title) {
  if (!title.startsWith('#')) return html('th', {scope: 'col'}, title);
  return html('th', {class: 'n', scope: 'col'}, title.slice(1));
}

// A column whose title begins with # has numbers. `none`: the text that stands for no rows.
export function table(label, columns, rows, none) {
  const body = rows.length > 0 ? rows : [row(html('td', {colspan: columns.length}, none))];
  const head = html('thead', {}, row(...columns.map(headCell)));
  return scrolled(label, {}, html('table', {}, head, html('tbody', {}, ...body)));
}

// Makes `there` equal to `fresh` and keeps its nodes where they are alike, and with them focus, selection and
// scrolling.
export function become(there, fresh) {
  becomeLike(there, fresh);
  const old = [...there.childNodes];
  const next = [...fresh.childNodes];
  next.forEach((node, at) => {
    const mine = old[at];
    if (mine === undefined) return there.append(node);
    if (mine.nodeName !== node.nodeName) return mine.replaceWith(node);
    if (node.nodeType === Node.ELEMENT_NODE) return become(mine, node);
    if (mine.data !== node.data) mine.data = node.data;
  });
  old.slice(next.length).forEach((node) => node.remove());
}

// The reader opens and closes <details>: that stays.
function becomeLike(there, fresh) {
  for (const {name} of [...there.attributes]) {
    if (!fresh.hasAttribute(name) && name !== 'open') there.removeAttribute(name);
  }
  for (const {name, value} of fresh.attributes) {
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  }
}
