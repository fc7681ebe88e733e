/** Answers a connection over a limit without reading a request, and closes it. */
import type { Socket } from 'node:net';
import { wireAnswer } from './http1/answer.ts';
import type { HttpResponse } from './port.ts';

/** A refused connection is read and dropped this long: closing over unread bytes would take the answer away. */
const LINGER_MS = 500;
/** Refused connections that wait for their client to read; above it they are closed without an answer. */
const LINGERING_MAX = 256;

export class ConnectionRefuser {
  private lingering = 0;

  refuse(socket: Socket, response: HttpResponse): void {
    socket.on('error', () => {});
    if (this.lingering >= LINGERING_MAX) {
      socket.destroy();
      return;
    }
    this.lingering++;
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => {
      clearTimeout(timer);
      this.lingering--;
    });
    const date = `date: ${new Date().toUTCString()}\r\n`;
    const { first, rest } = wireAnswer(response, '', 'connection: close\r\n', date);
    if (typeof first === 'string') socket.write(first, 'latin1');
    else socket.write(first);
    socket.end(rest);
    socket.resume();
  }
}
