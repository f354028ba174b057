// One flow: its place in time, its neighbours, and all its fields.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type About, type Field, type Flow, type Flows as Found, Refusal, type Value } from './api';
import { ask } from './ask';
import { type Asked, IDENTITY } from './flows';
import { NAMED_FIELDS, Named, itemOf, useNames } from './names';
import { Packets } from './packets';
import { Alert } from './parts';
import type { Span } from './range';
import { link, parse } from './route';
import { instant, many, shown, valueWithUnit } from './text';
import { and, condition } from './where';

const GROUPS: [string, string][] = [
    ['meter', 'From the headers of packets'],
    ['tcp', 'TCP analysis'],
    ['inspection', 'Inspection of payload'],
    ['enrichment', 'Enrichment'],
];

/** What is looked for first: why a flow failed, how long it and its answers took, what was lost. */
const FIRST = [
    'tcp_failure',
    'tls_alert',
    'dns_rcode',
    'dns_nxdomain',
    'dns_servfail',
    'dns_refused',
    'dns_unanswered',
    'http_status',
    'http_4xx',
    'http_5xx',
    'application',
    'sni',
    'http_host',
    'dns_name',
    'duration_ns',
    'rtt',
    'response',
    'dns_response_ns',
    'http_response_mean_ns',
    'retransmitted',
    'retransmitted_share',
    'bytes',
    'packets',
];

/** Address and port of a side. */
function end(flow: Flow, side: string): string {
    const [address, port] = [flow[`${side}_ip`], flow[`${side}_port`]];
    const text = shown(String(address ?? flow[`${side}_mac`] ?? ''));
    if (!address || !port) return text;
    return text.includes(':') ? `[${text}]:${port}` : `${text}:${port}`;
}

const isNothing = (value: Value | undefined) => value === 0 || value === '' || value === false || (Array.isArray(value) && value.length === 0);

/** Conditions for values of a flow, joined; empty if it has none of them. */
const conditions = (flow: Flow, names: string[]): string =>
    names.flatMap((name) => (flow[name] === null || flow[name] === undefined ? [] : [condition(name, flow[name], 'address')!])).reduce(and, '');

/** The question that finds a flow again. */
function again(flow: Flow, now: Asked): Promise<Found> {
    if (now.isStored) {
        const start = String(flow.start_time);
        const where = conditions(flow, ['src_ip', 'dst_ip']);
        return ask<Found>({ path: '/stored', parameters: { from: start, to: start, where, top: '1000', fields: 'all' } });
    }
    const id = flow.community_id;
    // Flows of layer 2 have no Community ID: they are found where they were found before.
    const by = id ? { community_id: String(id), top: '1000' } : { where: now.where, sort: now.sort, top: now.top };
    return ask<Found>({ path: '/flows', parameters: { ...by, fields: 'all' } });
}

/** The same flow with all its fields; undefined if it has ended meanwhile. */
async function wholeFlow(flow: Flow, now: Asked): Promise<Flow | undefined> {
    const { flows } = await again(flow, now);
    return flows.find((other) => IDENTITY.every((name) => other[name] === flow[name]));
}

/** When a flow was, within a time. */
function Place({ flow, span }: { flow: Flow; span: Span }) {
    const [from, to] = [flow.start_time, flow.end_time].map((time) => Date.parse(String(time)));
    const length = span.to_ms - span.from_ms;
    if (!(length > 0) || from === undefined || to === undefined || Number.isNaN(from + to)) return null;
    const share = (ms: number) => Math.max(0, Math.min(1, (ms - span.from_ms) / length));
    const [left, right] = [share(from), share(to)];
    return (
        <figure class="place">
            <div class="bar" aria-hidden="true">
                <div style={{ marginLeft: `${Math.min(left * 100, 99)}%`, width: `${Math.max((right - left) * 100, 1)}%` }} />
            </div>
            <figcaption class="note">
                <span>{instant(span.from_ms / 1000)}</span>
                <span>{instant(span.to_ms / 1000)}</span>
            </figcaption>
        </figure>
    );
}

