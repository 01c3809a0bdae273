// What the Node drivers share: the same command line and measures as driving.py.
// A driver exports nothing; it calls `main` with an object of functions.

import { fork } from 'node:child_process'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'

const BULK = 1000
const SAMPLES_SECONDS = 8
const DRAIN_SECONDS = 120
const SETTLE_SECONDS = 20
const PUBLISHING = ['enqueue', 'bulk', 'keyed', 'bulk_keyed']

// The peer's packages are not beside this file but in the peer's own environment.
export const load = createRequire(`${process.env.ONCELY_BENCH_MODULES}/`)

const now = () => Number(process.hrtime.bigint())

let first = 0
let last = 0
const seen = new Map()
let doubled = 0
let told = 0

// What every handler does: nothing but tell that it ran.
export function hit(n) {
  last = now()
  if (!first) first = last
  if (seen.has(n)) doubled += 1
  else seen.set(n, last)
}

function tell(latency) {
  if (seen.size + doubled === told) return
  told = seen.size + doubled
  process.send({ first, last, ran: seen.size, doubled, times: latency ? [...seen] : undefined })
  if (latency) seen.clear()
  if (latency) told = 0
}

export async function main(driver) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      url: { type: 'string' },
      jobs: { type: 'string', default: '1000' },
      processes: { type: 'string', default: '1' },
      latency: { type: 'boolean', default: false },
    },
  })
  const [measure] = positionals
  const jobs = Number(values.jobs)
  if (measure === 'work') {
    process.on('SIGTERM', () => process.exit(0))
    process.on('disconnect', () => process.exit(0))
    setInterval(tell, values.latency ? 1 : 10, values.latency)
    await driver.work(values.url, Number(values.processes), values.latency)
    return
  }
  try {
    if (!driver.measures.includes(measure)) throw new Error(`no measure ${measure}`)
    await driver.open(values.url)
    let found
    if (PUBLISHING.includes(measure)) found = await publish(driver, measure, jobs)
    else if (measure === 'latency') found = await latency(driver, values.url, jobs)
    else found = await drain(driver, values.url, jobs, measure === 'drain2' ? 2 : 1)
    console.log(JSON.stringify({ measure, jobs, ...found }))
    process.exit(0)
  } catch (error) {
    console.error(error.stack)
    process.exit(1)
  }
}

async function publish(driver, measure, jobs) {
  const size = measure.startsWith('bulk') ? BULK : jobs
  const started = now()
  for (let n = 0; n < jobs; n += size) await driver[measure](n, Math.min(n + size, jobs))
  const seconds = (now() - started) / 1e9
  const stored = await driver.unsettled()
  if (stored !== jobs) throw new Error(`${stored} of ${jobs} jobs are in the store`)
  return { rate: jobs / seconds }
}

function crew(url, processes, latency) {
  const args = ['work', '--url', url, '--processes', String(processes)]
  if (latency) args.push('--latency')
  const workers = Array.from({ length: processes }, () => {
    const child = fork(process.argv[1], args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
    const worker = { child, first: 0, last: 0, ran: 0, doubled: 0, over: false }
    child.on('message', (message) => Object.assign(worker, message))
    child.on('exit', () => (worker.over = true))
    return worker
  })
  return workers
}

async function drain(driver, url, jobs, processes) {
  for (let n = 0; n < jobs; n += BULK) await driver.bulk(n, Math.min(n + BULK, jobs))
  const workers = crew(url, processes, false)
  const sum = (name) => workers.reduce((total, worker) => total + worker[name], 0)
  const deadline = now() + DRAIN_SECONDS * 1e9
  while (sum('ran') < jobs) {
    if (now() > deadline || workers.some((worker) => worker.over))
      throw new Error(`a worker ended or time is over after ${sum('ran')} jobs`)
    await sleep(10)
  }
  const settleBy = now() + SETTLE_SECONDS * 1e9
  let asked
  for (;;) {
    asked = now()
    const left = await driver.unsettled()
    if (left === 0) break
    if (asked > settleBy) throw new Error(`${left} jobs ran and were not settled`)
    await sleep(10)
  }
  for (const { child } of workers) child.kill('SIGKILL')
  const begun = Math.min(...workers.filter((w) => w.first).map((w) => w.first))
  const ended = Math.max(...workers.map((w) => w.last))
  // Counted per process: a job that ran in both would be counted twice.
  if (sum('ran') !== jobs) throw new Error(`${sum('ran')} executions of ${jobs} jobs`)
  return {
    rate: jobs / ((asked - begun) / 1e9),
    handlers_rate: jobs / ((ended - begun) / 1e9),
    doubled: sum('doubled'),
  }
}

async function latency(driver, url, samples) {
  const [worker] = crew(url, 1, true)
  const started = new Map()
  worker.child.on('message', ({ times }) => times.forEach(([n, time]) => started.set(n, time)))
  const ran = async (n) => {
    const deadline = now() + 30e9
    while (!started.has(n)) {
      if (worker.over || now() > deadline) throw new Error(`job ${n} did not run`)
      await sleep(1)
    }
    return started.get(n)
  }
  await driver.enqueue(0, 1)
  await ran(0)
  await sleep(1000)
  const took = []
  const until = now() + SAMPLES_SECONDS * 1e9
  for (let n = 1; n <= samples && now() < until; n += 1) {
    const sent = now()
    await driver.enqueue(n, n + 1)
    took.push(((await ran(n)) - sent) / 1e6)
    await sleep(15 + Math.random() * 15)
  }
  worker.child.kill('SIGKILL')
  took.sort((a, b) => a - b)
  return {
    p50_ms: took[Math.floor(took.length / 2)],
    p99_ms: took[Math.min(took.length - 1, Math.floor(took.length * 0.99))],
    samples: took.length,
  }
}

export const range = (from, to) => Array.from({ length: to - from }, (_, n) => from + n)
