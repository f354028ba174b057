// How well it works: slow servers, loss and its side, connections and questions that failed, handshakes.
import { useState } from 'preact/hooks';
import type { Flow, Groups, Parameters, StoredFlows } from './api';
import { type Question, useAnswers } from './ask';
import { isOffered } from './file';
import { GroupTable, type NumberColumn, counted, groupText, isGroup, number } from './groups';
import { Bar, Mistake, Row, Table } from './parts';
import { parametersOf } from './range';
import { link } from './route';
import { Empty, Doubts, Memory, Nothing, type Scope, ScopeBars, type ViewProps, useScope } from './scope';
import { count, duration, many, percent } from './text';
import { and } from './where';

const ROWS = '10';
const SERVERS = 'server_ip,service_port';

function question({ where, span }: Scope, more: Parameters, condition?: string): Question {
    const both = condition === undefined ? where : where ? and(where, condition) : condition;
    return { path: '/stored', parameters: { ...parametersOf(span), ...more, where: both } };
}

const time = (row: Flow, name: string): string => (row[name] === null || row[name] === undefined ? '–' : duration(number(row, name)));
const timed = (head: string, name: string): NumberColumn => ({ head, of: (row) => time(row, name) });

/** A bar of a number, against the largest one. */
const bars = (rows: Flow[], name: string): NumberColumn => {
    const largest = Math.max(...rows.map((row) => number(row, name)), 1);
    return { head: '', isText: true, of: (row) => <Bar share={number(row, name) / largest} /> };
};

const groupsOf = (answer: Groups | undefined): Flow[] => (answer?.groups ?? []).filter(isGroup);

/** A part of the view: its heading, what is said when nothing is known, and the rest. */
function Part(props: { title: string; note: string; asked: { isAsking: boolean }; children: preact.ComponentChildren }) {
    return (
        <section aria-busy={props.asked.isAsking}>
            <h2>{props.title}</h2>
            <p class="note">{props.note}</p>
            {props.children}
        </section>
    );
}

/** The mean response without the mean round trip, ns; undefined where one of them is not known. */
function own(row: Flow): number | undefined {
    if (row.response_mean_ns === null || row.rtt_mean_ns === null) return undefined;
    return Math.max(0, number(row, 'response_mean_ns') - number(row, 'rtt_mean_ns'));
}

const ownText = (row: Flow): string => {
    const of = own(row);
    return of === undefined ? '–' : duration(of);
};

function SlowServers({ scope }: { scope: Scope }) {
    const asked = useAnswers<Groups>([question(scope, ...SLOW)], scope.round);
    const [answer] = asked.answers;
    const rows = groupsOf(answer);
    const [slowest] = rows;
    return (
        <Part
            title="Slow servers"
            note="Servers by the mean time from a request to its answer, over TCP. Without the round trip of the handshake, what is left is the time of the server itself, or less: only the path from the capture point to the server is in a response time."
            asked={asked}
        >
            <Doubts answer={answer} problem={asked.problems[0]} />
            {answer && !slowest && <p>No answers of servers were timed.</p>}
            {slowest && (
                <>
                    <p>
                        The slowest, {groupText(slowest, SERVERS)}, answers after {time(slowest, 'response_mean_ns')} in the mean
                        {own(slowest) !== undefined && `; ${ownText(slowest)} without the round trip of its handshakes`}.
                    </p>
                    <GroupTable
                        label="Slow servers"
                        head="server – port"
                        by={SERVERS}
                        rows={rows}
                        chooser={scope.chooser}
                        columns={[
                            bars(rows, 'response_mean_ns'),
                            timed('mean response', 'response_mean_ns'),
                            { head: 'without round trip', of: ownText },
                            timed('longest', 'response_max_ns'),
                            timed('round trip', 'rtt_mean_ns'),
                            counted('flows', 'flows'),
                        ]}
                    />
                    <Histogram scope={scope} field="response" title="Flows by mean response time" />
                </>
            )}
        </Part>
    );
}

/** Bounds of times: three for each power of ten would be more than can be asked. */
const BOUNDS = ['100us', '300us', '1ms', '3ms', '10ms', '30ms', '100ms', '300ms', '1s', '3s'];

