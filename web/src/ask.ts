// Questions for flows: one at a time, in the order in which they were asked. Answers of questions that nobody waits for
// any more are dropped.
import { useEffect, useState } from 'preact/hooks';
import { type Parameters, type Place, Refusal, get } from './api';

export interface Question {
    path: string;
    parameters: Parameters;
}

/** Why a question has no answer. */
export interface Problem {
    error: string;
    place?: Place;
}

export interface Asked<T> {
    /** Of each question what is known: its answer, or why it has none. Those of the last questions until there are others. */
    answers: (T | undefined)[];
    problems: (Problem | undefined)[];
    isAsking: boolean;
}

let last: Promise<unknown> = Promise.resolve();

/** Asks when all earlier questions have their answers. */
export function ask<T>({ path, parameters }: Question, stop?: AbortSignal): Promise<T> {
    const answer = last.then(() => {
        stop?.throwIfAborted();
        return get<T>(path, parameters, stop);
    });
    last = answer.catch(() => undefined);
    return answer;
}

function problem(error: unknown): Problem {
    return error instanceof Refusal ? { error: error.message, place: error.place } : { error: 'The probe does not answer.' };
}

interface Known<T> {
    key: string;
    answers: (T | undefined)[];
    problems: (Problem | undefined)[];
}

/** Asks questions one after another, and again in another round. Without questions, what was known stays. */
export function useAnswers<T>(questions: Question[] | undefined, round: number): Asked<T> {
    const [{ key: known, ...asked }, setKnown] = useState<Known<T>>({ key: '', answers: [], problems: [] });
    const key = JSON.stringify([questions, round]);
    useEffect(() => {
        if (!questions) return;
        const stop = new AbortController();
        const answers: (T | undefined)[] = [];
        const problems: (Problem | undefined)[] = [];
        const waiting = questions.map((question, at) =>
            ask<T>(question, stop.signal).then(
                (answer) => void (answers[at] = answer),
                (error: unknown) => void (problems[at] = problem(error)),
            ),
        );
        void Promise.all(waiting).then(() => stop.signal.aborted || setKnown({ key, answers, problems }));
        return () => stop.abort();
    }, [key]);
    return { ...asked, isAsking: !questions || known !== key };
}
