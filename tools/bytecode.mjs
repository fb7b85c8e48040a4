// node tools/bytecode.mjs FOLDER SOURCE TARGET OPTIMIZE TAG [SOURCE TARGET OPTIMIZE TAG ...]
// Runs tools/bytecode.py in Pyodide, the page's own interpreter, on archives in FOLDER.
import { readFileSync } from "node:fs";
import { loadPyodide } from "pyodide";

const [folder, ...jobs] = process.argv.slice(2);
const pyodide = await loadPyodide({ env: { PYTHONNODEBUGRANGES: "1" } });
pyodide.mountNodeFS("/archives", folder);
pyodide.runPython(readFileSync(new URL("bytecode.py", import.meta.url), "utf8"));
const compile = pyodide.runPython(
  "lambda source, target, optimize, tag: compile_archive(" +
    "Path('/archives', source), Path('/archives', target), int(optimize), tag)",
);
for (let i = 0; i < jobs.length; i += 4) compile(...jobs.slice(i, i + 4));
