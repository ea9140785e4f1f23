const chosen = { one: 0, other: data.players.length - 1, filter: "all" };
const isAlone = data.players.length === 1;
const isSolved = (player, maze) => data.players[player].walks[maze].ending === "solved";
const PAIRED = {
  won: ["won", (maze) => !isSolved(chosen.one, maze) && isSolved(chosen.other, maze)],
  lost: ["lost", (maze) => isSolved(chosen.one, maze) && !isSolved(chosen.other, maze)],
  both: ["both solve it", (maze) => isSolved(chosen.one, maze) && isSolved(chosen.other, maze)],
  neither: ["neither", (maze) => !isSolved(chosen.one, maze) && !isSolved(chosen.other, maze)],
};
const ALONE = {
  solved: ["solved", (maze) => isSolved(0, maze)],
  unsolved: ["not solved", (maze) => !isSolved(0, maze)],
};
const FILTERS = {
  all: ["all", () => true],
  ...(isAlone ? ALONE : PAIRED),
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
  const maze = data.mazes[number], title = `Maze ${number + 1}: seed ${maze.seed}, shortest ${maze.turns_needed} turns`;
  const shown = data.players.map(({ name, model_id, walks }) => ({ name, hint: model_id, walk: walks[number] }));
  openPlayer(title, maze, shown, (by) => {
    const listed = inFilter(chosen.filter);
    open(listed[(listed.indexOf(number) + by + listed.length) % listed.length]);
  });
}

document.title = `${data.run_name}: replays`;
byId("title").textContent = `${data.run_name}: replays of ${data.mazes.length} mazes`;
byId("about").textContent = data.about;
for (const id of ["one", "other"]) {
  data.players.forEach((player, which) => { make("option", byId(id), player.name).value = which; });
  byId(id).value = chosen[id];
  byId(id).addEventListener("change", (event) => { chosen[id] = Number(event.target.value); showGrid(); });
}
document.querySelector(".compare").hidden = isAlone;
showBehaviour();
showGrid();
