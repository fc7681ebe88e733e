/** Many clients in a process of their own, because each process has its own limit of sockets.
 *  Receives `{task, port, …}`, reports the result, and lives until the parent ends it. */
import { connect } from 'node:net';

const HOST = 'Host: test\r\n';
const get = (path) => `GET ${path} HTTP/1.1\r\n${HOST}\r\n`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Client that counts the bytes it receives. */
function client(port) {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    const state = { socket, received: '', connected: false, ended: false, onChange: () => {} };
    const note = () => state.onChange();
    socket.on('data', (chunk) => {
      state.received += chunk.toString('latin1');
      note();
    });
    socket.on('error', () => {});
    for (const event of ['end', 'close']) {
      socket.on(event, () => {
        state.ended = true;
        note();
      });
    }
    socket.once('connect', () => {
      state.connected = true;
      resolve(state);
    });
    socket.once('close', () => resolve(state));
  });
}

/** Body of the next answer with its status; undefined when the connection ended before the whole
 *  answer. */
function answer(state) {
  return new Promise((resolve) => {
    const look = () => {
      const end = state.received.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(state.received.slice(0, Math.max(0, end)))?.[1]);
      if (end >= 0 && state.received.length >= end + 4 + length) {
        const status = Number(state.received.slice(9, 12));
        const body = state.received.slice(end + 4, end + 4 + length);
        state.received = state.received.slice(end + 4 + length);
        state.onChange = () => {};
        resolve({ status, body });
      } else if (state.ended) resolve(undefined);
    };
    state.onChange = look;
    look();
  });
}

async function crowd(port, count) {
  const all = [];
  for (let i = 0; i < count; i += 200)
    all.push(...(await Promise.all(Array.from({ length: Math.min(200, count - i) }, () => client(port)))));
  return all;
}

const ended = (all) => all.filter((one) => one.ended).length;

/** Polls of a state before the task reports what it last saw; with POLL_MS about two minutes. */
const POLLS_MAX = 6000;
const POLL_MS = 20;

async function untilEnded(all) {
  for (let polls = 0; ended(all) < all.length && polls < POLLS_MAX; polls++) await sleep(POLL_MS);
  return ended(all);
}

const tasks = {
  /** Opens connections, half of them used once, and holds them. */
  async idle({ port, count }) {
    const all = await crowd(port, count);
    let wrong = 0;
    await Promise.all(
      all.map(async (one, i) => {
        if (i % 2 === 0) return;
        one.socket.write(get(`/n/${i}`));
        // A connection that the server ended does not count as open.
        const got = await answer(one);
        if (got !== undefined && got.body !== `${i}`) wrong++;
      }),
    );
    process.send({
      connected: all.filter((one) => one.connected).length,
      opened: all.length - ended(all),
      wrong,
    });
    process.send({ ended: await untilEnded(all) });
  },

  /** Every client requests its own number, repeatedly. */
  async crowd({ port, count, rounds }) {
    const all = await crowd(port, count);
    let right = 0;
    await Promise.all(
      all.map(async (one, i) => {
        for (let round = 0; round < rounds; round++) {
          const mine = i * rounds + round;
          one.socket.write(get(`/n/${mine}`));
          if ((await answer(one))?.body === `${mine}`) right++;
        }
      }),
    );
    for (const one of all) one.socket.destroy();
    process.send({ right });
  },

  /** Sends requests without a pause until the connection ends. */
  async hammer({ port, count }) {
    const all = await crowd(port, count);
    process.send({ ready: true });
    let answered = 0;
    let refused = 0;
    let wrong = 0;
    await Promise.all(
      all.map(async (one, i) => {
        for (let n = i; !one.ended; n += count) {
          one.socket.write(get(`/slow/${n}`));
          const got = await answer(one);
          if (got === undefined) return;
          if (got.status === 503) refused++;
          else if (got.status === 200 && got.body === `${n}`) answered++;
          else wrong++;
        }
      }),
    );
    process.send({ answered, refused, wrong });
  },

  /** Sends bodies a byte at a time, without end. */
  async drip({ port, count }) {
    const all = await crowd(port, count);
    const dripping = setInterval(() => {
      for (const one of all) if (!one.ended) one.socket.write('x');
    }, 50);
    for (const one of all) one.socket.write(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 1000\r\n\r\n`);
    process.send({ ready: true });
    const answers = await Promise.all(all.map(answer));
    clearInterval(dripping);
    process.send({
      late: answers.filter((one) => one?.status === 408).length,
      ended: await untilEnded(all),
    });
  },

  /** Sends a request and shuts down the sending side. */
  async halfClosed({ port, count }) {
    const all = await crowd(port, count);
    for (const one of all) {
      one.socket.write(get('/slow/1'));
      one.socket.end();
    }
    process.send({ ended: await untilEnded(all) });
  },

  /** Sends uploads without end, with a length and in chunks. */
  async upload({ port, count }) {
    const all = await crowd(port, count);
    const block = Buffer.alloc(64 * 1024, 'x');
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), block, Buffer.from('\r\n')]);
    all.forEach((one, i) => {
      const head = i % 2 === 0 ? 'Content-Length: 100000000000' : 'Transfer-Encoding: chunked';
      one.socket.write(`POST /echo HTTP/1.1\r\n${HOST}${head}\r\n\r\n`);
      const more = () => {
        while (!one.socket.destroyed && one.socket.writable && one.socket.write(i % 2 === 0 ? block : chunk));
        if (!one.socket.destroyed) one.socket.once('drain', more);
      };
      more();
    });
    const finished = await untilEnded(all);
    process.send({ ended: finished, sent: Math.max(...all.map((one) => one.socket.bytesWritten)) });
  },

  /** Requests large answers without end and reads none, until the parent's message. */
  async deaf({ port, count }) {
    const all = await crowd(port, count);
    for (const one of all) {
      one.socket.pause();
      one.socket.write(get('/large').repeat(500));
    }
    process.send({ ready: true });
    await left;
    for (const one of all) one.socket.destroy();
    process.send({ gone: true });
  },
};

const left = new Promise((resolve) => {
  process.on('message', (message) => {
    if (message === 'leave') resolve();
  });
});
process.once('message', (message) => {
  void tasks[message.task](message);
});
process.once('disconnect', () => process.exit(0));
