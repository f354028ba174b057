// The page as one file, by `weir read --html`, in a browser without a network. `make test-web` runs it.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { SCHEMES, SIZES, cells, closeBrowser, closePages, inspect, number, openFile, startBrowser } from './browser.mjs';
import { capture, http, segment, tcp } from './frames.mjs';
import { failures, read, writePage } from './probe.mjs';

const CAPTURES = ['web.pcap', 'tls.pcap', 'dns.pcap.gz', 'loss.pcapng', 'traceroute.pcap'].map(
    (name) => new URL(`../../testdata/captures/${name}`, import.meta.url).pathname,
);
const ATTACKS = ['<img src=x onerror=window.attacked=1>', '</script><script>window.attacked=1</script>', '<!--<script>', 'a&lt;b'];

const folder = mkdtempSync(join(tmpdir(), 'weir-file-'));
const report = join(folder, 'report.html');
const hostile = join(folder, 'hostile.html');

before(async () => {
    writePage(report, CAPTURES);
    const notFound = (host) => {
        const [request, response] = http(host, '/', 'test');
        return [request, Buffer.from(response.toString('latin1').replace('200 OK', '404 No'), 'latin1')];
    };
    const frames = ATTACKS.flatMap((host, at) => tcp(['10.0.0.1', 4000 + at], ['10.0.0.2', 80], ...notFound(host)));
    const path = join(folder, `${ATTACKS[1].replaceAll('/', '|')}.pcap`);
    writeFileSync(path, capture(frames, 1_790_000_000));
    writePage(hostile, [path], '--where', `http_host != "${ATTACKS[1]} "`);
    await startBrowser();
});

// Also of a test that has failed.
afterEach(closePages);

after(async () => {
    await closeBrowser();
    rmSync(folder, { recursive: true });
});

const settled = (page) => page.waitForFunction(() => document.querySelector('table') && !document.querySelector('[aria-busy="true"]'));
const sum = (rows, name) => rows.reduce((sum, row) => sum + row[name], 0);
const noAlert = async (page, what) => assert.deepEqual(await page.getByRole('alert').allTextContents(), [], what);

test('every table and time line of a file has its answer, without any request', async () => {
    const { page, faults } = await openFile(report);
    await settled(page);
    assert.deepEqual(await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allTextContents(), ['Traffic', 'Quality']);
    assert.match(await page.locator('.facts').textContent(), /loss\.pcapng.*every packet is accounted for.*by Weir \d/);
    assert.deepEqual(await page.getByLabel('Rows').locator('option').allTextContents(), ['8', '20', '100']);
    const stacks = await page.getByLabel('Stacked by').locator('option').allTextContents();
    assert.deepEqual(stacks, ['application', 'protocol', 'host', 'subnet']);
    const expected = read(CAPTURES, '--by', 'server_ip');
    for (const figure of ['octets', 'packets', 'flows']) {
        await page.getByLabel('Figure').selectOption(figure);
        for (const by of stacks) {
            await page.getByLabel('Stacked by').selectOption(by);
            await page.getByRole('heading', { name: `by ${by}`, exact: false }).first().waitFor();
            await settled(page);
            await noAlert(page, `${figure} by ${by}`);
            assert.ok((await page.locator('.legend li').count()) > 1);
        }
        for (const rows of ['8', '20', '100']) {
            await page.getByLabel('Rows').selectOption(rows);
            await settled(page);
            await noAlert(page, `${figure}, ${rows} rows`);
            const shown = await cells(page, 'Servers', 3);
            assert.equal(Object.values(shown).reduce((sum, text) => sum + number(text), 0), sum(expected, 'bytes'));
        }
    }
    await page.getByLabel('Figure').selectOption('octets');
    await page.getByLabel('Stacked by').selectOption('application');
    await page.getByText('Table: Bits per second').click();
    const rows = page.getByRole('table', { name: 'Bits per second by application: octets in each interval' }).locator('tbody tr');
    await rows.first().waitFor();
    const last = await rows.evaluateAll((rows) => rows.map((row) => row.cells[row.cells.length - 1].textContent));
    assert.equal(last.reduce((sum, text) => sum + number(text), 0), sum(expected, 'bytes'));
    assert.deepEqual(faults, []);
});

