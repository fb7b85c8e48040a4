// Bundle app/js/*.js with their npm packages into the folder given: one file each, nothing shared.
// All become ES modules but two classic scripts: boot.js, which must run before any module, and kit.js,
// which is put into inference kits.
import { readdirSync } from "node:fs";
import { build } from "esbuild";

const outdir = process.argv[2];
const CLASSIC = ["boot.js", "kit.js"];
const scripts = readdirSync("app/js").filter((name) => name.endsWith(".js"));

for (const format of ["iife", "esm"]) {
  await build({
    entryPoints: scripts
      .filter((name) => CLASSIC.includes(name) === (format === "iife"))
      .map((name) => `app/js/${name}`),
    bundle: true,
    minify: true,
    target: "es2022",
    logLevel: "warning",
    format,
    outdir,
  });
}
