// Traffic of stored flows: over time by group, and who, where to, and with what.
import { useMemo, useRef } from 'preact/hooks';
import type { Flow, Groups, Parameters } from './api';
import { type Question, useAnswers } from './ask';
import { isOffered } from './file';
import { type Chooser, GroupTable, type NumberColumn, choice, columnsOf, counted, groupText, isGroup, number } from './groups';
import { Bar } from './parts';
import { type Span, everyOf, everyText, parametersOf } from './range';
import { Doubts, Empty, Memory, Nothing, type Scope, ScopeBars, Unended, type ViewProps, useScope } from './scope';
import { type Layer, type Stack, StackPlot } from './stack';
import { count, many, percent, short } from './text';

/** What the time line is stacked by. */
const STACKS: [string, string][] = [
    ['application', 'application'],
    ['protocol', 'protocol'],
    ['host', 'host'],
    ['host/24', 'subnet'],
    ['src_network', 'network of the client'],
    ['dst_network', 'network of the server'],
    ['country', 'country'],
    ['as', 'autonomous system'],
];
/** Groups of which a flow is in that of its source and in that of its destination, and those of its source alone. */
const OF_BOTH_SIDES: Record<string, string> = { host: 'src_ip', country: 'src_country', as: 'src_as' };
/** Options without which flows lack a field. */
const OPTIONS: Record<string, string> = { src_network: '--networks', dst_network: '--networks', country: '--geo', as: '--geo' };
const LAYERS = 8;
const ROWS = ['8', '20', '100', '1000'];
const ROWS_OF_FILE = ROWS.slice(0, 3);

type Figure = 'bytes' | 'packets' | 'flows';
const FIGURES: Record<Figure, { name: string; title: string; unit: string; rate: (sum: number, seconds: number) => number; of: string }> = {
    bytes: { name: 'octets', title: 'Bits per second', unit: 'octets', rate: (sum, seconds) => (sum * 8) / seconds, of: 'bit/s' },
    packets: { name: 'packets', title: 'Packets per second', unit: 'packets', rate: (sum, seconds) => sum / seconds, of: 'p/s' },
    flows: { name: 'flows', title: 'New flows per second', unit: 'flows', rate: (sum, seconds) => sum / seconds, of: '/s' },
};

const FIGURE_NAMES = Object.keys(FIGURES) as Figure[];

/** The flows of the range, and the time that they take. */
interface Totals {
    flows: number;
    packets: number;
    bytes: number;
    span: Span;
}

/** Sums of the protocols: each flow has one. */
function totalsOf({ groups }: Groups, span: Span | undefined): Totals | undefined {
    const all = (name: string) => groups.reduce((sum, row) => sum + number(row, name), 0);
    const times = (name: string) => groups.flatMap((row) => (row[name] ? [Date.parse(String(row[name]))] : []));
    if (groups.length === 0) return undefined;
    const whole = { from_ms: Math.min(...times('first_time')), to_ms: Math.max(...times('last_time')) + 1 };
    return { flows: all('flows'), packets: all('packets'), bytes: all('bytes'), span: span ?? whole };
}

function question(scope: Scope, span: Span | undefined, more: Parameters): Question {
    return { path: '/stored', parameters: { ...parametersOf(span), where: scope.where, ...more } };
}

/** What becomes of the rows of intervals and groups. */
interface Line {
    by: string;
    figure: Figure;
    stack: Stack;
    /** What is not in the stack: after its time, and without a place in time. */
    after: number;
    elsewhere: number;
}

