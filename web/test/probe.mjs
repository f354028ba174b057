// A probe on one end of a wire, and a program that sends frames on the other. Needs a network namespace of its own
// (scripts/test-web). And the page of stored flows, by `weir view`.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const WEIR = process.env.WEIR ?? new URL('../../target/debug/weir', import.meta.url).pathname;
const SENDER = `
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("left", 0))
for line in sys.stdin:
    wire.send(bytes.fromhex(line))
`;

const ip = (words) => execFileSync('ip', words.split(' '));

/** Makes the wire. Without IPv6, so that only the frames of the test are on it. */
export function makeWire() {
    ip('link set lo up');
    ip('link add left type veth peer name right');
    for (const end of ['left', 'right']) {
        writeFileSync(`/proc/sys/net/ipv6/conf/${end}/disable_ipv6`, '1');
        ip(`link set ${end} up`);
    }
}

/** A running probe. */
export class Probe {
    static running = new Set();

    static async stopAll() {
        for (const probe of Probe.running) await probe.stop();
    }

    static async start(...options) {
        const probe = new Probe();
        const fixed = ['probe', '-i', 'af_packet:right', '-o', 'json:/dev/null', '--dpi-fields'];
        const all = options.includes('--listen') ? options : ['--listen', '0', ...options];
        probe.process = spawn(WEIR, [...fixed, ...all], { stdio: ['ignore', 'ignore', 'pipe'] });
        Probe.running.add(probe);
        probe.ended = once(probe.process, 'exit');
        const log = [];
        for await (const line of createInterface({ input: probe.process.stderr })) {
            log.push(line);
            const found = /HTTP interface is ready address=(\S+)/.exec(line);
            if (found) {
                probe.address = found[1];
                // Otherwise the probe would wait for a reader.
                probe.process.stderr.resume();
                return probe;
            }
        }
        throw new Error(`weir did not start:\n${log.join('\n')}`);
    }

    get port() {
        return this.address.split(':').pop();
    }

    async status() {
        return (await fetch(`http://${this.address}/status`)).json();
    }

    /** The ledger when the probe has received this number of packets. */
    async received(packets) {
        for (;;) {
            const { ledger, interval } = await this.status();
            if (ledger.packets.received >= packets && interval) return ledger;
        }
    }

    async stop() {
        Probe.running.delete(this);
        this.process.kill('SIGINT');
        const [code] = await this.ended;
        return code;
    }
}

export class Sender {
    constructor() {
        this.process = spawn('python3', ['-c', SENDER], { stdio: ['pipe', 'inherit', 'inherit'] });
        this.sent = 0;
    }

    send(frames) {
        this.process.stdin.write(frames.map((frame) => `${frame.toString('hex')}\n`).join(''));
        this.sent += frames.length;
    }

    stop() {
        this.process.stdin.end();
    }
}

/** What `weir read` writes of files, as JSON. */
export function read(files, ...options) {
    const out = execFileSync(WEIR, ['read', ...files, '-q', '-o', 'json:-', ...options], { encoding: 'utf8', maxBuffer: 1 << 28 });
    return out.trim().split('\n').filter(Boolean).map((line) => JSON.parse(line));
}

/** Writes the flows of files into a store. */
export const store = (files, folder) => execFileSync(WEIR, ['read', ...files, '-q', '-o', `parquet:${folder}`]);

/** What `weir packets` finds of a flow, with all options as pcap. */
export function packets(file, flow, ...options) {
    return execFileSync(WEIR, ['packets', file, '--flow', flow, ...options, '-q', '-o', '-'], { maxBuffer: 1 << 28 });
}

/** The lines of `weir tcp --explain` but for the title. */
export const explained = (file, flow) =>
    execFileSync(WEIR, ['tcp', file, '--explain', flow, '-q'], { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore'] }).split('\n').slice(1);

/** Writes the page of files into one file. */
export function writePage(path, files, ...options) {
    execFileSync(WEIR, ['read', ...files, '-q', '-o', 'csv:/dev/null', '--overwrite', '--html', path, ...options]);
}

/** Connections that failed, by the reason that `weir tcp` gives. */
export function failures(files) {
    const out = execFileSync(WEIR, ['tcp', ...files, '--json', '-'], { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore'] });
    return JSON.parse(out).failures;
}

/** A running `weir view`. */
export class View {
    static running = new Set();

    static async stopAll() {
        for (const view of View.running) await view.stop();
    }

    static async start(...inputs) {
        const view = new View();
        view.process = spawn(WEIR, ['view', ...inputs], { stdio: ['ignore', 'pipe', 'inherit'] });
        View.running.add(view);
        view.ended = once(view.process, 'exit');
        for await (const line of createInterface({ input: view.process.stdout })) {
            const found = /^page: http:\/\/127\.0\.0\.1:(\d+)\/$/.exec(line);
            if (found) {
                view.port = found[1];
                view.process.stdout.resume();
                return view;
            }
        }
        throw new Error('weir view did not start');
    }

    async stop() {
        View.running.delete(this);
        this.process.kill('SIGINT');
        const [code] = await this.ended;
        return code;
    }
}
