// Cuts Python's standard library to what the puzzles need; `tools/live_site.py` calls it: library.js COURSE.zip OUT.json
//
// It runs the puzzles' Python in Node, as a browser will, and writes OUT.json: the modules that were loaded, of the
// library and of the course, each as bytecode of that Python in base64, which is read faster than source is compiled.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadPyodide } from "pyodide";

process.on("uncaughtException", (error) => {
  console.error(error.message); // Node would print the line of Pyodide's file too, which is a million characters long
  process.exit(1);
});
const [course, out] = process.argv.slice(2);
const python = await loadPyodide({ indexURL: fileURLToPath(new URL("node_modules/pyodide/", import.meta.url)) });
python.unpackArchive(new Uint8Array(readFileSync(course)), "zip", { extractDir: "/course" });
const found = python.runPython(`
import base64, importlib, importlib._bootstrap_external as external, json, os, sys, zipfile

sys.path.insert(0, "/course")
import puzzle_answers

library = next(path for path in sys.path if path.endswith(".zip"))
# what a reader may import in a program of a few lines, and what Python itself asks for to say what is wrong with it
for name in ("math random itertools functools collections collections.abc operator time copy string re heapq bisect "
             "statistics fractions decimal dataclasses typing enum contextlib json textwrap traceback linecache "
             "tokenize numbers array struct datetime encodings.idna ast inspect io queue types").split():
    importlib.import_module(name)
puzzle_answers.warm()


def bytecode(source, name):
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)  # without docstrings
    data = external._code_to_hash_pyc(code, b"\\0" * 8, checked=False)
    return base64.b64encode(data).decode()


kept = {}
with zipfile.ZipFile(library) as archive:
    names = set(archive.namelist())
    loaded = {name.replace(".", "/") for name in sys.modules}
    loaded |= {"encodings/cp437", "encodings/latin_1", "encodings/ascii"}
    for path in sorted(names):
        stem = path.removesuffix(".py").removesuffix("/__init__")
        if path.endswith(".py") and stem in loaded:
            kept[path + "c"] = bytecode(archive.read(path), path)
ours = {}
for folder, _, files in os.walk("/course"):
    for file in files:
        path = os.path.join(folder, file)
        inside = os.path.relpath(path, "/course")
        with open(path, "rb") as opened:
            data = opened.read()
        if file.endswith(".py"):
            ours[inside + "c"] = bytecode(data, inside)
        elif not file.endswith(".pyc"):
            ours[inside] = base64.b64encode(data).decode()
json.dumps({"library": kept, "course": ours})
`);
writeFileSync(out, found);
