// How well it works: slow servers, loss and its side, connections and questions that failed, handshakes.
import { useState } from 'preact/hooks';
import type { Flow, Groups, Parameters, StoredFlows } from './api';
import { type Problem, type Question, useAnswers } from './ask';
import { isOffered } from './file';
import { type Chooser, GroupTable, type NumberColumn, counted, groupText, isGroup, number } from './groups';
import { Bar, Mistake, Row, Table } from './parts';
import { parametersOf } from './range';
import { link } from './route';
import { Empty, Doubts, Memory, Nothing, type Scope, ScopeBars, Unended, type ViewProps, isDoubtful, useScope } from './scope';
import { count, duration, many, percent } from './text';
import { and } from './where';

const ROWS = '10';
const SERVERS = 'server_ip,service_port';
const CLIENTS = 'client_ip';

function question({ where, span }: Scope, more: Parameters, condition?: string): Question {
    const both = condition === undefined ? where : where ? and(where, condition) : condition;
    return { path: '/stored', parameters: { ...parametersOf(span), ...more, where: both } };
}

const time = (row: Flow, name: string): string => (row[name] === null || row[name] === undefined ? '–' : duration(number(row, name)));
const timed = (head: string, name: string): NumberColumn => ({ head, of: (row) => time(row, name) });

/** A bar of a number, against the largest one of a group. */
const bars = (rows: Flow[], name: string): NumberColumn => {
    const largest = Math.max(...rows.filter(isGroup).map((row) => number(row, name)), 1);
    return { head: '', isText: true, of: (row) => isGroup(row) && <Bar share={number(row, name) / largest} /> };
};

/** The rows that have something, and those of them that are groups: the last one may sum up the groups that are left out. */
function rowsOf(answer: Groups | undefined, has: (row: Flow) => boolean): { rows: Flow[]; groups: Flow[] } {
    const rows = (answer?.groups ?? []).filter(has);
    return { rows, groups: rows.filter(isGroup) };
}

/** Rows of counts in which only some groups have a row of their own: the last row sums up the others. */
function folded(rows: Flow[], isListed: (row: Flow) => boolean): Flow[] {
    const listed = rows.filter((row) => isGroup(row) && isListed(row));
    const others = rows.filter((row) => !listed.includes(row));
    const [first] = others;
    if (!first) return listed;
    const sum = (name: string) => others.reduce((sum, row) => sum + number(row, name), 0);
    const sums = Object.fromEntries(Object.keys(first).map((name) => [name, sum(name)]));
    // Null if there was no memory to count them.
    const isCounted = others.every((row) => row.other_groups !== null);
    return [...listed, { ...sums, other_groups: isCounted ? sum('other_groups') + others.filter(isGroup).length : null }];
}

const hasSome = (name: string) => (row: Flow) => number(row, name) > 0;
const isKnown = (name: string) => (row: Flow) => row[name] !== null;

/** The one of which there is most, if no other one has as many, and of all: `the most with X: 125 of 610`. */
function most<Of>(sorted: Of[], numberOf: (of: Of) => number, words: (of: Of) => string, all: number, which: [string, string]): string {
    const [first, second] = sorted;
    if (first === undefined || numberOf(first) <= 1 || (second !== undefined && numberOf(second) === numberOf(first))) return '';
    return numberOf(first) === all ? `${which[1]} ${words(first)}` : `${which[0]} ${words(first)}: ${count(numberOf(first))} of ${count(all)}`;
}

/** The same of sorted groups. */
const mostWith = (groups: Flow[], by: string, name: string, all: number): string =>
    most(groups, (row) => number(row, name), (row) => groupText(row, by), all, ['the most with', 'all with']);

/** A part of the view: its heading, what is said when nothing is known, and the rest. */
function Part(props: { title: string; note: string; asked: { isAsking: boolean; answers: unknown[] }; children: preact.ComponentChildren }) {
    const { isAsking, answers } = props.asked;
    return (
        <section aria-busy={isAsking}>
            <h2>{props.title}</h2>
            <p class="note">{props.note}</p>
            {isAsking && answers.length === 0 && <p class="note">Asking …</p>}
            {props.children}
        </section>
    );
}

