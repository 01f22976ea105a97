/** How far each layer moved. */

/** @typedef {{name: string, layer: string, at: number, bytes: number, dtype: "int8" | "int16" | "int32" | "float32"}} Trained a tensor of the state */

const VIEWS = { int8: Int8Array, int16: Int16Array, int32: Int32Array, float32: Float32Array };

/** Return a tensor's numbers. @param {Uint8Array} state @param {Trained} tensor */
function numbersOf(state, tensor) {
  return new VIEWS[tensor.dtype](state.slice(tensor.at, tensor.at + tensor.bytes).buffer);
}

/** Return by how much each tensor moved from one state to another: the distance over the length of where it began.
 * @param {Uint8Array} before @param {Uint8Array} now @param {Trained[]} tensors
 * @returns {{tensor: Trained, moved: number, changed: number, size: number}[]} */
export function movement(before, now, tensors) {
  return tensors.map((tensor) => {
    const a = numbersOf(before, tensor), b = numbersOf(now, tensor);
    let far = 0, length = 0, changed = 0;
    for (let i = 0; i < a.length; i++) {
      far += (b[i] - a[i]) ** 2;
      length += a[i] ** 2;
      changed += a[i] !== b[i] ? 1 : 0;
    }
    return { tensor, moved: Math.sqrt(far / (length || far || 1)), changed, size: a.length };
  });
}
