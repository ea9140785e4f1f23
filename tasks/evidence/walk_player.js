"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const make = (tag, parent, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
};
// Words that stand in many turns stand once in the data.
const textOf = (number) => (number === null ? null : data.texts[number]);
const DELTAS = { R: [0, 1], U: [-1, 0], L: [0, -1], D: [1, 0] };
const ARROWS = { R: "→", U: "↑", L: "←", D: "↓", S: "stop", "?": "?" };
const ACTIONS = { R: "move right", U: "move up", L: "move left", D: "move down", S: "stop", "?": "none found" };
// What the dialog plays: walks of one maze, each with a name; ``another`` opens the one before or after.
const playing = { maze: null, shown: [], another: () => {}, turn: 0, timer: 0 };

// A walk, cell by cell, from the maze's walls and the record's letters.
function cells(maze, letters) {
  const found = [maze.start];
  for (const letter of letters) {
    const [row, column] = found[found.length - 1];
    const [down, right] = DELTAS[letter] || [0, 0];
    const isFree = maze.walls[row + down][column + right] === ".";
    found.push(isFree ? [row + down, column + right] : [row, column]);
  }
  return found;
}

// What the agent saw: the environment's picture to the pixel, at its own size.
function drawSeen(canvas, maze, agent) {
  const px = data.cell_px, height = maze.walls.length, width = maze.walls[0].length;
  canvas.width = width * px;
  canvas.height = height * px;
  const context = canvas.getContext("2d");
  const fill = (row, column, colour) => {
    context.fillStyle = colour;
    context.fillRect(column * px, row * px, px, px);
  };
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++)
      fill(row, column, maze.walls[row][column] === "#" ? data.colours.wall : data.colours.floor);
  fill(maze.target[0], maze.target[1], data.colours.target);
  context.fillStyle = data.colours.agent;
  const centre = (px - 1) / 2, radius = px / 4;
  for (let y = 0; y < px; y++)
    for (let x = 0; x < px; x++)
      if ((y - centre) ** 2 + (x - centre) ** 2 <= radius ** 2)
        context.fillRect(agent[1] * px + x, agent[0] * px + y, 1, 1);
}

// The same in a larger size, with the way so far unless only what was seen is wanted.
function drawWalk(canvas, maze, letters, turn, px, isBare) {
  const seen = document.createElement("canvas"), way = cells(maze, letters);
  drawSeen(seen, maze, way[turn]);
  const scale = px / data.cell_px;
  canvas.width = seen.width * scale;
  canvas.height = seen.height * scale;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(seen, 0, 0, canvas.width, canvas.height);
  if (isBare) return;
  const at = ([row, column]) => [(column + 0.5) * px, (row + 0.5) * px];
  context.strokeStyle = "#14a05a";
  context.lineWidth = px / 8;
  context.strokeRect((maze.start[1] + 0.15) * px, (maze.start[0] + 0.15) * px, 0.7 * px, 0.7 * px);
  context.strokeStyle = "#1f77b4";
  context.lineWidth = px / 7;
  context.lineJoin = "round";
  context.beginPath();
  for (let step = 0; step <= turn; step++) context[step ? "lineTo" : "moveTo"](...at(way[step]));
  context.stroke();
  context.fillStyle = data.colours.agent;
  context.beginPath();
  context.arc(...at(way[turn]), px / 4, 0, 2 * Math.PI);
  context.fill();
  context.strokeStyle = "#d96a00";
  for (let step = 0; step < turn; step++) {
    const delta = DELTAS[letters[step]];
    if (!delta || way[step][0] !== way[step + 1][0] || way[step][1] !== way[step + 1][1]) continue;
    const [x, y] = at([way[step][0] + 0.42 * delta[0], way[step][1] + 0.42 * delta[1]]), arm = px / 6;
    context.beginPath();
    context.moveTo(x - arm, y - arm); context.lineTo(x + arm, y + arm);
    context.moveTo(x - arm, y + arm); context.lineTo(x + arm, y - arm);
    context.stroke();
  }
}

function outcomeText(walk) {
  const turns = `${walk.letters.length} turn${walk.letters.length === 1 ? "" : "s"}`;
  return `${walk.ending}, ${turns}`;
}

// Detours in words, where there were any.
function detours(walk) {
  const kinds = { back: "turned back", bump: "hit a wall" };
  const told = Object.keys(kinds).map((kind) => [kinds[kind], walk.marks.filter((mark) => mark === kind).length]);
  const unread = [...walk.letters].filter((letter) => letter === "?").length;
  return [...told, ["no action", unread]].filter(([, count]) => count).map(([what, count]) => `${what} ${count}×`)
    .join(", ");
}

