// The page of a model: a client of the routes of its service. Whatever comes from a user, a config or a vocabulary is
// shown as text; nothing here writes HTML.
"use strict";

const MOST = 20000; // characters of a text
const SHOWN_PIECES = 512;
const COLOURS = 6;

// --- elements and the service --------------------------------------------------------------------------------

// An element with attributes ("class", "title" and so on) and children, which are texts or elements.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options).catch(() => { throw Error("The service does not answer."); });
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw Error(sentence(said.detail) || `The service answered with status ${response.status}.`);
  return body ? said.answers[0] : said;
}

// What is wrong with the fields that the page sends; the others are those of bodies that it does not mean.
function sentence(detail) {
  if (!Array.isArray(detail)) return detail;
  const own = detail.filter((one) => !["missing", "extra_forbidden"].includes(one.type));
  return (own.length ? own : detail).map((one) => one.msg.replace("Value error, ", "")).join("; ");
}

function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return share >= 0.9995 && share < 1 ? "> 99.9 %" : `${(100 * share).toFixed(1)} %`;
}

// --- results -------------------------------------------------------------------------------------------------

function bar(text, share, given, title = "") {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return make("div", { class: given ? "bar given" : "bar", title }, make("span", { class: "what" }, text),
    make("span", { class: "track" }, fill), make("span", { class: "share" }, percent(share)));
}

function bars(guesses) {
  const lost = Math.max(...guesses.map((guess) => guess.tokens_not_read || 0));
  return [...guesses.map((guess, number) => bar(guess.text, guess.probability, number === 0)), notRead(lost)];
}

function hint(text) { return make("p", { class: "hint" }, text); }

function notRead(count) { return count ? hint(`Pieces that were not read, as in the training: ${count}.`) : ""; }

function labels(said) {
  if ("score" in said) return [make("div", { class: "score" }, said.score.toFixed(2)), notRead(said.tokens_not_read)];
  const given = said.labels || [said.label];
  const limits = said.thresholds || {};
  const none = said.label === null && hint(`None of these: every probability is below ${percent(said.abstain_below)}.`);
  const head = none || said.labels && hint(given.length ? `Labels: ${given.join(", ")}` : "No label reaches its threshold.");
  const lines = Object.entries(said.probabilities).map(([name, share]) =>
    bar(name, share, given.includes(name), name in limits ? `threshold ${limits[name].toFixed(3)}` : ""));
  return [head || "", ...lines, notRead(said.tokens_not_read)];
}

function answer(said, { context }) {
  const characters = [...context]; // as Python counts them
  const part = (begin, end) => characters.slice(begin, end).join("");
  const head = said.answer ? make("div", { class: "answer" }, said.answer)
    : make("div", { class: "answer none" }, "No answer in this text");
  const marked = said.answer ? make("mark", {}, part(said.start, said.end)) : "";
  const text = make("div", { class: "text" }, part(0, said.start), marked, part(said.end));
  return [head, text, hint(`Score among the best spans: ${percent(said.score)}`), odds(said), notRead(said.tokens_not_read)];
}

function odds(said) {
  if (!("null_odds" in said)) return hint("This model was trained on questions that all have an answer, so it always gives one.");
  return hint(`No-answer odds: ${said.null_odds.toFixed(2)} (the score of “no answer” minus that of the best span). ` +
    `The model gives no answer if they are above its threshold, ${said.threshold.toFixed(2)}.`);
}

function names(said, { text }) {
  const characters = [...text];
  const kinds = [...new Set(said.names.map((name) => name.kind))].sort();
  const box = make("div", { class: "text" });
  let done = 0;
  for (const name of said.names) {
    const colour = `c${kinds.indexOf(name.kind) % COLOURS}`;
    box.append(characters.slice(done, name.start).join(""),
      make("mark", { class: colour, title: percent(name.probability) }, name.text, make("small", {}, name.kind)));
    done = name.end;
  }
  box.append(characters.slice(done).join(""));
  const rows = said.names.map((name) => [name.text, name.kind, `${name.start}–${name.end}`, percent(name.probability)]);
  return [box, rows.length ? table(["name", "kind", "characters", "probability"], rows)
    : hint("The model found no names in this text.")];
}

function table(heads, rows) {
  const line = (kind, cells) => make("tr", {}, cells.map((cell) => make(kind, {}, cell)));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, line("th", heads)),
    make("tbody", {}, rows.map((row) => line("td", row)))));
}

function gaps(said) {
  return said.gaps.flatMap((gap, number) =>
    [said.gaps.length > 1 ? make("h3", {}, `Gap ${number + 1}`) : "", ...bars(gap)]);
}