/** The sum of a number over all groups: also those that are one row. */
const total = (answer: Groups | undefined, name: string): number => (answer?.groups ?? []).reduce((sum, row) => sum + number(row, name), 0);

/** A chooser that adds a condition with each group. */
const choosing = ({ chooser, where }: Scope, condition: string): Chooser => ({ ...chooser, where: and(where, condition) });

/** One whose rows are no filters: a filter sees only the first name of a flow, rows of transactions have each. */
const unfiltered = ({ chooser: { fields, where } }: Scope): Chooser => ({ fields, where });
const NO_FILTER = 'These rows are no filters: the record of a flow has only the first of its names.';

function SlowServers({ scope }: { scope: Scope }) {
    const asked = useAnswers<Groups>([question(scope, ...SLOW)], scope.round);
    const [answer] = asked.answers;
    const { rows, groups } = rowsOf(answer, isKnown('response_mean_ns'));
    const [slowest] = groups;
    return (
        <Part
            title="Slow servers"
            note="Servers by the mean time from a request to its answer, over TCP. A response time has the path from the capture point to the server in it: without the round trip to the server, the time of the server itself is left, on average over the flows whose round trip is known."
            asked={asked}
        >
            <Doubts answer={answer} problem={asked.problems[0]} />
            {answer && !slowest && <p>No answers of servers were timed.</p>}
            {slowest && (
                <>
                    <p>
                        The slowest, {groupText(slowest, SERVERS)}, answers after {time(slowest, 'response_mean_ns')} on average
                        {isKnown('server_time_mean_ns')(slowest) && `; ${time(slowest, 'server_time_mean_ns')} without the round trip to it`}.
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
                            timed('without round trip', 'server_time_mean_ns'),
                            timed('longest', 'response_max_ns'),
                            timed('round trip to the server', 'server_rtt_mean_ns'),
                            timed('to the clients', 'client_rtt_mean_ns'),
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

/** Handshakes whose time is a round trip: with one SYN of each side. */
const SINGLE_SYN = ['fwd', 'rev'].map((side) => `${side}_tcp_syn_count = 1 and ${side}_tcp_syn_retransmitted = 0`).join(' and ');
/** The times of histograms, and the flows that have them. */
const HISTOGRAMS: Record<string, string> = { response: '', rtt: ` and ${SINGLE_SYN}` };

/** Conditions for a field that is a time, with their words. */
const bins = (field: string): [string, string][] =>
    [
        [`below ${BOUNDS[0]}`, `${field} < ${BOUNDS[0]}`],
        ...BOUNDS.slice(1).map((to, at) => [`${BOUNDS[at]} to ${to}`, `${field} >= ${BOUNDS[at]} and ${field} < ${to}`]),
        [`from ${BOUNDS.at(-1)}`, `${field} >= ${BOUNDS.at(-1)}`],
    ].map(([words, condition]) => [words!, `${condition}${HISTOGRAMS[field]}`]);

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

/** What became of the first segments, and the sums of what clients and servers retransmitted (docs/views.md). */
const LOSSES: [string, string][] = [
    ['seen here: lost behind the capture point, or its acknowledgment was', 'retransmitted_seen'],
    ['not seen here: lost before the capture point', 'retransmitted_unseen'],
];
const ANSWERED = 'not tcp_failure = no_answer';
const SENDERS = ['client', 'server'];
const LOSS_SUMS = SENDERS.flatMap((sender) => LOSSES.map(([, name]) => `${sender}_${name}`)).join(',');

/** Segments that were lost between the client and the capture point, or between that and the server. */
const lostAt = (row: Flow, side: string, other: string): number => number(row, `${side}_retransmitted_unseen`) + number(row, `${other}_retransmitted_seen`);

/** Those with the most retransmitted segments, the side of the loss first: what most readers look for. */
function LossTable({ scope, label, head, by, rows }: { scope: Scope; label: string; head: string; by: string; rows: Flow[] }) {
    return (
        <GroupTable
            label={label}
            head={head}
            by={by}
            rows={rows}
            chooser={choosing(scope, `retransmitted > 0 and ${ANSWERED}`)}
            columns={[
                bars(rows, 'retransmitted'),
                { head: 'client – here', of: (row) => count(lostAt(row, 'client', 'server')) },
                { head: 'here – server', of: (row) => count(lostAt(row, 'server', 'client')) },
                counted('retransmitted', 'retransmitted'),
                { head: 'share', of: (row) => percent(number(row, 'retransmitted'), number(row, 'segments')) },
                counted('segments', 'segments'),
                counted('flows', 'flows'),
            ]}
        />
    );
}

/** The clients whose connections have the most loss, of both directions. */
function LossByClient({ scope }: { scope: Scope }) {
    const asked = useAnswers<Groups>([question(scope, ...lost(CLIENTS))], scope.round);
    const [answer] = asked.answers;
    const { rows, groups } = rowsOf(answer, hasSome('retransmitted'));
    const mostly = mostWith(groups, CLIENTS, 'retransmitted', total(answer, 'retransmitted'));
    return (
        <div aria-busy={asked.isAsking}>
            <h3>Clients</h3>
            {!asked.isAsking && <Doubts answer={answer} problem={asked.problems[0]} />}
            {answer && (
                <p>
                    Retransmitted segments of all connections of a client, whoever sent them
                    {mostly && `: ${mostly}`}.
                </p>
            )}
            {groups.length > 0 && <LossTable scope={scope} label="Clients by retransmitted segments" head="client" by={CLIENTS} rows={rows} />}
        </div>
    );
}

function Loss({ scope }: { scope: Scope }) {
    const asked = useAnswers<Groups>([question(scope, ...lost(SERVERS))], scope.round);
    const [answer] = asked.answers;
    const [segments, retransmitted] = [total(answer, 'segments'), total(answer, 'retransmitted')];
    const { rows, groups } = rowsOf(answer, hasSome('retransmitted'));
    const worst = groups[0];
    const mostly = mostWith(groups, SERVERS, 'retransmitted', retransmitted);
    return (
        <Part
            title="Retransmissions"
            note="TCP segments that were sent once more, of both directions, and where the first ones, or their acknowledgments, were lost. “Here” is the capture point, where Weir sees the packets. Segments under “client – here” were lost between the client and this point, for example in the WLAN or the access line of the client; those under “here – server” between this point and the server. Look for the cause on the side with the larger number. Connections that were never answered are left out: that a SYN is repeated there is no loss."
            asked={asked}
        >
            <Doubts answer={answer} problem={asked.problems[0]} />
            {answer && segments === 0 && <p>No TCP segments were analysed.</p>}
            {answer && segments > 0 && (
                <p>
                    {percent(retransmitted, segments)} of {count(segments)} segments were retransmitted
                    {mostly && `, ${mostly}`}.
                </p>
            )}
            {worst && (
                <>
                    <LossTable scope={scope} label="Servers by retransmitted segments" head="server – port" by={SERVERS} rows={rows} />
                    <LossByClient scope={scope} />
                    <h3>The side of the loss</h3>
                    <Table narrow label="The side of the loss" heads={['the first one was', 'from clients', 'from servers']} numbers={[1, 2]}>
                        {LOSSES.map(([words, name]) => (
                            <Row key={name} cells={[words, ...SENDERS.map((sender) => count(total(answer, `${sender}_${name}`)))]} numbers={[1, 2]} />
                        ))}
                    </Table>
                </>
            )}
        </Part>
    );
}

/** A reason for which something fails: its words, its sum, and the condition of the flows that have it. */
type Reason = [string, string, string];

const FAILED: Reason[] = [
    ['no answer', 'no_answer'],
    ['refused', 'refused'],
    ['half-open', 'half_open'],
    ['reset by the server', 'reset_by_server'],
    ['reset by the client', 'reset_by_client'],
    ['reset by both', 'reset_by_both'],
].map(([words, name]) => [words!, name!, `tcp_failure = ${name}`]);
const DNS: Reason[] = [
    ['NXDOMAIN', 'dns_nxdomain'],
    ['SERVFAIL', 'dns_servfail'],
    ['REFUSED', 'dns_refused'],
    ['another error', 'dns_other_errors'],
    ['without an answer', 'dns_unanswered'],
].map(([words, name]) => [words!, name!, `${name} > 0`]);
const HTTP: Reason[] = [
    ['status 4xx', 'http_4xx'],
    ['status 5xx', 'http_5xx'],
].map(([words, name]) => [words!, name!, `${name} > 0`]);

/** What is asked about failures. */
interface Trial {
    by: string;
    /** The flows that may fail. */
    among: string;
    /** The sum of what is tried, and of what fails. */
    tried: string;
    failed: string;
    reasons: Reason[];
    /** More sums. */
    sums?: string;
    /** Which records: flows if it is not said. */
    records?: string;
}

const CONNECTIONS: Trial = { by: SERVERS, among: 'tcp', tried: 'flows', failed: 'failed', reasons: FAILED };
const RESOLVERS: Trial = {
    by: 'server_ip',
    among: 'dns_queries > 0',
    tried: 'dns_queries',
    failed: 'dns_failed',
    reasons: DNS,
    sums: 'dns_forgotten,dns_response_mean_ns',
};
const NAMES: Trial = { ...RESOLVERS, by: 'dns_name' };
/** A flow with several questions has the name of the first one only. */
const SINGLE_NAMES: Trial = { ...NAMES, among: 'dns_queries = 1' };
const REQUESTS: Trial = {
    by: 'http_host',
    among: 'http_requests > 0',
    tried: 'http_requests',
    failed: 'http_errors',
    reasons: HTTP,
    sums: 'http_response_mean_ns',
};

interface Failing {
    scope: Scope;
    of: Trial;
    title: string;
    note: string;
    head: string;
    /** What is tried. */
    what: string;
    /** When nothing was tried. */
    none: string;
    /** More sums, as columns and in sentences. */
    more?: NumberColumn[];
    also?: (answer: Groups) => string;
    /** What selects those that fail, if it is shorter than all reasons. */
    selects?: string;
    /** Flows that the answer does not have. */
    without?: string;
    /** How many of those that failed are in the table of scans. With `without` they are not in the answer. */
    scanned?: number;
    /** Groups with less failures are among the others. */
    fewest?: number;
    /** An answer that this part depends on: its doubts are shown if the own answer has none. */
    basis?: { answer: Groups | undefined; problem: Problem | undefined };
    /** What stands behind the sentences, and the heading of what follows. */
    children?: preact.ComponentChildren;
    subtitle?: string;
}

/** How many failed: all, and those that are no scans. */
function failedText(bad: number, all: number, what: string, scanned: number): string {
    const text = `${count(bad)} of ${many(all, what)} failed (${percent(bad, all)})`;
    if (scanned === 0) return text;
    if (scanned === all) return `${text}, all of them in the scans below`;
    return `${text}, ${count(scanned)} of them in the scans below; without these, ${count(bad - scanned)} of ${count(all - scanned)} failed`;
}

/** A reason with the number of those that failed for it. */
interface ReasonCount {
    words: string;
    condition: string;
    number: number;
}

/** What fails, by reason. `go` adds the condition of a reason to the filter. */
function Reasons({ label, what, found, go }: { label: string; what: string; found: ReasonCount[]; go: ((condition: string) => void) | undefined }) {
    const largest = Math.max(...found.map(({ number }) => number));
    return (
        <Table narrow label={label} heads={['reason', '', `${what}s`]} numbers={[2]}>
            {found.map(({ words, condition, number }) => (
                <Row
                    key={words}
                    numbers={[2]}
                    cells={[
                        go ? (
                            <button type="button" class="plain" title={`Only ${condition}`} onClick={() => go(condition)}>
                                {words}
                            </button>
                        ) : (
                            words
                        ),
                        <Bar share={number / largest} />,
                        count(number),
                    ]}
                />
            ))}
        </Table>
    );
}

/** What fails, by reason, and the groups with the most failures. */
function Failures(props: Failing) {
    const { scope, of, title, note, head, what, none, more, also, selects, without, scanned = 0, fewest = 1, basis, children, subtitle } = props;
    const { by, tried, failed, reasons } = of;
    const asked = useAnswers<Groups>([question(scope, ...failures(of, without))], scope.round);
    const [answer] = asked.answers;
    const [all, bad] = [total(answer, tried), total(answer, failed)];
    const found = reasons.map(([words, name, condition]) => ({ words, name, condition, number: total(answer, name) })).filter(({ number }) => number > 0);
    const sorted = [...found].sort((one, other) => other.number - one.number);
    const mostCommon = most(sorted, ({ number }) => number, ({ words }) => words, bad, ['most often', 'all of them:']);
    const { rows: failing, groups } = rowsOf(answer, hasSome(failed));
    const rows = fewest > 1 ? folded(failing, (row) => number(row, failed) >= fewest) : failing;
    const mostly = mostWith(groups, by, failed, bad);
    const condition = found.map(({ condition }) => condition).join(' or ');
    const own = asked.isAsking ? undefined : { answer, problem: asked.problems[0] };
    const doubts = basis && !(own && isDoubtful(own)) ? basis : own;
    // A filter selects the flows that are counted here.
    const only = (where: string) => (without ? and(where, `not (${without})`) : where);
    const { go } = scope.chooser;
    const left = without ? scanned : 0;
    return (
        <Part title={title} note={note} asked={asked}>
            {doubts && <Doubts {...doubts} />}
            {/* Scans and the others are two answers: together they are those of one question. */}
            {answer && !asked.problems[0] && !(scanned > 0 && asked.isAsking) && (
                <p>
                    {all + left === 0 ? none : failedText(bad + left, all + left, what, scanned)}
                    {scanned === 0 && mostCommon && `, ${mostCommon}`}
                    {scanned === 0 && mostly && `; ${mostly}`}
                    {all + left > 0 && '.'}
                    {also?.(answer)}
                </p>
            )}
            {children}
            {found.length > 0 && subtitle && <h3>{subtitle}</h3>}
            {found.length > 0 && (
                <Reasons label={`${title} by reason`} what={what} found={found} go={go && ((condition) => go(only(and(scope.where, condition))))} />
            )}
            {rows.length > 0 && (
                <GroupTable
                    label={title}
                    head={head}
                    by={by}
                    rows={rows}
                    chooser={
                        of.records
                            ? unfiltered(scope)
                            : { ...scope.chooser, where: only(and(scope.where, selects ?? (found.length > 1 ? `(${condition})` : condition))) }
                    }
                    columns={[
                        bars(rows, failed),
                        counted('failed', failed),
                        { head: 'share', of: (row) => percent(number(row, failed), number(row, tried)) },
                        ...found.map(({ words, name }) => counted(words, name)),
                        ...(more ?? []),
                    ]}
                />
            )}
        </Part>
    );
}

/** Connections that never opened, by their source; with so many targets it scans (docs/page.md). */
const UNOPENED = 'tcp_failure in {no_answer, refused, half_open}';
const FEWEST_TARGETS = 20;
const SCANS: Asked = [{ by: CLIENTS, numbers: 'flows', count: 'hosts,ports', sort: 'flows', top: '100' }, UNOPENED];

const isScan = (row: Flow): boolean => Math.max(number(row, 'hosts'), number(row, 'ports')) >= FEWEST_TARGETS;

/** A number of different values, which may be an estimate. */
const distinct = (head: string, name: string): NumberColumn => ({
    head,
    of: (row) => `${number(row, `${name}_error`) > 0 ? '~' : ''}${count(number(row, name))}`,
});

/** Connections that failed: scans in a line each, and the others by server. */
function FailedConnections({ scope }: { scope: Scope }) {
    const asked = useAnswers<Groups>([question(scope, ...SCANS)], scope.round);
    const [answer] = asked.answers;
    const scans = rowsOf(answer, isScan).groups;
    const sources = scans.map((row) => row.client_ip).join(', ');
    const without = scans.length > 0 ? `client_ip in {${sources}} and ${UNOPENED}` : undefined;
    // A file has no answer about what it was not asked before.
    const isLeftOut = without !== undefined && isOffered(parametersOfFile(failures(CONNECTIONS, without)));
    if (asked.isAsking && !answer) return <p class="note">Asking …</p>;
    return (
        <Failures
            scope={scope}
            title="Failed connections"
            note="TCP connections that did not open, and those that ended by RST before both sides had sent FIN."
            of={CONNECTIONS}
            head="server – port"
            what="TCP flow"
            none="None of these flows is TCP."
            selects="tcp_failure"
            without={isLeftOut ? without : undefined}
            scanned={scans.reduce((sum, row) => sum + number(row, 'flows'), 0)}
            fewest={without === undefined || isLeftOut ? 1 : 2}
            basis={{ answer, problem: asked.problems[0] }}
            subtitle={without && (isLeftOut ? 'Other failed connections' : 'All failed connections')}
        >
            {scans.length > 0 && (
                <>
                    <h3>Scans</h3>
                    <p class="note">
                        Sources whose connections to {FEWEST_TARGETS} hosts or ports, or more, did not open.{' '}
                        {isLeftOut ? 'The other tables are without these connections.' : 'Their connections are in the other tables, too; servers with one failed connection are among the others.'}
                    </p>
                    <GroupTable
                        label="Scans"
                        head="source"
                        by={CLIENTS}
                        rows={scans}
                        chooser={choosing(scope, UNOPENED)}
                        columns={[
                            bars(scans, 'flows'),
                            distinct('hosts', 'hosts'),
                            distinct('ports', 'ports'),
                            counted('connections that did not open', 'flows'),
                        ]}
                    />
                </>
            )}
        </Failures>
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
    const { rows, groups } = rowsOf(answer, isKnown('rtt_mean_ns'));
    const [longest] = groups;
    return (
        <Part
            title="Handshakes"
            note="The round trip of TCP handshakes: of the path to the client and to the server together. Handshakes with a repeated SYN are left out: which one was answered is not known."
            asked={asked}
        >
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
            {answer && !longest && <p>None of these flows has a handshake whose time is known.</p>}
            {longest && !asked.isAsking && (
                <>
                    <p>
                        The longest, {groupText(longest, by)}: {time(longest, 'rtt_mean_ns')} on average over {many(number(longest, 'server_rtt_count'), 'connection')}.
                    </p>
                    <GroupTable
                        label="Handshakes"
                        head={NETWORKS.find(([name]) => name === by)![1]}
                        by={by}
                        rows={rows}
                        chooser={scope.chooser}
                        columns={[
                            bars(rows, 'rtt_mean_ns'),
                            timed('mean round trip', 'rtt_mean_ns'),
                            timed('to the client', 'client_rtt_mean_ns'),
                            timed('to the server', 'server_rtt_mean_ns'),
                            timed('longest', 'rtt_max_ns'),
                            counted('connections', 'server_rtt_count'),
                        ]}
                    />
                    <Histogram scope={scope} field="rtt" title="Connections by round trip of the handshake" />
                </>
            )}
        </Part>
    );
}

const OF_TRANSACTIONS = 'transactions';

/** What records of transactions say of each question and request. */
function Transactions({ scope }: { scope: Scope }) {
    return (
        <>
            <Failures
                scope={scope}
                title="Failed names"
                note={`Each DNS query by its own name, from the records of transactions. ${NO_FILTER}`}
                of={{ ...NAMES, records: OF_TRANSACTIONS }}
                head="name"
                what="question"
                none="No DNS queries were recorded."
                more={[timed('mean time', 'dns_response_mean_ns')]}
                also={forgotten}
            />
            <HttpFailures scope={scope} records={OF_TRANSACTIONS} by={`its own host, from the records of transactions. ${NO_FILTER}`} />
            <SlowUrls scope={scope} />
        </>
    );
}

/** `records` and `by`: of what, and by which host. */
function HttpFailures({ scope, records, by }: { scope: Scope; records?: string; by: string }) {
    return (
        <Failures
            scope={scope}
            title="HTTP failures"
            note={`Each request of HTTP/1 that failed, by ${by} What TLS encrypts is not seen.`}
            of={{ ...REQUESTS, records }}
            head="host"
            what="request"
            none={`There are no requests of HTTP/1 in these ${records ?? 'flows'}.`}
            more={[timed('mean time', 'http_response_mean_ns')]}
        />
    );
}

const URLS = 'http_host,http_path';

function SlowUrls({ scope }: { scope: Scope }) {
    const ask = (by: string) =>
        question(scope, { by, sum: 'http_requests,http_errors,http_response_max_ns', sort: 'http_response_mean_ns', top: ROWS, records: OF_TRANSACTIONS }, 'http_requests > 0');
    const whole = useAnswers<Groups>([ask(URLS)], scope.round);
    // Paths are recorded only if they are asked for.
    const hasNoPaths = /http_path/.test(whole.problems[0]?.error ?? '');
    const hosts = useAnswers<Groups>(hasNoPaths ? [ask('http_host')] : [], scope.round);
    const [by, asked] = hasNoPaths ? ['http_host', hosts] : [URLS, whole];
    const [answer] = asked.answers;
    const { rows, groups } = rowsOf(answer, isKnown('http_response_mean_ns'));
    const [slowest] = groups;
    return (
        <Part
            title="Slowest URLs"
            note={`Requests of HTTP/1 by ${hasNoPaths ? 'host: paths are recorded with --dpi-fields' : 'host and path'}, by the mean time from the end of a request to its answer. ${NO_FILTER}`}
            asked={asked}
        >
            {!asked.isAsking && <Doubts answer={answer} problem={asked.problems[0]} />}
            {answer && !slowest && <p>No answers to requests were recorded.</p>}
            {slowest && (
                <>
                    <p>
                        The slowest, {groupText(slowest, by)}: {time(slowest, 'http_response_mean_ns')} on average over {many(number(slowest, 'http_requests'), 'request')}.
                    </p>
                    <GroupTable
                        label="Slowest URLs"
                        head={hasNoPaths ? 'host' : 'host – path'}
                        by={by}
                        rows={rows}
                        chooser={unfiltered(scope)}
                        columns={[
                            bars(rows, 'http_response_mean_ns'),
                            timed('mean', 'http_response_mean_ns'),
                            timed('longest', 'http_response_max_ns'),
                            counted('requests', 'http_requests'),
                            counted('failed', 'http_errors'),
                        ]}
                    />
                </>
            )}
        </Part>
    );
}

/** Parameters, and a condition. */
type Asked = [Parameters, string?];
const COUNT: Parameters = { top: '0', fields: 'start_time' };
const RTTS = 'client_rtt_mean_ns,server_rtt_mean_ns';
const TIMES = `${RTTS},server_time_mean_ns`;
const SLOW: Asked = [{ by: SERVERS, numbers: 'flows,response_mean_ns,response_max_ns', sum: TIMES, sort: 'response_mean_ns', top: ROWS }, 'response'];
const lost = (by: string): Asked => [{ by, numbers: 'flows,segments,retransmitted', sum: LOSS_SUMS, sort: 'retransmitted', top: ROWS }, ANSWERED];
const handshakes = (by: string): Asked => [{ by, numbers: 'rtt_mean_ns,rtt_max_ns', sum: `${RTTS},server_rtt_count`, sort: 'rtt_mean_ns', top: ROWS }, 'rtt'];
const parametersOfFile = ([parameters, where]: Asked): Parameters => ({ ...parameters, where });

function failures({ by, among, tried, failed, reasons, sums, records }: Trial, without?: string): Asked {
    const sum = [...(tried === 'flows' ? [] : [tried]), ...reasons.map(([, name]) => name), ...(sums ? [sums] : [])].join(',');
    return [{ by, numbers: 'flows', sum, sort: failed, top: ROWS, records }, without ? and(among, `not (${without})`) : among];
}

/** What a file has the answers of. */
export const QUESTIONS: Parameters[] = [
    [COUNT] as Asked,
    SLOW,
    lost(SERVERS),
    lost(CLIENTS),
    SCANS,
    ...[CONNECTIONS, RESOLVERS, SINGLE_NAMES, REQUESTS].map((trial) => failures(trial)),
    ...NETWORKS.map(([by]) => handshakes(by)),
    ...Object.keys(HISTOGRAMS).flatMap((field) => bins(field).map(([, condition]): Asked => [COUNT, condition])),
].map(parametersOfFile);

export function Quality(props: ViewProps) {
    const scope = useScope('quality', props);
    if (scope.about.history === 'none') {
        return (
            <>
                <h1>Quality</h1>
                {scope.about.transactions.length > 0 ? (
                    <>
                        <ScopeBars scope={scope} shown={undefined} />
                        <Transactions scope={scope} />
                    </>
                ) : (
                    <Nothing />
                )}
            </>
        );
    }
    return <StoredQuality scope={scope} />;
}

function StoredQuality({ scope }: { scope: Scope }) {
    const all = useAnswers<StoredFlows>([question(scope, COUNT)], scope.round);
    const [answer] = all.answers;
    const hasTransactions = scope.about.transactions.length > 0;
    const flows = link('flows', { of: 'stored', where: scope.where, ...scopeSettings(scope), sort: 'response' });
    return (
        <>
            <h1>Quality</h1>
            <Memory about={scope.about} all={scope.span ? undefined : answer} />
            <ScopeBars scope={scope} shown={undefined} />
            <Unended about={scope.about} />
            {!all.isAsking && <Doubts answer={answer} problem={all.problems[0]} />}
            {!answer && all.isAsking && <p>Asking …</p>}
            {answer && answer.matching === 0 && !all.isAsking && <Empty scope={scope} />}
            {answer && answer.matching > 0 && !all.problems[0] && (
                <>
                    <p role="status">
                        Flows of this time: {count(answer.matching)}
                        {scope.about.mode !== 'file' && [' (', <a href={flows}>all of them, by response time</a>, ')']}.
                    </p>
                    <SlowServers scope={scope} />
                    <Loss scope={scope} />
                    <FailedConnections scope={scope} />
                    <Failures
                        scope={scope}
                        title="DNS failures"
                        note="DNS queries that failed, by the server that was asked."
                        of={RESOLVERS}
                        head="server"
                        what="question"
                        none="None of these flows has DNS queries."
                        more={[timed('mean time', 'dns_response_mean_ns')]}
                        also={forgotten}
                    />
                    {!hasTransactions && (
                        <Failures
                            scope={scope}
                            title="Failed names"
                            note="Names whose query failed, of flows with one DNS query. A flow with several has the name of the first one only: records of transactions (--transactions) have each."
                            of={SINGLE_NAMES}
                            head="name"
                            what="question"
                            none="No flow has one DNS query."
                            more={[timed('mean time', 'dns_response_mean_ns')]}
                        />
                    )}
                    {!hasTransactions && <HttpFailures scope={scope} by="the host of the first one of its connection." />}
                    <Handshakes scope={scope} />
                    {hasTransactions && <Transactions scope={scope} />}
                </>
            )}
        </>
    );
}

/** That of some questions it is not known whether they failed. */
function forgotten(answer: Groups): string {
    const number = total(answer, 'dns_forgotten');
    return number === 0 ? '' : ` Of ${many(number, 'question')} it is not known: more than 16 of a flow waited for their answers at once.`;
}

/** The time of a scope, for links to other views. */
const scopeSettings = ({ settings }: Scope): Record<string, string> =>
    Object.fromEntries(['from', 'to', 'was'].map((name) => [name, settings.get(name) ?? '']));
