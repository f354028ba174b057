// A browser that opens pages, and what tests ask of them.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// Pictures of whole pages, or with WEIR_SCREENSHOTS of what a window shows, as in docs/screenshots.
const FOLDER = process.env.WEIR_SCREENSHOTS;
const SCREENSHOTS = FOLDER ? `${FOLDER}/` : new URL('../../target/web/', import.meta.url).pathname;
// Far above what any step takes, also on a busy machine.
export const BOUND = 60_000;
export const SIZES = [1280, 400];
export const SCHEMES = ['light', 'dark'];

let browser;

export async function startBrowser() {
    mkdirSync(SCREENSHOTS, { recursive: true });
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

/** Closes all pages, also those of a test that has failed. */
export async function closePages() {
    for (const context of browser.contexts()) await context.close();
}

export const closeBrowser = () => browser?.close();

/** Opens the page of a probe, or of stored flows. What it logs as an error and what it asks of other hosts is in `faults`. */
export async function open(probe, fragment = '', settings = {}, scheme = 'http') {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true, ...settings });
    const page = await context.newPage();
    page.setDefaultTimeout(BOUND);
    const origin = `${scheme}://127.0.0.1:${probe.port}`;
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('console', (message) => {
        // The browser also logs refusals and lost connections, which the page handles.
        const isHandled = /status of [45]\d\d|net::ERR_/.test(message.text());
        if (message.type() === 'error' && !isHandled) faults.push(message.text());
    });
    page.on('request', (request) => {
        if (!request.url().startsWith(`${origin}/`)) faults.push(request.url());
    });
    await page.goto(`${origin}/${fragment}`);
    return { page, faults, origin, close: () => context.close() };
}

/** Opens a file, without a network. All that it logs, and all that it asks for, is in `faults`. */
export async function openFile(path, fragment = '', settings = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, offline: true, ...settings });
    const page = await context.newPage();
    page.setDefaultTimeout(BOUND);
    const url = pathToFileURL(path).href;
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('console', (message) => faults.push(message.text()));
    page.on('request', (request) => {
        const isOwn = request.url().split('#')[0] === url || request.url().startsWith('data:image/svg+xml;');
        if (!isOwn) faults.push(request.url());
    });
    await page.goto(`${url}${fragment}`);
    return { page, faults, url, close: () => context.close() };
}

/** First cell and another one of each row of a table. */
export const cells = (page, label, column) =>
    page.getByRole('table', { name: label, exact: true }).locator('tbody tr').evaluateAll(
        (rows, column) => Object.fromEntries(rows.map((row) => [row.cells[0].textContent, row.cells[column].textContent])),
        column,
    );

export const number = (text) => Number(text.replaceAll(',', ''));

/** Serious faults for people who do not see or do not use a mouse. */
export async function axe(page) {
    await page.evaluate(AXE);
    const { violations } = await page.evaluate('axe.run(document)');
    return violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}

/** Takes a picture of a view, and looks for faults in it. */
export async function inspect(page, name, { width, colorScheme }) {
    await page.screenshot({ path: `${SCREENSHOTS}${name}-${width}-${colorScheme}.png`, fullPage: !FOLDER });
    // Colours do not depend on the width.
    if (width === SIZES[0] || colorScheme === SCHEMES[0]) assert.deepEqual(await axe(page), [], name);
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width, `${name} is too wide at ${width}`);
}
