/** Number of final answers on the page of the load client. */
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { textOf } from '../../shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition } from '../../slo/exposition.ts';
import type { AnsweredCount } from './observer.ts';

const SCRAPE_MS_MAX = 2000;
const FINAL = ['acknowledged', 'refused'];

export function answeredBy(load: StartedCommand): AnsweredCount {
  return async () => {
    const url = `http://${await load.address()}/metrics`;
    const page = parseExposition(
      await textOf(url, { timeoutMs: SCRAPE_MS_MAX, bytesMax: EXPOSITION_BYTES_MAX }),
      url,
    );
    return (page.samples.get('load_requests_total') ?? [])
      .filter(({ labels }) => FINAL.includes(labels['outcome'] ?? ''))
      .reduce((sum, { value }) => sum + value, 0);
  };
}
