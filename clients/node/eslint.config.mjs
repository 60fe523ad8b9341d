// The lint of this package: `npm run lint`, after a build, because the tests import dist.
import eslint from "@eslint/js";
import { defineConfig } from "eslint/config";
import globals from "globals";
import tseslint from "typescript-eslint";

/** Rules that need types, and so say nothing useful about JavaScript, whose parameters have none. */
const typeless = [
  "no-dynamic-delete", "no-misused-spread", "no-unnecessary-condition", "no-unsafe-argument", "no-unsafe-assignment",
  "no-unsafe-call", "no-unsafe-class-instance-assignment", "no-unsafe-member-access", "no-unsafe-return",
  "prefer-promise-reject-errors", "require-await", "restrict-plus-operands", "restrict-template-expressions",
];

export default defineConfig(
  { ignores: ["dist/"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  eslint.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["*.mjs"] } } },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "max-len": ["error", { code: 140, ignoreUrls: true }],
      "object-shorthand": "error",
      "@typescript-eslint/no-confusing-void-expression": ["error", {
        ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true,
      }],
      "@typescript-eslint/no-empty-function": ["error", { allow: ["arrowFunctions"] }], // what is ignored on purpose
      "@typescript-eslint/no-floating-promises": ["error", {
        allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["after", "test"] }],
      }],
      "@typescript-eslint/no-invalid-void-type": "off", // a handler returns nothing, or a result
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  {
    files: ["**/*.mjs"],
    languageOptions: { globals: globals.nodeBuiltin },
    rules: {
      ...Object.fromEntries(typeless.map((rule) => [`@typescript-eslint/${rule}`, "off"])),
      "@typescript-eslint/no-empty-function": ["error", { allow: ["arrowFunctions", "methods"] }],
    },
  },
);