// Plays ``shown``, a list of {name, hint, walk}, beside each other.
function openPlayer(title, maze, shown, another) {
  Object.assign(playing, { maze, shown, another });
  stop();
  if (!byId("player").open) byId("player").showModal();
  byId("player-title").textContent = title;
  const boards = byId("boards");
  boards.replaceChildren();
  shown.forEach(({ name, hint, walk }, which) => {
    const board = make("div", boards, undefined, "board");
    board.dataset.player = which;
    make("div", board, name, "who").title = hint;
    make("canvas", board);
    const strip = make("div", board, undefined, "strip");
    [...walk.letters].forEach((letter, turn) => {
      const step = make("span", strip, ARROWS[letter]);
      step.title = `turn ${turn + 1}`;
      step.addEventListener("click", () => { stop(); go(turn + 1); });
    });
    make("dl", board);
    make("div", board, undefined, "how");
  });
  byId("slider").max = numTurns();
  go(0);
  byId("play").focus();
}

const numTurns = () => Math.max(...playing.shown.map(({ walk }) => walk.letters.length));

function go(turn) {
  playing.turn = Math.max(0, Math.min(turn, numTurns()));
  byId("slider").value = playing.turn;
  byId("turn").textContent = `turn ${playing.turn} of ${numTurns()}`;
  playing.shown.forEach(({ walk }, which) => showBoard(walk, byId("boards").children[which]));
}

function showBoard(walk, board) {
  const maze = playing.maze, turn = Math.min(playing.turn, walk.letters.length);
  drawWalk(board.querySelector("canvas"), maze, walk.letters, turn, 40, byId("bare").checked);
  const steps = board.querySelector(".strip").children;
  for (let step = 0; step < steps.length; step++) {
    const kind = walk.letters[step] === "?" ? "unread" : walk.marks[step];
    steps[step].className = `${kind} ${step === turn - 1 ? "now" : ""}`.trim();
  }
  const told = board.querySelector("dl");
  told.replaceChildren();
  const tell = (what, text) => { make("dt", told, what); make("dd", told, text).dataset.what = what; };
  if (turn === 0) tell("start", "the agent sees the maze for the first time");
  else {
    const reply = textOf(walk.replies[turn - 1]);
    tell("reply", reply === null ? "(the words were not kept)" : reply);
    tell("action", ACTIONS[walk.letters[turn - 1]] + (walk.marks[turn - 1] === "back" ? ", back again" : ""));
    tell("answer", textOf(walk.feedback[turn - 1]) || "(not kept)");
  }
  const isOver = turn === walk.letters.length;
  const how = board.querySelector(".how");
  how.textContent = isOver ? outcomeText(walk) : "";
  how.className = `how ${walk.ending === "solved" ? "yes" : "no"}`;
}

function stop() {
  clearInterval(playing.timer);
  playing.timer = 0;
  byId("play").textContent = "▶ play";
}

function playOrPause() {
  if (playing.timer) return stop();
  if (playing.turn >= numTurns()) go(0);
  byId("play").textContent = "❚❚ pause";
  playing.timer = setInterval(() => {
    go(playing.turn + 1);
    if (playing.turn >= numTurns()) stop();
  }, 600);
}

const BUTTONS = {
  previous: () => playing.another(-1), next: () => playing.another(1), close: () => byId("player").close(),
  first: () => { stop(); go(0); }, back: () => { stop(); go(playing.turn - 1); }, play: playOrPause,
  forward: () => { stop(); go(playing.turn + 1); }, last: () => { stop(); go(numTurns()); },
};
const toggleBare = () => { byId("bare").checked = !byId("bare").checked; go(playing.turn); };
const KEYS = { ArrowLeft: "back", ArrowRight: "forward", " ": "play", Home: "first", End: "last", n: "next", p: "previous" };
for (const id of Object.keys(BUTTONS)) byId(id).addEventListener("click", BUTTONS[id]);
byId("slider").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
byId("bare").addEventListener("change", () => go(playing.turn));
byId("player").addEventListener("close", stop);
document.addEventListener("keydown", (event) => {
  if (byId("player").open && event.key === "s") toggleBare();
  if (!byId("player").open || !KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  BUTTONS[KEYS[event.key]]();
});