function lineOf(rows: Flow[], by: string, figure: Figure, every_ms: number, span: Span, chooser: Chooser): Line {
    const column = columnOfSum(by, figure);
    const grouped = groupsOf(by, figure);
    // Where intervals begin at multiples of their length by a local clock, that is the place of one of them.
    const start = rows.find((row) => row.interval_start)?.interval_start ?? 0;
    const phase = new Date(start as string | number).getTime() % every_ms;
    const first = Math.floor((span.from_ms - phase) / every_ms) * every_ms + phase;
    const starts_ms = Array.from({ length: Math.ceil((span.to_ms - first) / every_ms) }, (_, at) => first + at * every_ms);
    const layers = new Map<string, Layer>();
    let [after, elsewhere] = [0, 0];
    for (const row of rows) {
        const key = isGroup(row) ? JSON.stringify(columnsOf(grouped).map((name) => row[name])) : '';
        const titled = () => (isGroup(row) ? { label: groupText(row, grouped), ...choice(row, grouped, chooser) } : { label: 'others', title: 'All other groups' });
        const layer = layers.get(key) ?? { ...titled(), values: starts_ms.map(() => 0) };
        // Days on which clocks change are longer or shorter.
        const at = row.interval_start ? Math.round((Date.parse(String(row.interval_start)) - first) / every_ms) : NaN;
        const value = number(row, column);
        if (!(at >= 0)) elsewhere += value;
        else if (at >= starts_ms.length) after += value;
        else {
            layers.set(key, layer);
            layer.values[at] = (layer.values[at] ?? 0) + value;
        }
    }
    const sum = (layer: Layer) => layer.values.reduce((sum, value) => sum + value, 0);
    const others = layers.get('');
    layers.delete('');
    const sorted = [...layers.values()].sort((one, other) => sum(other) - sum(one));
    const stack = { starts_ms, every_ms, layers: others ? [...sorted, others] : sorted, hasOthers: others !== undefined };
    return { by, figure, stack, after, elsewhere };
}

const hasSides = (by: string) => columnsOf(by)[0]! in OF_BOTH_SIDES;

/** What is summed up: flows by their sources, so that each counts once. */
const groupsOf = (by: string, figure: Figure) => (hasSides(by) && figure === 'flows' ? by.replace(/^\w+/, (name) => OF_BOTH_SIDES[name]!) : by);

/** The number that is stacked: of groups of both sides what a side sent, because each octet has one sender. */
const columnOfSum = (by: string, figure: Figure) => (hasSides(by) && figure !== 'flows' ? `sent_${figure}` : figure);

function TimeLine({ scope, totals, figure }: { scope: Scope; totals: Totals | undefined; figure: Figure }) {
    const by = scope.settings.get('by') || 'application';
    const every_ms = totals ? everyOf(totals.span) : 0;
    const asked = totals && [question(scope, totals.span, stacked(by, figure, everyText(every_ms)))];
    const { answers, problems, isAsking } = useAnswers<Groups>(asked, scope.round);
    const [answer] = answers;
    const line = useMemo(
        () => (answer && totals && !isAsking ? lineOf(answer.groups, by, figure, every_ms, totals.span, scope.chooser) : undefined),
        [answer, isAsking, scope.fields],
    );
    // Until there is another one.
    const last = useRef<Line | undefined>(undefined);
    if (line) last.current = line;
    return (
        <div aria-busy={isAsking}>
            <TimeLineChoice scope={scope} by={by} figure={figure} />
            {!isAsking && <Doubts answer={answer} problem={problems[0]} />}
            {isAsking && !last.current && <p class="note">Asking …</p>}
            {last.current && !problems[0] && <TimeLinePlot line={last.current} scope={scope} />}
        </div>
    );
}