/** Conditions for a field that is a time, with their words. */
const bins = (field: string): [string, string][] => [
    [`below ${BOUNDS[0]}`, `${field} < ${BOUNDS[0]}`],
    ...BOUNDS.slice(1).map((to, at): [string, string] => [`${BOUNDS[at]} to ${to}`, `${field} >= ${BOUNDS[at]} and ${field} < ${to}`]),
    [`from ${BOUNDS.at(-1)}`, `${field} >= ${BOUNDS.at(-1)}`],
];

/** Flows by a time: exact counts, a question for each row, when it is opened. */
function Histogram({ scope, field, title }: { scope: Scope; field: string; title: string }) {
    const [isOpen, open] = useState(false);
    return (
        <details onToggle={(event) => open(event.currentTarget.open)}>
            <summary>Histogram: {title}</summary>
            {isOpen && <Bins scope={scope} field={field} title={title} />}
        </details>
    );
}

function Bins({ scope, field, title }: { scope: Scope; field: string; title: string }) {
    const all = bins(field);
    const asked = all.map(([, condition]) => question(scope, COUNT, condition));
    const { answers, problems, isAsking } = useAnswers<StoredFlows>(asked, scope.round);
    const problem = problems.find((problem) => problem);
    if (problem) return <Mistake {...problem} />;
    if (isAsking && answers.length === 0) return <p>Asking …</p>;
    const counts = all.map((_, at) => answers[at]?.matching ?? 0);
    const sum = counts.reduce((sum, count) => sum + count, 0);
    return (
        <Table narrow label={title} heads={['time', '', 'flows', 'share']} numbers={[2, 3]}>
            {all.map(([words], at) => (
                <Row
                    key={words}
                    numbers={[2, 3]}
                    cells={[words.replaceAll('us', 'µs').replaceAll(/(\d)([a-zµ])/g, '$1 $2'), <Bar share={counts[at]! / (Math.max(...counts) || 1)} />, count(counts[at]!), percent(counts[at]!, sum)]}
                />
            ))}
        </Table>
    );
}

/** What became of the first segments, and the counts of each direction (docs/tcp.md). */
const LOSSES: [string, string, boolean][] = [
    ['seen here: lost behind the capture point, or its acknowledgment was', 'tcp_retransmitted_packets', true],
    ['seen here, a SYN', 'tcp_syn_retransmitted', true],
    ['not seen here: lost before the capture point', 'tcp_retransmitted_unseen', false],
];
const MAX_FLOWS = '1000';

/** The sum of a count of what clients sent, or servers. */
function sumOf(flows: Flow[], name: string, ofServer: boolean): number {
    const isOfServer = (flow: Flow) => flow.src_ip === flow.server_ip && flow.src_ip !== flow.dst_ip;
    return flows.reduce((sum, flow) => sum + number(flow, `${isOfServer(flow) === ofServer ? 'fwd' : 'rev'}_${name}`), 0);
}

function Loss({ scope }: { scope: Scope }) {
    const sums = useAnswers<Groups>([question(scope, ...LOST)], scope.round);
    const flows = useAnswers<StoredFlows>([question(scope, ...SIDES)], scope.round);
    const [answer] = sums.answers;
    const all = answer?.groups ?? [];
    const total = (name: string) => all.reduce((sum, row) => sum + number(row, name), 0);
    const [segments, retransmitted] = [total('segments'), total('retransmitted')];
    const rows = groupsOf(answer).filter((row) => number(row, 'retransmitted') > 0);
    const worst = rows[0];
    return (
        <Part
            title="Retransmissions"
            note="TCP segments that were sent once more, of both directions, and where the first ones were lost, as seen from the capture point."
            asked={sums}
        >
            <Doubts answer={answer} problem={sums.problems[0]} />
            {answer && segments === 0 && <p>No TCP segments were analysed.</p>}
            {answer && segments > 0 && (
                <p>
                    {percent(retransmitted, segments)} of {count(segments)} segments were retransmitted
                    {worst && `, most of them with ${groupText(worst, SERVERS)}: ${count(number(worst, 'retransmitted'))}`}.
                </p>
            )}
            {worst && (
                <GroupTable
                    label="Servers by retransmitted segments"
                    head="server – port"
                    by={SERVERS}
                    rows={rows}
                    chooser={scope.chooser}
                    columns={[
                        bars(rows, 'retransmitted'),
                        counted('retransmitted', 'retransmitted'),
                        { head: 'share', of: (row) => percent(number(row, 'retransmitted'), number(row, 'segments')) },
                        counted('segments', 'segments'),
                        counted('flows', 'flows'),
                    ]}
                />
            )}
            {worst && <Sides answer={flows.answers[0]} problem={flows.problems[0]} isAsking={flows.isAsking} retransmitted={retransmitted} />}
        </Part>
    );
}

