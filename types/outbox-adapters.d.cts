/** Types of millrace/outbox/adapters for CommonJS, the same as for ES modules. */
// Node.js loads ES modules with require since 20.19. TypeScript versions without the module setting
// node20 report TS1479 nevertheless.
// @ts-ignore TS1479
export * from '../dist/src/outbox/adapters/index.js';
