// The time of the flows that a view is about: in the URL, in words, and as parameters of a question.
import { useState } from 'preact/hooks';
import { type About, type Parameters, probeTime } from './api';
import { civil, instant, parseCivil, zone } from './text';

/** As the URL has it: `-1h` before now, `newest` (flows of a large store), `all`, or two times. */
export interface Range {
    from: string;
    to: string;
}

/** The same in ms since 1970, from the first to before the second; without them all times. */
export interface Span {
    from_ms: number;
    to_ms: number;
}

const HOUR_MS = 3_600_000;
/** What is offered, and how long it is. */
const LAST: [string, string, number][] = [
    ['-15m', '15 minutes', HOUR_MS / 4],
    ['-1h', 'hour', HOUR_MS],
    ['-1d', 'day', 24 * HOUR_MS],
];

/** What is chosen for large stores. */
const NEWEST = 'newest';

/** When the newest flows of a large store start, ms since 1970. */
const newestFrom = ({ newest_from_ns }: About) => (typeof newest_from_ns === 'number' ? Math.floor(newest_from_ns / 1e6) : undefined);

/** A store may have years, and an hour more flows than are read within a second; a memory and files have an end. */
function defaultFrom(about: About): string {
    const newest = newestFrom(about);
    const isShort = about.mode === 'probe' && about.history !== 'memory';
    if (newest !== undefined && (!isShort || newest > probeTime() - HOUR_MS)) return NEWEST;
    return isShort ? '-1h' : 'all';
}

/** The range of the settings of a view. */
export function rangeOf(settings: URLSearchParams, about: About): Range {
    // A file has one time, whatever the URL says.
    const [from, to] = about.mode === 'file' ? ['', ''] : [settings.get('from') ?? '', settings.get('to') ?? ''];
    const isKnown = from === 'all' || LAST.some(([name]) => name === from);
    if (isKnown) return { from, to: '' };
    if (from === NEWEST && newestFrom(about) === undefined) return { from: 'all', to: '' };
    if (from === NEWEST) return { from, to: '' };
    const isSpan = !Number.isNaN(Date.parse(from)) && Date.parse(to) > Date.parse(from);
    return isSpan ? { from, to } : { from: defaultFrom(about), to: '' };
}

/** The settings of a range. */
export const settingsOf = ({ from, to }: Range, about: About) => ({ from: from === defaultFrom(about) ? '' : from, to });

/** The end of what there is: files have one, of a probe it is now. */
const end = (about: About) => (about.mode === 'view' && about.to_ns !== null ? Math.floor(about.to_ns / 1e6) + 1 : probeTime());

/** The times of a range; undefined for all. */
export function span({ from, to }: Range, about: About): Span | undefined {
    if (from === 'all') return undefined;
    const last = LAST.find(([name]) => name === from);
    const to_ms = Math.ceil(end(about));
    if (last) return { from_ms: to_ms - last[2], to_ms };
    return from === NEWEST ? { from_ms: newestFrom(about)!, to_ms } : { from_ms: Date.parse(from), to_ms: Date.parse(to) };
}

export const iso = (ms: number): string => new Date(ms).toISOString();

/** The parameters of a question: both times are included there. */
export function parametersOf(span: Span | undefined): Parameters {
    if (!span) return { from: '1970-01-01T00:00:00Z' };
    return { from: iso(span.from_ms), to: iso(span.to_ms - 1).replace('Z', '999999Z') };
}

const MS: [string, number][] = [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1000],
    ['ms', 1],
];
/** Lengths of intervals. The next one is at most three times as long. */
export const EVERY_MS = [
    ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms),
    ...[1, 2, 5, 10, 20, 30].map((seconds) => seconds * 1000),
    ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * 60_000),
    ...[1, 2, 4, 6, 12].map((hours) => hours * 3_600_000),
    ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((days) => days * 86_400_000),
];
export const MAX_INTERVALS = 200;

/** The intervals in which a time is shown: the shortest of which there are at most 200. */
export function everyOf({ from_ms, to_ms }: Span): number {
    return EVERY_MS.find((every) => (to_ms - from_ms) / every <= MAX_INTERVALS - 1) ?? EVERY_MS.at(-1)!;
}

/** A length as the program writes it: `5m`. */
export function everyText(every_ms: number): string {
    const [unit, ms] = MS.find(([, ms]) => every_ms % ms === 0)!;
    return `${every_ms / ms}${unit}`;
}

const short = (text: string) => civil(Date.parse(text)).replace('T', ' ').replace(/\.000$/, '');

/** A range in words. */
export function rangeText({ from, to }: Range): string {
    if (from === 'all') return 'all times';
    if (from === NEWEST) return 'the newest flows';
    const last = LAST.find(([name]) => name === from);
    return last ? `the last ${last[1]}` : `${short(from)} to ${short(to)} ${zone()}`;
}

