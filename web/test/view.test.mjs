// The page of stored flows in a browser, served by `weir view`. `make test-web` runs it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { SCHEMES, SIZES, cells, closeBrowser, closePages, inspect, number, open, startBrowser } from './browser.mjs';
import { capture, dns, http, resolved, segment, tcp, udp } from './frames.mjs';
import { View, explained, failures, packets, read, store } from './probe.mjs';

const CAPTURES = ['web.pcap', 'tls.pcap', 'dns.pcap.gz', 'loss.pcapng', 'traceroute.pcap'].map(
    (name) => new URL(`../../testdata/captures/${name}`, import.meta.url).pathname,
);
const ATTACK = '<img src=x onerror=window.attacked=1>';
/** Hosts of requests, as attackers would write them; whether the language of filters can name them. */
const HOSTS = [
    [ATTACK, true],
    ["it's", true],
    ['say "hi"', true],
    ['both "\'', false],
    ['*.example', false],
    ['x" or bytes > 0 or sni = "', true],
    ['and', true],
    ['a&b=c#d%20', true],
];

const folder = mkdtempSync(join(tmpdir(), 'weir-view-'));
const hostile = join(folder, 'hostile.pcap');

before(async () => {
    execFileSync('ip', ['link', 'set', 'lo', 'up']);
    const frames = HOSTS.flatMap(([host], at) => tcp(['10.0.0.1', 4000 + at], ['10.0.0.2', 80], ...http(host, '/', 'test')));
    writeFileSync(hostile, capture(frames, 1_790_000_000));
    await startBrowser();
});

// Also of a test that has failed.
afterEach(async () => {
    await closePages();
    await View.stopAll();
});

after(async () => {
    await closeBrowser();
    rmSync(folder, { recursive: true });
});

/** Waits until a table has its rows: it is not that of an earlier question. */
const settled = (page) => page.waitForFunction(() => document.querySelector('table') && !document.querySelector('[aria-busy="true"]'));

const sum = (rows, name) => rows.reduce((sum, row) => sum + row[name], 0);
const total = (page) => page.getByRole('status').filter({ hasText: 'Flows that began' }).textContent();
/** Flows, packets and octets that the view says. */
const said = async (page) => (await total(page)).match(/[\d,]+/g).map(number);
const figures = (rows) => [sum(rows, 'flows'), sum(rows, 'packets'), sum(rows, 'bytes')];

test('the sums of traffic are those of weir read', async () => {
    const view = await View.start(...CAPTURES);
    const { page, faults } = await open(view, '#traffic?rows=1000');
    await settled(page);
    assert.deepEqual(await said(page), figures(read(CAPTURES, '--by', 'protocol')));
    const tables = { 'Top talkers': 'host', Servers: 'server_ip', Services: 'protocol,service_port', Applications: 'application', Pairs: 'client_ip,server_ip' };
    for (const [label, by] of Object.entries(tables)) {
        const rows = read(CAPTURES, '--by', by);
        const words = (row) => by.split(',').map((name) => row[name] ?? { application: 'not recognised', service_port: 'without ports' }[name] ?? 'none');
        for (const [column, name] of [[3, 'bytes'], [4, 'packets'], [5, 'flows']]) {
            const shown = await cells(page, label, column);
            const expected = Object.fromEntries(rows.map((row) => [words(row).join(' – '), row[name].toLocaleString('en-US')]));
            assert.deepEqual(shown, expected, `${label}: ${name}`);
        }
    }
    // All intervals of the time line together, whatever it is stacked by; hosts by what they sent.
    for (const by of ['application', 'protocol', 'host']) {
        await page.getByLabel('Stacked by').selectOption(by);
        await page.getByRole('heading', { name: `Bits per second by ${by}` }).waitFor();
        await settled(page);
        const summary = page.getByText('Table: Bits per second');
        if (!(await page.locator('.stack details').evaluate((details) => details.open))) await summary.click();
        const rows = page.getByRole('table', { name: `Bits per second by ${by}: octets in each interval` }).locator('tbody tr');
        await rows.first().waitFor();
        const last = await rows.evaluateAll((rows) => rows.map((row) => row.cells[row.cells.length - 1].textContent));
        assert.ok(last.length >= 60 && last.length <= 201, `${last.length} intervals`);
        assert.equal(last.reduce((sum, text) => sum + number(text), 0), (await said(page))[2], by);
    }
    // Flows, too, although each has two hosts.
    await page.getByLabel('Figure').selectOption('flows');
    for (const by of ['host', 'subnet']) {
        await page.getByLabel('Stacked by').selectOption({ label: by });
        const label = `New flows per second by ${by}: flows in each interval`;
        const rows = page.getByRole('table', { name: label }).locator('tbody tr');
        await rows.first().waitFor();
        await settled(page);
        const last = await rows.evaluateAll((rows) => rows.map((row) => row.cells[row.cells.length - 1].textContent));
        assert.equal(last.reduce((sum, text) => sum + number(text), 0), (await said(page))[0], by);
        await page.getByText('A flow counts for its source.').waitFor();
    }
    assert.deepEqual(faults, []);
    assert.equal(await view.stop(), 0);
});