function pieces(said, { text }) {
  const characters = [...text];
  const colour = (piece) => (piece.word === null ? "chip special" : `chip c${piece.word % COLOURS}`);
  const chip = (piece) => make("span", { class: colour(piece) }, piece.text);
  const shown = said.pieces.slice(0, SHOWN_PIECES);
  const rows = shown.map((piece, place) => [String(place), chip(piece), String(piece.id),
    piece.word === null ? "" : `${piece.start}–${piece.end}`,
    piece.word === null ? "added" : characters.slice(piece.start, piece.end).join("")]);
  return [
    make("h3", {}, "1 · Clean and normalise"),
    hint("Control characters go; case and accents as the model wants them."),
    make("div", { class: "text" }, said.normalised),
    make("h3", {}, "2 · Split into words"),
    hint("At spaces, and around every punctuation mark."),
    make("div", {}, said.words.slice(0, SHOWN_PIECES).map((word) => make("span", { class: "chip" }, word))),
    make("h3", {}, "3 · Split words into pieces"),
    hint("From the left, always the longest piece that is in the vocabulary; “##” continues a word. A word that cannot be put together becomes [UNK]."),
    make("div", {}, shown.map(chip)),
    make("h3", {}, "4 · Number them"),
    hint("The model sees only the ids. The last columns say which characters of your text a piece stands for, counted from 0."),
    table(["place", "piece", "id", "characters", "text"], rows),
    said.pieces.length > SHOWN_PIECES ? hint(`The first ${SHOWN_PIECES} of ${said.pieces.length} pieces are shown.`) : "",
  ];
}

// Of every head a picture: row by row, how each piece divides its attention.
function attention(said) {
  return [hint("The darker a field, the more the piece on the left looks at the piece above. Point at a field to read it."),
    make("div", { class: "heads" }, said.heads.map((head, number) => picture(said.pieces, head, number + 1)))];
}

function picture(tokens, head, number) {
  const cell = Math.min(24, Math.max(12, Math.floor(340 / tokens.length)));
  const short = tokens.map((token) => (token.length > 12 ? `${token.slice(0, 11)}…` : token));
  const margin = 10 + 7 * Math.max(...short.map((token) => token.length));
  const size = margin + cell * tokens.length;
  const caption = make("figcaption", {}, `Head ${number}`);
  const canvas = make("canvas", { width: 2 * size, height: 2 * size, role: "img", "aria-label": `Attention of head ${number}` });
  canvas.style.width = `${size}px`;
  const pen = canvas.getContext("2d");
  pen.scale(2, 2); // for fine screens
  pen.font = "11px sans-serif";
  head.forEach((row, y) => row.forEach((share, x) => {
    pen.fillStyle = `rgb(37 99 235 / ${Math.min(1, share ** 0.6)})`; // lifts small weights, so that they are seen
    pen.fillRect(margin + cell * x, margin + cell * y, cell, cell);
  }));
  pen.fillStyle = "#1b2430";
  short.forEach((token, place) => {
    const middle = margin + cell * (place + 0.5) + 4;
    pen.textAlign = "right";
    pen.fillText(token, margin - 5, middle);
    pen.save();
    pen.translate(middle, margin - 5);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(token, 0, 0);
    pen.restore();
  });
  canvas.addEventListener("mousemove", (event) => {
    const scale = size / canvas.clientWidth;
    const x = Math.floor((event.offsetX * scale - margin) / cell);
    const y = Math.floor((event.offsetY * scale - margin) / cell);
    const inside = x in tokens && y in tokens;
    caption.textContent = inside ? `Head ${number}: ${tokens[y]} → ${tokens[x]} ${percent(head[y][x])}` : `Head ${number}`;
  });
  return make("figure", {}, caption, canvas);
}

// --- forms ---------------------------------------------------------------------------------------------------

function box(name, label, value, rows = 2) {
  const area = make("textarea", { name, rows, maxlength: MOST }, value);
  return make("label", {}, label, area);
}

function lines(text) { return text.split("\n").map((line) => line.trim()).filter(Boolean); }

