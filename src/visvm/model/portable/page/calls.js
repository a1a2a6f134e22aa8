// Questions to a worker, and its answers: a promise for each.

/**
 * @typedef {(share: number) => void} Progress
 * @typedef {(what: any, progress?: Progress, transfer?: Transferable[]) => Promise<any>} Asked
 */

/** Return what asks a worker that is `answering`. @param {Worker} worker @returns {Asked} */
export function asking(worker) {
  /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void, progress?: Progress}>} */
  const waiting = new Map();
  let last = 0;
  worker.addEventListener("message", ({ data }) => {
    const question = waiting.get(data.id);
    if ("progress" in data) return question?.progress?.(data.progress);
    waiting.delete(data.id);
    return "error" in data ? question?.reject(new Error(data.error)) : question?.resolve(data.result);
  });
  worker.addEventListener("error", ({ message }) => {
    for (const { reject } of waiting.values()) reject(new Error(message || "a file of this page is missing"));
    waiting.clear();
  });
  return (what, progress, transfer = []) =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject, progress });
      worker.postMessage({ id: last, what }, transfer);
    });
}

/** In a worker: answer questions, one after the other. @param {(what: any, progress: Progress) => any} answer */
export function answering(answer) {
  let before = Promise.resolve();
  self.addEventListener("message", ({ data: { id, what } }) => {
    const progress = (/** @type {number} */ share) => self.postMessage({ id, progress: share });
    before = before.then(async () => {
      try {
        self.postMessage({ id, result: await answer(what, progress) });
      } catch (error) {
        self.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
      }
    });
  });
}
