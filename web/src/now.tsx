// What happens now: rates, losses, pipelines, sinks, and the last hour as lines.
import { useMemo } from 'preact/hooks';
import type { History, Interval, Ledger, Pipeline, Sink, Status } from './api';
import { Row, Table } from './parts';
import { type Line, Plot } from './plot';
import { count, instant, many, short, words, zone } from './text';

const packetRate = (value: number) => short(value, 'p/s');
const bitRate = (value: number) => short(value, 'bit/s');
const number = (value: number) => short(value, '');

/** Increase of a counter per second. A counter that goes back is that of another run. */
function rate(history: History, name: keyof History, factor = 1): Line {
    const times = history.time_ms.map((time) => time / 1000);
    const counters = history[name];
    const values = times.map((time, at) => {
        const [before, last, now] = [times[at - 1], counters[at - 1], counters[at]];
        if (before === undefined || last === undefined || now === undefined || now < last) return null;
        return ((now - last) * factor) / (time - before);
    });
    return { times, values };
}

const level = (history: History, name: keyof History): Line => ({
    times: history.time_ms.map((time) => time / 1000),
    values: history[name],
});

function Tiles({ interval }: { interval: Interval }) {
    const tiles: [string, string, boolean][] = [
        ['packets', packetRate(interval.packets_per_second), false],
        ['on the wire', bitRate(interval.bits_per_second), false],
        ['active flows', count(interval.active_flows), false],
        ['flows ended', short(interval.ended_flows_per_second, '/s'), false],
        ['packets lost', count(interval.dropped_packets), interval.dropped_packets > 0],
        ['records lost', count(interval.lost_records), interval.lost_records > 0],
        ['overload level', count(interval.overload_level), interval.overload_level > 0],
    ];
    return (
        <dl class="tiles">
            {tiles.map(([name, text, isBad]) => (
                <div class={isBad ? 'bad' : undefined} key={name}>
                    <dt>{name}</dt>
                    <dd>{text}</dd>
                </div>
            ))}
        </dl>
    );
}

const LOSSES: [keyof Pipeline & keyof Interval & `dropped_${string}`, string][] = [
    ['dropped_nic_packets', 'NIC'],
    ['dropped_kernel_packets', 'kernel'],
    ['dropped_queue_packets', 'queue'],
    ['dropped_cache_full_packets', 'flow cache full'],
];
const ALL_NUMBERS = [2, 3, 4, 5, 6, 7, 8, 9];

function Pipelines({ interval }: { interval: Interval }) {
    const heads = ['pipeline', 'state', 'packets', 'on the wire', 'flows', 'overload'];
    return (
        <Table
            label="Pipelines in the last interval, and packets lost by cause"
            heads={[...heads, ...LOSSES.map(([, cause]) => `lost: ${cause}`)]}
            numbers={ALL_NUMBERS}
        >
            {interval.pipelines.map((of) => (
                <Row
                    key={of.pipeline}
                    numbers={ALL_NUMBERS}
                    cells={[
                        of.pipeline,
                        words(of.state),
                        packetRate(of.packets_per_second),
                        bitRate(of.bits_per_second),
                        count(of.active_flows),
                        count(of.overload_level),
                        ...LOSSES.map(([key]) => count(of[key])),
                    ]}
                />
            ))}
        </Table>
    );
}

function Totals({ ledger }: { ledger: Ledger }) {
    const { packets, bytes } = ledger;
    const refused = Object.values(packets.refused).reduce((sum, refused) => sum + refused, 0);
    const totals: [string, number][] = [
        ['packets received', packets.received],
        ['octets received', bytes.received],
        ['packets metered', packets.metered],
        ['packets refused', refused],
        ['lost: NIC', packets.dropped_nic],
        ['lost: kernel', packets.dropped_kernel],
        ['lost: queue', packets.dropped_queue],
        ['lost: flow cache full', packets.dropped_cache_full],
        ['flow records created', ledger.flows.created],
    ];
    return (
        <Table narrow label="Since the start" heads={['figure', 'count']} numbers={[1]}>
            {totals.map(([name, total]) => (
                <Row key={name} cells={[name, count(total)]} numbers={[1]} />
            ))}
        </Table>
    );
}

const SINK_NUMBERS = [2, 3, 4, 5, 6];

function SinkRow({ sink, records }: { sink: Sink; records: string }) {
    const reasons = Object.entries(sink.lost).filter(([, lost]) => lost.flows > 0);
    return (
        <Row
            numbers={SINK_NUMBERS}
            cells={[
                sink.sink,
                records,
                count(sink.exported.flows),
                count(sink.waiting?.flows ?? 0),
                count(sink.spooled?.flows ?? 0),
                count((sink.filtered?.flows ?? 0) + (sink.not_open?.flows ?? 0)),
                reasons.map(([reason, lost]) => `${count(lost.flows)} ${words(reason)}`).join(', ') || '0',
            ]}
        />
    );
}

/** The sinks of flow records, and those of transactions. */
export function Sinks({ ledger: { sinks, transactions } }: { ledger: Ledger }) {
    const left = transactions?.left_out ?? 0;
    return (
        <>
            <Table
                label="Sinks: records since the start"
                heads={['sink', 'records of', 'exported', 'waiting', 'on disk', 'not selected', 'lost']}
                numbers={SINK_NUMBERS}
            >
                {sinks.map((sink, at) => (
                    <SinkRow key={at} sink={sink} records="flows" />
                ))}
                {transactions?.sinks.map((sink, at) => (
                    <SinkRow key={`transactions ${at}`} sink={sink} records="transactions" />
                ))}
            </Table>
            {left > 0 && <p>{many(left, 'transaction')} got no record: the memory for transactions was full.</p>}
        </>
    );
}

function LastHour({ history }: { history: History }) {
    const lines = useMemo(
        () => ({
            packets: rate(history, 'received_packets'),
            bits: rate(history, 'received_bytes', 8),
            flows: level(history, 'active_flows'),
            created: rate(history, 'created_flows'),
            dropped: rate(history, 'dropped_packets'),
            waiting: level(history, 'waiting_records'),
        }),
        [history],
    );
    return (
        <div class="plots">
            <Plot title="Packets per second" line={lines.packets} format={packetRate} />
            <Plot title="Bits per second" line={lines.bits} format={bitRate} />
            <Plot title="Active flows" line={lines.flows} format={number} />
            <Plot title="New flows per second" line={lines.created} format={(value) => short(value, '/s')} />
            <Plot title="Packets lost per second" line={lines.dropped} format={packetRate} />
            <Plot title="Records waiting for sinks" line={lines.waiting} format={number} />
        </div>
    );
}

export function Now({ status, history, restarted }: { status: Status; history: History | undefined; restarted: number | undefined }) {
    const { interval, ledger } = status;
    return (
        <>
            <h1>Now</h1>
            {restarted !== undefined && (
                <p class="note" role="status">
                    The probe has restarted at {instant(restarted / 1000)}: all counters and lines begin then.
                </p>
            )}
            {interval ? <Tiles interval={interval} /> : <p>The first interval has not ended.</p>}
            <h2>The last hour</h2>
            <p class="note">
                What the probe has kept in memory since its start at {instant(status.started_ms / 1000)}: one sample a
                second, an hour at most. Times are {zone()}.
            </p>
            {history && <LastHour history={history} />}
            {interval && (
                <>
                    <h2>Pipelines</h2>
                    <Pipelines interval={interval} />
                </>
            )}
            <h2>Sinks</h2>
            <Sinks ledger={ledger} />
            <h2>Since the start</h2>
            <Totals ledger={ledger} />
        </>
    );
}
