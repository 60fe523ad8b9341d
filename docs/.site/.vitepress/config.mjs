// The configuration of the documentation site. The pages stay plain Markdown in docs/; navigation.json orders them.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const site = join(dirname(fileURLToPath(import.meta.url)), "..");
const docs = join(site, "..");
const repository = "https://github.com/millrace/changefeed";
const groups = JSON.parse(readFileSync(join(site, "navigation.json"), "utf8"));

const sidebar = groups
  .map((group) => ({
    text: group.title,
    items: group.pages
      .filter(({ page }) => existsSync(join(docs, page)))
      .map(({ page, title }) => ({ text: title, link: "/" + page.replace(/(README)?\.md$/, "") })),
  }))
  .filter((group) => group.items.length > 0);

// outside turns a link to a file that is not a page of the site into a link to the repository.
function outside(href, page) {
  if (/^([a-z]+:|#|\/)/i.test(href)) return href;
  const [path, fragment] = href.split("#", 2);
  const target = posix.normalize(posix.join("docs", posix.dirname(page), path));
  if (target.startsWith("docs/") && /\.(md|svg|webp|png)$/.test(target)) return href;
  if (target === "docs") return href;
  return `${repository}/blob/main/${target}${fragment ? "#" + fragment : ""}`;
}

// emptyHeaders makes a header without a text, which Markdown requires of a table, an ordinary cell, and leaves out a row
// of such headers.
function emptyHeaders(tokens) {
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i].type !== "thead_open") continue;
    const end = tokens.findIndex((token, n) => n > i && token.type === "thead_close");
    const head = tokens.slice(i, end + 1);
    if (head.every((token) => token.type !== "inline" || token.content === "")) {
      tokens.splice(i, head.length);
      continue;
    }
    head.forEach((token, n) => {
      if (token.type !== "th_open" || head[n + 1].content !== "") return;
      token.tag = head[n + 2].tag = "td";
    });
  }
}

// slug makes the anchors that code hosts make, so that a link works there and here.
const slug = (text) =>
  text.trim().toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, "").replaceAll(" ", "-");

export default defineConfig({
  title: "changefeed",
  description: "A change feed processor for Azure Cosmos DB, with a store, a server and a command",
  lang: "en",
  srcDir: "..",
  srcExclude: [".site/**"],
  outDir: "../../.dist/site",
  cacheDir: "./.vitepress/cache",
  rewrites: { "README.md": "index.md", "recipes/README.md": "recipes/index.md", "decisions/README.md": "decisions/index.md" },
  base: process.env.SITE_BASE || "/",
  cleanUrls: false,
  // A page is plain Markdown: <ADDRESS> and {{ x }} are text.
  markdown: {
    html: false,
    anchor: { slugify: slug },
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    config(md) {
      md.core.ruler.push("outside", (state) => {
        for (const token of state.tokens) {
          for (const child of token.children ?? []) {
            if (child.type !== "link_open") continue;
            child.attrSet("href", outside(child.attrGet("href"), state.env.relativePath));
          }
        }
      });
      // Comments are for the tests.
      md.core.ruler.before("block", "comments", (state) => {
        state.src = state.src.replace(/^<!--[\s\S]*?-->$/gm, "");
      });
      md.core.ruler.push("headers", (state) => emptyHeaders(state.tokens));
      const text = md.renderer.rules.text;
      md.renderer.rules.text = (...args) => text(...args).replaceAll("{{", "&#123;&#123;");
    },
  },
  // The pages are outside of the folder that has node_modules.
  vite: {
    resolve: {
      alias: [
        { find: /^vue$/, replacement: join(site, "node_modules/vue/dist/vue.runtime.esm-bundler.js") },
        { find: /^vue\/server-renderer$/, replacement: join(site, "node_modules/vue/server-renderer/index.mjs") },
      ],
    },
    server: { fs: { allow: [docs] } },
  },
  themeConfig: {
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: repository, ariaLabel: "Source code" }],
    docFooter: { prev: "Previous", next: "Next" },
  },
});
