// The packets of one flow: a capture to download, and the segments of a TCP connection.
import { useState } from 'preact/hooks';
import { type About, type Flow, type PacketFile, type Parameters, Refusal, type Segments, get, getPackets } from './api';
import { Alert } from './parts';
import { count, many, shown } from './text';

/** Time in which a browser begins a download. */
const REVOKE_MS = 10_000;
/** Protocols whose flows are named by addresses and ports. */
const WITH_PORTS = ['tcp', 'udp', 'sctp'];

/** A flow as /packets and /explain take it; undefined for flows without IP. */
function nameOf(flow: Flow): string | undefined {
    if (flow.community_id) return String(flow.community_id);
    const protocol = String(flow.protocol).toLowerCase();
    if (!WITH_PORTS.includes(protocol)) return undefined;
    const end = (side: string) => {
        const address = String(flow[`${side}_ip`]);
        return `${address.includes(':') ? `[${address}]` : address}:${flow[`${side}_port`]}`;
    };
    return `${end('src')}-${end('dst')}/${protocol}`;
}

const problem = (error: unknown) => (error instanceof Refusal ? error.message : 'The probe does not answer.');

/** Saves a file as the browser saves downloads. */
function save(file: Blob, name: string) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(file);
    link.download = name;
    link.click();
    // The browser reads it meanwhile.
    setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_MS);
}

/** Packets that were found more than once. */
const copies = (answer: { copies: number }) => (answer.copies > 0 ? `; copies left out: ${count(answer.copies)}` : '');

/** A question that a button asks. */
function useQuestion<T>(ask: () => Promise<T>) {
    const [state, setState] = useState<{ answer?: T; error?: string; isAsking?: boolean }>({});
    const start = () => {
        setState({ isAsking: true });
        ask().then((answer) => setState({ answer }), (error: unknown) => setState({ error: problem(error) }));
    };
    return { ...state, start };
}

function Capture({ flow, name }: { flow: Flow; name: string }) {
    const times: Parameters = { from: String(flow.start_time), to: String(flow.end_time) };
    const { answer, error, isAsking, start } = useQuestion<PacketFile>(async () => {
        const found = await getPackets({ flow: name, ...times });
        save(found.file, `flow-${String(flow.start_time).slice(0, 19).replace(/\D/g, '')}.pcapng`);
        return found;
    });
    return (
        <>
            <p>
                <button type="button" disabled={isAsking} onClick={start}>
                    Download the packets
                </button>{' '}
                <span role="status">
                    {isAsking && 'Searching …'}
                    {answer && `${many(answer.packets, 'packet')} with ${many(answer.octets, 'octet')}${copies(answer)}.`}
                </span>
            </p>
            {answer?.incomplete && <Alert>The capture is incomplete: {shown(answer.incomplete)}.</Alert>}
            {error && <Alert>{shown(error)}</Alert>}
        </>
    );
}

function SegmentList({ flow, name }: { flow: Flow; name: string }) {
    const { answer, error, isAsking, start } = useQuestion<Segments>(() =>
        get('/explain', { flow: name, at: String(flow.start_time) }),
    );
    return (
        <>
            <p>
                <button type="button" disabled={isAsking} onClick={start}>
                    Show the segments
                </button>{' '}
                <span role="status">
                    {isAsking && 'Reading …'}
                    {answer && `${many(answer.segments, 'segment')}${answer.left_out > 0 ? `; the first ${count(answer.segments - answer.left_out)} are shown` : ''}${copies(answer)}.`}
                </span>
            </p>
            {answer?.incomplete && <Alert>Not all segments were read: {shown(answer.incomplete)}.</Alert>}
            {error && <Alert>{shown(error)}</Alert>}
            {answer && (
                <pre class="segments" role="region" aria-label="Segments" tabIndex={0}>
                    {answer.text.split('\n').map(shown).join('\n')}
                </pre>
            )}
        </>
    );
}

/** What is known of the packets of a flow. */
export function Packets({ flow, about }: { flow: Flow; about: About }) {
    const name = nameOf(flow);
    const isTcp = String(flow.protocol).toLowerCase() === 'tcp';
    return (
        <section>
            <h3>Packets</h3>
            {!name && <p class="note">Only the packets of IP flows are found.</p>}
            {name && about.no_packets !== null && <p class="note">No packets: {shown(about.no_packets)}.</p>}
            {name && about.no_packets === null && <Capture flow={flow} name={name} />}
            {name && isTcp && about.no_segments === null && <SegmentList flow={flow} name={name} />}
            {name && isTcp && about.no_segments !== null && about.no_segments !== about.no_packets && (
                <p class="note">No segments: {shown(about.no_segments)}.</p>
            )}
        </section>
    );
}