function TimeLinePlot({ line, scope }: { line: Line; scope: Scope }) {
    const { by, figure, stack, after, elsewhere } = line;
    const { title, name, unit, rate, of } = FIGURES[figure];
    const of_sides = figure === 'flows' ? 'A flow counts for its source.' : `The ${name} of each are those that it sent.`;
    return (
        <>
            <StackPlot
                title={`${title} by ${STACKS.find(([name]) => name === by)?.[1] ?? by}`}
                stack={stack}
                unit={unit}
                rate={(sum) => rate(sum, stack.every_ms / 1000)}
                format={(value) => short(value, of)}
                select={scope.select}
            />
            <p class="note">
                Intervals of {everyText(stack.every_ms)}.{scope.select && ' Drag over the plot to select a time.'}
                {scope.span && ' Flows that began before this time are not in it.'}
                {hasSides(by) && ` ${of_sides}`}
                {stack.layers.length === 1 && !stack.hasOthers && by in OPTIONS && ` These fields are those of ${OPTIONS[by]}: without it, flows have none.`}
                {after > 0 && ` ${count(after)} ${unit} of these flows came after this time.`}
                {elsewhere > 0 && ` ${count(elsewhere)} ${unit} are in groups for which there was no memory.`}
            </p>
        </>
    );
}

function TimeLineChoice({ scope, by, figure }: { scope: Scope; by: string; figure: Figure }) {
    const offered = STACKS.filter(([name]) => isOffered(stacked(name, figure, '')));
    const known = offered.some(([name]) => name === by) ? offered : [...offered, [by, by] as [string, string]];
    return (
        <p class="controls">
            <label>
                Stacked by{' '}
                <select value={by} onChange={(event) => scope.go({ by: event.currentTarget.value === 'application' ? '' : event.currentTarget.value })}>
                    {known.map(([name, words]) => (
                        <option key={name} value={name}>
                            {words}
                        </option>
                    ))}
                </select>
            </label>{' '}
            <label>
                Figure{' '}
                <select value={figure} onChange={(event) => scope.go({ figure: event.currentTarget.value === 'bytes' ? '' : event.currentTarget.value })}>
                    {Object.entries(FIGURES).map(([name, { name: words }]) => (
                        <option key={name} value={name}>
                            {words}
                        </option>
                    ))}
                </select>
            </label>{' '}
            <label>
                Rows{' '}
                <select value={rowsOf(scope)} onChange={(event) => scope.go({ rows: event.currentTarget.value === ROWS[0] ? '' : event.currentTarget.value })}>
                    {offeredRows().map((rows) => (
                        <option key={rows}>{rows}</option>
                    ))}
                </select>
            </label>
        </p>
    );
}

const offeredRows = () => ROWS.filter((rows) => isOffered(ranked('host', 'bytes', rows)));
const rowsOf = ({ settings }: Scope) => offeredRows().find((rows) => rows === settings.get('rows')) ?? ROWS[0]!;

interface Ranking {
    title: string;
    /** What a group is. */
    head: string;
    by: string;
    note?: string;
}

const RANKINGS: Ranking[] = [
    { title: 'Top talkers', head: 'host', by: 'host', note: 'Each flow counts for both of its hosts.' },
    { title: 'Servers', head: 'server', by: 'server_ip' },
    { title: 'Services', head: 'service', by: 'protocol,service_port' },
    { title: 'Applications', head: 'application', by: 'application' },
    { title: 'Pairs', head: 'client – server', by: 'client_ip,server_ip' },
];

/** What is shown of each group. */
const numbersOf = (by: string) => (by === 'host' ? 'flows,packets,bytes,sent_bytes,received_bytes' : 'flows,packets,bytes');
const TOTALS: Parameters = { by: 'protocol', numbers: 'flows,packets,bytes,first_time,last_time', top: '1000' };
const ranked = (by: string, figure: Figure, rows: string): Parameters => ({ by, top: rows, numbers: numbersOf(by), sort: figure });

function stacked(by: string, figure: Figure, every: string): Parameters {
    const column = columnOfSum(by, figure);
    return { by: groupsOf(by, figure), every, top: String(LAYERS), numbers: column, sort: column };
}

