/** Calls to the worker, each answered by a promise. */

/** @typedef {(...numbers: number[]) => void} OnProgress */

export class Calls {
  #number = 0;
  /** @type {Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void, progress?: OnProgress}>} */
  #open = new Map();

  /** @param {Worker} worker */
  constructor(worker) {
    this.worker = worker;
    worker.onmessage = ({ data }) => this.#take(data);
    worker.onerror = (event) => {
      for (const { reject } of this.#open.values()) reject(new Error(`The worker stopped: ${event.message}. Reload the page.`));
      this.#open.clear();
    };
  }

  /** @param {{number: number, progress?: number[], error?: string, answer?: any}} message */
  #take({ number, progress, error, answer }) {
    const call = this.#open.get(number);
    if (!call) return;
    if (progress) {
      call.progress?.(...progress);
      return;
    }
    this.#open.delete(number);
    if (error === undefined) call.resolve(answer);
    else call.reject(new Error(error));
  }

  /** Ask the worker for something. @param {string} call @param {object} [asked] @param {OnProgress} [progress]
   * @returns {Promise<any>} */
  ask(call, asked = {}, progress) {
    const number = ++this.#number;
    return new Promise((resolve, reject) => {
      this.#open.set(number, { resolve, reject, progress });
      this.worker.postMessage({ call, number, asked });
    });
  }
}
