/**
 * Holds a lock as long as this Worker exists, so that whoever waits for it learns of its end.
 * @param {string} name @returns {Promise<void>} resolved when it is held, or no locks are to be had
 */
export function holdForEver(name) {
  return new Promise((resolve) => {
    const hold = () => {
      resolve();
      return new Promise(() => {});
    };
    if (navigator.locks) navigator.locks.request(name, hold).catch(() => resolve());
    else resolve(); // no secure context
  });
}
