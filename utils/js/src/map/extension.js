// The map as a tab of JupyterLab. What it shows comes from the server (allranks.course_map.server); a chapter opens in the same JupyterLab.
// JupyterLab loads extensions as containers of module federation: an object with `init` and `get`. That is all of the protocol, so this
// file is written by hand and not bundled.
(() => {
  const ID = "allranks-map";
  const COMMAND = "allranks:map";
  let shared;

  // The newest of the versions of a package that JupyterLab shares.
  const load = async (name) => {
    const versions = Object.values(shared[name]);
    return (await versions[versions.length - 1].get())();
  };

  async function plugin() {
    const { ILayoutRestorer } = await load("@jupyterlab/application");
    const { ICommandPalette, MainAreaWidget, WidgetTracker } = await load("@jupyterlab/apputils");
    const { PageConfig, URLExt } = await load("@jupyterlab/coreutils");
    const { ServerConnection } = await load("@jupyterlab/services");
    const { Widget } = await load("@lumino/widgets");

    // A widget that asks for the map whenever it comes into view.
    class MapWidget extends Widget {
      constructor(open) {
        super();
        this.addClass("jp-AllRanksMap");
        this.node.style.cssText = "overflow:auto;height:100%;background:var(--jp-layout-color0)";
        this.node.addEventListener("click", (event) => {
          const link = event.target.closest("a[data-path]");
          if (!link || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          open(link.dataset.path);
        });
      }
      onAfterShow() {
        this.draw();
      }
      onAfterAttach() {
        this.draw();
      }
      async draw() {
        const settings = ServerConnection.makeSettings();
        const address = URLExt.join(settings.baseUrl, "allranks/map?part");
        const reply = await ServerConnection.makeRequest(address, {}, settings).catch(() => null);
        if (!reply?.ok) {
          this.node.textContent = "The map can't be drawn: the server does not answer. In a terminal, `allranks map` shows it as text.";
          return;
        }
        const text = await reply.text();
        if (text === this.shown) return; // to draw the same again would take a link from under a pointer
        this.shown = text;
        const active = document.activeElement;
        const had = this.node.contains(active) ? active.dataset.path : undefined;
        this.node.innerHTML = text;
        if (had) this.node.querySelector(`a[data-path="${CSS.escape(had)}"]`)?.focus();
        this.node.dataset.ready = "";
      }
    }

    return {
      id: "allranks:map",
      description: "Shows the map of the course.",
      autoStart: true,
      optional: [ILayoutRestorer, ICommandPalette],
      activate: (app, restorer, palette) => {
        const tracker = new WidgetTracker({ namespace: ID });
        let widget;
        const open = (path) => app.commands.execute("docmanager:open", { path });
        app.commands.addCommand(COMMAND, {
          label: "Map of the course",
          execute: async () => {
            if (!widget || widget.isDisposed) {
              widget = new MainAreaWidget({ content: new MapWidget(open) });
              widget.id = ID;
              widget.title.label = "Map";
              widget.title.closable = true;
            }
            if (!tracker.has(widget)) await tracker.add(widget);
            if (!widget.isAttached) app.shell.add(widget, "main");
            app.shell.activateById(widget.id);
          },
        });
        palette?.addItem({ command: COMMAND, category: "All Ranks" });
        restorer?.restore(tracker, { command: COMMAND, name: () => ID });
        // It opens first, once in each tab of the browser, unless the address names a notebook.
        const first = PageConfig.getOption("allranksMap") && !location.pathname.includes("/tree/");
        if (!first || sessionStorage.getItem(ID)) return;
        sessionStorage.setItem(ID, "opened");
        app.restored.then(() => app.commands.execute(COMMAND));
      },
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.allranks = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => {
      const made = await plugin();
      return () => ({ __esModule: true, default: made });
    },
  };
})();
