// Requests to the probe, and the parts of its answers that the page shows (docs/control.md).
import { answer, isFile } from './file';

/** Where an expression is wrong: characters before the place, and of the place. */
export interface Place {
    text: string;
    before: number;
    length: number;
}

/** A refusal: the sentence of the probe. */
export class Refusal extends Error {
    constructor(
        readonly status: number,
        sentence: string,
        readonly place?: Place,
    ) {
        super(sentence);
    }
}

/** The probe cannot be reached. */
export class Unreachable extends Error {}

export type Counts = Record<string, number>;

/** Packets or octets by what became of them. */
export interface Traffic {
    received: number;
    metered: number;
    filtered: number;
    sampled_out: number;
    dropped_nic: number;
    dropped_kernel: number;
    dropped_queue: number;
    dropped_cache_full: number;
    refused: Counts;
}

export interface Records {
    flows: number;
    packets: number;
    bytes: number;
}

export interface Sink {
    sink: string;
    exported: Records;
    waiting?: Records;
    spooled?: Records;
    filtered?: Records;
    not_open?: Records;
    lost: Record<string, Records>;
    octets: number;
    messages: number;
}

export interface Ledger {
    packets: Traffic;
    bytes: Traffic;
    flows: { created: number; live: number };
    anomalies: Counts;
    overload: { level: number; highest: number };
    /** Records of transactions, if there are sinks of them. */
    transactions?: { left_out: number; sinks: Sink[] };
    sinks: Sink[];
    balanced: boolean;
}

export interface Rates {
    interval_seconds: number;
    packets_per_second: number;
    bits_per_second: number;
    ended_flows_per_second: number;
    active_flows: number;
    overload_level: number;
    dropped_nic_packets: number;
    dropped_kernel_packets: number;
    dropped_queue_packets: number;
    dropped_cache_full_packets: number;
}

export interface Pipeline extends Rates {
    pipeline: string;
    state: string;
}

export interface Interval extends Rates {
    dropped_packets: number;
    lost_records: number;
    pipelines: Pipeline[];
}

export interface Status {
    interval: Interval | null;
    ledger: Ledger;
    /** Why it is not ready: sentences without a full stop. */
    not_ready: string[];
    /** When it started, ms since 1970. */
    started_ms: number;
}

export type History = Record<
    | 'time_ms'
    | 'received_packets'
    | 'received_bytes'
    | 'dropped_packets'
    | 'refused_packets'
    | 'created_flows'
    | 'active_flows'
    | 'lost_records'
    | 'waiting_records'
    | 'overload_level',
    number[]
>;

export interface Field {
    name: string;
    type: string;
    unit: string;
    meaning: string;
    origin: string;
    basic: boolean;
}

export type Value = string | number | boolean | string[] | null;
export type Flow = Record<string, Value>;

export interface Flows {
    flows: Flow[];
    matching: number;
    searched: number;
    complete: boolean;
}

/** What every answer of stored flows has. */
export interface Stored {
    matching: number;
    read: number;
    complete: boolean;
    problems: string[];
}

/** Flows of a store, or of the memory of the probe. */
export interface StoredFlows extends Stored {
    flows: Flow[];
}

/** Sums of groups; with intervals, of each interval and group. `other_groups` is 0 except in rows that sum up others. */
export interface Groups extends Stored {
    groups: Flow[];
}

/** What answers: a probe, `weir view`, or a file of `weir read --html`. */
export interface About {
    version: string;
    mode: 'probe' | 'view' | 'file';
    inputs: string[];
    /** Where ended flows are kept. */
    history: 'store' | 'memory' | 'none';
    /** Stores of transactions. */
    transactions: string[];
    /** First and last start of what is kept, ns since 1970, where that is known. */
    from_ns: number | null;
    to_ns: number | null;
    /** From when on the newest flows start, ns since 1970, if there are many more. A file has none. */
    newest_from_ns?: number | null;
    /** Why the packets of flows cannot be had, and why no segments are listed. */
    no_packets: string | null;
    no_segments: string | null;
    /** Whether names of hosts are known (--names). A file has none. */
    names?: boolean;
    /** Whether a session permits to read, which can be ended. */
    session?: boolean;
    /** What a file has, and from where: names and texts. */
    facts?: [string, string][];
}

/** What `weir doctor` finds. */
export interface Finding {
    severity: string;
    check: string;
    subject: string;
    summary: string;
    impact: string;
    remedy: { commands: string[]; steps: unknown[]; note: string } | null;
}

export interface Doctor {
    examined: number | null;
    interfaces: string[];
    counts: string;
    /** A heading for each severity. */
    severities: Record<string, string>;
    findings: Finding[];
    notes: string[];
}