test('quality of a file is that of weir tcp', async () => {
    const { page, faults } = await openFile(report, '#quality');
    await page.getByRole('heading', { name: 'Handshakes' }).waitFor();
    await settled(page);
    const slow = await cells(page, 'Slow servers', 6);
    const answered = read(CAPTURES, '--by', 'server_ip,service_port', '--sort', 'response_mean_ns').filter((row) => row.response_mean_ns !== null);
    assert.deepEqual(Object.keys(slow), answered.slice(0, 10).map((row) => `${row.server_ip} – ${row.service_port}`));
    const clients = read(CAPTURES, '--by', 'client_ip', '--where', 'not tcp_failure = no_answer', '--sort', 'retransmitted').filter((row) => row.retransmitted > 0);
    assert.deepEqual(Object.keys(await cells(page, 'Clients by retransmitted segments', 4)), clients.slice(0, 10).map((row) => row.client_ip));
    const shown = await cells(page, 'Failed connections by reason', 2);
    const failed = failures(CAPTURES);
    assert.equal(number(shown.refused), failed.refused);
    const networks = page.getByLabel('By', { exact: true });
    for (const by of await networks.locator('option').allTextContents()) {
        await networks.selectOption(by);
        await settled(page);
    }
    // All that can be opened.
    for (let at = 0; at < (await page.locator('details:not([open])').count()); ) await page.locator('details:not([open]) > summary').first().click();
    await page.getByRole('table', { name: 'Connections by round trip of the handshake' }).waitFor();
    await settled(page);
    const bins = Object.values(await cells(page, 'Flows by mean response time', 2)).map(number);
    assert.equal(bins.reduce((sum, count) => sum + count), read(CAPTURES, '--where', 'response').length);
    await noAlert(page, 'quality');
    assert.deepEqual(faults, []);
});

test('a scan does not bury the servers that fail', async () => {
    const [syn, reset] = [0x02, 0x14];
    const refused = (client, server) => [segment(client, server, 100, 0, syn), segment(server, client, 0, 101, reset)];
    const scan = Array.from({ length: 25 }, (_, at) => refused(['10.0.0.9', 4000], ['10.0.1.1', at + 1]));
    const others = [4000, 4001, 4002].map((port) => refused(['10.0.0.7', port], ['10.0.2.1', 81]));
    const path = join(folder, 'scan.pcap');
    writeFileSync(path, capture([...scan, ...others].flat(), 1_790_000_000));
    const written = join(folder, 'scan.html');
    writePage(written, [path]);
    const { page, faults } = await openFile(written, '#quality');
    await page.getByRole('heading', { name: 'Scans' }).waitFor();
    await settled(page);
    assert.deepEqual(await cells(page, 'Scans', 3), { '10.0.0.9': '25' });
    assert.deepEqual(await cells(page, 'Failed connections', 2), { '10.0.2.1 – 81': '3', '25 others': '25' });
    await page.getByText('28 of 28 TCP flows failed (100 %), 25 of them in the scans below; without these, 3 of 3 failed.').waitFor();
    await noAlert(page, 'scan');
    assert.deepEqual(faults, []);
});