/** What a field for a time has. */
const inputText = (ms: number) => civil(ms).replace(/\.000$/, '');

/** The time in such a field: the one that is shown, if it was not edited. A clock that is set back shows texts twice. */
const timeOf = (text: string, shown_ms: number) => (text === inputText(shown_ms) ? Math.floor(shown_ms) : parseCivil(text));

/** Ranges before this one, so that a selection can be undone. */
const parseWas = (was: string): Range[] =>
    was.split(',').flatMap((text) => {
        const [from = '', to = ''] = text.split('~');
        return from ? [{ from, to }] : [];
    });
const MAX_WAS = 8;

/** The settings that select a time, and remember the range before. */
export function narrowed(settings: URLSearchParams, now: Range, to: Span): Record<string, string> {
    const was = [...parseWas(settings.get('was') ?? ''), now].slice(-MAX_WAS);
    return { from: iso(to.from_ms), to: iso(to.to_ms), was: was.map(({ from, to }) => (to ? `${from}~${to}` : from)).join(',') };
}

/** Fields for two times: those that are shown, until they are edited. */
function Absolute({ shown, choose }: { shown: Span; choose: (span: Span) => void }) {
    const [edited, setEdited] = useState<{ from?: string; to?: string }>({});
    const [problem, setProblem] = useState('');
    const from = edited.from ?? inputText(shown.from_ms);
    const to = edited.to ?? inputText(shown.to_ms);
    const submit = (event: Event) => {
        event.preventDefault();
        const span = { from_ms: timeOf(from, shown.from_ms), to_ms: timeOf(to, shown.to_ms) };
        const isSpan = span.from_ms < span.to_ms;
        setProblem(isSpan ? '' : 'The end is not after the begin.');
        if (isSpan) choose(span);
    };
    const input = (label: string, text: string, set: (text: string) => void) => (
        <label>
            {label}{' '}
            <input type="datetime-local" step="0.001" value={text} onInput={(event) => set(event.currentTarget.value)} required />
        </label>
    );
    return (
        <form class="absolute" onSubmit={submit}>
            {input(`from (${zone()})`, from, (from) => setEdited({ ...edited, from }))} {input('to', to, (to) => setEdited({ ...edited, to }))}{' '}
            <button>Show this time</button>
            {problem && <span role="alert">{problem}</span>}
        </form>
    );
}

/** Choosing a range: the last minutes, hours or all, two times, and back from a selection. */
export function RangeBar(props: {
    settings: URLSearchParams;
    about: About;
    range: Range;
    shown: Span | undefined;
    /** Changes settings of the URL. */
    go: (change: Record<string, string>) => void;
    askAgain: () => void;
}) {
    const { settings, about, range, shown, go, askAgain } = props;
    const was = parseWas(settings.get('was') ?? '');
    const before = was.at(-1);
    // Once more: the same until now.
    const choose = (from: string) =>
        from === range.from ? askAgain() : go({ ...settingsOf({ from, to: '' }, about), was: '' });
    const back = () => {
        const earlier = was.slice(0, -1).map(({ from, to }) => (to ? `${from}~${to}` : from));
        if (before) go({ ...settingsOf(before, about), was: earlier.join(',') });
    };
    const now = probeTime();
    const newest: [string, string][] = newestFrom(about) === undefined ? [] : [[NEWEST, 'Newest flows']];
    const offered: [string, string][] = [...LAST.map(([name, words]): [string, string] => [name, `Last ${words}`]), ...newest, ['all', 'All']];
    const kept = about.from_ns === null || about.to_ns === null ? undefined : { from_ms: about.from_ns / 1e6, to_ms: about.to_ns / 1e6 };
    return (
        <div class="range">
            <div class="choice" role="group" aria-label="Time">
                {offered.map(([name, words]) => (
                    <button type="button" key={name} aria-pressed={range.from === name} onClick={() => choose(name)}>
                        {words}
                    </button>
                ))}
            </div>
            <Absolute
                key={range.from + range.to}
                shown={shown ?? kept ?? { from_ms: now - HOUR_MS, to_ms: now }}
                choose={(span) => go({ from: iso(span.from_ms), to: iso(span.to_ms), was: '' })}
            />
            {before && (
                <button type="button" class="undo" onClick={back}>
                    Undo the selection: back to {rangeText(before)}
                </button>
            )}
            {range.from === NEWEST && shown && (
                <p class="note">
                    Only the newest flows, since {instant(shown.from_ms / 1000)}. Older ones are stored, too; a longer time takes longer to show.
                </p>
            )}
        </div>
    );
}
