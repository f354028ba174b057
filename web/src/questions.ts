// The questions whose answers `weir read --html` writes into a file. The build makes questions.json of this list, which is
// embedded in the program with the page: so both have the same list.
import { QUESTIONS as OF_QUALITY } from './quality';
import { EVERY_MS, MAX_INTERVALS, everyText } from './range';
import { QUESTIONS as OF_TRAFFIC } from './traffic';

export const questions = {
    /** Lengths of intervals, the shortest first: the first one is taken of which there are not more than this. */
    max_intervals: MAX_INTERVALS,
    lengths: EVERY_MS.map((ms) => ({ ms, every: everyText(ms) })),
    /** Parameters of /stored. In place of the length of intervals, `every` is empty. */
    questions: [...OF_TRAFFIC, ...OF_QUALITY],
};
