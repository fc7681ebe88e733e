import { Controller, Get, Header, Inject } from '@nestjs/common';
import type { MetricsPage } from 'millrace/drivers';

/** Token of the page that MetricsController serves. */
export const METRICS_PAGE = Symbol('metrics page');

@Controller('metrics')
export class MetricsController {
  constructor(@Inject(METRICS_PAGE) private readonly page: MetricsPage) {}

  @Get()
  @Header('content-type', 'text/plain; version=0.0.4; charset=utf-8')
  text(): Promise<string> {
    return this.page.text();
  }
}
