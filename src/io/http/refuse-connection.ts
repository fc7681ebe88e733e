/** Answers connections over a limit without reading a request, and closes them. */
import type { Socket } from 'node:net';
import { wireAnswer } from './http1/answer.ts';
import type { HttpResponse } from './port.ts';

/** Time for which a refused connection is read and its bytes dropped: closing over unread bytes
 *  would destroy the answer. */
const LINGER_MS = 500;
/** Most refused connections that wait for their client to read; further ones are closed without an
 *  answer. */
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
