// The page in a browser, served by a probe on a wire. `make test-web` runs it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { BOUND, SCHEMES, SIZES, cells, closeBrowser, closePages, inspect, number, open, startBrowser } from './browser.mjs';
import { dns, http, tcp, tls, udp } from './frames.mjs';
import { Probe, Sender, makeWire } from './probe.mjs';

const TOKEN = 'correct-horse-battery-staple';
const ATTACK = '<img src=x onerror=window.attacked=1>';
const VIEWS = ['now', 'flows', 'probe'];

const folder = mkdtempSync(join(tmpdir(), 'weir-page-'));
// A probe that is started as root runs as another user.
chmodSync(folder, 0o777);
let sender;

before(async () => {
    makeWire();
    sender = new Sender();
    await startBrowser();
});

// Also of a test that has failed.
afterEach(async () => {
    await closePages();
    await Probe.stopAll();
});

after(async () => {
    sender?.stop();
    await closeBrowser();
    rmSync(folder, { recursive: true });
});

/** Sends connections of an attacker, whose texts are in all that inspection reads, and some others. */
async function sendTraffic(probe) {
    const client = (port) => ['10.0.0.1', port];
    const [query, reply] = dns(`${ATTACK.replaceAll(' ', '/')}.example`);
    const frames = [
        ...tcp(client(4000), ['10.0.0.2', 80], ...http(ATTACK, `/${ATTACK}`, ATTACK)),
        ...tcp(client(4001), ['10.0.0.2', 443], tls(ATTACK), Buffer.from('1503010002022800', 'hex')),
        udp(client(4002), ['10.0.0.2', 53], query),
        udp(['10.0.0.2', 53], client(4002), reply),
        ...[...Array(30).keys()].map((port) => udp(client(5000 + port), ['10.0.0.3', 9], Buffer.alloc(port))),
        // Neither IP nor ARP: refused.
        Buffer.concat([Buffer.alloc(12, 2), Buffer.from('88b5', 'hex'), Buffer.alloc(46)]),
    ];
    const { ledger } = await probe.status();
    sender.send(frames);
    return probe.received(ledger.packets.received + frames.length);
}

test('the numbers are those of the ledger', async () => {
    const probe = await Probe.start('--transactions', 'json:/dev/null');
    const ledger = await sendTraffic(probe);
    const { page, faults, close } = await open(probe);
    const transactions = page.getByRole('table', { name: 'Sinks: records since the start' }).getByRole('cell', { name: 'transactions', exact: true });
    await transactions.waitFor();
    const table = page.getByRole('table', { name: 'Since the start' });
    await table.getByRole('cell', { name: ledger.packets.received.toLocaleString('en-US'), exact: true }).first().waitFor();
    const shown = await cells(page, 'Since the start', 1);
    const refused = Object.values(ledger.packets.refused).reduce((sum, packets) => sum + packets, 0);
    assert.equal(refused, 1);
    const expected = {
        'packets received': ledger.packets.received,
        'octets received': ledger.bytes.received,
        'packets metered': ledger.packets.metered,
        'packets refused': refused,
        'flow records created': ledger.flows.created,
    };
    for (const [name, count] of Object.entries(expected)) assert.equal(number(shown[name]), count, name);
    for (const cause of ['NIC', 'kernel', 'queue', 'flow cache full']) assert.equal(shown[`lost: ${cause}`], '0', cause);
    // The line of the last hour ends with the same flows, and its table has them.
    await page.getByText('Table: Active flows').click();
    const newest = page.getByRole('table', { name: 'Active flows over time' }).locator('tbody tr').first();
    await newest.getByRole('cell', { name: String(ledger.flows.live), exact: true }).waitFor();
    await page.getByRole('link', { name: 'Probe' }).click();
    await page.getByRole('table', { name: 'Where every packet went' }).waitFor();
    await transactions.waitFor();
    const outcomes = await cells(page, 'Where every packet went', 2);
    const { received, ...others } = Object.fromEntries(Object.entries(outcomes).map(([name, text]) => [name, number(text)]));
    assert.equal(received, ledger.packets.received);
    assert.equal(Object.values(others).reduce((sum, packets) => sum + packets), received);
    // What weir doctor found, in its words.
    const { counts, findings, notes } = await (await fetch(`http://${probe.address}/doctor`)).json();
    await page.getByText(`${counts}. Later changes are not seen.`).waitFor();
    const main = await page.locator('main').textContent();
    for (const { summary, impact, remedy } of findings) {
        for (const text of [summary, impact, ...(remedy?.commands ?? [])]) assert.ok(main.includes(text), text);
    }
    assert.ok(notes.every((note) => main.includes(note)), notes);
    // The most severe first; what --fix does is marked, as the last sentence says.
    const order = [...new Set(findings.map(({ severity }) => severity))];
    const shownOrder = await page.locator('main section:has(.findings)').evaluateAll((sections) => sections.map((section) => section.className));
    assert.deepEqual(shownOrder, order);
    const fixed = findings.filter(({ remedy }) => remedy?.steps.length > 0 && remedy.commands.length > 0);
    assert.equal(main.split('   (--fix)').length - 1, fixed.length);
    assert.deepEqual(faults, []);
    await close();
    assert.equal(await probe.stop(), 0);
});

