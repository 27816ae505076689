// The map as a tab of JupyterLab, and a button in each notebook that leads to it. What it shows comes from the server
// (allranks.course.map.server); a chapter opens in the same JupyterLab. JupyterLab loads extensions as containers of
// module federation: an object with `init` and `get`. That is all of the protocol, so nothing of JupyterLab is bundled.

const ID = "allranks-map";
const COMMAND = "allranks:map";

/** @type {any} the packages that JupyterLab shares, by name and version */
let shared;

/** The newest of the versions of a package that JupyterLab shares. @param {string} name @returns {Promise<any>} */
async function load(name) {
  const versions = Object.values(shared[name]);
  return (await versions[versions.length - 1].get())();
}

/**
 * A widget that asks for the map whenever it comes into view.
 *
 * @param {any} packages
 * @param {(path: string) => void} open opens a notebook
 */
function mapWidget({ Widget, URLExt, ServerConnection }, open) {
  let shown = "";
  let asked = 0;
  const widget = new Widget();
  /** @type {HTMLElement} */
  const node = widget.node;
  const draw = async () => {
    const mine = ++asked;
    const settings = ServerConnection.makeSettings();
    const address = URLExt.join(settings.baseUrl, "allranks/map?part");
    const reply = await ServerConnection.makeRequest(address, {}, settings).catch(() => null);
    if (mine !== asked) return; // a later question has a newer answer
    if (!reply?.ok) {
      node.textContent =
        "The map can't be drawn: the server does not answer. In a terminal, `allranks map` shows it as text.";
      return;
    }
    const text = await reply.text();
    if (mine !== asked || text === shown) return; // to draw the same again would take a link from under a pointer
    shown = text;
    const active = document.activeElement;
    const had = active && node.contains(active) ? active.getAttribute("data-path") : null; // also of a link in an SVG
    node.innerHTML = text;
    if (had) /** @type {any} */ (node.querySelector(`a[data-path="${CSS.escape(had)}"]`))?.focus();
    node.dataset.ready = "";
  };
  widget.addClass("jp-AllRanksMap");
  node.style.cssText = "overflow:auto;height:100%;background:var(--jp-layout-color0)";
  node.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-path]") : null;
    if (!(link instanceof Element) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    open(link.getAttribute("data-path") ?? "");
  });
  widget.onAfterShow = draw;
  widget.onAfterAttach = draw;
  return widget;
}

async function plugin() {
  const { ILayoutRestorer } = await load("@jupyterlab/application");
  const { ICommandPalette, MainAreaWidget, ToolbarButton, WidgetTracker } = await load("@jupyterlab/apputils");
  const { PageConfig, URLExt } = await load("@jupyterlab/coreutils");
  const { ServerConnection } = await load("@jupyterlab/services");
  const { Widget } = await load("@lumino/widgets");

  /** @param {any} app @param {any} restorer @param {any} palette */
  function activate(app, restorer, palette) {
    const tracker = new WidgetTracker({ namespace: ID });
    /** @type {any} */
    let widget;
    const open = (/** @type {string} */ path) => app.commands.execute("docmanager:open", { path });
    app.commands.addCommand(COMMAND, {
      label: "Map of the course",
      /** @param {{behind?: boolean}} args `behind`: the tab is to be there, but not in front */
      execute: async ({ behind }) => {
        if (!widget || widget.isDisposed) {
          widget = new MainAreaWidget({ content: mapWidget({ Widget, URLExt, ServerConnection }, open) });
          widget.id = ID;
          widget.title.label = "Map";
          widget.title.closable = true;
        }
        if (!tracker.has(widget)) await tracker.add(widget);
        if (!widget.isAttached) {
          const [first] = app.shell.widgets("main");
          app.shell.add(widget, "main", { activate: false, ...(first && { mode: "tab-before", ref: first.id }) });
        }
        if (!behind) app.shell.activateById(widget.id);
      },
    });
    palette?.addItem({ command: COMMAND, category: "All Ranks" });
    restorer?.restore(tracker, { command: COMMAND, args: () => ({ behind: true }), name: () => ID });
    app.docRegistry.addWidgetExtension("Notebook", {
      /** @param {any} panel */
      createNew(panel) {
        const onClick = () => app.commands.execute(COMMAND);
        const button = new ToolbarButton({
          label: "Map",
          tooltip: "Where am I in the course, and what comes next?",
          onClick,
        });
        panel.toolbar.insertItem(0, ID, button);
        return button;
      },
    });
    if (!PageConfig.getOption("allranksMap")) return;
    // In front once in each tab of the browser, unless the address names a notebook; after that it is there, behind.
    const behind = location.pathname.includes("/tree/") || sessionStorage.getItem(ID) !== null;
    sessionStorage.setItem(ID, "opened");
    app.restored.then(() => app.commands.execute(COMMAND, { behind }));
  }

  return {
    id: "allranks:map",
    description: "Shows the map of the course.",
    autoStart: true,
    optional: [ILayoutRestorer, ICommandPalette],
    activate,
  };
}

/** @type {any} */
const page = window;
page._JUPYTERLAB = page._JUPYTERLAB ?? {};
page._JUPYTERLAB.allranks = {
  /** @param {any} scope */
  init: (scope) => {
    shared = scope;
  },
  get: async () => {
    const made = await plugin();
    return () => ({ __esModule: true, default: made });
  },
};
