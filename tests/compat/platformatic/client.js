// @platformatic/kafka against the broker named on the command line: client.js host:port check topic [argument].
// Exit status 0 when the check holds.
import assert from 'node:assert'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [bootstrap, check, topic, argument] = process.argv.slice(2)
const read = file => file && readFileSync(file, 'utf8')
const { DOOR_BOOTSTRAP, DOOR_CA, DOOR_CERTIFICATE, DOOR_KEY, DOOR_MECHANISM, DOOR_USER, DOOR_PASSWORD } = process.env
const tls = DOOR_CA && { ca: [read(DOOR_CA)], cert: read(DOOR_CERTIFICATE), key: read(DOOR_KEY) }
const token = process.env.DOOR_TOKEN
const sasl = token ? { mechanism: DOOR_MECHANISM, token } : DOOR_MECHANISM && { mechanism: DOOR_MECHANISM, username: DOOR_USER, password: DOOR_PASSWORD }
const base = { clientId: 'compat', bootstrapBrokers: (DOOR_BOOTSTRAP || bootstrap).split(','), ...(tls && { tls }), ...(sasl && { sasl }) }
const group = `group-${topic}`
const TIMEOUT_MS = 40000

const admin = new Admin(base)
const producerOf = options => new Producer({ ...base, serializers: stringSerializers, autocreateTopics: false, ...options })
const consumerOf = options =>
  new Consumer({ ...base, groupId: group, deserializers: stringDeserializers, autocommit: false, maxWaitTime: 200, ...options })
const create = (name, partitions = 1) => admin.createTopics({ topics: [name], partitions, replicas: 1 })
const numbered = (name, count) =>
  Array.from({ length: count }, (_, i) => ({ topic: name, key: `key-${i}`, value: `${i};`.repeat(20), partition: 0 }))

let ended = null
// Whether standard input has ended; asked for once, it is read.
function stopped () {
  if (ended === null) {
    ended = false
    process.stdin.on('data', () => { ended = true }).on('end', () => { ended = true })
  }
  return ended
}

async function until (what, condition) {
  for (const end = Date.now() + TIMEOUT_MS; !(await condition()); await sleep(50)) assert.ok(Date.now() < end, what)
}

async function send (messages, options = {}) {
  const producer = producerOf()
  await producer.send({ messages, acks: -1, ...options })
  await producer.close()
}

// The next records of a stream, which stays open.
async function take (stream, count) {
  const found = []
  stream.on('data', message => found.push(message))
  await until(`${count} records`, () => found.length >= count)
  stream.removeAllListeners('data')
  return found
}

async function readFrom (offset, count, options = {}) {
  const consumer = consumerOf({ groupId: `reader-${topic}-${Math.random()}`, ...options })
  const stream = await consumer.consume({ topics: [topic], mode: 'manual', offsets: [{ topic, partition: 0, offset: BigInt(offset) }] })
  const found = await take(stream, count)
  await consumer.close(true)
  return found
}

const owned = consumer => (consumer.assignments || []).reduce((count, row) => count + row.partitions.length, 0)

async function join (options) {
  const consumer = consumerOf(options)
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
  const seen = []
  stream.on('data', message => seen.push(Number(message.offset)))
  return { consumer, seen, leave: () => consumer.close(true) }
}

