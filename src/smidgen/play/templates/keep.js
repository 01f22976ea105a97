/** What was taught, kept by the browser until the next visit: by one tab at a time, as long as there is room. */

/** @typedef {import("./session.js").Session} Session */

const SESSIONS = "sessions", SAMPLES = "samples", CALM = 700; // milliseconds without a change until it is kept

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** @returns {Promise<IDBDatabase>} */
function opened() {
  const request = indexedDB.open("smidgen-play", 1);
  request.onupgradeneeded = () => [SESSIONS, SAMPLES].forEach((name) => request.result.createObjectStore(name));
  return done(request);
}

/** @param {IDBTransaction} work @returns {Promise<void>} */
function settled(work) {
  return new Promise((resolve, reject) => {
    work.oncomplete = () => resolve();
    work.onabort = work.onerror = () => reject(work.error);
  });
}

/** Whether this tab is the one that keeps what is taught to a program. @param {string} name @returns {Promise<boolean>} */
function isFirst(name) {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {}); // held until the tab closes
    });
  });
}

class Keeper {
  /** @type {Set<number>} */
  #there = new Set();
  #timer = 0;

  /** @param {IDBDatabase} base @param {Session} session @param {(text: string) => void} note */
  constructor(base, session, note) {
    this.base = base;
    this.session = session;
    this.note = note;
  }

  /** @param {number} id */
  #key(id) {
    return `${this.session.facts.fingerprint}/${String(id).padStart(9, "0")}`;
  }

  /** Take up what was kept. */
  async restore() {
    const { session } = this, work = this.base.transaction([SESSIONS, SAMPLES]), own = IDBKeyRange.bound(this.#key(0), this.#key(1e9 - 1));
    const [about, kept] = await Promise.all([done(work.objectStore(SESSIONS).get(session.facts.fingerprint)), done(work.objectStore(SAMPLES).getAll(own))]);
    if (!about) return;
    this.#there = new Set(kept.map((one) => one.id));
    await session.resume(about, kept);
  }

  /** Keep how things are, once they are calm. */
  later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.session.busy ? this.later() : this.#write().catch(() => this.#give("The browser has no room to keep what you teach: it is gone once this page closes. Save the samples and the state."))), CALM);
  }

  /** @param {string} why */
  #give(why) {
    this.later = () => {};
    this.note(why);
  }

  async #write() {
    const { session } = this, { state } = await session.calls.ask("state");
    const work = this.base.transaction([SESSIONS, SAMPLES], "readwrite"), samples = work.objectStore(SAMPLES), now = new Set(session.kept.map((one) => one.id));
    for (const id of this.#there) if (!now.has(id)) samples.delete(this.#key(id));
    for (const one of session.kept) samples.put(one, this.#key(one.id)); // labels change, too
    const { names, steps, observed, solved, fresh } = session;
    work.objectStore(SESSIONS).put({ names, steps, observed, solved, fresh, state }, session.facts.fingerprint);
    await settled(work);
    this.#there = now;
  }
}

/** Keep what is taught from now on, and take up what was kept. @param {Session} session @param {(text: string) => void} note */
export async function keep(session, note) {
  if (!(await isFirst(`smidgen-play/${session.facts.fingerprint}`))) {
    note("This page is open in another tab, which keeps what is taught. This one keeps nothing.");
    return;
  }
  try {
    const keeper = new Keeper(await opened(), session, note);
    await keeper.restore();
    session.addEventListener("change", () => keeper.later());
  } catch {
    note("This browser keeps nothing here: what you teach is gone once this page closes.");
  }
}
