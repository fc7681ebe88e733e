/** Module loader that plants a fault: it replaces one piece of the text of one module. */
let fault;
export function initialize(data) {
  fault = data;
}

export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context);
  if (!url.endsWith(fault.module)) return loaded;
  const source = String(loaded.source);
  if (source.split(fault.from).length !== 2)
    throw new Error(`${fault.module} contains ${source.split(fault.from).length - 1} times ${fault.from}`);
  return { ...loaded, source: source.replace(fault.from, () => fault.to) };
}
