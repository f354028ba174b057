// Traffic over time, stacked by group: intervals of which a part can be selected, and the same as a table.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Row, Table } from './parts';
import { COMMON, axes, color, kept } from './plot';
import type { Span } from './range';
import { clocks, count, instant, zone } from './text';

/** A group in each interval. */
export interface Layer {
    label: string;
    /** Selects the group, if it is one. */
    choose?: () => void;
    /** Why it cannot be selected, or what a click does. */
    title: string;
    values: number[];
}

export interface Stack {
    /** Start of each interval, ms since 1970. */
    starts_ms: number[];
    every_ms: number;
    /** The largest first; the others are the last. */
    layers: Layer[];
    /** Whether the last layer is that of the others. */
    hasOthers: boolean;
}

const HEIGHT = 260;
const MAX_LAYERS = 8;

/** The colour of a layer; the others have their own. */
const tint = (stack: Stack, at: number) => (stack.hasOthers && at === stack.layers.length - 1 ? MAX_LAYERS : at);

const sum = (values: number[]) => values.reduce((sum, value) => sum + value, 0);

/** Sums of the first layers in each interval; the last layer that is drawn is the lowest. */
function drawn({ starts_ms, every_ms, layers }: Stack, rate: (value: number) => number): uPlot.AlignedData {
    const times = [...starts_ms, (starts_ms.at(-1) ?? 0) + every_ms].map((ms) => ms / 1000);
    let below = starts_ms.map(() => 0);
    const sums = layers.map(({ values }) => {
        below = below.map((below, at) => below + (values[at] ?? 0));
        const rates = below.map(rate);
        // The last interval has a width, too.
        return [...rates, rates.at(-1) ?? 0];
    });
    return [times, ...sums.reverse()];
}

function options(stack: Stack, width: number, format: (value: number) => string, hover: (at?: number) => void, select?: (span: Span) => void): uPlot.Options {
    const { starts_ms, every_ms, layers } = stack;
    const interval = (plot: uPlot, left: number) => {
        const at = Math.floor((plot.posToVal(left, 'x') * 1000 - starts_ms[0]!) / every_ms);
        return Math.max(0, Math.min(at, starts_ms.length - 1));
    };
    const of = (at: number) => () => color(`--group-${tint(stack, layers.length - 1 - at)}`);
    return {
        ...COMMON,
        width,
        height: HEIGHT,
        cursor: { drag: { x: select !== undefined, y: false, setScale: false }, y: false, points: { show: false } },
        axes: axes(format),
        series: [
            {},
            ...layers.map((_, at) => ({
                stroke: () => color('--back'),
                fill: of(at),
                width: 0.5,
                points: { show: false },
                paths: uPlot.paths.stepped!({ align: 1 }),
            })),
        ],
        hooks: {
            setCursor: [(plot) => hover(plot.cursor.left === undefined || plot.cursor.left < 0 ? undefined : interval(plot, plot.cursor.left))],
            setSelect: [
                (plot) => {
                    const { left, width } = plot.select;
                    if (width < 2 || !select) return;
                    const [first, last] = [interval(plot, left), interval(plot, left + width)];
                    select({ from_ms: starts_ms[first]!, to_ms: starts_ms[last]! + every_ms });
                },
            ],
        },
    };
}

/** The groups with their colours; a click selects one. */
function Legend({ stack, at, format }: { stack: Stack; at: number | undefined; format: (layer: Layer, at?: number) => string }) {
    return (
        <ul class="legend">
            {stack.layers.map((layer, place) => (
                <li key={place}>
                    <span class={`swatch group-${tint(stack, place)}`} />
                    {layer.choose ? (
                        <button type="button" class="plain" title={layer.title} onClick={layer.choose}>
                            {layer.label}
                        </button>
                    ) : (
                        <span title={layer.title}>{layer.label}</span>
                    )}
                    <span class="note">{format(layer, at)}</span>
                </li>
            ))}
        </ul>
    );
}

export function StackPlot(props: {
    title: string;
    stack: Stack;
    /** What is counted, for the table. */
    unit: string;
    /** Of the sum of an interval, its rate. */
    rate: (value: number) => number;
    /** A rate in words. */
    format: (value: number) => string;
    /** Selects a time, if that is possible. */
    select?: (span: Span) => void;
}) {
    const { title, stack, unit, rate, format, select } = props;
    const place = useRef<HTMLDivElement>(null);
    const latest = useRef(select);
    latest.current = select;
    const [at, hover] = useState<number>();
    const [isOpen, open] = useState(false);
    useEffect(() => {
        const parent = place.current!;
        const all = options(stack, parent.clientWidth, format, hover, select && ((span) => latest.current?.(span)));
        return kept(new uPlot(all, drawn(stack, rate), parent), parent);
    }, [stack]);
    const { starts_ms, layers, every_ms } = stack;
    const total = (at: number) => sum(layers.map(({ values }) => values[at] ?? 0));
    const said = at === undefined || at >= starts_ms.length ? '' : `${instant(starts_ms[at]! / 1000)}: ${format(rate(total(at)))}`;
    const of = (layer: Layer, at?: number) => (at === undefined ? `${count(sum(layer.values))} ${unit}` : format(rate(layer.values[at] ?? 0)));
    return (
        <section class="plot stack">
            <h2>{title}</h2>
            <p class="said">{said}</p>
            <div
                ref={place}
                role="img"
                aria-label={`${title}, areas over time; the table below has their values${select ? ', and selects intervals as dragging in the plot does' : ''}`}
            />
            <Legend stack={stack} at={at} format={of} />
            <details onToggle={(event) => open(event.currentTarget.open)}>
                <summary>Table: {title}</summary>
                {isOpen && <Intervals title={title} stack={stack} unit={unit} total={total} select={select && ((at) => select({ from_ms: starts_ms[at]!, to_ms: starts_ms[at]! + every_ms }))} />}
            </details>
        </section>
    );
}

function Intervals(props: { title: string; stack: Stack; unit: string; total: (at: number) => number; select?: (at: number) => void }) {
    const { title, stack, unit, total, select } = props;
    const times = clocks(stack.starts_ms.map((ms) => ms / 1000));
    const numbers = [...stack.layers.keys(), stack.layers.length].map((at) => at + 1);
    return (
        <Table label={`${title}: ${unit} in each interval`} heads={[`from (${zone()})`, ...stack.layers.map(({ label }) => label), 'together']} numbers={numbers}>
            {times.map((time, at) => (
                <Row
                    key={at}
                    numbers={numbers}
                    cells={[
                        select ? (
                            <button type="button" class="plain" title="Only this interval" onClick={() => select(at)}>
                                {time}
                            </button>
                        ) : (
                            time
                        ),
                        ...stack.layers.map(({ values }) => count(values[at] ?? 0)),
                        count(total(at)),
                    ]}
                />
            ))}
        </Table>
    );
}
