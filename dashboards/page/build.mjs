// Bundles the page: node build.mjs --out DIR writes page.js and style.css there, the same bytes for
// the same sources wherever and whenever it runs. --check checks the types instead, --test runs the
// tests in test/. Packages come from --modules DIR, else from GRADVANE_PAGE_MODULES, else from
// node_modules here, else from .deps/page/node_modules of the checkout.
import { spawnSync } from "node:child_process";
import {
  existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    out: { type: "string" },
    modules: { type: "string" },
    check: { type: "boolean" },
    test: { type: "boolean" },
  },
});

function findModules() {
  const named = options.modules ?? process.env.GRADVANE_PAGE_MODULES;
  if (named) return resolve(named);
  const places = [join(here, "node_modules"), join(here, "../../.deps/page/node_modules")];
  const found = places.find((place) => existsSync(join(place, "esbuild")));
  if (!found) throw new Error("no packages: run `npm ci` here, or name them with --modules DIR");
  return found;
}

const modules = findModules();
const requireFrom = createRequire(join(modules, "package.json"));

function settings() {
  return {
    absWorkingDir: here,
    nodePaths: [modules],
    // Links to the packages keep their own path, so that no path of this machine decides anything.
    preserveSymlinks: true,
    bundle: true,
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  };
}

async function bundle(out) {
  const { build } = requireFrom("esbuild");
  const minified = { ...settings(), minify: true, write: false, legalComments: "none" };
  mkdirSync(out, { recursive: true });
  const page = await build({
    ...minified,
    entryPoints: ["src/main.tsx"],
    format: "iife",
    target: ["es2022"],
    outfile: "page.js",
    footer: { js: licences() },
  });
  const style = await build({
    ...minified,
    entryPoints: ["src/styles/style.css"],
    target: ["chrome111", "firefox113", "safari16.4"],
    outfile: "style.css",
  });
  writeFileSync(join(out, "page.js"), page.outputFiles[0].contents);
  writeFileSync(join(out, "style.css"), style.outputFiles[0].contents);
}

// The licences of what is bundled ask for their text in every copy.
function licences() {
  const texts = ["preact", "uplot"].map((name) => {
    const text = readFileSync(join(modules, name, "LICENSE"), "utf8").trim();
    return `${name} ${requireFrom(`${name}/package.json`).version}\n\n${text}`;
  });
  return `/*! Gradvane, Apache-2.0. It contains:\n\n${texts.join("\n\n")}\n*/`;
}

function check() {
  const compiler = join(modules, ".bin", "tsc");
  const paths = join(here, "node_modules");
  // The compiler looks for packages above the sources, and nowhere else.
  if (!existsSync(paths) && resolve(paths) !== modules) {
    const config = mkdtempSync(join(tmpdir(), "gradvane-page-"));
    try {
      const file = join(config, "tsconfig.json");
      writeFileSync(file, JSON.stringify({
        extends: join(here, "tsconfig.json"),
        compilerOptions: { paths: { "*": [join(modules, "*")] } },
        include: [join(here, "src")],
      }));
      return spawnSync(compiler, ["-p", file], { stdio: "inherit" }).status ?? 1;
    } finally {
      rmSync(config, { recursive: true });
    }
  }
  return spawnSync(compiler, ["--noEmit", "-p", here], { stdio: "inherit" }).status ?? 1;
}

async function test() {
  const { build } = requireFrom("esbuild");
  const folder = mkdtempSync(join(tmpdir(), "gradvane-page-"));
  try {
    const names = readdirSync(join(here, "test")).filter((name) => name.endsWith("_test.ts"));
    await build({
      ...settings(),
      entryPoints: names.map((name) => join("test", name)),
      platform: "node",
      format: "esm",
      target: ["node20"],
      outdir: folder,
      outExtension: { ".js": ".mjs" },
    });
    const files = names.map((name) => join(folder, name.replace(/\.ts$/, ".mjs")));
    return spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (options.check) process.exitCode = check();
else if (options.test) process.exitCode = await test();
else if (options.out) await bundle(resolve(options.out));
else {
  console.error("usage: node build.mjs --out DIR | --check | --test  [--modules DIR]");
  process.exitCode = 2;
}