test('a view has three views, names its inputs, and begins with traffic', async () => {
    const view = await View.start(...CAPTURES);
    const { page, faults } = await open(view, '#now');
    await page.getByRole('heading', { name: 'Traffic', exact: true }).waitFor();
    assert.deepEqual(await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allTextContents(), ['Traffic', 'Quality', 'Flows']);
    assert.match(await page.locator('header').textContent(), /loss\.pcapng/);
    await settled(page);
    assert.deepEqual(faults, []);
});

test('names of hosts are shown as text where they are wanted, in each view', async () => {
    const file = join(folder, 'names.pcap');
    const [query, reply] = resolved(`${ATTACK}.example`, '10.0.0.2');
    const lookup = [udp(['10.0.0.1', 4000], ['10.0.0.9', 53], query), udp(['10.0.0.9', 53], ['10.0.0.1', 4000], reply)];
    writeFileSync(file, capture([...lookup, ...tcp(['10.0.0.1', 4001], ['10.0.0.2', 80], ...http('a', '/', 'test'))], 1_790_000_000));
    const view = await View.start(file, '--names');
    const { page, faults } = await open(view, '#traffic');
    const named = page.locator('.host-name');
    await settled(page);
    assert.equal(await named.count(), 0);
    await page.getByRole('button', { name: 'Names' }).click();
    const talkers = page.getByRole('table', { name: 'Top talkers', exact: true });
    await talkers.getByRole('button', { name: `10.0.0.2 ${ATTACK}.example` }).waitFor();
    await page.getByRole('table', { name: 'Pairs' }).getByText(`${ATTACK}.example`).first().waitFor();
    // The choice is in the URL of every view.
    await page.getByRole('link', { name: 'Flows', exact: true }).click();
    await page.getByRole('region', { name: 'Flows' }).getByText('80 http').first().waitFor();
    await page.getByText(`10.0.0.2 ${ATTACK}.example`).first().waitFor();
    assert.match(page.url(), /names=on/);
    await page.getByRole('button', { name: /all fields of this flow/ }).last().click();
    await page.getByRole('dialog').getByText(`${ATTACK}.example`).first().waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Names' }).click();
    await page.waitForFunction(() => !document.querySelector('.host-name'));
    assert.equal(await page.evaluate('window.attacked'), undefined);
    assert.deepEqual(faults, []);
    // Who does not know names, offers none.
    const other = await open(await View.start(file), '#flows?names=on');
    await settled(other.page);
    assert.equal(await other.page.getByRole('button', { name: 'Names' }).count(), 0);
    assert.equal(await other.page.locator('.host-name').count(), 0);
    assert.deepEqual(other.faults, []);
});