/** Links to flows that have something in common with a flow. */
function Neighbours({ flow, now }: { flow: Flow; now: Asked }) {
    const of = now.isStored ? 'stored' : '';
    const hosts = [flow.src_ip, flow.dst_ip].flatMap((address) => (address ? [`host = ${address}`] : [])).reduce(and, '');
    const server = conditions(flow, ['server_ip', 'service_port']);
    const links: [string, string][] = [
        ['The same two hosts', hosts],
        ['The same server', server],
    ];
    return (
        <p class="neighbours">
            {links
                .filter(([, where]) => where)
                .map(([words, where]) => (
                    <a key={words} href={link('flows', { of, where, from: keep('from'), to: keep('to') })} title={where}>
                        {words}
                    </a>
                ))}
        </p>
    );
}

/** A setting of the view as it is. */
const keep = (name: string): string => parse().settings.get(name) ?? '';

/** Some fields of a flow. */
function Fields({ entries, fields, of }: { entries: [string, Value][]; fields: Map<string, Field>; of: Flow }) {
    const named = entries.map(([name]) => name).filter((name) => NAMED_FIELDS.includes(name));
    const nameOf = useNames(named.map((name) => itemOf(of, name)));
    return (
        <dl class="fields">
            {entries.map(([name, value]) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>
                        <strong>
                            <Named text={valueWithUnit(value, fields.get(name))} name={nameOf(itemOf(of, name))} />
                        </strong>{' '}
                        <span class="note">{fields.get(name)?.meaning.replaceAll('`', '')}</span>
                    </dd>
                </div>
            ))}
        </dl>
    );
}

export function Details(props: { flow: Flow; about: About; fields: Map<string, Field>; now: Asked; span: Span; close: () => void }) {
    const { flow, about, fields, now, span, close } = props;
    const dialog = useRef<HTMLDialogElement>(null);
    const [whole, setWhole] = useState<Flow>();
    const [problem, setProblem] = useState('');
    useEffect(() => {
        dialog.current?.showModal();
        const missing = now.isStored ? 'This flow is stored no more.' : 'This flow has ended meanwhile.';
        wholeFlow(flow, now).then(
            (whole) => (whole ? setWhole(whole) : setProblem(missing)),
            (error) => setProblem(error instanceof Refusal ? error.message : 'The probe does not answer.'),
        );
        // A neighbour, or the way back.
        addEventListener('hashchange', close);
        return () => removeEventListener('hashchange', close);
    }, []);
    const all = whole ?? flow;
    const known = Object.entries(whole ?? {}).filter(([, value]) => value !== null);
    const some = known.filter(([, value]) => !isNothing(value));
    const none = known.filter(([, value]) => isNothing(value));
    const first = FIRST.flatMap((name) => some.filter(([other]) => other === name));
    const of = (origin: string) => some.filter(([name]) => !FIRST.includes(name) && fields.get(name)?.origin === origin);
    return (
        <dialog ref={dialog} onClose={close} aria-labelledby="flow-title">
            <form method="dialog">
                <button>Close</button>
            </form>
            <h2 id="flow-title">
                {end(all, 'src')} to {end(all, 'dst')}
            </h2>
            <Place flow={flow} span={span} />
            {problem && <Alert>{problem}</Alert>}
            {!problem && !whole && <p>Asking the probe …</p>}
            {whole && <Neighbours flow={whole} now={now} />}
            {whole && <Packets flow={whole} about={about} />}
            {first.length > 0 && <Fields entries={first} fields={fields} of={all} />}
            {whole &&
                GROUPS.filter(([origin]) => of(origin).length > 0).map(([origin, title]) => (
                    <section key={origin}>
                        <h3>{title}</h3>
                        <Fields entries={of(origin)} fields={fields} of={all} />
                    </section>
                ))}
            {none.length > 0 && (
                <details>
                    <summary>{many(none.length, 'field')} more with 0 or nothing</summary>
                    <Fields entries={none} fields={fields} of={all} />
                </details>
            )}
            {whole && <p class="note">Fields that do not apply to this flow are left out.</p>}
        </dialog>
    );
}
