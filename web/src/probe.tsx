// The probe itself: where every packet went, its sinks, and what it runs with.
import { useEffect, useState } from 'preact/hooks';
import { type Counts, type Doctor, type Finding, type ListFile, Refusal, type Rules, type Status, type Traffic, get } from './api';
import { Sinks } from './now';
import { Alert, Bar, Row, Table } from './parts';
import { count, instant, percent, shown, words } from './text';

/** What became of packets or octets, in the order in which it happens to them. */
function outcomes(of: Traffic): [string, number][] {
    const refused = Object.entries(of.refused).map(([reason, refused]): [string, number] => [
        `refused: ${words(reason)}`,
        refused,
    ]);
    return [
        ['lost: NIC', of.dropped_nic],
        ['lost: kernel', of.dropped_kernel],
        ['lost: queue', of.dropped_queue],
        ['not sampled', of.sampled_out],
        ['not in the filter', of.filtered],
        ...refused,
        ['lost: flow cache full', of.dropped_cache_full],
        ['metered: in flow records', of.metered],
    ];
}

function Balance({ packets, bytes }: { packets: Traffic; bytes: Traffic }) {
    const octets = new Map(outcomes(bytes));
    const numbers = [2, 3, 4];
    const row = (name: string, packetCount: number, octetCount: number) => (
        <Row
            key={name}
            numbers={numbers}
            cells={[
                name,
                <Bar share={packets.received ? packetCount / packets.received : 0} isLoss={name.startsWith('lost')} />,
                count(packetCount),
                percent(packetCount, packets.received),
                count(octetCount),
            ]}
        />
    );
    return (
        <Table label="Where every packet went" heads={['packets', 'share', 'count', 'percent', 'octets']} numbers={numbers}>
            {row('received', packets.received, bytes.received)}
            {outcomes(packets).map(([name, of]) => row(name, of, octets.get(name) ?? 0))}
        </Table>
    );
}

function Anomalies({ anomalies }: { anomalies: Counts }) {
    const found = Object.entries(anomalies);
    if (found.length === 0) return null;
    return (
        <>
            <h2>Unusual packets</h2>
            <p class="note">They are metered; something in them is unusual.</p>
            <Table narrow label="Unusual packets" heads={['what', 'packets']} numbers={[1]}>
                {found.map(([name, packets]) => (
                    <Row key={name} cells={[words(name), count(packets)]} numbers={[1]} />
                ))}
            </Table>
        </>
    );
}

interface InEffect {
    timeouts: Counts;
    lists: ListFile[];
    rules: Rules | undefined;
    doctor: Doctor;
}

const INTERVAL_MS = 2000;

async function inEffect(): Promise<InEffect> {
    // A probe without rules refuses (409).
    const rules = get<Rules>('/rules').catch((error: unknown) => {
        if (error instanceof Refusal && error.status === 409) return undefined;
        throw error;
    });
    const all = [get<Counts>('/timeouts'), get<{ lists: ListFile[] }>('/lists'), rules, get<Doctor>('/doctor')] as const;
    const [timeouts, { lists }, inForce, doctor] = await Promise.all(all);
    return { timeouts, lists, rules: inForce, doctor };
}

const TIMEOUTS: Record<string, string> = {
    idle: 'A record ends when its flow had no packet for this time',
    active: 'A record ends when it has lasted for this time',
    drain: 'Time for the last records at the end of the probe',
    interval: 'Interval of the status',
};

function RulesTable({ rules }: { rules: Rules }) {
    const numbers = [2, 3, 4, 5, 6];
    return (
        <>
            <h2>Rules</h2>
            <p>
                {rules.file}, read {instant(rules.loaded)}.
            </p>
            {rules.error && <Alert>The last reload failed: {rules.error}</Alert>}
            <Table
                label="Rules since the start"
                heads={['rule', 'level', 'line', 'packets matched', 'octets matched', 'packets forwarded', 'octets forwarded']}
                numbers={numbers}
            >
                {rules.rules.map((rule, at) => (
                    <Row
                        key={at}
                        numbers={numbers}
                        cells={[
                            rule.rule,
                            rule.level,
                            rule.line ?? '–',
                            count(rule.packets_matched),
                            count(rule.octets_matched),
                            count(rule.packets_forwarded),
                            count(rule.octets_forwarded),
                        ]}
                    />
                ))}
            </Table>
            <details>
                <summary>The file</summary>
                <pre tabIndex={0}>{rules.text}</pre>
            </details>
        </>
    );
}