test('times are UTC or local', async () => {
    const view = await View.start(...CAPTURES);
    const { page, faults } = await open(view, '#flows', { timezoneId: 'Asia/Kathmandu' });
    await settled(page);
    const cell = page.getByRole('region', { name: 'Flows' }).locator('tbody tr td').first();
    const time = async () => Date.parse(`${(await cell.textContent()).replace(' ', 'T')}Z`);
    const from = page.getByLabel(/^from/);
    const utc = await time();
    const input = await from.inputValue();
    await page.getByRole('button', { name: 'Local time' }).click();
    await page.waitForURL(/zone=local/);
    await page.getByText('Times are in local time.').waitFor();
    await settled(page);
    // Nepal is 5:45 ahead of UTC.
    assert.equal((await time()) - utc, 345 * 60_000);
    const ms = (text) => Date.parse(`${text}Z`);
    assert.equal(ms(await from.inputValue()) - ms(input), 345 * 60_000);
    // A time that is chosen so is the same one.
    await page.getByRole('button', { name: 'Show this time' }).click();
    await page.waitForURL(/from=/);
    const chosen = new URLSearchParams(page.url().split('?')[1]).get('from');
    assert.equal(Date.parse(chosen), ms(input));
    await page.getByRole('link', { name: 'Traffic' }).click();
    await settled(page);
    assert.match(page.url(), /zone=local/);
    await page.getByText(/^Table: Bits per second by/).click();
    await page.getByRole('columnheader', { name: 'from (local time)' }).waitFor();
    await page.getByRole('button', { name: 'UTC' }).click();
    await page.waitForFunction(() => !location.hash.includes('zone'));
    assert.deepEqual(faults, []);
});

test('a selected time holds for all, is in the URL, and is undone', async () => {
    const view = await View.start(...CAPTURES);
    const { page, faults, close } = await open(view, '#traffic');
    await settled(page);
    const before = await total(page);
    const plot = await page.locator('.stack .u-over').boundingBox();
    await page.mouse.move(plot.x + 2, plot.y + 50);
    await page.mouse.down();
    await page.mouse.move(plot.x + plot.width / 3, plot.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.getByRole('button', { name: 'Undo the selection: back to all times' }).waitFor();
    await page.waitForFunction((before) => !document.body.textContent.includes(before), before);
    await settled(page);
    const settings = new URLSearchParams(page.url().split('?')[1]);
    const [from, to] = [settings.get('from'), settings.get('to').replace('Z', '')];
    // The page has the end of the last interval, the program the last time that counts.
    const last = new Date(Date.parse(`${to}Z`) - 1).toISOString().replace('Z', '999999Z');
    const expected = read(CAPTURES, '--by', 'protocol', '--from', from, '--to', last);
    assert.deepEqual(await said(page), figures(expected));
    assert.ok(sum(expected, 'flows') > 0 && figures(expected)[0] < number(before.match(/[\d,]+/)[0]));
    const servers = await cells(page, 'Servers', 3);
    assert.equal(Object.values(servers).reduce((sum, text) => sum + number(text), 0), sum(expected, 'bytes'));
    const url = page.url();
    // One interval, by the table.
    await page.getByText('Table: Bits per second by application').click();
    await page.getByRole('button', { name: /^\d\d:\d\d:\d\d/ }).first().click();
    await page.getByRole('button', { name: /Undo the selection: back to 20/ }).click();
    await page.waitForURL((now) => new URLSearchParams(now.hash.split('?')[1]).get('from') === from);
    await page.getByRole('button', { name: 'Undo the selection: back to all times' }).click();
    await page.getByText(before).waitFor();
    await close();
    const other = await open(view, url.slice(url.indexOf('#')));
    await other.page.getByRole('button', { name: 'Undo the selection: back to all times' }).waitFor();
    await settled(other.page);
    assert.deepEqual(await said(other.page), figures(expected));
    assert.deepEqual([...faults, ...other.faults], []);
});

test('a click on a row filters, also by texts of an attacker', async () => {
    const view = await View.start(hostile);
    const { page, faults } = await open(view, '#traffic?by=http_host');
    await settled(page);
    const legend = page.locator('.legend li');
    assert.equal(await legend.count(), HOSTS.length, 'all hosts, and no others');
    for (const [host, canBeNamed] of HOSTS) {
        await page.evaluate(() => (location.hash = '#traffic?by=http_host'));
        await settled(page);
        const item = legend.filter({ hasText: host.toLowerCase() }).first();
        await item.waitFor();
        const button = item.getByRole('button', { name: host.toLowerCase(), exact: true });
        assert.equal(await button.count(), canBeNamed ? 1 : 0, host);
        if (!canBeNamed) continue;
        await button.click();
        await page.getByText('Flows that began in this time: 1,').waitFor();
        assert.equal(await page.getByRole('alert').count(), 0, host);
        await settled(page);
        assert.ok((await page.getByLabel('Filter').inputValue()).toLowerCase().includes(host.toLowerCase()));
    }
    // What a filter joins with or stays together.
    await page.evaluate(() => (location.hash = '#traffic?where=port+1+or+port+80'));
    await page.getByText(`Flows that began in this time: ${HOSTS.length},`).waitFor();
    await settled(page);
    await page.getByRole('table', { name: 'Top talkers' }).getByRole('button', { name: '10.0.0.1', exact: true }).click();
    await page.waitForURL((url) => new URLSearchParams(url.hash.split('?')[1]).get('where') === '(port 1 or port 80) and host = 10.0.0.1');
    await page.getByText(`Flows that began in this time: ${HOSTS.length},`).waitFor();
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate('window.attacked'), undefined);
    assert.deepEqual(faults, []);
});