// What a tab has: a title, a sentence, its boxes, the button, the route, the body made of the boxes, and the drawing.
function tabs(model) {
  const pair = model.texts === 2;
  const second = pair ? "Second text" : "Second text, if the model was trained on pairs (may be empty)";
  const what = model.score ? "a score" : "each of its labels with a probability";
  const several = model.several_labels ? "; a text has those labels whose probability reaches their threshold" : "";
  const known = {
    "masked words": {
      title: "Masked words", button: "Fill the gap", path: "predict", draw: gaps,
      what: "Leave a gap in a sentence, and the model says which pieces of its vocabulary fit there. This is what it practised in pre-training.",
      boxes: [box("text", `Your sentence, with ${model.mask} for a missing word`, `London is the ${model.mask} of England.`)],
    },
    "next piece": {
      title: "Next piece", button: "Continue", path: "predict", draw: gaps,
      what: "This model reads from left to right only. It says which piece of its vocabulary comes next after your text.",
      boxes: [box("text", "The beginning of a text", "London is the capital of")],
    },
    "next sentence": {
      title: "Next sentence", button: "Compare", path: "predict", draw: (said) => bars(said.candidates),
      what: "Write a sentence, and below it some that may follow. For each one the model says how probable it is that it comes next in the same text, rather than from another one.",
      boxes: [box("text", "First sentence", "She opened the case and took out her violin."),
        box("candidates", "What may follow, one sentence on each line", "Then she began to play.\nThe river is very long.", 4)],
      body: (given) => ({ ...given, candidates: lines(given.candidates) }),
    },
    classification: {
      title: "Classification", button: "Judge", path: "predict", draw: labels,
      what: `The model reads ${pair ? "two texts together" : "a text"} and gives ${what}${several}.`,
      boxes: [box("text", pair ? "First text" : "Text", "The old doctor opened a small practice by the river.", 3),
        ...(model.texts === 1 ? [] : [box("second_text", second, pair ? "A doctor began to work beside the river." : "", 3)])],
    },
    "question answering": {
      title: "Question answering", button: "Answer", path: "predict", draw: answer,
      what: "Paste a text, and ask about it. The model marks the part of the text that it takes for the answer; it cannot answer in words of its own.",
      boxes: [box("question", "Question", "Where did Ada Lovelace grow up?", 1),
        box("context", "Text", "Ada Lovelace was born in 1815. She grew up in London.", 8)],
    },
    names: {
      title: "Names", button: "Find names", path: "predict", draw: names,
      what: "The model reads a text word by word and marks the names in it, each with its kind.",
      boxes: [box("text", "Text", "Ada Lovelace grew up in London and wrote to Charles Babbage.", 6)],
    },
    "multiple choice": {
      title: "Multiple choice", button: "Choose", path: "predict", draw: (said) => bars(said.endings),
      what: "Write how something begins, and several ways in which it may go on. The model chooses one.",
      boxes: [box("text", "Beginning", "She takes the violin out of its case."),
        box("endings", "Endings, one on each line", "She begins to play.\nShe begins to swim.\nIt is a very long river.", 4)],
      body: (given) => ({ ...given, endings: lines(given.endings) }),
    },
  };
  const layers = Array.from({ length: model.layers }, (_, number) => make("option", { value: number + 1 }, `layer ${number + 1}`));
  const inside = {
    title: "Attention", button: "Look inside", path: "attention", draw: attention, wide: true,
    what: "In every layer, every head of the model lets each piece look at all others.",
    boxes: [box("text", "Text", "The animal was too tired to cross it.", 1), box("second_text", "Second text (may be empty)", "", 1),
      make("label", {}, "Layer", make("select", { name: "layer" }, layers))],
    body: (given) => ({ ...given, layer: Number(given.layer) }),
  };
  const cutting = {
    title: "Pieces", button: "Cut into pieces", path: "pieces", draw: pieces, wide: true,
    what: "A model reads numbers, not letters. This is how a text becomes pieces of the vocabulary and then numbers.",
    boxes: [box("text", "Text", "Naïve café-goers, unbelievably, tokenize THIS!")],
  };
  return [...model.abilities.map((ability) => known[ability]), ...(model.attention ? [inside] : []), cutting];
}

function panel(tab) {
  const output = make("div", { class: "output", "aria-live": "polite" });
  const button = make("button", {}, tab.button);
  const form = make("form", {}, tab.boxes, button);
  let asked = 0;
  async function answered() {
    const number = ++asked;
    const given = Object.fromEntries([...new FormData(form)].filter(([name, value]) => name !== "second_text" || value.trim()));
    button.disabled = true;
    let shown;
    try {
      // The boxes are the arguments, unless a tab has something to change.
      shown = tab.draw(await ask(tab.path, tab.body ? tab.body(given) : given), given);
    } catch (error) {
      shown = [make("div", { class: "notice", role: "alert" }, error.message)];
    }
    if (number !== asked) return; // a later question is on its way
    button.disabled = false;
    output.replaceChildren(...shown);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); answered(); });
  form.addEventListener("change", (event) => event.target.matches("select") && answered());
  const section = make("section", { role: "tabpanel", "aria-label": tab.title }, make("p", {}, tab.what),
    make("div", tab.wide ? {} : { class: "beside" }, form, output));
  section.begin = () => asked || answered(); // the example in the boxes explains the tab
  return section;
}

function choose(buttons, panels, chosen) {
  panels.forEach((section, number) => { section.hidden = number !== chosen; });
  buttons.forEach((button, number) => button.setAttribute("aria-selected", number === chosen));
  panels[chosen].begin();
}

async function start() {
  const model = await ask("model");
  document.title = `BERT: ${model.name}`;
  document.getElementById("name").textContent = model.name;
  const size = model.parameters ? `${(model.parameters / 1e6).toFixed(1)} million parameters` : "an exported file";
  document.getElementById("facts").textContent = [model.network, `${model.layers} layers of ${model.heads} heads`, size,
    `${model.vocabulary.toLocaleString("en")} pieces`, `reads ${model.longest} pieces at once`].join(" · ");
  const found = tabs(model);
  const panels = found.map(panel);
  const buttons = found.map((tab, number) => {
    const button = make("button", { role: "tab", type: "button" }, tab.title);
    button.addEventListener("click", () => choose(buttons, panels, number));
    return button;
  });
  document.getElementById("tabs").append(...buttons);
  document.getElementById("panels").append(...panels);
  choose(buttons, panels, 0);
}

start().catch((error) => document.getElementById("panels").append(make("div", { class: "notice", role: "alert" }, error.message)));
