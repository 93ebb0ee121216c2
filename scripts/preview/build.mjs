// Bundles the page:  node build.mjs OUT    (in a folder whose node_modules holds package.json's packages)
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(join(process.cwd(), 'package.json'));
const esbuild = require('esbuild');
const here = dirname(fileURLToPath(import.meta.url));

// Grafana's modules are .mjs, which take a CommonJS package's exports as its default. This package has one of its own.
const scrollbars = {
  name: 'default of react-custom-scrollbars-2',
  setup(build) {
    const path = require.resolve('react-custom-scrollbars-2');
    build.onResolve({ filter: /^react-custom-scrollbars-2$/ }, () => ({ path, namespace: 'mended' }));
    build.onLoad({ filter: /.*/, namespace: 'mended' }, () => ({
      contents: `export { default } from ${JSON.stringify(path)};`, resolveDir: dirname(path) }));
  },
};

await esbuild.build({
  entryPoints: [join(here, 'src', 'page.jsx')],
  outfile: join(process.argv[2], 'page.js'),
  nodePaths: [join(process.cwd(), 'node_modules')],
  bundle: true,
  minify: true,
  logLevel: 'error',
  define: { 'process.env.NODE_ENV': '"production"' },
  loader: { '.svg': 'dataurl', '.woff': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' },
  plugins: [scrollbars],
});