/** The segments of a TCP connection, as `weir tcp --explain` prints them. */
export interface Segments {
    text: string;
    segments: number;
    left_out: number;
    copies: number;
    incomplete: string | null;
}

/** A capture with the packets of a flow. */
export interface PacketFile {
    file: Blob;
    packets: number;
    octets: number;
    copies: number;
    incomplete: string | null;
}

export interface Rule {
    level: string;
    rule: string;
    line: number | null;
    packets_matched: number;
    octets_matched: number;
    packets_forwarded: number;
    octets_forwarded: number;
}

export interface Rules {
    file: string;
    loaded: number;
    error: string | null;
    text: string;
    rules: Rule[];
}

export interface ListFile {
    option: string;
    file: string;
    kind: string | null;
    entries: number;
    lines_left_out: number;
    loaded: number;
    error: string | null;
}

/** Longest time that an answer takes: a search takes 10 s, and the probe has 3 s to report. */
const TIMEOUT_MS = 15_000;

/** How far the clock of the probe is ahead of that of the browser, ms. */
let ahead_ms = 0;

/** The time of the probe, ms since 1970. */
export const probeTime = (): number => Date.now() + ahead_ms;

/** Answers have the time in seconds: only what is clearly another clock counts. */
function compareClocks(date: string | null) {
    const difference = date === null ? NaN : Date.parse(date) - Date.now();
    if (!Number.isNaN(difference)) ahead_ms = Math.abs(difference) < 3000 ? 0 : difference;
}

type Headers = Record<string, string>;

async function request(method: string, path: string, headers: Headers, stop?: AbortSignal): Promise<[Response, Blob]> {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    try {
        const response = await fetch(path, { method, headers, signal: stop ? AbortSignal.any([stop, timeout]) : timeout });
        compareClocks(response.headers.get('date'));
        return [response, await response.blob()];
    } catch {
        throw new Unreachable();
    }
}

async function json([response, answer]: [Response, Blob]): Promise<unknown> {
    const text = await answer.text();
    let body: unknown;
    try {
        body = JSON.parse(text);
    } catch {
        throw new Refusal(response.status, `the probe answered ${response.status} without JSON`);
    }
    if (response.ok) return body;
    const failure = body as { error?: string; place?: Place };
    throw new Refusal(response.status, failure.error ?? `the probe answered ${response.status}`, failure.place);
}

/** The probe answers one search at a time. */
const BUSY = 429;
const RETRY_MS = 250;
/** A search takes 10 s at most. */
const RETRIES = 48;

export type Parameters = Record<string, string | undefined>;

/** Asks for a path with parameters; those without a value are left out. Waits while another search is running. */
export async function get<T>(path: string, parameters: Parameters = {}, stop?: AbortSignal): Promise<T> {
    if (isFile) {
        const known = answer(path, parameters);
        if (known === undefined) throw new Refusal(404, 'This file does not have the answer: ask weir view, or a probe.');
        return known as T;
    }
    return patiently(path, parameters, (url) => request('GET', url, {}, stop).then(json), stop) as Promise<T>;
}

/** The packets of a flow. */
export const getPackets = (parameters: Parameters): Promise<PacketFile> =>
    patiently('/packets', parameters, async (url) => {
        const [response, file] = await request('GET', url, {});
        if (!response.ok) await json([response, file]);
        const header = (name: string) => response.headers.get(name);
        const [packets, octets, copies] = ['packets', 'octets', 'copies'].map((name) => Number(header(`weir-${name}`)));
        return { file, packets: packets!, octets: octets!, copies: copies!, incomplete: header('weir-incomplete') };
    });

async function patiently<T>(path: string, parameters: Parameters, ask: (url: string) => Promise<T>, stop?: AbortSignal): Promise<T> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) {
        if (value) query.set(name, value);
    }
    for (let tries = 0; ; tries += 1) {
        try {
            return await ask(query.size ? `${path}?${query}` : path);
        } catch (error) {
            const isBusy = error instanceof Refusal && error.status === BUSY;
            if (!isBusy || tries === RETRIES || stop?.aborted) throw error;
            await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
    }
}

/** Gives the token once; the browser keeps the cookie of the session, which scripts cannot read. */
export async function login(token: string): Promise<void> {
    // Other characters are in no token, and in no header.
    if (!/^[!-~]+$/.test(token)) throw new Refusal(401, 'a token has letters, digits and signs, without spaces');
    await request('POST', '/session', { Authorization: `Bearer ${token}` }).then(json);
}

/** Ends the session. One that has ended already is as good. */
export async function logout(): Promise<void> {
    await request('DELETE', '/session', {}).then(json).catch((error: unknown) => {
        if (!(error instanceof Refusal && error.status === 401)) throw error;
    });
}
