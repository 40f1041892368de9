// Sends the TLS connections of a Node.js program through the proxy that its gateway gives it.
//
// Takes the proxy of SLUICE_EGRESS_PROXY. Gives sockets of `tls.connect` that reach their host through a CONNECT tunnel,
// whichever library asks: `fetch`, `https`, axios, got. Promise: a connection that the gateway refuses ends with an
// error that names the host and the key of the mount to change.
'use strict';

const childProcess = require('child_process');
const { syncBuiltinESMExports } = require('module');
const net = require('net');
const { Duplex } = require('stream');
const tls = require('tls');

const NAMES = ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'all_proxy'];
const LONGEST_HEAD = 8192;

/** A stream to a host behind the proxy. Writes wait until the tunnel is open. */
class TunnelStream extends Duplex {
  constructor(proxy, host, port) {
    super();
    this.isOpen = false;
    this.waiting = null;
    this.line = net.connect(Number(proxy.port), proxy.hostname);
    this.line.on('error', (error) => this.destroy(error));
    this.line.on('close', () => this.destroy());
    this.line.once('connect', () => {
      this.line.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
    });
    let head = Buffer.alloc(0);
    const read = (piece) => {
      head = Buffer.concat([head, piece]);
      const end = head.indexOf('\r\n\r\n');
      if (end < 0 && head.length < LONGEST_HEAD) return;
      this.line.removeListener('data', read);
      if (end < 0 || !/^HTTP\/1\.[01] 200 /.test(head.toString('latin1', 0, end + 1))) {
        const text = `the gateway refuses a connection to ${host}:${port}; if it is needed, add the host to "network" of the mount`;
        this.destroy(Object.assign(new Error(text), { code: 'ECONNREFUSED', syscall: 'connect', address: host, port }));
        return;
      }
      this.begin(head.subarray(end + 4));
    };
    this.line.on('data', read);
  }

  begin(rest) {
    this.isOpen = true;
    this.line.on('data', (piece) => {
      if (!this.push(piece)) this.line.pause();
    });
    this.line.on('end', () => this.push(null));
    if (rest.length > 0) this.push(rest);
    if (this.waiting) this.waiting();
    this.waiting = null;
  }

  _read() {
    if (this.isOpen) this.line.resume();
  }

  _write(chunk, encoding, done) {
    if (this.isOpen) this.line.write(chunk, encoding, done);
    else this.waiting = () => this.line.write(chunk, encoding, done);
  }

  _final(done) {
    if (this.isOpen) this.line.end(done);
    else done();
  }

  _destroy(error, done) {
    this.line.destroy();
    done(error);
  }
}

/** The options of a call of `tls.connect`, which takes them in three forms. */
function optionsOf(args) {
  if (args[0] !== null && typeof args[0] === 'object') return { ...args[0] };
  const options = { port: args[0] };
  if (typeof args[1] === 'string') options.host = args[1];
  const more = args.find((arg) => arg !== null && typeof arg === 'object');
  return { ...options, ...more };
}

function isLocal(host) {
  return host === 'localhost' || host === '::1' || /^127\./.test(host);
}

function install(proxy) {
  const direct = tls.connect;
  tls.connect = function connect(...args) {
    const options = optionsOf(args);
    const host = options.host || options.hostname || 'localhost';
    if (options.socket || options.path || isLocal(host)) return direct.apply(this, args);
    const done = args.find((arg) => typeof arg === 'function');
    const socket = new TunnelStream(proxy, host, options.port || 443);
    const secure = direct.call(this, { servername: net.isIP(host) ? '' : host, ...options, host, socket }, done);
    socket.on('error', (error) => secure.destroy(error));
    return secure;
  };
  // Libraries that read these variables would speak to the proxy in their own ways; programs that are started need them.
  const kept = NAMES.filter((name) => process.env[name]).map((name) => [name, process.env[name]]);
  for (const name of NAMES) delete process.env[name];
  const { prototype } = childProcess.ChildProcess;
  const spawn = prototype.spawn;
  prototype.spawn = function spawnWithProxy(options) {
    const pairs = options && options.envPairs;
    if (Array.isArray(pairs)) {
      for (const [name, value] of kept) {
        if (!pairs.some((pair) => pair.startsWith(`${name}=`))) pairs.push(`${name}=${value}`);
      }
    }
    return spawn.call(this, options);
  };
  syncBuiltinESMExports();
}

if (process.env.SLUICE_EGRESS_PROXY) install(new URL(process.env.SLUICE_EGRESS_PROXY));