/** What a file has the answers of: of each group all figures, one after another, which are of the same sums. */
export const QUESTIONS: Parameters[] = [
    TOTALS,
    ...STACKS.flatMap(([by]) => FIGURE_NAMES.map((figure) => stacked(by, figure, ''))),
    ...RANKINGS.flatMap(({ by }) => FIGURE_NAMES.flatMap((figure) => ROWS_OF_FILE.map((rows) => ranked(by, figure, rows)))),
];

function columns(totals: Totals, figure: Figure, by: string): NumberColumn[] {
    // Together, hosts have most flows twice.
    const isOne = (row: Flow) => by !== 'host' || isGroup(row);
    const sides = by === 'host' ? [counted('octets sent', 'sent_bytes'), counted('octets received', 'received_bytes')] : [];
    return [
        { head: '', isText: true, of: (row) => isOne(row) && <Bar share={number(row, figure) / (totals[figure] || 1)} /> },
        { head: 'share', of: (row) => (isOne(row) ? percent(number(row, figure), totals[figure]) : '–') },
        counted('octets', 'bytes'),
        counted('packets', 'packets'),
        counted('flows', 'flows'),
        ...sides,
    ];
}

function TopTable({ scope, totals, figure, of }: { scope: Scope; totals: Totals | undefined; figure: Figure; of: Ranking }) {
    const asked = totals && [question(scope, scope.span, ranked(of.by, figure, rowsOf(scope)))];
    const { answers, problems, isAsking } = useAnswers<Groups>(asked, scope.round);
    // Shares of older rows are those of the totals of that time.
    const of_rows = useRef<[Totals, Figure] | undefined>(undefined);
    if (totals && !isAsking) of_rows.current = [totals, figure];
    return (
        <section aria-busy={isAsking}>
            <h2>{of.title}</h2>
            {of.note && <p class="note">{of.note}</p>}
            {!isAsking && <Doubts answer={answers[0]} problem={problems[0]} />}
            {isAsking && !answers[0] && <p class="note">Asking …</p>}
            {answers[0] && of_rows.current && (
                <GroupTable
                    label={of.title}
                    head={of.head}
                    by={of.by}
                    rows={answers[0].groups}
                    columns={columns(...of_rows.current, of.by)}
                    chooser={scope.chooser}
                />
            )}
        </section>
    );
}

export function Traffic(props: ViewProps) {
    const scope = useScope('traffic', props);
    if (scope.about.history === 'none') {
        return (
            <>
                <h1>Traffic</h1>
                <Nothing />
            </>
        );
    }
    return <StoredTraffic scope={scope} />;
}

function StoredTraffic({ scope }: { scope: Scope }) {
    const figure = FIGURE_NAMES.find((figure) => figure === scope.settings.get('figure')) ?? 'bytes';
    const { answers, problems, isAsking } = useAnswers<Groups>([question(scope, scope.span, TOTALS)], scope.round);
    const [answer] = answers;
    const known = answer && totalsOf(answer, scope.span);
    const totals = isAsking ? undefined : known;
    const isEmpty = !isAsking && answer !== undefined && answer.matching === 0;
    return (
        <>
            <h1>Traffic</h1>
            <Memory about={scope.about} all={scope.span ? undefined : answer} />
            <ScopeBars scope={scope} shown={known?.span} />
            <Unended about={scope.about} />
            {!isAsking && <Doubts answer={answer} problem={problems[0]} />}
            {!answer && isAsking && <p>Asking …</p>}
            {isEmpty && <Empty scope={scope} />}
            {known && !isEmpty && !problems[0] && (
                <>
                    <p role="status" aria-busy={isAsking}>
                        Flows that began in this time: {count(known.flows)}, with {many(known.packets, 'packet')} and {many(known.bytes, 'octet')} of IP.
                    </p>
                    <TimeLine scope={scope} totals={totals} figure={figure} />
                    <div class="tables">
                        {RANKINGS.map((of) => (
                            <TopTable key={of.by} scope={scope} totals={totals} figure={figure} of={of} />
                        ))}
                    </div>
                </>
            )}
        </>
    );
}