test('texts of an attacker stay text', async () => {
    const probe = await Probe.start();
    await sendTraffic(probe);
    const fields = 'src_port,http_host,http_path,http_user_agent,server_software,sni,dns_name,packets';
    const { page, faults } = await open(probe, `#flows?fields=${fields}&where=src+port+4000`);
    const row = page.getByRole('region', { name: 'Flows' }).locator('tbody tr');
    await row.waitFor();
    assert.deepEqual((await row.locator('td').allTextContents()).slice(0, 4), ['4000', ATTACK, `/${ATTACK}`, ATTACK]);
    for (const [port, field] of [['4000', 'http_host'], ['4001', 'application'], ['4002', 'dns_name']]) {
        await page.getByLabel('Filter').fill(`src port ${port}`);
        await page.getByRole('button', { name: 'Search' }).click();
        await row.getByRole('button', { name: port }).click();
        const dialog = page.getByRole('dialog');
        await dialog.getByText(field, { exact: true }).waitFor();
        assert.equal(await page.locator('img').count(), 0);
        if (port !== '4001') assert.match(await dialog.textContent(), /<img.src=x.onerror=window.attacked=1>/);
        await page.keyboard.press('Escape');
        await dialog.waitFor({ state: 'detached' });
    }
    // A text in the URL and in the sentence of an error, too.
    await page.getByLabel('Filter').fill(`sni = "${ATTACK}" and ${ATTACK}`);
    await page.keyboard.press('Enter');
    await page.getByRole('alert').waitFor();
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate('window.attacked'), undefined);
    assert.deepEqual(faults, []);
});

test('a filter with an error has its place marked, and the URL has the view', async () => {
    const probe = await Probe.start();
    await sendTraffic(probe);
    const { page, faults, close } = await open(probe, '#flows');
    const rows = page.getByRole('region', { name: 'Flows' }).locator('tbody tr');
    await page.getByText('33 of 33 flows match').waitFor();
    await page.getByLabel('Filter').fill('dst port 443 adn bytes > 1');
    await page.keyboard.press('Enter');
    const alert = page.getByRole('alert');
    assert.match(await alert.textContent(), /adn/);
    assert.equal(await alert.locator('mark').textContent(), 'adn');
    assert.equal(await rows.count(), 0);
    await page.getByLabel('Filter').fill('dst port 9');
    await page.keyboard.press('Enter');
    await page.getByText('30 of 33 flows match').waitFor();
    await page.getByText('Columns (10)').click();
    await page.getByRole('checkbox', { name: 'src_ip', exact: true }).uncheck();
    await page.getByRole('checkbox', { name: 'end_reason', exact: true }).check();
    await page.getByRole('button', { name: 'src_port' }).click();
    await page.getByRole('button', { name: 'src_port ▼' }).click();
    await rows.first().getByText('5000').waitFor();
    await page.getByLabel('Rows').selectOption('20');
    await page.getByText('the first 20 are shown').waitFor();
    const url = page.url();
    await close();
    // Another browser that opens the URL shows the same.
    const other = await open(probe, url.slice(url.indexOf('#')));
    await other.page.getByText('30 of 33 flows match; the first 20 are shown').waitFor();
    const heads = await other.page.locator('.flows thead th').allTextContents();
    assert.ok(!heads.includes('src_ip') && heads.includes('end_reason') && heads.includes('src_port ▲'), heads);
    assert.deepEqual([...faults, ...other.faults], []);
});

