// A line over the last hour, and the same as a table.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Row, Table } from './parts';
import { civilDate, clock, clocks, zone } from './text';

/** Values at times (seconds since 1970); null where nothing is known. */
export interface Line {
    times: number[];
    values: (number | null)[];
}

/** Rows of the table: seconds, tens of seconds or minutes. */
const BINS = [1, 10, 60];
const MAX_ROWS = 61;
const HEIGHT = 150;

export const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The axes of plots: time, and what `format` writes. */
export function axes(format: (value: number) => string): uPlot.Axis[] {
    const axis = {
        stroke: () => color('--quiet'),
        grid: { stroke: () => color('--line'), width: 1 },
        ticks: { show: false },
        font: '12px system-ui, sans-serif',
    };
    return [
        // Labels of parts of a second are wider.
        { ...axis, size: 26, space: (_plot, _axis, from, to) => (to - from < 10 ? 120 : 80), values: (_plot, times) => clocks(times) },
        { ...axis, size: 70, values: (_plot, values) => values.map(format), space: 35 },
    ];
}

/** What all plots have: the times of the page, and values that begin at 0. */
export const COMMON = {
    legend: { show: false },
    tzDate: (seconds: number) => uPlot.tzDate(civilDate(seconds), 'Etc/UTC'),
    scales: { y: { range: (_plot: uPlot, _min: number, max: number): [number, number] => [0, max > 0 ? max * 1.1 : 1] } },
};

function options(width: number, format: (value: number) => string, say: (text: string) => void): uPlot.Options {
    return {
        width,
        height: HEIGHT,
        ...COMMON,
        cursor: { drag: { x: false, y: false }, y: false },
        axes: axes(format),
        series: [{}, { stroke: () => color('--accent'), width: 1.5, points: { show: false } }],
        hooks: {
            setCursor: [
                (plot) => {
                    const at = plot.cursor.idx;
                    const value = at == null ? null : plot.data[1]?.[at];
                    say(at == null || value == null ? '' : `${clock(plot.data[0][at] ?? 0)}: ${format(value)}`);
                },
            ],
        },
    };
}

function rows({ times, values }: Line): [string, number][] {
    const first = times[0];
    const last = times.at(-1);
    if (first === undefined || last === undefined) return [];
    const seconds = BINS.find((bin) => (last - first) / bin < MAX_ROWS - 1) ?? 60;
    const bins = new Map<number, number[]>();
    times.forEach((time, at) => {
        const value = values[at];
        const bin = Math.floor(time / seconds) * seconds;
        if (value !== null && value !== undefined) bins.set(bin, [...(bins.get(bin) ?? []), value]);
    });
    const mean = (of: number[]) => of.reduce((sum, value) => sum + value, 0) / of.length;
    return [...bins].map(([bin, of]): [string, number] => [clock(bin), mean(of)]).reverse();
}

/** Keeps a plot as wide as its place and in the colours of the page; returns what ends it. */
export function kept(plot: uPlot, parent: HTMLElement): () => void {
    const { height } = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: parent.clientWidth, height }));
    observer.observe(parent);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    const redraw = () => plot.redraw();
    scheme.addEventListener('change', redraw);
    return () => {
        observer.disconnect();
        scheme.removeEventListener('change', redraw);
        plot.destroy();
    };
}

export function Plot(props: { title: string; line: Line; format: (value: number) => string }) {
    const { title, line, format } = props;
    const place = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | undefined>(undefined);
    const [said, say] = useState('');
    const [isOpen, open] = useState(false);
    useEffect(() => {
        const parent = place.current!;
        plot.current = new uPlot(options(parent.clientWidth, format, say), [[], []], parent);
        return kept(plot.current, parent);
    }, []);
    useEffect(() => plot.current?.setData([line.times, line.values]), [line]);
    return (
        <section class="plot">
            <h3>{title}</h3>
            <p class="said">{said}</p>
            <div ref={place} role="img" aria-label={`${title}, a line over time; the table below has its values`} />
            <details onToggle={(event) => open(event.currentTarget.open)}>
                <summary>Table: {title}</summary>
                {isOpen && (
                    <Table label={`${title} over time`} heads={[`time (${zone()})`, 'mean']} numbers={[1]}>
                        {rows(line).map(([time, mean]) => (
                            <Row key={time} cells={[time, format(mean)]} numbers={[1]} />
                        ))}
                    </Table>
                )}
            </details>
        </section>
    );
}