function Sides(props: { answer: StoredFlows | undefined; problem: { error: string } | undefined; isAsking: boolean; retransmitted: number }) {
    const { answer, problem, isAsking, retransmitted } = props;
    if (problem) return <Mistake {...problem} />;
    if (!answer) return null;
    const rows = LOSSES.map(([words, name, isSeen]) => ({ words, isSeen, by: [false, true].map((ofServer) => sumOf(answer.flows, name, ofServer)) }));
    const sum = (isSeen: boolean) => rows.filter((row) => row.isSeen === isSeen).reduce((sum, row) => sum + row.by[0]! + row.by[1]!, 0);
    const [seen, unseen] = [sum(true), sum(false)];
    return (
        <div aria-busy={isAsking}>
            <h3>The side of the loss</h3>
            <p>
                The first segment of {count(seen)} was seen here, that of {count(unseen)} was not: it was lost before the capture point.
                {seen + unseen < retransmitted &&
                    ` These are ${percent(seen + unseen, retransmitted)} of all: those of the ${many(answer.flows.length, 'flow')} with the most.`}
            </p>
            <Table narrow label="The side of the loss" heads={['the first one was', 'from clients', 'from servers']} numbers={[1, 2]}>
                {rows.map(({ words, by }) => (
                    <Row key={words} cells={[words, count(by[0]!), count(by[1]!)]} numbers={[1, 2]} />
                ))}
            </Table>
        </div>
    );
}

interface Reason {
    name: string;
    condition: string;
}

// The client sent nothing but SYN and RST (docs/tcp.md, failed connections).
const ONLY_SYN = 'tcp and src flags S and not src flags A and not src flags P and not src flags F and not src flags U';
const OPENED = 'tcp and src flags SA and not (src flags F and dst flags F)';
const FAILED: Reason[] = [
    { name: 'no answer', condition: `${ONLY_SYN} and rev_packets = 0` },
    { name: 'refused', condition: `${ONLY_SYN} and dst flags R and not dst flags S` },
    { name: 'half-open', condition: `${ONLY_SYN} and dst flags S` },
    { name: 'reset by the server', condition: `${OPENED} and dst flags R` },
    { name: 'reset by the client', condition: `${OPENED} and src flags R and not dst flags R` },
];
const DNS: Reason[] = [
    { name: 'NXDOMAIN', condition: 'dns_nxdomain > 0' },
    { name: 'without an answer', condition: 'dns_unanswered > 0' },
    { name: 'another error', condition: 'dns_rcode > 0 and dns_rcode != NXDOMAIN' },
];
const HTTP: Reason[] = [
    { name: 'status 4xx', condition: 'http_4xx > 0' },
    { name: 'status 5xx', condition: 'http_5xx > 0' },
];
const ROWS_OF_REASON = '5';