test('the filter completes names of fields by keyboard', async () => {
    const view = await View.start(hostile);
    const { page, faults } = await open(view, '#traffic');
    const filter = page.getByLabel('Filter');
    await filter.pressSequentially('dst_p');
    const options = page.getByRole('listbox', { name: 'Fields' }).getByRole('option');
    await options.filter({ hasText: 'dst_port' }).waitFor();
    await page.keyboard.press('ArrowDown');
    assert.equal(await filter.getAttribute('aria-activedescendant'), await options.first().getAttribute('id'));
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('[name=where]').value === 'dst_port ');
    await filter.pressSequentially('= 80');
    // A value is not completed.
    assert.equal(await options.count(), 0);
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => url.hash === '#traffic?where=dst_port+%3D+80');
    await page.getByText(`Flows that began in this time: ${HOSTS.length},`).waitFor();
    assert.deepEqual(faults, []);
});

test('quality agrees with weir tcp', async () => {
    const view = await View.start(...CAPTURES);
    const { page, faults } = await open(view, '#quality');
    await page.getByRole('heading', { name: 'Handshakes' }).waitFor();
    await settled(page);
    const rows = read(CAPTURES, '--by', 'server_ip,service_port', '--sort', 'response_mean_ns');
    const slow = await cells(page, 'Slow servers', 7);
    const answered = rows.filter((row) => row.response_mean_ns !== null).slice(0, 10);
    assert.deepEqual(Object.keys(slow).slice(0, answered.length), answered.map((row) => `${row.server_ip} – ${row.service_port}`));
    const withoutTrip = await cells(page, 'Slow servers', 3);
    const own = read(CAPTURES, '--by', 'server_ip,service_port', '--where', 'response', '--sum', 'server_time_mean_ns');
    let compared = 0;
    for (const row of own) {
        const shown = withoutTrip[`${row.server_ip} – ${row.service_port}`];
        if (shown === undefined) continue;
        compared += 1;
        assert.equal(shown === '–', row.server_time_mean_ns === null, JSON.stringify(row));
    }
    assert.ok(compared > 0, 'no row was compared');
    const answeredSyn = read(CAPTURES, '--by', 'server_ip', '--where', 'not tcp_failure = no_answer');
    const [segments, retransmitted] = ['segments', 'retransmitted'].map((name) => sum(answeredSyn, name));
    await page.getByText(`of ${segments.toLocaleString('en-US')} segments were retransmitted`).waitFor();
    const clients = read(CAPTURES, '--by', 'client_ip', '--where', 'not tcp_failure = no_answer', '--sort', 'retransmitted').filter((row) => row.retransmitted > 0);
    assert.ok(clients.length > 0);
    const suffering = await cells(page, 'Clients by retransmitted segments', 4);
    assert.deepEqual(Object.entries(suffering).map(([name, text]) => [name, number(text)]), clients.slice(0, 10).map((row) => [row.client_ip, row.retransmitted]));
    const sides = ['from clients', 'from servers'].map((_, at) => cells(page, 'The side of the loss', at + 1));
    const lost = (await Promise.all(sides)).flatMap((side) => Object.values(side).map(number));
    assert.equal(lost.reduce((sum, count) => sum + count), retransmitted);
    const unseen = sum(read(CAPTURES, '--fields', 'fwd_tcp_retransmitted_unseen'), 'fwd_tcp_retransmitted_unseen');
    assert.equal(lost[1], unseen, 'all clients of these captures send first');
    // Rankings of servers are those of weir read, also beyond the rows.
    const worst = read(CAPTURES, '--by', 'server_ip,service_port', '--where', 'tcp', '--sort', 'failed').filter((row) => row.failed > 0);
    const ranked = await cells(page, 'Failed connections', 2);
    const server = (row) => `${row.server_ip} – ${row.service_port}`;
    assert.deepEqual(Object.entries(ranked).map(([name, text]) => [name, number(text)]), worst.slice(0, 10).map((row) => [server(row), row.failed]));
    const failing = { 'DNS failures': ['server_ip', 'dns_queries > 0'], 'Failed names': ['dns_name', 'dns_queries = 1'] };
    for (const [label, [by, where]] of Object.entries(failing)) {
        const rows = read(CAPTURES, '--by', by, '--where', where, '--sort', 'dns_failed').filter((row) => row.dns_failed > 0);
        assert.ok(rows.length > 0, label);
        const shown = await cells(page, label, 2);
        assert.deepEqual(Object.entries(shown).map(([name, text]) => [name, number(text)]), rows.slice(0, 10).map((row) => [row[by], row.dns_failed]));
    }
    const failed = failures(CAPTURES);
    const reasons = {
        'no answer': failed.no_answer,
        refused: failed.refused,
        'half-open': failed.half_open,
        'reset by the server': failed.reset_by_server,
        'reset by the client': failed.reset_by_client,
        'reset by both': failed.reset_by_both,
    };
    const shown = await cells(page, 'Failed connections by reason', 2);
    const expected = Object.entries(reasons).filter(([, count]) => count > 0);
    assert.ok(expected.length > 1, JSON.stringify(failed));
    assert.deepEqual(Object.entries(shown).map(([name, text]) => [name, number(text)]), expected);
    await page.getByText('Histogram: Flows by mean response time').click();
    await page.getByRole('table', { name: 'Flows by mean response time' }).waitFor();
    const bins = Object.values(await cells(page, 'Flows by mean response time', 2)).map(number);
    assert.equal(bins.reduce((sum, count) => sum + count), read(CAPTURES, '--where', 'response').length);
    assert.deepEqual(faults, []);
});

