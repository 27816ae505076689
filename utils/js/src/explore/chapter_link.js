// Links to chapters from inside a widget: JupyterLab opens the notebook, a page of the site goes to the chapter's page.

/** @typedef {{path: string, title: string}} Chapter */

const ROOT = "chapters/";

/** The chapter in words: "chapter 17", or its title where the files are not here. @param {Chapter} chapter */
export function chapterOf({ path, title }) {
  const number = /(\d+)_[^/]*$/.exec(path)?.[1];
  return number ? `chapter ${Number(number)}` : title;
}

/**
 * HTML of a link to a chapter; the plain words where there is nothing to open.
 *
 * @param {import("./frame.js").Frame} frame
 * @param {Chapter} chapter
 * @param {string} words
 */
export function linkTo(frame, { path }, words) {
  const here = frame.model.widget_manager?.context?.path;
  if (!path || (frame.model.widget_manager && !here)) return words;
  if (here) {
    const target = folderOf(here) + path;
    const open = JSON.stringify({ path: target }).replace(/"/g, "&quot;");
    return `<a href="#" data-commandlinker-command="docmanager:open" data-commandlinker-args="${open}">${words}</a>`;
  }
  const page = decodeURI(globalThis.location?.pathname ?? "");
  if (!page.includes(ROOT)) return words;
  return `<a href="${encodeURI(folderOf(page) + path.replace(/ipynb$/, "html"))}">${words}</a>`;
}

/** The folder that holds the chapters, of a path in it; "" if the path is in no such folder. @param {string} path */
const folderOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf(ROOT)));
