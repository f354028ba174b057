// Numbers, times and values of fields in words.
import type { Field, Value } from './api';

/** A count, exactly. */
export const count = (value: number): string => value.toLocaleString('en-US');

/** A count of things. */
export const many = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

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

/** Whether times are those of the zone of the browser; otherwise they are UTC. */
let isLocal = false;

/** From now on times are in this zone. */
export function setLocal(local: boolean) {
    isLocal = local;
}

/** The zone of times in words. */
export const zone = (): string => (isLocal ? 'local time' : 'UTC');

/** Minutes that the clock of the zone is ahead of UTC at a time, ms since 1970. */
const ahead = (ms: number): number => (isLocal ? -new Date(ms).getTimezoneOffset() : 0);

/** What the clock of the zone shows at a time, ms since 1970: 2026-11-20T12:00:00.000 */
export const civil = (ms: number): string => new Date(ms + ahead(ms) * 60_000).toISOString().slice(0, 23);

/** When the clock of the zone shows a text, ms since 1970. */
export const parseCivil = (text: string): number => Date.parse(isLocal ? text : `${text}Z`);

/** The zone, or how far local time is ahead of UTC then: a clock that is set back shows times twice. */
function offset(ms: number): string {
    if (!isLocal) return 'UTC';
    const minutes = Math.abs(ahead(ms));
    const two = (number: number) => String(Math.floor(number)).padStart(2, '0');
    return `${ahead(ms) < 0 ? '-' : '+'}${two(minutes / 60)}:${two(minutes % 60)}`;
}

/** The date of the axes of plots. */
export const civilDate = (seconds: number): Date => new Date((seconds + ahead(seconds * 1000) * 60) * 1000);

/** Seconds since 1970 as a time of the day. */
export const clock = (seconds: number): string => civil(seconds * 1000).slice(11, 19);

/** Times of an axis or a table, seconds since 1970: no more of them than tells them apart. */
export function clocks(times: number[]): string[] {
    const texts = times.map((time) => civil(Math.round(time * 1000)));
    const step = Math.min(...times.slice(1).map((time, at) => time - times[at]!));
    const isOneDay = new Set(texts.map((text) => text.slice(0, 10))).size <= 1;
    const end = step < 1 ? 23 : step < 60 ? 19 : 16;
    if (step >= 86_400) return texts.map((text) => text.slice(0, 10));
    return texts.map((text) => text.slice(isOneDay ? 11 : 5, end).replace('T', ' '));
}

/** Characters that are not seen, or that turn the text around them, as codes. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text of traffic as it is shown. */
export const shown = (text: string): string =>
    text.replace(UNSEEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A part in percent. */
export function percent(part: number, of: number): string {
    if (of === 0 || part === 0) return '0 %';
    const share = (100 * part) / of;
    return share < 0.01 ? '< 0.01 %' : `${share === 100 ? '100' : share.toFixed(2)} %`;
}

/** Seconds since 1970 as date and time. */
export const instant = (seconds: number): string =>
    `${civil(seconds * 1000).slice(0, 19).replace('T', ' ')} ${offset(seconds * 1000)}`;

export function duration(ns: number): string {
    if (ns < 1e3) return `${ns} ns`;
    if (ns < 1e6) return `${+(ns / 1e3).toPrecision(4)} µs`;
    if (ns < 1e9) return `${+(ns / 1e6).toPrecision(4)} ms`;
    return `${+(ns / 1e9).toPrecision(5)} s`;
}

/** The value of a field as a text. */
export function value(of: Value | undefined, field: Field | undefined): string {
    if (of === null || of === undefined) return '–';
    if (Array.isArray(of)) return shown(of.join(', '));
    if (field?.type === 'time' && typeof of === 'string') {
        return (isLocal ? civil(Date.parse(of)) : of.slice(0, 23)).replace('T', ' ');
    }
    if (typeof of !== 'number') return shown(String(of));
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
    if (field?.type === 'time') return `${text} ${offset(Date.parse(String(of)))}`;
    if (typeof of !== 'number' || unit === '' || unit === 'ns') return text;
    return `${text} ${of === 1 && /^[a-z]{3,}s$/.test(unit) ? unit.slice(0, -1) : unit}`;
}

/** A name with underscores in words. */
export const words = (name: string): string => name.replaceAll('_', ' ');