test('a file offers nothing that it cannot answer, and a URL does not change that', async () => {
    const { page, faults, url, close } = await openFile(report, '#flows?where=port+1&from=-1h');
    await settled(page);
    await page.getByRole('heading', { name: 'Traffic', exact: true }).waitFor();
    const total = await page.getByRole('status').textContent();
    for (const name of ['#traffic', '#now', '#probe', '#traffic?from=2026-11-21T02:51:20Z&to=2026-11-21T02:51:30Z&was=all']) {
        await page.goto(`${url}${name}`);
        await settled(page);
        assert.equal(await page.getByRole('status').textContent(), total, name);
        assert.deepEqual(await page.getByRole('main').getByRole('button').allTextContents(), [], name);
        assert.equal(await page.locator('input, form').count(), 0, name);
    }
    // Dragging selects nothing.
    const plot = await page.locator('.stack .u-over').boundingBox();
    await page.mouse.move(plot.x + 2, plot.y + 50);
    await page.mouse.down();
    await page.mouse.move(plot.x + plot.width / 3, plot.y + 60, { steps: 5 });
    await page.mouse.up();
    assert.equal(await page.locator('.u-select').evaluate((select) => select.offsetWidth), 0);
    await page.goto(`${url}#quality`);
    await page.getByRole('heading', { name: 'Handshakes' }).waitFor();
    assert.deepEqual(await page.getByRole('main').getByRole('link').allTextContents(), []);
    assert.deepEqual(await page.getByRole('main').getByRole('button').allTextContents(), []);
    // By keyboard.
    await page.goto(`${url}#traffic`);
    await settled(page);
    await page.getByRole('link', { name: 'Traffic', exact: true }).focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Quality', exact: true }).waitFor();
    assert.deepEqual(faults, []);
    await close();
    // An answer that is not there is said, and not made up.
    const other = await openFile(report, '#traffic?by=http_host');
    await other.page.getByText('This file does not have the answer').first().waitFor();
    assert.deepEqual(other.faults, []);
});

test('texts of an attacker stay text in a file', async () => {
    const { page, faults } = await openFile(hostile, '#quality');
    await page.getByText(`Flows of this time: ${ATTACKS.length}`).waitFor();
    await settled(page);
    const hosts = await cells(page, 'HTTP failures', 1);
    assert.deepEqual(Object.keys(hosts).sort(), [...ATTACKS].sort());
    const facts = await page.locator('.facts').textContent();
    assert.ok(facts.includes(ATTACKS[1].replaceAll('/', '|')) && facts.includes(`--where http_host != "${ATTACKS[1]} "`), facts);
    const names = await page.evaluate(() => document.getElementById('answers').textContent);
    assert.ok(JSON.parse(names).about.inputs[0].includes('<script>'));
    assert.equal(await page.locator('script').count(), 2);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate('window.attacked'), undefined);
    // The policy of the file runs no other script, and asks nobody.
    const reached = await page.evaluate(() => fetch('http://127.0.0.1:9/').then(() => 'answered', () => 'refused'));
    assert.equal(reached, 'refused');
    await page.evaluate(() => {
        const script = document.createElement('script');
        script.textContent = 'window.attacked = 1';
        document.body.append(script);
    });
    assert.equal(await page.evaluate('window.attacked'), undefined);
    assert.ok(faults.length >= 2 && faults.every((fault) => /Content Security Policy|127\.0\.0\.1:9/.test(fault)), faults.join('\n'));
});

test('without JavaScript a file says what it has', async () => {
    const { page } = await openFile(hostile, '', { javaScriptEnabled: false });
    const text = (await page.locator('body').innerText()).trim();
    assert.match(text, /^This page needs JavaScript for its tables and plots\. It has the flows of what was read\. read: .*; flows: \d+; written: /);
    assert.ok(text.includes(`--where http_host != "${ATTACKS[1]} "`), text);
    assert.equal(await page.locator('noscript *').count(), 1, 'a paragraph');
});

test('no view of a file has a serious fault, at any width, in light and dark', async () => {
    for (const width of SIZES) {
        for (const colorScheme of SCHEMES) {
            for (const name of ['traffic', 'quality']) {
                const { page, faults, close } = await openFile(report, `#${name}`, { colorScheme, viewport: { width, height: 800 } });
                await page.locator('tbody tr').first().waitFor();
                await settled(page);
                await inspect(page, `file-${name}`, { width, colorScheme });
                assert.deepEqual(faults, []);
                await close();
            }
        }
    }
});