const checks = {
  async codec () {
    const [compression, acks] = argument.split('/')
    await create(topic)
    await send(numbered(topic, 200), { compression, acks: Number(acks) })
    await until('200 records', async () => (await end()) === 200n)
    const found = await readFrom(137, 63)
    assert.deepStrictEqual(found.map(row => row.value), numbered(topic, 200).slice(137).map(row => row.value))
  },

  async edges () {
    await create(topic)
    const headers = new Map([['one', 'x'], ['empty', '']])
    await send([
      { topic, key: 'key', value: 'value', partition: 0 },
      { topic, value: 'no key', partition: 0 },
      { topic, key: 'no value', partition: 0 },
      { topic, key: 'headers', value: 'v', headers, partition: 0 },
      { topic, key: 'large', value: 'l'.repeat(1 << 20), partition: 0 }
    ])
    const found = await readFrom(0, 5)
    assert.deepStrictEqual([...found[3].headers], [...headers])
    assert.strictEqual(found[4].value.length, 1 << 20)
  },

  async idempotent () {
    await create(topic)
    const producer = producerOf({ idempotent: true })
    for (let i = 0; i < 500; i += 50) await producer.send({ messages: numbered(topic, 500).slice(i, i + 50), acks: -1 })
    await producer.close()
  },

  async times () {
    await create(topic)
    const start = Date.now() - 100000
    await send(numbered(topic, 100).map((row, i) => ({ ...row, timestamp: BigInt(start + i * 10) })))
    const consumer = consumerOf()
    const at = async time => (await consumer.listOffsets({ topics: [topic], timestamp: BigInt(time) })).get(topic)[0]
    for (const [after, expected] of [[0, 0n], [1, 1n], [505, 51n], [990, 99n], [991, -1n]]) {
      assert.strictEqual(await at(start + after), expected, `after ${after}`)
    }
    assert.strictEqual((await readFrom(await at(start + 505), 1))[0].key, 'key-51')
    await consumer.close()
  },

  async group () {
    const options = argument === 'next' ? { groupProtocol: 'consumer' } : { heartbeatInterval: 300 }
    await create(topic, 4)
    await send(numbered(topic, 20))
    const first = await join(options)
    await until('all for the first', () => owned(first.consumer) === 4 && first.seen.length === 20)
    await first.consumer.commit({ offsets: [{ topic, partition: 0, offset: 17n, leaderEpoch: 0 }] })
    const second = await join(options)
    await until('two each', () => owned(first.consumer) === 2 && owned(second.consumer) === 2)
    await first.leave()
    await until('all for the second', () => owned(second.consumer) === 4)
    const stored = await second.consumer.listCommittedOffsets({ topics: [{ topic, partitions: [0] }] })
    assert.strictEqual(stored.get(topic)[0], 17n)
    await second.leave()
    const third = await join(options)
    await until('read on', () => third.seen.length >= 3)
    assert.deepStrictEqual(third.seen, [17, 18, 19])
    await third.leave()
    assert.ok((await admin.listGroups({ types: ['classic', 'consumer'] })).has(group))
    await admin.deleteGroups({ groups: [group] })
    assert.ok(!(await admin.listGroups({ types: ['classic', 'consumer'] })).has(group))
  },

  async transaction () {
    const source = `${topic}-source`
    await create(topic)
    await create(source)
    await send(numbered(source, 10))
    const consumer = consumerOf({ heartbeatInterval: 300 })
    const stream = await consumer.consume({ topics: [source], mode: 'earliest' })
    const read = await take(stream, 10)
    const producer = producerOf({ idempotent: true, transactionalId: `id-${topic}` })
    for (const [stem, last] of [['aborted', 4], ['committed', 9]]) {
      const transaction = await producer.beginTransaction()
      await transaction.addConsumer(consumer)
      const messages = Array.from({ length: 10 }, (_, i) => ({ topic, value: `${stem}-${i}`, partition: 0 }))
      await transaction.send({ messages, acks: -1 })
      await transaction.addOffset(read[last])
      await (stem === 'aborted' ? transaction.abort() : transaction.commit())
    }
    await consumer.close(true)
    await producer.close()
    const found = await readFrom(0, 10, { isolationLevel: 1 })
    assert.deepStrictEqual(found.map(row => row.value), Array.from({ length: 10 }, (_, i) => `committed-${i}`))
  },

  async admin () {
    await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1, configs: [{ name: 'retention.ms', value: '1234567' }] })
    await assert.rejects(admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 }))
    const config = async () => {
      const resources = [{ resourceType: 2, resourceName: topic, configurationKeys: ['retention.ms'] }]
      return (await admin.describeConfigs({ resources }))[0].configs[0].value
    }
    assert.strictEqual(await config(), '1234567')
    const changes = [{ name: 'retention.ms', configOperation: 0, value: '7654321' }]
    await admin.incrementalAlterConfigs({ resources: [{ resourceType: 2, resourceName: topic, configs: changes }] })
    await until('the changed setting', async () => (await config()) === '7654321')
    await admin.createPartitions({ topics: [{ name: topic, count: 5, assignments: null }] })
    assert.strictEqual((await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic).partitionsCount, 5)
    for (let i = 0; i < 100; i += 10) await send(numbered(topic, 10))
    await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 42n }] }] })
    assert.strictEqual((await readFrom(42, 1))[0].offset, 42n)
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.deleteTopics({ topics: [topic] })
    assert.ok(!(await admin.listTopics()).includes(topic))
  },

  // Writes a record every few milliseconds and says which were acknowledged, until standard input ends. One partition at a
  // time: those of one leader it keeps together when they move to two others (FINDINGS.md).
  async written () {
    const partitions = Number(argument)
    const producer = producerOf({ idempotent: true, retries: 1000, retryDelay: 200 })
    for (let number = 0; !stopped(); number++) {
      const partition = number % partitions
      await producer.send({ messages: [{ topic, key: `key-${number % (2 * partitions)}`, value: `${number}`, partition }], acks: -1 })
      console.log('wrote', number)
      await sleep(5)
    }
    await producer.close()
  },

  // A member that says which offsets it took, then commits them, until standard input ends. One that has failed is made
  // anew, as its users have to do when a coordinator is away (FINDINGS.md).
  async rolled () {
    const options = argument === 'next' ? { groupProtocol: 'consumer' } : { heartbeatInterval: 300 }
    while (!stopped()) {
      const consumer = consumerOf({ ...options, autocommit: 200, retries: 1000, retryDelay: 200 })
      let failed = null
      const fail = error => { failed = error }
      consumer.on('error', fail)
      try {
        const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
        stream.on('error', fail)
        stream.on('data', row => console.log('took', row.partition, Number(row.offset)))
        while (!stopped() && failed === null) await sleep(50)
      } catch (error) {
        fail(error)
      }
      if (failed !== null) console.error('made anew:', failed.message)
      await Promise.race([consumer.close(true).catch(fail), sleep(5000)])
    }
  },

  // Sends for so many seconds as fast as it may: prints the bytes that were acknowledged, and the seconds.
  async rate () {
    const producer = producerOf({ clientId: 'c' })
    const messages = Array.from({ length: 100 }, () => ({ topic, value: '0123456789'.repeat(1000), partition: 0 }))
    let done = 0
    const began = Date.now()
    while (Date.now() - began < Number(argument) * 1000) {
      await producer.send({ messages, acks: 1 })
      done += 1000000
    }
    console.log(done, (Date.now() - began) / 1000)
    await producer.close()
  }
}

async function end () {
  const consumer = consumerOf()
  const offsets = await consumer.listOffsets({ topics: [topic] })
  await consumer.close()
  return offsets.get(topic)[0]
}

checks[check]().then(
  async () => {
    await admin.close()
    process.exit(0)
  },
  error => {
    console.error(error)
    process.exit(1)
  }
)