test('a probe that goes away and comes back', async () => {
    // No port that the browser can have for a connection of its own.
    const probe = await Probe.start('--listen', '9477');
    const ledger = await sendTraffic(probe);
    const { page, faults } = await open(probe);
    const received = (packets) => page.getByRole('row', { name: `packets received ${packets}`, exact: true });
    await received(ledger.packets.received).waitFor();
    await probe.stop();
    const alert = page.getByRole('alert').filter({ hasText: 'has not answered since' });
    await alert.waitFor();
    assert.ok(await received(ledger.packets.received).isVisible());
    // Views that are opened meanwhile have their answers when it is back.
    await page.getByRole('link', { name: 'Probe' }).click();
    await page.getByRole('heading', { name: 'Where every packet went' }).waitFor();
    await page.getByRole('link', { name: 'Traffic' }).click();
    await page.getByText('The probe does not answer.').waitFor();
    await Probe.start('--listen', probe.port);
    await alert.waitFor({ state: 'detached' });
    await page.getByText('No flows in this range').waitFor();
    assert.equal(await page.getByText('The probe does not answer.').count(), 0);
    await page.getByRole('link', { name: 'Now' }).click();
    await received(0).waitFor();
    await page.getByText(/^The probe has restarted at 20\d\d-.* UTC: all counters and lines begin then\.$/).waitFor();
    assert.deepEqual(faults, []);
});

test('a link that is down is said on every view, until it is up', async () => {
    const probe = await Probe.start();
    const { page, faults, origin } = await open(probe);
    await page.getByRole('heading', { name: 'Sinks', exact: true }).waitFor();
    const alert = page.getByRole('alert').filter({ hasText: 'interface right is down, or has no link' });
    assert.equal(await alert.count(), 0);
    execFileSync('ip', ['link', 'set', 'left', 'down']);
    try {
        await alert.waitFor();
        await page.goto(`${origin}/#probe`);
        await page.getByRole('heading', { name: 'Probe', exact: true }).waitFor();
        await alert.waitFor();
    } finally {
        execFileSync('ip', ['link', 'set', 'left', 'up']);
    }
    await alert.waitFor({ state: 'detached' });
    assert.deepEqual(faults, []);
});

test('names of Wireshark have hints, and no sentence names a command of a shell', async () => {
    const probe = await Probe.start();
    const { page } = await open(probe, '#flows');
    for (const [filter, sentence] of [
        ['ip.addr == 10.0.0.2', 'write host 10.0.0.2'],
        ['10.0.0.2', 'write host 10.0.0.2'],
        ['tcp.port == 80', 'write tcp port 80'],
        ['qqqqqqqq', 'the filter completes names while you write them'],
    ]) {
        await page.getByLabel('Filter').fill(filter);
        await page.keyboard.press('Enter');
        await page.getByRole('alert').filter({ hasText: `there is no field "${filter.split(' ')[0]}"; ${sentence}` }).waitFor();
        assert.doesNotMatch(await page.getByRole('alert').textContent(), /weir fields/);
    }
});