test('quality names scanners, blames no name that did not fail, and says how many rows are left out', async () => {
    const syn = 0x02;
    const reset = 0x14;
    // One scanner repeats each SYN and gets no answers, the other one is refused.
    const hosts = Array.from({ length: 25 }, (_, at) => segment(['10.0.0.9', 4000], [`10.0.1.${at + 1}`, 445], 100, 0, syn));
    const ports = Array.from({ length: 30 }, (_, at) => [
        segment(['10.0.0.8', 4000], ['10.0.2.1', at + 1], 100, 0, syn),
        segment(['10.0.2.1', at + 1], ['10.0.0.8', 4000], 0, 101, reset),
    ]).flat();
    const missing = (host) => http(host, '/', 'test').map((message) => Buffer.from(message.toString('latin1').replace('200 OK', '404 No'), 'latin1'));
    const web = Array.from({ length: 13 }, (_, at) => tcp(['10.0.0.1', 5000 + at], [`10.0.3.${at + 1}`, 80], ...missing(`host-${at}.example`))).flat();
    const ask = (port, name, code) => {
        const [query, answer] = dns(name);
        const answered = Buffer.from(answer);
        answered[3] = 0x80 | code;
        return [udp(['10.0.0.7', port], ['10.0.0.53', 53], query), udp(['10.0.0.53', 53], ['10.0.0.7', port], answered)];
    };
    const names = [...ask(4000, 'fine.example', 0), ...ask(4000, 'other.example', 3), ...ask(4001, 'gone.example', 3)];
    const path = join(folder, 'scans.pcap');
    writeFileSync(path, capture([...hosts, ...ports, ...hosts, ...web, ...names], 1_790_000_000));
    const view = await View.start(path);
    const { page, faults } = await open(view, '#quality');
    await page.getByRole('heading', { name: 'Handshakes' }).waitFor();
    await settled(page);
    assert.deepEqual(await cells(page, 'Scans', 2), { '10.0.0.9': '25', '10.0.0.8': '1' });
    assert.deepEqual(await cells(page, 'Scans', 3), { '10.0.0.9': '1', '10.0.0.8': '30' });
    await page.getByText('55 of 68 TCP flows failed (80.88 %), 55 of them in the scans below; without these, 0 of 13 failed.').waitFor();
    assert.equal(await page.getByRole('table', { name: 'Failed connections' }).count(), 0, 'only scans failed');
    await page.getByText(/^0 % of \d+ segments were retransmitted\.$/).waitFor();
    // The largest ten, and the others in a row, with the sums of all.
    const [failing, slow] = [await cells(page, 'HTTP failures', 2), await cells(page, 'Slow servers', 7)];
    assert.deepEqual([failing['3 others'], slow['3 others'], Object.keys(failing).length], ['3', '3', 11]);
    await page.getByText('13 of 13 requests failed (100 %), all of them: status 4xx.').waitFor();
    assert.deepEqual(await cells(page, 'Failed names', 2), { 'gone.example': '1' });
    assert.deepEqual(await cells(page, 'DNS failures', 2), { '10.0.0.53': '2' });
    assert.ok(!(await page.getByRole('main').textContent()).includes('fine.example'));
    // A filter on the first answer says that it is one.
    await page.goto(`${page.url().split('#')[0]}#quality?where=dns_rcode+%3D+3`);
    await page.getByText('dns_rcode is that of the first answer of a flow; dns_nxdomain').waitFor();
    const gap = await page.evaluate(() => {
        const [reasons, names] = ['DNS failures by reason', 'DNS failures'].map((label) => document.querySelector(`[aria-label="${label}"]`).getBoundingClientRect());
        return names.top - reasons.bottom;
    });
    assert.ok(gap >= 8, `${gap} pixels between the tables`);
    // Scans are counted also if there is nothing else.
    await page.goto(`${page.url().split('#')[0]}#quality?where=client_ip+%3D+10.0.0.9`);
    await page.getByText('25 of 25 TCP flows failed (100 %), all of them in the scans below.').waitFor();
    assert.deepEqual(faults, []);
});

