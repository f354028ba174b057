// Builds the page into dist: index.html, and its assets compressed, with a hash of their content in their names. And what
// `weir read --html` makes a file of: file.html, into which it puts the same script and style sheet, and questions.json, the
// questions whose answers it adds.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

// What a browser loads, compressed.
const MAX_OCTETS = 100_000;
const LICENSES = '/*! Weir. With Preact (MIT, Copyright (c) 2015-present Jason Miller) and uPlot (MIT, Copyright (c) 2022 Leon Sorokin). */';

const here = new URL('.', import.meta.url);
const dist = new URL('dist/', here);
const settings = {
    absWorkingDir: here.pathname,
    bundle: true,
    write: false,
    outdir: 'dist',
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
};
const { outputFiles } = await build({
    ...settings,
    entryPoints: ['src/page.tsx'],
    minify: true,
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
writeFileSync(new URL('file.html', dist), file(contents));
writeFileSync(new URL('questions.json', dist), JSON.stringify(await questions()));
if (octets > MAX_OCTETS) throw new Error(`the page has ${octets} octets compressed; at most ${MAX_OCTETS}`);
console.log(`web/dist: the page has ${octets} octets, compressed`);

/** A page that loads nothing: its own script and style sheet, by their hashes, and no others. */
function file(contents) {
    const [script, style] = ['page.js', 'page.css'].map((name) => Buffer.from(contents[name]).toString());
    // An element ends where its text has the end.
    if (/<\/script|<!--|\u2028|\u2029/i.test(script) || /<\/style/i.test(style)) throw new Error('the script or the style sheet cannot stand in a page');
    const hash = (content) => `'sha256-${createHash('sha256').update(content).digest('base64')}'`;
    const icon = Buffer.from(contents['icon.svg']).toString('base64');
    const values = { script: hash(script), style: hash(style), icon: `data:image/svg+xml;base64,${icon}` };
    return readFileSync(new URL('src/file.html', here), 'utf8').replace(/%(script|style|icon)%/g, (_, name) => values[name]);
}

async function questions() {
    const { outputFiles } = await build({ ...settings, entryPoints: ['src/questions.ts'] });
    const [{ text }] = outputFiles.filter(({ path }) => path.endsWith('.js'));
    return (await import(`data:text/javascript;base64,${Buffer.from(text).toString('base64')}`)).questions;
}
