// A picture as SVG text: building it anew is faster than changing hundreds of elements, and fast enough for each frame.

/** @param {unknown} value */
const escaped = (value) =>
  String(value).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign] ?? sign);

/** @param {number} value */
const short = (value) => (Math.abs(value) < 1e5 ? Math.round(value * 10) / 10 : Math.sign(value) * 1e5);

/** @typedef {Record<string, string | number>} Attributes */

export class Sketch {
  /** @type {string[]} */
  #parts = [];

  /**
   * @param {string} name of the element
   * @param {string} look its class
   * @param {Attributes} attributes
   * @param {string | null} words
   */
  #add(name, look, attributes, words = null) {
    let text = `<${name} class="${look}"`;
    for (const key in attributes) {
      const value = attributes[key];
      text += ` ${key}="${typeof value === "number" ? short(value) : escaped(value)}"`;
    }
    this.#parts.push(words === null ? `${text}/>` : `${text}>${escaped(words)}</${name}>`);
    return this;
  }

  /** @param {string} look @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
  line(look, x1, y1, x2, y2) {
    return this.#add("line", look, { x1, y1, x2, y2 });
  }

  /**
   * What a handle runs on, darker up to where it is.
   *
   * @param {number} from
   * @param {number} to
   * @param {number} here
   * @param {number} y
   */
  track(from, to, here, y) {
    return this.line("ar-track", from, y, to, y).line("ar-track ar-passed", from, y, here, y);
  }

  /** @param {string} look @param {number[][]} points @param {Attributes} more */
  curve(look, points, more = {}) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${short(x)} ${short(y)}`).join("");
    return this.#add("path", look, { d, ...more });
  }

  /** @param {string} look @param {string} d @param {Attributes} more */
  path(look, d, more = {}) {
    return this.#add("path", look, { d, ...more });
  }

  /**
   * @param {string} look
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {Attributes} more
   */
  box(look, x, y, width, height, more = {}) {
    return this.#add("rect", look, { x, y, width: Math.max(0, width), height: Math.max(0, height), rx: 4, ...more });
  }

  /**
   * Many boxes that look alike, as one element: a browser lays out one path in the time of one box.
   *
   * @param {string} look
   * @param {[number, number, number, number][]} boxes x, y, width and height of each
   * @param {number} radius of the corners
   */
  boxes(look, boxes, radius) {
    const d = boxes.map(([x, y, width, height]) => {
      const r = short(Math.min(radius, width / 4));
      const [w, h] = [short(width - 2 * r), short(height - 2 * r)];
      return (
        `M${short(x + r)} ${short(y)}h${w}a${r} ${r} 0 0 1 ${r} ${r}v${h}a${r} ${r} 0 0 1 ${-r} ${r}` +
        `h${-w}a${r} ${r} 0 0 1 ${-r} ${-r}v${-h}a${r} ${r} 0 0 1 ${r} ${-r}z`
      );
    });
    return d.length ? this.path(look, d.join("")) : this;
  }

  /** @param {string} look @param {number} cx @param {number} cy @param {number} r */
  dot(look, cx, cy, r) {
    return this.#add("circle", look, { cx, cy, r });
  }

  /** @param {string} look @param {number} x @param {number} y @param {string} words @param {Attributes} more */
  text(look, x, y, words, more = {}) {
    return this.#add("text", look, { x, y, ...more }, words);
  }

  /**
   * Hatching in the colour of what is lost, to be used as `fill: url(#id)`.
   *
   * @param {string} id
   * @param {number} opacity
   */
  hatching(id, opacity = 1) {
    this.#parts.push(
      `<defs><pattern id="${id}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
        `<rect class="ar-hatched" width="3.4" height="7" opacity="${opacity}"/></pattern></defs>`,
    );
    return this;
  }

  /**
   * What is drawn next is cut at this box, until `unclip`.
   *
   * @param {string} id
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  clip(id, x, y, width, height) {
    this.#parts.push(
      `<defs><clipPath id="${id}"><rect x="${short(x)}" y="${short(y)}" width="${short(width)}" ` +
        `height="${short(height)}"/></clipPath></defs><g clip-path="url(#${id})">`,
    );
    return this;
  }

  unclip() {
    this.#parts.push("</g>");
    return this;
  }

  /**
   * @param {SVGSVGElement} svg
   * @param {number} width
   * @param {number} height
   */
  into(svg, width, height) {
    svg.setAttribute("width", String(width));
    svg.setAttribute("height", String(height));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.innerHTML = this.#parts.join("");
  }
}
