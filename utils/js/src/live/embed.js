// One line in somebody's page puts a puzzle or a player there: an iframe of ours, in a sandbox.
//
//   <script src="https://SITE/live/embed.js" data-puzzle="ring"></script>
//   <script src="https://SITE/live/embed.js" data-player="ring_all_reduce/4"></script>

const script = /** @type {HTMLScriptElement} */ (document.currentScript);
const { puzzle, player } = script.dataset;
const address = new URL(player ? "player.html?embed" : "puzzles.html?embed", script.src);
address.hash = player ? player : `p=${puzzle ?? "pass"}`;
const frame = document.createElement("iframe");
frame.title = player ? `All Ranks: ${player}` : "All Ranks: a puzzle";
// our page needs its scripts and its own storage; it can neither leave its frame nor see yours
frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-popups allow-popups-to-escape-sandbox");
frame.allow = "clipboard-write";
frame.loading = "lazy";
frame.style.cssText = "display:block;width:100%;height:620px;border:1px solid #8886;border-radius:10px";
frame.src = address.href;
addEventListener("message", ({ source, data }) => {
  const height = data?.allranksHeight;
  if (source === frame.contentWindow && Number.isFinite(height) && height > 0)
    frame.style.height = `${Math.min(4000, Math.ceil(height))}px`;
});
script.after(frame);
