// NestJS without a compiler: each decorator is called as the function that it is.
import 'reflect-metadata';
import {
  Controller,
  Module,
  Post,
  Req,
  UnauthorizedException,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { idem, pay, port, tenantOf } from './shop.mjs';

// Guards run before interceptors, so an unknown caller never reaches the endpoint.
const knownCallers = {
  canActivate(context) {
    if (tenantOf(context.switchToHttp().getRequest().headers.authorization)) return true;
    throw new UnauthorizedException();
  },
};

class Payments {
  async create(req) {
    const { tx } = idem.of(req);
    return pay(tx, req.body.cents);
  }
}
const create = Object.getOwnPropertyDescriptor(Payments.prototype, 'create');
Post('payments')(Payments.prototype, 'create', create);
UseGuards(knownCallers)(Payments.prototype, 'create', create);
UseInterceptors(idem.nest())(Payments.prototype, 'create', create);
Req()(Payments.prototype, 'create', 0);
Controller()(Payments);

class Shop {}
Module({ controllers: [Payments] })(Shop);

const app = await NestFactory.create(Shop, { logger: false });
await app.listen(port, '127.0.0.1');
console.log('listening');
