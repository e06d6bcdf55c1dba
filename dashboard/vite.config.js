// SPDX-License-Identifier: Apache-2.0
// Builds dist/ with fixed file names. The build is the same on every machine: no hashes, times or paths.

import { defineConfig } from "vite";

const LICENCE = "/* SPDX-License-Identifier: Apache-2.0; what is included: licences.md */\n";

// The minifier drops comments, so this comes after it.
const licence = {
  name: "licence",
  generateBundle: {
    order: "post",
    handler(options, bundle) {
      for (const file of Object.values(bundle)) {
        if (file.type === "chunk") file.code = LICENCE + file.code;
        else if (file.fileName.endsWith(".css")) file.source = LICENCE + file.source;
      }
    },
  },
};

export default defineConfig({
  plugins: [licence],
  // The page may be served under any path of a proxy.
  base: "./",
  build: {
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    license: { fileName: "licences.md" },
    rolldownOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