test('a store of transactions shows failed names and slowest URLs', async () => {
    const [flows, records] = ['flows', 'transactions'].map((name) => join(folder, name));
    read(CAPTURES, '--dpi-fields', '-o', `parquet:${flows}`, '--transactions', `parquet:${records}`);
    const names = read([records], '--by', 'dns_name', '--sort', 'dns_failed', '--sum', 'dns_nxdomain').filter((row) => row.dns_failed > 0);
    const urls = read([records], '--where', 'http_requests > 0', '--by', 'http_host,http_path', '--sort', 'http_response_mean_ns', '--sum', 'http_requests');
    const hosts = read([records], '--where', 'http_requests > 0', '--by', 'http_host', '--sort', 'http_errors').filter((row) => row.http_errors > 0);
    assert.ok(names.length > 0 && urls.length > 1 && hosts.length > 0);
    for (const inputs of [[records], [flows, records]]) {
        const view = await View.start(...inputs);
        const { page, faults, close } = await open(view, '#quality?from=all');
        await page.getByRole('heading', { name: 'Slowest URLs' }).waitFor();
        await settled(page);
        const failed = await cells(page, 'Failed names', 2);
        assert.deepEqual(Object.entries(failed).map(([name, text]) => [name, number(text)]), names.slice(0, 10).map((row) => [row.dns_name, row.dns_failed]));
        const refused = await cells(page, 'HTTP failures', 2);
        assert.deepEqual(Object.entries(refused).map(([host, text]) => [host, number(text)]), hosts.slice(0, 10).map((row) => [row.http_host, row.http_errors]));
        const requests = await cells(page, 'Slowest URLs', 4);
        const url = (row) => `${row.http_host ?? 'none'} – ${row.http_path ?? 'none'}`;
        assert.deepEqual(Object.entries(requests).map(([name, text]) => [name, number(text)]), urls.slice(0, 10).map((row) => [url(row), row.http_requests]));
        // A filter would see the first name of each flow only.
        for (const label of ['Failed names', 'HTTP failures', 'Slowest URLs']) {
            assert.equal(await page.getByRole('table', { name: label, exact: true }).getByRole('button').count(), 0, label);
        }
        assert.equal(await page.getByText('the record of a flow has only the first of its names').count(), 3);
        assert.deepEqual(faults, []);
        await close();
        await view.stop();
    }
});