test('a table that is wider than the window says that there is more', async () => {
    const probe = await Probe.start();
    await sendTraffic(probe);
    const { page, faults } = await open(probe, '#flows', { viewport: { width: 400, height: 800 } });
    const table = page.getByRole('region', { name: 'Flows' });
    await page.locator('.scroll.more').waitFor();
    await table.evaluate((table) => (table.scrollLeft = table.scrollWidth));
    await page.locator('.scroll:not(.more)').waitFor();
    await table.evaluate((table) => (table.scrollLeft = 0));
    await page.locator('.scroll.more').waitFor();
    await page.setViewportSize({ width: 3000, height: 800 });
    await page.locator('.scroll:not(.more)').waitFor();
    assert.deepEqual(faults, []);
});

/** A probe that is reachable from other machines, so that it wants the token. */
async function startForAll(token, port) {
    const [cert, key, file] = ['cert.pem', 'key.pem', 'token'].map((name) => join(folder, name));
    const made = '-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=probe'.split(' ');
    execFileSync('openssl', ['req', ...made, '-keyout', key, '-out', cert], { stdio: 'ignore' });
    writeFileSync(file, `${token}\n`, { mode: 0o600 });
    return Probe.start('--listen', `0.0.0.0:${port}`, '--token-file', file, '--tls-cert', cert, '--tls-key', key);
}

test('the token is asked for, and again when it has changed', async () => {
    const probe = await startForAll(TOKEN, 9478);
    const { page, faults } = await open(probe, '', {}, 'https');
    const urls = [];
    page.on('request', (request) => urls.push(request.url()));
    await page.getByLabel('Token').fill('a-wrong-token-of-16');
    await page.keyboard.press('Enter');
    await page.getByText('This is not the token of the probe.').waitFor();
    await page.getByLabel('Token').fill(TOKEN);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Sinks', exact: true }).waitFor();
    const [cookie] = await page.context().cookies();
    assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite], [true, true, 'Strict']);
    assert.ok(!cookie.value.includes(TOKEN) && !urls.some((url) => url.includes(TOKEN)));
    assert.equal(await page.evaluate('document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })'), '{}');
    await page.reload();
    await page.getByRole('heading', { name: 'Sinks', exact: true }).waitFor();
    await probe.stop();
    const again = await startForAll('another-token-of-this-probe', 9478);
    await page.getByLabel('Token').fill('another-token-of-this-probe');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Sinks', exact: true }).waitFor();
    // The session ends on the server, too: its cookie permits nothing any more.
    const session = (await page.context().cookies()).find(({ name }) => name === `weir-${again.port}`);
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('Token').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Log out' }).count(), 0);
    assert.deepEqual(await page.context().cookies(), []);
    await page.context().addCookies([session]);
    const status = await page.evaluate(async () => (await fetch('/status')).status);
    assert.equal(status, 401);
    assert.deepEqual(faults, []);
});

test('without JavaScript there is one sentence', async () => {
    const probe = await Probe.start();
    const { page } = await open(probe, '', { javaScriptEnabled: false });
    assert.match((await page.locator('body').innerText()).trim(), /^This page needs JavaScript; [^.]*\.$/);
});

