/** The types of millrace/registry for CommonJS: the same as for ES modules. */
// @ts-ignore TS1479, which TypeScript reports before its module setting node20: Node.js loads ES modules with require from 20.19 on.
export * from '../dist/src/registry/index.js';