function Lists({ lists }: { lists: ListFile[] }) {
    if (lists.length === 0) return null;
    const heads = ['file', 'option', 'entries', 'lines left out', 'read', 'last reload'];
    return (
        <>
            <h2>Lists</h2>
            <Table label="Lists in effect" heads={heads} numbers={[2, 3]}>
                {lists.map((list) => (
                    <Row
                        key={list.option + list.file}
                        numbers={[2, 3]}
                        cells={[
                            list.file,
                            list.option,
                            count(list.entries),
                            count(list.lines_left_out),
                            instant(list.loaded),
                            list.error ?? 'fine',
                        ]}
                    />
                ))}
            </Table>
        </>
    );
}

function FindingText({ finding }: { finding: Finding }) {
    const { subject, summary, impact, remedy } = finding;
    return (
        <li>
            <p>
                <strong>{shown(subject)}</strong>: {shown(summary)}
            </p>
            {impact && <p class="note">{shown(impact)}</p>}
            {remedy && remedy.commands.length > 0 && <pre tabIndex={0}>{remedy.commands.map((command, at) => `# ${shown(command)}${at === 0 && remedy.steps.length > 0 ? '   (--fix)' : ''}`).join('\n')}</pre>}
            {remedy?.note && <p class="note">{shown(remedy.note)}</p>}
        </li>
    );
}

/** What `weir doctor` found when the probe started. */
function Machine({ doctor }: { doctor: Doctor }) {
    const { examined, interfaces, counts, severities, findings, notes } = doctor;
    // The findings are in the order of their severities, the most severe first.
    const found = [...new Set(findings.map(({ severity }) => severity))];
    const of = (severity: string) => findings.filter((finding) => finding.severity === severity);
    return (
        <>
            <h2>Machine and NICs</h2>
            {examined !== null && (
                <p>
                    What <code>weir doctor {interfaces.map(shown).join(' ')}</code> found at the start of the probe,{' '}
                    {instant(examined)}: {counts}. Later changes are not seen.
                </p>
            )}
            {found.map((severity) => (
                <section key={severity} class={severity}>
                    <h3>{severities[severity] ?? words(severity)}</h3>
                    <ul class="findings">
                        {of(severity).map((finding, at) => (
                            <FindingText key={at} finding={finding} />
                        ))}
                    </ul>
                </section>
            ))}
            {notes.map((note) => (
                <p class="note" key={note}>
                    {shown(note)}.
                </p>
            ))}
        </>
    );
}

export function Probe({ status }: { status: Status }) {
    const { ledger } = status;
    const [effect, setEffect] = useState<InEffect>();
    useEffect(() => {
        let timer: number | undefined;
        let ended = false;
        const step = async () => {
            // That it does not answer is said above all views.
            const effect = await inEffect().catch(() => undefined);
            if (ended) return;
            if (effect) setEffect(effect);
            timer = setTimeout(step, INTERVAL_MS);
        };
        void step();
        return () => {
            ended = true;
            clearTimeout(timer);
        };
    }, []);
    return (
        <>
            <h1>Probe</h1>
            <h2>Where every packet went</h2>
            <p class={ledger.balanced ? undefined : 'alert'}>
                {ledger.balanced
                    ? 'The ledger balances: every received packet is in one row below.'
                    : 'The ledger does not balance. A pipeline that does not respond has older counters; otherwise this is a defect.'}
            </p>
            <Balance packets={ledger.packets} bytes={ledger.bytes} />
            <Anomalies anomalies={ledger.anomalies} />
            <h2>Where every record went</h2>
            <p>
                {count(ledger.flows.created)} flow records were created; {count(ledger.flows.live)} are open or on their way to
                the sinks. The others went to the sinks below.
            </p>
            <Sinks ledger={ledger} />
            {effect && <Machine doctor={effect.doctor} />}
            {effect?.rules && <RulesTable rules={effect.rules} />}
            {effect && <Lists lists={effect.lists} />}
            {effect && (
                <>
                    <h2>Timeouts in effect</h2>
                    <Table narrow label="Timeouts in effect" heads={['timeout', 'seconds', 'meaning']} numbers={[1]}>
                        {Object.entries(effect.timeouts).map(([name, seconds]) => (
                            <Row key={name} cells={[name, String(seconds), TIMEOUTS[name] ?? '']} numbers={[1]} />
                        ))}
                    </Table>
                </>
            )}
        </>
    );
}