test('stored flows have pages, and a flow its place and its neighbours', async () => {
    const view = await View.start(...CAPTURES);
    const all = read(CAPTURES).length;
    const { page, faults, origin } = await open(view, '#flows?top=20');
    await page.getByText(`${all} of ${all} flows match; the first 20 are shown.`).waitFor();
    const rows = page.locator('.flows tbody tr');
    const first = await rows.allTextContents();
    await page.getByRole('button', { name: 'Next page' }).click();
    await page.getByText('those from 21 to 40 are shown').waitFor();
    const second = await rows.allTextContents();
    assert.equal(new Set([...first, ...second]).size, 40);
    await page.reload();
    await page.getByText('those from 21 to 40 are shown').waitFor();
    await rows.first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('end_time', { exact: true }).waitFor();
    await dialog.locator('.place').waitFor();
    // The URL has the flow.
    await page.reload();
    await dialog.getByText('end_time', { exact: true }).waitFor();
    await dialog.locator('.place').waitFor();
    // What is 0 is behind the others.
    assert.equal(await dialog.locator('details dt', { hasText: /^queue_lost$/ }).count(), 1);
    assert.ok(!(await dialog.getByText('queue_lost', { exact: true }).isVisible()));
    await dialog.getByRole('link', { name: 'The same two hosts' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.waitForURL((url) => /where=host/.test(url.hash));
    await page.getByText(`of ${all} flows match`).waitFor();
    // Of a flow that failed, the reason is the first.
    const [refused] = read(CAPTURES, '--where', 'tcp_failure = refused');
    await page.goto(`${origin}/#flows?where=tcp_failure+%3D+refused`);
    await rows.first().click();
    await dialog.getByText('end_time', { exact: true }).waitFor();
    assert.equal(await dialog.locator('dt').first().textContent(), 'tcp_failure');
    assert.match(await dialog.getByRole('heading').first().textContent(), new RegExp(`^.+:\\d+ to .+:${refused.dst_port}$`));
    assert.deepEqual(faults, []);
});

test('the packets of a flow are saved, and its segments listed', async () => {
    const [web] = CAPTURES;
    const view = await View.start(web);
    const { page, faults, origin } = await open(view, '#flows?where=tcp+and+packets+>+20&sort=packets');
    await page.locator('.flows tbody tr').first().click();
    const dialog = page.getByRole('dialog');
    const flow = read([web], '--where', 'tcp', '--fields', 'all').reduce((most, flow) => (flow.packets > most.packets ? flow : most));
    const [download] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: 'Download the packets' }).click()]);
    assert.match(download.suggestedFilename(), /^flow-\d{14}\.pcapng$/);
    const saved = readFileSync(await download.path());
    const expected = packets(web, flow.community_id, '--from', flow.start_time, '--to', flow.end_time);
    assert.ok(saved.equals(expected), `${saved.length} and ${expected.length} octets`);
    await dialog.getByText(`${flow.packets} packets with `).waitFor();
    await dialog.getByRole('button', { name: 'Show the segments' }).click();
    const list = dialog.getByRole('region', { name: 'Segments' });
    await list.waitFor();
    assert.deepEqual((await list.textContent()).split('\n').slice(1), explained(web, flow.community_id));
    await dialog.getByText(`${flow.packets} segments.`).waitFor();
    await inspect(page, 'stored-segments', { width: 1280, colorScheme: 'light' });
    await page.keyboard.press('Escape');
    // Others are no TCP.
    await page.goto(`${origin}/#flows?where=udp+or+icmp6`);
    await page.locator('.flows tbody tr').first().click();
    await dialog.getByRole('button', { name: 'Download the packets' }).waitFor();
    assert.equal(await dialog.getByRole('button', { name: 'Show the segments' }).count(), 0);
    assert.deepEqual(faults, []);
});

