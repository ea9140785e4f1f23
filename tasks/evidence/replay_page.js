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
const DELTAS = { R: [0, 1], U: [-1, 0], L: [0, -1], D: [1, 0] };
const ARROWS = { R: "→", U: "↑", L: "←", D: "↓", S: "stop", "?": "?" };
const ACTIONS = { R: "move right", U: "move up", L: "move left", D: "move down", S: "stop", "?": "none found" };
const chosen = { one: 0, other: data.players.length - 1, filter: "all", maze: 0, turn: 0, timer: 0 };

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

const isSolved = (player, maze) => data.players[player].walks[maze].ending === "solved";
const FILTERS = {
  all: ["all", () => true],
  won: ["won", (maze) => !isSolved(chosen.one, maze) && isSolved(chosen.other, maze)],
  lost: ["lost", (maze) => isSolved(chosen.one, maze) && !isSolved(chosen.other, maze)],
  both: ["both solve it", (maze) => isSolved(chosen.one, maze) && isSolved(chosen.other, maze)],
  neither: ["neither", (maze) => !isSolved(chosen.one, maze) && !isSolved(chosen.other, maze)],
  unsolvable: [`more than ${data.max_turns} turns needed`, (maze) => data.mazes[maze].turns_needed > data.max_turns],
};
const inFilter = (name) => data.mazes.map((_, maze) => maze).filter(FILTERS[name][1]);

function showFilters() {
  byId("filters").replaceChildren();
  for (const name of Object.keys(FILTERS)) {
    const button = make("button", byId("filters"), `${FILTERS[name][0]}: ${inFilter(name).length}`);
    button.dataset.filter = name;
    button.setAttribute("aria-pressed", String(chosen.filter === name));
    button.addEventListener("click", () => { chosen.filter = name; showGrid(); });
  }
}

function showGrid() {
  showFilters();
  const grid = byId("grid"), shown = inFilter(chosen.filter);
  grid.replaceChildren();
  byId("none").hidden = shown.length > 0;
  for (const number of shown) {
    const maze = data.mazes[number], card = make("button", grid, undefined, "maze");
    card.dataset.maze = number;
    card.addEventListener("click", () => open(number));
    const name = make("div", card, undefined, "name");
    make("b", name, `maze ${number + 1}`);
    make("span", name, `seed ${maze.seed}, shortest ${maze.turns_needed} turns`);
    const row = make("div", card, undefined, "row");
    data.players.forEach((player, which) => {
      const walk = player.walks[number], column = make("div", row);
      column.dataset.player = which;
      make("div", column, player.name, "who").title = player.model_id;
      drawWalk(make("canvas", column), maze, walk.letters, walk.letters.length, 16);
      make("div", column, outcomeText(walk), `how ${walk.ending === "solved" ? "yes" : "no"}`);
      make("div", column, detours(walk), "did");
    });
  }
}

function showBehaviour() {
  const table = byId("behaviour"), head = make("tr", make("thead", table));
  ["", ...data.behaviour.columns].forEach((text) => make("th", head, text));
  const body = make("tbody", table);
  for (const line of data.behaviour.rows) {
    const row = make("tr", body);
    line.forEach((value) => make("td", row, String(value)));
  }
}

function open(number) {
  chosen.maze = number;
  chosen.turn = 0;
  stop();
  if (!byId("player").open) byId("player").showModal();
  const maze = data.mazes[number];
  byId("player-title").textContent = `Maze ${number + 1}: seed ${maze.seed}, shortest ${maze.turns_needed} turns`;
  const boards = byId("boards");
  boards.replaceChildren();
  data.players.forEach((player, which) => {
    const board = make("div", boards, undefined, "board");
    board.dataset.player = which;
    make("div", board, player.name, "who").title = player.model_id;
    make("canvas", board);
    const strip = make("div", board, undefined, "strip");
    [...player.walks[number].letters].forEach((letter, turn) => {
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

const numTurns = () => Math.max(...data.players.map((player) => player.walks[chosen.maze].letters.length));

function go(turn) {
  chosen.turn = Math.max(0, Math.min(turn, numTurns()));
  byId("slider").value = chosen.turn;
  byId("turn").textContent = `turn ${chosen.turn} of ${numTurns()}`;
  data.players.forEach((player, which) => showBoard(player.walks[chosen.maze], byId("boards").children[which]));
}

function showBoard(walk, board) {
  const maze = data.mazes[chosen.maze], turn = Math.min(chosen.turn, walk.letters.length);
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
    tell("reply", walk.replies[turn - 1] === null ? "(the words were not kept)" : walk.replies[turn - 1]);
    tell("action", ACTIONS[walk.letters[turn - 1]] + (walk.marks[turn - 1] === "back" ? ", back again" : ""));
    tell("answer", walk.feedback[turn - 1] || "(not kept)");
  }
  const isOver = turn === walk.letters.length;
  const how = board.querySelector(".how");
  how.textContent = isOver ? outcomeText(walk) : "";
  how.className = `how ${walk.ending === "solved" ? "yes" : "no"}`;
}

function stop() {
  clearInterval(chosen.timer);
  chosen.timer = 0;
  byId("play").textContent = "▶ play";
}

function playOrPause() {
  if (chosen.timer) return stop();
  if (chosen.turn >= numTurns()) go(0);
  byId("play").textContent = "❚❚ pause";
  chosen.timer = setInterval(() => {
    go(chosen.turn + 1);
    if (chosen.turn >= numTurns()) stop();
  }, 600);
}

function another(by) {
  const shown = inFilter(chosen.filter), at = shown.indexOf(chosen.maze);
  open(shown[(at + by + shown.length) % shown.length]);
}

const BUTTONS = {
  "previous-maze": () => another(-1), "next-maze": () => another(1), close: () => byId("player").close(),
  first: () => { stop(); go(0); }, back: () => { stop(); go(chosen.turn - 1); }, play: playOrPause,
  forward: () => { stop(); go(chosen.turn + 1); }, last: () => { stop(); go(numTurns()); },
};
const toggleBare = () => { byId("bare").checked = !byId("bare").checked; go(chosen.turn); };
const KEYS = { ArrowLeft: "back", ArrowRight: "forward", " ": "play", Home: "first", End: "last", n: "next-maze",
  p: "previous-maze" };
for (const id of Object.keys(BUTTONS)) byId(id).addEventListener("click", BUTTONS[id]);
byId("slider").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
byId("bare").addEventListener("change", () => go(chosen.turn));
byId("player").addEventListener("close", stop);
document.addEventListener("keydown", (event) => {
  if (byId("player").open && event.key === "s") toggleBare();
  if (!byId("player").open || !KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  BUTTONS[KEYS[event.key]]();
});

document.title = `${data.run_name}: replays`;
byId("title").textContent = `${data.run_name}: replays of ${data.mazes.length} mazes`;
byId("about").textContent = data.about;
for (const id of ["one", "other"]) {
  data.players.forEach((player, which) => { make("option", byId(id), player.name).value = which; });
  byId(id).value = chosen[id];
  byId(id).addEventListener("change", (event) => { chosen[id] = Number(event.target.value); showGrid(); });
}
showBehaviour();
showGrid();
