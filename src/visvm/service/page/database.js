// What this browser keeps on disk (IndexedDB): test photos, small pictures of classes, and photos
// that were asked about. Nothing of it leaves the browser, except test photos to be tested with.

/** @typedef {'test-photos'|'pictures'|'asked'} Store each has an index by model */

/** @type {Promise<IDBDatabase>|undefined} */
let opened;

/** @returns {Promise<IDBDatabase>} */
function open() {
  const opening = indexedDB.open('visvm', 2);
  opening.onupgradeneeded = () => {
    const { result: made } = opening;
    for (const name of ['test-photos', 'pictures', 'asked']) {
      if (made.objectStoreNames.contains(name)) continue;
      made.createObjectStore(name, { keyPath: 'id', autoIncrement: true })
        .createIndex('model', 'model');
    }
  };
  return new Promise((resolve, reject) => {
    opening.onsuccess = () => {
      opening.result.onversionchange = () => opening.result.close(); // another tab is newer
      resolve(opening.result);
    };
    opening.onerror = () => reject(opening.error);
    opening.onblocked = () => reject(new Error('An older page of visvm is open: close it first.'));
  });
}

/** @param {IDBTransaction} transaction @returns {Promise<void>} */
const finished = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onerror = transaction.onabort = () => reject(transaction.error);
});

/**
 * Do one thing with a store, wait until it is on disk, and read what it has of a model.
 * @template T
 * @param {Store} name @param {string} model @param {(store: IDBObjectStore) => void} work
 * @returns {Promise<T[]>}
 */
export async function inStore(name, model, work) {
  opened ??= open();
  const transaction = (await opened).transaction(name, 'readwrite');
  const store = transaction.objectStore(name);
  work(store);
  const reading = store.index('model').getAll(model);
  await finished(transaction);
  return reading.result;
}
