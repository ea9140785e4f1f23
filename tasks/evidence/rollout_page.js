const MAX_SHOWN = 256;
const chosen = { step: 0, filter: "all", most: MAX_SHOWN };
const ALL_STEPS = -1;
const groups = data.steps.flatMap(({ step, groups: ofStep }, at) =>
  ofStep.map((group) => ({ ...group, step, at, maze: data.mazes[group.seed] })));
const episodes = groups.flatMap((group) =>
  group.episodes.map((episode, number) => ({ ...episode, group, name: `episode ${number + 1}` })));
const figure = (value) => (value === null ? "none" : String(Number(value.toFixed(3))));
const earned = ({ reward, advantage }) => `reward ${figure(reward)}, advantage ${figure(advantage)}`;
const FILTERS = {
  all: ["all", () => true],
  solved: ["solved", ({ walk }) => walk.ending === "solved"],
  elsewhere: ["stopped elsewhere", ({ walk }) => walk.ending === "stopped elsewhere"],
  late: ["ran out of turns", ({ walk }) => walk.ending === "ran out of turns"],
  cut: ["cut off", ({ walk }) => walk.ending === "cut off"],
  back: ["turned back", ({ walk }) => walk.marks.includes("back")],
  bump: ["hit a wall", ({ walk }) => walk.marks.includes("bump")],
  unread: ["no action in a reply", ({ walk }) => walk.letters.includes("?")],
};
const inStep = () => episodes.filter(({ group }) => chosen.step === ALL_STEPS || group.at === chosen.step);
const listed = () => inStep().filter(FILTERS[chosen.filter][1]);

function showFilters() {
  byId("filters").replaceChildren();
  for (const [name, [title, belongs]] of Object.entries(FILTERS)) {
    const button = make("button", byId("filters"), `${title}: ${inStep().filter(belongs).length}`);
    button.dataset.filter = name;
    button.setAttribute("aria-pressed", String(chosen.filter === name));
    button.addEventListener("click", () => { chosen.filter = name; show(); });
  }
}

function showGroup(group, shown) {
  const section = make("section", byId("groups")), head = make("div", section, undefined, "bar group");
  section.dataset.step = group.step;
  make("b", head, `step ${group.step}`);
  make("span", head, `seed ${group.maze.seed}, shortest ${group.maze.turns_needed} turns`);
  make("span", head, group.episodes.some(({ advantage }) => advantage) ? "something is learned from it" :
    "nothing is learned from it");
  if (shown.length > 1) {
    const together = make("button", head, `play these ${shown.length} together`);
    together.addEventListener("click", () => openEpisodes(shown));
  }
  const grid = make("div", section, undefined, "grid small");
  for (const episode of shown) {
    const { walk } = episode, card = make("button", grid, undefined, "maze");
    card.dataset.episode = episodes.indexOf(episode);
    card.addEventListener("click", () => openEpisodes([episode]));
    drawWalk(make("canvas", card), group.maze, walk.letters, walk.letters.length, 16);
    make("div", card, outcomeText(walk), `how ${walk.ending === "solved" ? "yes" : "no"}`);
    make("div", card, detours(walk), "did");
    make("div", card, earned(episode), "earned");
  }
}

function show(most = MAX_SHOWN) {
  chosen.most = most;
  byId("step").value = chosen.step;
  byId("step-before").disabled = chosen.step <= 0;
  byId("step-after").disabled = chosen.step === ALL_STEPS || chosen.step >= data.steps.length - 1;
  showFilters();
  byId("groups").replaceChildren();
  const all = listed(), shown = all.slice(0, most), byGroup = new Map();
  for (const episode of shown) byGroup.set(episode.group, [...(byGroup.get(episode.group) || []), episode]);
  byGroup.forEach((found, group) => showGroup(group, found));
  byId("none").hidden = all.length > 0;
  byId("more").hidden = shown.length === all.length;
  byId("more").textContent = `show ${Math.min(MAX_SHOWN, all.length - shown.length)} more of ${all.length}`;
}

// One episode, or some of one maze beside each other.
function openEpisodes(shown) {
  const { group } = shown[0], who = shown.length > 1 ? `${shown.length} episodes` : shown[0].name;
  const boards = shown.map((episode) => ({ name: `${episode.name}: ${earned(episode)}`, hint: "", walk: episode.walk }));
  openPlayer(`Step ${group.step}, seed ${group.maze.seed}, ${who}`, group.maze, boards, (by) => {
    const all = listed(), at = all.indexOf(shown[by < 0 ? 0 : shown.length - 1]);
    openEpisodes([all[(at + by + all.length) % all.length]]);
  });
}

function toStep(step) {
  chosen.step = step;
  show();
}

document.title = `${data.run_name}: rollouts`;
byId("title").textContent = `${data.run_name}: episodes of training`;
byId("about").textContent = data.about;
make("option", byId("step"), "all").value = ALL_STEPS;
data.steps.forEach(({ step }, at) => { make("option", byId("step"), String(step)).value = at; });
byId("step").addEventListener("change", (event) => toStep(Number(event.target.value)));
byId("step-before").addEventListener("click", () => toStep(chosen.step - 1));
byId("step-after").addEventListener("click", () => toStep(chosen.step + 1));
byId("more").addEventListener("click", () => show(chosen.most + MAX_SHOWN));
show();
