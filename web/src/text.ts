// Numbers, times and values of fields in words.
import type { Field, Value } from './api';

/** A count, exactly. */
export const count = (value: number): string => value.toLocaleString('en-US');

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P', 'E'];

/** A rate or size with up to three digits and a prefix of the SI. */
export function short(value: number, unit: string): string {
    let scaled = value;
    let power = 0;
    while (Math.abs(scaled) >= 999.5 && power < PREFIXES.length - 1) {
        scaled /= 1000;
        power += 1;
    }
    return `${+scaled.toPrecision(3)} ${PREFIXES[power]}${unit}`.trim();
}

/** Seconds since 1970 as a time of the day, UTC. */
export const clock = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(11, 19);

/** Seconds since 1970 as date and time, UTC. */
export const instant = (seconds: number): string =>
    `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

function duration(ns: number): string {
    if (ns < 1e3) return `${ns} ns`;
    if (ns < 1e6) return `${+(ns / 1e3).toPrecision(4)} µs`;
    if (ns < 1e9) return `${+(ns / 1e6).toPrecision(4)} ms`;
    return `${+(ns / 1e9).toPrecision(5)} s`;
}

/** The value of a field as a text. */
export function value(of: Value | undefined, field: Field | undefined): string {
    if (of === null || of === undefined) return '–';
    if (Array.isArray(of)) return of.join(', ');
    if (field?.type === 'time' && typeof of === 'string') return `${of.slice(0, 23).replace('T', ' ')}`;
    if (typeof of !== 'number') return String(of);
    if (field?.unit === 'ns') return duration(of);
    const unit = field?.unit ?? '';
    if (!Number.isInteger(of)) return String(+of.toPrecision(6));
    // Ports and numbers of protocols are names rather than counts.
    return unit === '' ? String(of) : count(of);
}

/** The same with its unit. */
export function valueWithUnit(of: Value | undefined, field: Field | undefined): string {
    const text = value(of, field);
    const unit = field?.unit ?? '';
    if (field?.type === 'time') return `${text} UTC`;
    return typeof of !== 'number' || unit === '' || unit === 'ns' ? text : `${text} ${unit}`;
}

/** A name with underscores in words. */
export const words = (name: string): string => name.replaceAll('_', ' ');