/** Flows that failed for several reasons, and the groups with the most of each. */
function Reasons(props: { scope: Scope; title: string; note: string; none: string; what: string; reasons: Reason[]; by: string; head: string }) {
    const { scope, title, note, none, what, reasons, by, head } = props;
    const questions = reasons.map((reason) => question(scope, ...failedFor(reason, by)));
    const asked = useAnswers<Groups>(questions, scope.round);
    const found = reasons.flatMap((reason, at) => {
        const answer = asked.answers[at];
        return answer && answer.matching > 0 ? [{ ...reason, answer }] : [];
    });
    const most = [...found].sort((one, other) => other.answer.matching - one.answer.matching)[0];
    const failed = reasons.findIndex((_, at) => asked.problems[at]);
    const largest = most?.answer.matching ?? 1;
    return (
        <Part title={title} note={note} asked={asked}>
            {failed >= 0 && <Doubts answer={undefined} problem={asked.problems[failed]} />}
            {failed < 0 && !asked.isAsking && !most && <p>{none}</p>}
            {most && (
                <>
                    <p>
                        Most often: {most.name}, {many(most.answer.matching, what)}
                        {most.answer.groups[0] && isGroup(most.answer.groups[0]) && `, ${count(number(most.answer.groups[0], 'flows'))} of them with ${groupText(most.answer.groups[0], by)}`}.
                    </p>
                    <Table narrow label={`${title} by reason`} heads={['reason', '', 'flows']} numbers={[2]}>
                        {found.map(({ name, condition, answer }) => (
                            <Row
                                key={name}
                                numbers={[2]}
                                cells={[
                                    scope.chooser.go ? (
                                        <button type="button" class="plain" title={`Only ${condition}`} onClick={() => scope.chooser.go?.(and(scope.where, condition))}>
                                            {name}
                                        </button>
                                    ) : (
                                        name
                                    ),
                                    <Bar share={answer.matching / largest} />,
                                    count(answer.matching),
                                ]}
                            />
                        ))}
                    </Table>
                    {found.map(({ name, condition, answer }) => (
                        <details key={name}>
                            <summary>{name}: where, and how often</summary>
                            <GroupTable
                                label={`${title}: ${name}`}
                                head={head}
                                by={by}
                                rows={answer.groups}
                                chooser={{ ...scope.chooser, where: and(scope.where, condition) }}
                                columns={[counted('flows', 'flows'), counted('packets', 'packets')]}
                            />
                        </details>
                    ))}
                </>
            )}
        </Part>
    );
}

const NETWORKS: [string, string][] = [
    ['client_ip/24', 'subnet of the client'],
    ['server_ip/24', 'subnet of the server'],
    ['src_network', 'network of the client'],
    ['dst_network', 'network of the server'],
    ['country', 'country'],
    ['as', 'autonomous system'],
];

function Handshakes({ scope }: { scope: Scope }) {
    const by = NETWORKS.find(([name]) => name === scope.settings.get('net'))?.[0] ?? NETWORKS[0]![0];
    const asked = useAnswers<Groups>([question(scope, ...handshakes(by))], scope.round);
    const [answer] = asked.answers;
    const rows = groupsOf(answer);
    const [longest] = rows;
    return (
        <Part title="Handshakes" note="The round trip of TCP handshakes: of the path to the client and to the server together." asked={asked}>
            <p class="controls">
                <label>
                    By{' '}
                    <select value={by} onChange={(event) => scope.go({ net: event.currentTarget.value === NETWORKS[0]![0] ? '' : event.currentTarget.value })}>
                        {NETWORKS.filter(([name]) => isOffered(parametersOfFile(handshakes(name)))).map(([name, words]) => (
                            <option key={name} value={name}>
                                {words}
                            </option>
                        ))}
                    </select>
                </label>
            </p>
            {!asked.isAsking && <Doubts answer={answer} problem={asked.problems[0]} />}
            {answer && !longest && <p>No handshakes were seen.</p>}
            {longest && !asked.isAsking && (
                <>
                    <p>
                        The longest, {groupText(longest, by)}: {time(longest, 'rtt_mean_ns')} in the mean of {many(number(longest, 'flows'), 'connection')}.
                    </p>
                    <GroupTable
                        label="Handshakes"
                        head={NETWORKS.find(([name]) => name === by)![1]}
                        by={by}
                        rows={rows}
                        chooser={scope.chooser}
                        columns={[bars(rows, 'rtt_mean_ns'), timed('mean round trip', 'rtt_mean_ns'), timed('longest', 'rtt_max_ns'), counted('connections', 'flows')]}
                    />
                    <Histogram scope={scope} field="rtt" title="Connections by round trip of the handshake" />
                </>
            )}
        </Part>
    );
}

