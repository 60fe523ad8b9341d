import { make, say, shown } from './dom.js';
import { clock, seconds } from './words.js';

// Requests to the explorer, and what the page says until there is an answer.

// Refused is an error of the explorer; its status is 0 if there is no answer.
export class Refused extends Error {
  constructor(status, answer) {
    super(answer.error);
    this.status = status;
    this.answer = answer;
  }
}

// addressOf is the address of a question, without the name and the password that the address of the page may have.
// Empty values are left out, and lists are repeated.
export function addressOf(what, question) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(question)) {
    for (const one of [value].flat()) if (one !== '' && one !== null && one !== undefined) query.append(name, one);
  }
  return `${location.origin}/store/${what}?${query}`;
}

// ask asks the explorer.
export async function ask(method, what, question, { body, etag, signal } = {}) {
  const headers = body === undefined && method === 'GET' ? {} : { 'Content-Type': 'application/json' };
  if (etag) headers['If-Match'] = etag;
  let response;
  let answer;
  try {
    response = await fetch(addressOf(what, question), { method, headers, body, signal });
    answer = await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(response?.status ?? 0, { error: `no answer: ${error.message}` });
  }
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

// sleep ends after some time, or at once with an error if signal is aborted.
function sleep(time, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, time);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// State is a line that says what the page waits for, or what has gone wrong.
export class State {
  constructor() {
    this.element = make('p', { class: 'state', role: 'status' });
    this.clear();
  }

  say(text, kind = '') {
    this.element.className = `state ${kind}`;
    this.element.hidden = text === '';
    say(this.element, shown(text));
  }

  clear() { this.say(''); }

  // read reads something, again and again while the account is throttled or the connection is lost.
  async read(signal, work) {
    let lostAt = null;
    this.say('Loading…', 'loading');
    for (;;) {
      try {
        const answer = await work();
        this.clear();
        return answer;
      } catch (error) {
        signal.throwIfAborted();
        if (error.status === 429) {
          const wait = error.answer.retry_seconds ?? 1;
          this.say(`The account is throttled: trying again in ${seconds(wait)}. ${error.message}`, 'throttled');
          await sleep(wait * 1000, signal);
        } else if (error.status === 0) {
          lostAt ??= new Date();
          this.say(`Connection lost at ${clock(lostAt)} UTC. Trying again…`, 'lost');
          await sleep(2000, signal);
        } else {
          this.say(error.message, 'wrong');
          throw error;
        }
      }
    }
  }

  // write writes something, once: a write without an answer may have been done.
  async write(work) {
    this.say('Writing…', 'loading');
    try {
      const answer = await work();
      this.clear();
      return answer;
    } catch (error) {
      if (error.status === 429) this.say(`The account is throttled, so nothing was written: try again. ${error.message}`, 'throttled');
      else if (error.status === 0) this.say('Connection lost: nobody knows whether it was written. Look again before you repeat it.', 'lost');
      else this.say(error.message, 'wrong');
      throw error;
    }
  }
}