test('everything is reached by keyboard', async () => {
    const probe = await Probe.start();
    await sendTraffic(probe);
    const { page } = await open(probe, '#flows');
    await page.getByText('33 of 33 flows match').waitFor();
    const focused = () => page.evaluate('document.activeElement.textContent + (document.activeElement.name ?? "")');
    const seen = [];
    while (!seen.at(-1)?.startsWith('202')) {
        await page.keyboard.press('Tab');
        seen.push(await focused());
        assert.ok(seen.length < 100, seen);
    }
    for (const name of ['Skip to the content', 'Now', 'Flows', 'Probe', 'where', 'Search']) assert.ok(seen.includes(name), name);
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByText('end_time', { exact: true }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
});

test('without a store, the last flows are those in memory', async () => {
    const probe = await Probe.start('--idle', '300ms');
    await sendTraffic(probe);
    const { page, faults, origin, close } = await open(probe, '#traffic');
    const said = page.getByText('Flows that began in this time: 33,');
    // Until all have ended.
    while (!(await said.isVisible())) {
        await page.getByRole('button', { name: 'All', exact: true }).click();
        await page.waitForTimeout(300);
    }
    await page.getByText(/^The probe keeps the last 33 ended flows in memory, since 20.* Start it with -o parquet:FOLDER to keep more\.$/).waitFor();
    await page.getByText('are not counted here, nor are questions that wait for their answer.').waitFor();
    await page.getByRole('table', { name: 'Pairs' }).getByRole('button', { name: '10.0.0.1 – 10.0.0.3' }).click();
    await page.getByText('Flows that began in this time: 30,').waitFor();
    await page.getByRole('link', { name: 'Flows', exact: true }).click();
    await page.getByText('0 of 0 flows match').waitFor();
    await page.getByRole('button', { name: 'Stored', exact: true }).click();
    await page.getByText('30 of 33 flows match').waitFor();
    await page.getByRole('link', { name: 'Quality', exact: true }).click();
    await page.getByText('Flows of this time: 30').waitFor();
    await page.goto(`${origin}/#quality`);
    await page.getByRole('table', { name: 'DNS failures by reason' }).getByRole('button', { name: 'NXDOMAIN' }).waitFor();
    assert.deepEqual(faults, []);
    await close();
    const forgetful = await Probe.start('--listen-records', '0');
    const other = await open(forgetful, '#traffic');
    await other.page.getByText('This probe keeps no ended flows.').waitFor();
});

test('the packets of a current flow come from the recorder', async () => {
    const rules = join(folder, 'recorder.toml');
    const recorded = join(folder, 'recorded');
    writeFileSync(rules, `[recorder]\noutputs = ['folder:${recorded}']\n`);
    const probe = await Probe.start('--rules', rules);
    await sendTraffic(probe);
    const { page, faults } = await open(probe, '#flows?where=src+port+4002');
    await page.locator('.flows tbody tr').first().click();
    const dialog = page.getByRole('dialog');
    const button = dialog.getByRole('button', { name: 'Download the packets' });
    await button.waitFor();
    // The recorder writes a little later.
    const end = Date.now() + BOUND;
    while (!(await dialog.getByText('2 packets with ').isVisible())) {
        assert.ok(Date.now() < end, 'the recorder writes');
        await page.waitForTimeout(50);
        await button.click();
        await dialog.getByText(/packets? with|No packet|packets cannot be read/i).first().waitFor();
    }
    assert.deepEqual(faults, []);
});

test('no view has a serious fault, at any width, in light and dark', async () => {
    const rules = join(folder, 'rules.toml');
    writeFileSync(rules, `[egress.ids]\noutputs = 'pcap:${join(folder, 'out.pcap')}'\n[[network]]\nwhere = 'port 53'\naction = 'drop'\n`);
    const probe = await Probe.start('--rules', rules, '-o', 'csv:/dev/null');
    await sendTraffic(probe);
    for (const width of SIZES) {
        for (const colorScheme of SCHEMES) {
            const { page, faults, origin, close } = await open(probe, '', { colorScheme, viewport: { width, height: 800 } });
            for (const view of [...VIEWS, 'flows?where=prt+53']) {
                await page.goto(`${origin}/#${view}`);
                const isWrong = view.includes('?');
                const shown = { now: 'Sinks', flows: 'Flows', probe: 'Timeouts in effect' }[view.split('?')[0]];
                await page.getByRole('heading', { name: shown, exact: true }).waitFor();
                await (isWrong ? page.getByRole('alert') : page.locator('tbody tr').first()).waitFor();
                await inspect(page, isWrong ? 'error' : view, { width, colorScheme });
            }
            await page.goto(`${origin}/#flows`);
            await page.locator('.flows tbody tr').first().click();
            await page.getByRole('dialog').getByText('end_time', { exact: true }).waitFor();
            await inspect(page, 'flow', { width, colorScheme });
            assert.deepEqual(faults, []);
            await close();
        }
    }
    await probe.stop();
});