/** Parameters, and a condition. */
type Asked = [Parameters, string?];
const ALL: Parameters = { top: '1', sort: 'start_time', fields: 'start_time' };
const COUNT: Parameters = { top: '1', fields: 'start_time' };
const SLOW: Asked = [{ by: SERVERS, sort: 'response_mean_ns', top: ROWS }, 'response'];
const LOST: Asked = [{ by: SERVERS, sort: 'retransmitted', top: ROWS }];
const FIELDS_OF_SIDES = ['src_ip', 'dst_ip', 'server_ip', ...LOSSES.flatMap(([, name]) => [`fwd_${name}`, `rev_${name}`])].join(',');
const SIDES: Asked = [{ sort: 'retransmitted', top: MAX_FLOWS, fields: FIELDS_OF_SIDES }, 'retransmitted > 0'];
const failedFor = ({ condition }: Reason, by: string): Asked => [{ by, sort: 'flows', top: ROWS_OF_REASON }, condition];
const handshakes = (by: string): Asked => [{ by, sort: 'rtt_mean_ns', top: ROWS }, 'rtt'];
const parametersOfFile = ([parameters, where]: Asked): Parameters => ({ ...parameters, where });

/** What a file has the answers of. */
export const QUESTIONS: Parameters[] = [
    [ALL] as Asked,
    SLOW,
    LOST,
    SIDES,
    ...FAILED.map((reason) => failedFor(reason, SERVERS)),
    ...DNS.map((reason) => failedFor(reason, 'dns_name')),
    ...HTTP.map((reason) => failedFor(reason, 'http_host')),
    ...NETWORKS.map(([by]) => handshakes(by)),
    ...['response', 'rtt'].flatMap((field) => bins(field).map(([, condition]): Asked => [COUNT, condition])),
].map(parametersOfFile);

export function Quality(props: ViewProps) {
    const scope = useScope('quality', props);
    if (scope.about.history === 'none') {
        return (
            <>
                <h1>Quality</h1>
                <Nothing />
            </>
        );
    }
    return <StoredQuality scope={scope} />;
}

function StoredQuality({ scope }: { scope: Scope }) {
    const all = useAnswers<StoredFlows>([question(scope, ALL)], scope.round);
    const [answer] = all.answers;
    const flows = link('flows', { of: 'stored', where: scope.where, ...scopeSettings(scope), sort: 'response' });
    return (
        <>
            <h1>Quality</h1>
            <Memory about={scope.about} all={scope.span ? undefined : answer} />
            <ScopeBars scope={scope} shown={undefined} />
            {!all.isAsking && <Doubts answer={answer} problem={all.problems[0]} />}
            {answer && answer.matching === 0 && !all.isAsking && <Empty scope={scope} answer={answer} />}
            {answer && answer.matching > 0 && !all.problems[0] && (
                <>
                    <p role="status">
                        Flows of this time: {count(answer.matching)}
                        {scope.about.mode !== 'file' && [' (', <a href={flows}>all of them, by response time</a>, ')']}.
                    </p>
                    <SlowServers scope={scope} />
                    <Loss scope={scope} />
                    <Reasons
                        scope={scope}
                        title="Failed connections"
                        note="TCP connections that did not open, and those that ended by RST before both sides had sent FIN."
                        none="No connection failed."
                        what="connection"
                        reasons={FAILED}
                        by={SERVERS}
                        head="server – port"
                    />
                    <Reasons
                        scope={scope}
                        title="DNS failures"
                        note="Flows of DNS in which a question failed, by the first name that was asked for."
                        none="No question failed."
                        what="flow"
                        reasons={DNS}
                        by="dns_name"
                        head="name"
                    />
                    <Reasons
                        scope={scope}
                        title="HTTP failures"
                        note="Flows of HTTP/1 with a response that says so, by the host of the first request. What TLS encrypts is not seen."
                        none="No request failed."
                        what="flow"
                        reasons={HTTP}
                        by="http_host"
                        head="host"
                    />
                    <Handshakes scope={scope} />
                </>
            )}
        </>
    );
}

/** The time of a scope, for links to other views. */
const scopeSettings = ({ settings }: Scope): Record<string, string> =>
    Object.fromEntries(['from', 'to', 'was'].map((name) => [name, settings.get(name) ?? '']));
