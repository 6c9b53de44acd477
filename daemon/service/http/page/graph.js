// SPDX-License-Identifier: Apache-2.0
// A graph in layers: each node is placed after the nodes that lead to it.

import {sum} from './text.js';

const GAP_ALONG = 28;   // between two layers
const GAP_ACROSS = 18;  // between two nodes of a layer
const EDGE = 2;

// The nodes in an order in which each stands before those that it leads to, except where links lead in a circle.
function inOrder(nodes, after) {
  const order = [];
  const visited = new Set();
  const visit = (node) => {
    if (visited.has(node)) return;
    visited.add(node);
    after.get(node).forEach(visit);
    order.unshift(node);
  };
  const reached = new Set([...after.values()].flat());
  nodes.filter((node) => !reached.has(node)).forEach(visit);
  nodes.forEach(visit);
  return order;
}

// The layers from the first to the last. Sets `layer` of each node.
function layersOf({nodes, links}) {
  const after = new Map(nodes.map((node) => [node, []]));
  for (const [from, to] of links) after.get(from).push(to);
  const order = inOrder(nodes, after);
  const places = new Map(order.map((node, at) => [node, at]));
  for (const node of nodes) node.layer = 0;
  const layers = [];
  for (const node of order) {
    (layers[node.layer] ??= []).push(node);
    for (const next of after.get(node)) {
      if (places.get(next) > places.get(node)) next.layer = Math.max(next.layer, node.layer + 1);
    }
  }
  return layers;
}

// Sets x and y of the nodes, which have width and height. Layers follow one another to the right, or downwards. Returns
// the width and height of the whole.
export function place(graph, isDown) {
  const [along, across] = isDown ? ['y', 'x'] : ['x', 'y'];
  const [thickness, length] = isDown ? ['height', 'width'] : ['width', 'height'];
  const lengthOf = (layer) => sum(layer.map((node) => node[length] + GAP_ACROSS)) - GAP_ACROSS;
  const layers = layersOf(graph);
  const longest = Math.max(...layers.map(lengthOf));
  let at = EDGE;
  for (const layer of layers) {
    const thickest = Math.max(...layer.map((node) => node[thickness]));
    let place = EDGE + (longest - lengthOf(layer)) / 2;
    for (const node of layer) {
      node[along] = at + (thickest - node[thickness]) / 2;
      node[across] = place;
      place += node[length] + GAP_ACROSS;
    }
    at += thickest + GAP_ALONG;
  }
  const whole = {[thickness]: at - GAP_ALONG + EDGE, [length]: longest + 2 * EDGE};
  return {width: whole.width, height: whole.height};
}
