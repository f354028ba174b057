// Builds the page into dist: index.html, and its assets compressed, with a hash of their content in their names.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

// What a browser loads, compressed.
const MAX_OCTETS = 100_000;
const LICENSES = '/*! Weir. With Preact (MIT, Copyright (c) 2015-present Jason Miller) and uPlot (MIT, Copyright (c) 2022 Leon Sorokin). */';

const here = new URL('.', import.meta.url);
const dist = new URL('dist/', here);
const { outputFiles } = await build({
    absWorkingDir: here.pathname,
    entryPoints: ['src/page.tsx'],
    bundle: true,
    minify: true,
    write: false,
    outdir: 'dist',
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    banner: { js: LICENSES, css: LICENSES },
});
const contents = { 'icon.svg': readFileSync(new URL('src/icon.svg', here)) };
for (const { path, contents: content } of outputFiles) {
    contents[path.split('/').pop()] = content;
}

mkdirSync(dist, { recursive: true });
for (const name of readdirSync(dist).filter((name) => name !== '.gitignore')) {
    rmSync(new URL(name, dist));
}
let page = readFileSync(new URL('src/index.html', here), 'utf8');
let octets = page.length;
for (const [name, content] of Object.entries(contents)) {
    const hash = createHash('sha256').update(content).digest('hex').slice(0, 12);
    const hashed = name.replace('.', `-${hash}.`);
    const compressed = gzipSync(content, { level: 9 });
    octets += compressed.length;
    writeFileSync(new URL(`${hashed}.gz`, dist), compressed);
    if (!page.includes(`/assets/${name}`)) throw new Error(`index.html does not name ${name}`);
    page = page.replace(`/assets/${name}`, `/assets/${hashed}`);
}
writeFileSync(new URL('index.html', dist), page);
if (octets > MAX_OCTETS) throw new Error(`the page has ${octets} octets compressed; at most ${MAX_OCTETS}`);
console.log(`web/dist: the page has ${octets} octets, compressed`);
