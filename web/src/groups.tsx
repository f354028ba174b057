// Sums of groups as tables, whose rows add themselves to the filter.
import type { ComponentChildren } from 'preact';
import type { Field, Flow, Value } from './api';
import { Named, itemOf, useNames } from './names';
import { Row, Table } from './parts';
import { count, many, shown } from './text';
import { and, condition } from './where';

/** The types of fields of groups that are no fields of /fields. */
const TYPES: Record<string, string> = { host: 'address', country: 'caseless' };

/** A field without the length of its prefix: `src_ip/24` is the column `src_ip`. */
export const columnOf = (by: string): string => by.split('/')[0]!;

/** The fields of a group. */
export const columnsOf = (by: string): string[] => by.split(',').map(columnOf);

/** What a field without a value means. */
const WITHOUT: Record<string, string> = { application: 'not recognised', service_port: 'without ports' };

const text = (name: string, value: Value | undefined): string =>
    value === null || value === undefined ? (WITHOUT[name] ?? 'none') : value === '' ? '(empty)' : shown(String(value));

/** Numbers of a row. */
export const number = (row: Flow, name: string): number => Number(row[name] ?? 0);

/** Whether a row is a group, not the sum of others. */
export const isGroup = (row: Flow): boolean => row.other_groups === 0;

/** The others in words. */
export const othersText = (row: Flow): string =>
    row.other_groups === null ? 'others (no memory)' : many(number(row, 'other_groups'), 'other');

/** The group of a row in words. */
export const groupText = (row: Flow, by: string): string =>
    columnsOf(by)
        .map((name) => text(name, row[name]))
        .join(' – ');

/** What selects groups. */
export interface Chooser {
    fields: Map<string, Field>;
    where: string;
    /** Changes the filter, if that is possible. */
    go?: (where: string) => void;
}

/** Characters of the longest address with a port. */
const SHORT = 47;

/** How the group of a row is added to the filter, and the sentence for it; without a function if the language cannot say it. */
export function choice(row: Flow, by: string, { fields, where, go }: Chooser): { choose?: () => void; title: string } {
    if (!go) return { title: '' };
    const conditions = columnsOf(by).map((name) => condition(name, row[name], TYPES[name] ?? fields.get(name)?.type));
    const said = conditions.filter((condition) => condition !== undefined);
    if (said.length < conditions.length) return { title: 'Filters have no way to write this text: it has both kinds of quotes, or a star' };
    return { choose: () => go(said.reduce(and, where)), title: `Only ${said.map(shown).join(' and ')}` };
}

function Group({ row, by, chooser, name }: { row: Flow; by: string; chooser: Chooser; name: string }) {
    if (!isGroup(row)) return <span class="note">{othersText(row)}</span>;
    const { choose, title } = choice(row, by, chooser);
    const text = groupText(row, by);
    const words = <Named text={text} name={name} />;
    // An address and its port stay in one line, where there is room.
    const width = text.length <= SHORT ? 'short' : '';
    if (!choose) return <span class={width} title={title || undefined}>{words}</span>;
    return (
        <button type="button" class={`plain group ${width}`} title={title} onClick={choose}>
            {words}
        </button>
    );
}

/** A column of numbers beside the groups. */
export interface NumberColumn {
    head: string;
    of: (row: Flow) => ComponentChildren;
    /** It is no number, such as a bar. */
    isText?: boolean;
}

/** A table of groups. */
export function GroupTable(props: {
    label: string;
    /** What a group is. */
    head: string;
    by: string;
    rows: Flow[];
    columns: NumberColumn[];
    chooser: Chooser;
}) {
    const { label, head, by, rows, columns, chooser } = props;
    const items = (row: Flow) => columnsOf(by).map((field) => (by.includes('/') ? '' : itemOf(row, field)));
    const nameOf = useNames(rows.filter(isGroup).flatMap(items));
    const names = (row: Flow) => items(row).flatMap((item) => nameOf(item) ?? []);
    const numbers = columns.flatMap(({ isText }, at) => (isText ? [] : [at + 1]));
    return (
        <Table label={label} heads={[head, ...columns.map(({ head }) => head)]} numbers={numbers} hasBars={columns[0]?.isText}>
            {rows.map((row, at) => (
                <Row key={at} numbers={numbers} cells={[<Group row={row} by={by} chooser={chooser} name={names(row).join(' – ')} />, ...columns.map(({ of }) => of(row))]} />
            ))}
        </Table>
    );
}

export const counted = (head: string, name: string): NumberColumn => ({ head, of: (row) => count(number(row, name)) });