test('a large store begins with its newest flows', async () => {
    const flows = join(folder, 'large');
    store(CAPTURES, flows);
    const all = read(CAPTURES);
    const view = await View.start(flows, '--newest', '40');
    const { page, faults, origin } = await open(view, '#traffic');
    await settled(page);
    await page.getByText(/^Only the newest flows, since 20\d\d-.* UTC\./).waitFor();
    const newest = page.getByRole('button', { name: 'Newest flows' });
    assert.equal(await newest.getAttribute('aria-pressed'), 'true');
    const { newest_from_ns } = await (await fetch(`${origin}/about`)).json();
    const began = all.filter((flow) => Date.parse(flow.start_time) >= Math.floor(newest_from_ns / 1e6)).length;
    assert.ok(began > 0 && began < all.length, `${began} of ${all.length}`);
    assert.equal((await said(page))[0], began);
    // All of them on a click, which the URL has, and back.
    await page.getByRole('button', { name: 'All', exact: true }).click();
    await page.getByText(`Flows that began in this time: ${all.length},`).waitFor();
    assert.match(page.url(), /from=all/);
    await newest.click();
    await page.getByText(`Flows that began in this time: ${began},`).waitFor();
    await page.getByRole('link', { name: 'Flows', exact: true }).click();
    await page.getByText(`${began} matching flows in this time`).waitFor();
    await page.getByText('Only the newest flows, since').waitFor();
    assert.deepEqual(faults, []);
    // A smaller one begins with all, also if a URL says otherwise.
    const small = await View.start(flows, '--newest', '0');
    const other = await open(small, '#traffic?from=newest');
    await settled(other.page);
    assert.equal((await said(other.page))[0], all.length);
    assert.equal(await other.page.getByRole('button', { name: 'Newest flows' }).count(), 0);
});

test('a store that is being written grows on the page, and a damaged file is named', async () => {
    const flows = join(folder, 'growing');
    store([CAPTURES[0]], flows);
    const view = await View.start(flows);
    const { page, faults } = await open(view, '#flows');
    const [before, after] = [read([CAPTURES[0]]).length, read(CAPTURES.slice(0, 2)).length];
    await page.getByText(`${before} of ${before} flows match`).waitFor();
    await page.locator('.flows tbody tr').first().click();
    await page.getByRole('dialog').getByText('No packets: flows are shown without their packets').waitFor();
    await page.keyboard.press('Escape');
    store([CAPTURES[1]], flows);
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByText(`${after} of ${after} flows match`).waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    // A file that is cut, as after a copy that was interrupted.
    const [name] = readdirSync(flows, { recursive: true }).filter((name) => name.endsWith('.parquet'));
    const whole = readFileSync(join(flows, name));
    writeFileSync(join(flows, name), whole.subarray(0, whole.length - 20));
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByText('Some files cannot be read to their ends.').click();
    await page.getByRole('alert').getByText(name.split('/').at(-1)).waitFor();
    assert.deepEqual(faults, []);
});

test('no view of stored flows has a serious fault, at any width, in light and dark', async () => {
    const view = await View.start(...CAPTURES);
    const views = ['traffic', 'traffic?by=host/24&figure=packets', 'quality', 'flows', 'traffic?where=port+1', 'traffic?where=prt+1'];
    for (const width of SIZES) {
        for (const colorScheme of SCHEMES) {
            const { page, faults, origin, close } = await open(view, '', { colorScheme, viewport: { width, height: 800 } });
            for (const [at, name] of views.entries()) {
                await page.goto(`${origin}/#${name}`);
                const isSeen = at < 4 ? page.locator('tbody tr') : page.locator('.empty, [role=alert]');
                await isSeen.first().waitFor();
                await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
                await inspect(page, `stored-${['traffic', 'subnets', 'quality', 'flows', 'empty', 'wrong'][at]}`, { width, colorScheme });
            }
            await page.getByLabel('Filter').fill('dst_');
            await page.getByRole('listbox', { name: 'Fields' }).waitFor();
            await page.keyboard.press('ArrowDown');
            await inspect(page, 'stored-completion', { width, colorScheme });
            await page.goto(`${origin}/#flows`);
            await page.locator('.flows tbody tr').first().click();
            await page.getByRole('dialog').getByText('end_time', { exact: true }).waitFor();
            await inspect(page, 'stored-flow', { width, colorScheme });
            assert.deepEqual(faults, []);
            await close();
        }
    }
});
