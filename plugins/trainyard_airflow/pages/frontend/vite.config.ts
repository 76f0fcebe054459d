import { defineConfig } from "vite";

// Relative addresses: Airflow may be served below a path of its own.
export default defineConfig({
  base: "./",
  oxc: { jsx: { importSource: "preact" } },
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    rollupOptions: {
      output: { entryFileNames: "app-[hash].js", assetFileNames: "app-[hash][extname]" },
    },
  },
});
