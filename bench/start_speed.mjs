// How long does Python take to start, and to import the package?
//
//     node bench/start_speed.mjs dist/pyodide dist/wheels/*.whl
//
// Give the folder of Pyodide and the wheel: those of a built site (compiled), or node_modules/pyodide
// and what `python -m hatchling build -t wheel -d FOLDER` writes (sources).  Prints wall and CPU seconds.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const IMPORT_ALL = `
import importlib, pkgutil, daisychain
for module in pkgutil.walk_packages(daisychain.__path__, "daisychain."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
`;
const folder = `${resolve(process.argv[2])}/`;
const wheel = new Uint8Array(readFileSync(process.argv[3]));
const { loadPyodide } = await import(pathToFileURL(`${folder}pyodide.mjs`).href);

let begin = performance.now();
let used = process.cpuUsage();
function tell(what) {
  const { user, system } = process.cpuUsage(used);
  const [wall, cpu] = [(performance.now() - begin) / 1e3, (user + system) / 1e6];
  console.log(`${what}: ${wall.toFixed(2)} s, ${cpu.toFixed(2)} s of CPU`);
  begin = performance.now();
  used = process.cpuUsage();
}

const pyodide = await loadPyodide({ indexURL: folder });
tell("Pyodide");
pyodide.unpackArchive(wheel, "wheel");
pyodide.runPython(IMPORT_ALL);
tell("package");
