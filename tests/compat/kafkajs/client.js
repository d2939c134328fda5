// KafkaJS against the broker named on the command line: client.js host:port check topic [argument].
// Exit status 0 when the check holds. KafkaJS reads in groups alone.
'use strict'

const { Kafka, CompressionTypes, logLevel } = require('kafkajs')
const assert = require('node:assert')
const fs = require('node:fs')

const [bootstrap, check, topic, argument] = process.argv.slice(2)
const read = file => file && fs.readFileSync(file, 'utf8')
const { DOOR_BOOTSTRAP, DOOR_CA, DOOR_CERTIFICATE, DOOR_KEY, DOOR_MECHANISM, DOOR_USER, DOOR_PASSWORD } = process.env
const ssl = DOOR_CA && { ca: [read(DOOR_CA)], cert: read(DOOR_CERTIFICATE), key: read(DOOR_KEY) }
const bearer = { oauthBearerProvider: async () => ({ value: process.env.DOOR_TOKEN }) }
const sasl = DOOR_MECHANISM && { ...bearer, mechanism: DOOR_MECHANISM.toLowerCase(), username: DOOR_USER, password: DOOR_PASSWORD }
const reach = { brokers: (DOOR_BOOTSTRAP || bootstrap).split(','), ssl, sasl }
const kafka = new Kafka({ ...reach, logLevel: logLevel.NOTHING, retry: { retries: 5 } })

const FOREVER = { retries: 1000, initialRetryTime: 100, maxRetryTime: 1000 }

let ended = null
// Whether standard input has ended; asked for once, it is read.
function stopped () {
  if (ended === null) {
    ended = false
    process.stdin.on('data', () => { ended = true }).on('end', () => { ended = true })
  }
  return ended
}

async function send (messages, options = {}, producerOptions = {}) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...producerOptions })
  await producer.connect()
  const answer = await producer.send({ topic, messages, ...options })
  await producer.disconnect()
  return answer
}

async function create (config = {}) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, ...config }] })
  await admin.disconnect()
}

const numbered = count =>
  Array.from({ length: count }, (_, i) => ({ key: `key-${i}`, value: `${i};`.repeat(20), partition: 0 }))

async function until (what, condition) {
  for (const end = Date.now() + 30000; !condition(); await new Promise(resolve => setTimeout(resolve, 50))) {
    assert.ok(Date.now() < end, what)
  }
}

const checks = {
  async codec () {
    const [codec, acks] = argument.split('/')
    const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
    await create()
    await send(numbered(200), { acks: Number(acks), compression })
  },

  async edges () {
    await create()
    await send([
      { key: 'key', value: 'value', partition: 0 },
      { key: null, value: 'no key', partition: 0 },
      { key: 'no value', value: null, partition: 0 },
      { key: '', value: '', partition: 0 },
      { key: 'headers', value: 'v', headers: { same: ['1', '2'], one: 'x' }, partition: 0 },
      { key: 'large', value: Buffer.alloc(1 << 20, 'l'), partition: 0 }
    ])
  },

  async idempotent () {
    await create()
    await send(numbered(500), { acks: -1 }, { idempotent: true, maxInFlightRequests: 1 })
  },

  async group () {
    await create({ numPartitions: 2 })
    await send(numbered(20))
    const groupId = `group-${topic}`
    const admin = kafka.admin()
    await admin.connect()
    const owned = new Map()
    const seen = []
    const join = async name => {
      const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, rebalanceTimeout: 10000, maxWaitTimeInMs: 200 })
      consumer.on(consumer.events.GROUP_JOIN, event => owned.set(name, event.payload.memberAssignment[topic] || []))
      await consumer.connect()
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({ autoCommitThreshold: 1, eachMessage: async ({ message }) => { seen.push(message.offset) } })
      return consumer
    }
    const first = await join('first')
    await until('twenty records', () => seen.length === 20)
    const second = await join('second')
    await until('one each', () => owned.get('first').length === 1 && (owned.get('second') || []).length === 1)
    assert.strictEqual((await admin.describeGroups([groupId])).groups[0].members.length, 2)
    await first.disconnect()
    await until('both', () => owned.get('second').length === 2)
    await second.disconnect()
    assert.strictEqual(seen.length, 20)
    assert.ok((await admin.listGroups()).groups.some(group => group.groupId === groupId))
    const stored = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.strictEqual(stored[0].partitions.find(row => row.partition === 0).offset, '20')
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '5' }] })
    const moved = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.strictEqual(moved[0].partitions.find(row => row.partition === 0).offset, '5')
    await admin.deleteGroups([groupId])
    await admin.disconnect()
  },

  async times () {
    await create()
    const base = Date.now() - 100000
    const messages = Array.from({ length: 100 }, (_, i) => ({ value: `${i}`, partition: 0, timestamp: `${base + i * 10}` }))
    await send(messages)
    const admin = kafka.admin()
    await admin.connect()
    const at = async time => (await admin.fetchTopicOffsetsByTimestamp(topic, time))[0].offset
    assert.deepStrictEqual([await at(base), await at(base + 1), await at(base + 505), await at(base + 990)], ['0', '1', '51', '99'])
    assert.strictEqual(await at(base + 991), '100') // KafkaJS turns 'none' into the end
    await admin.disconnect()
    const consumer = kafka.consumer({ groupId: `group-${topic}`, maxWaitTimeInMs: 200 })
    const seen = []
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => { seen.push(Number(message.offset)) } })
    consumer.seek({ topic, partition: 0, offset: '51' })
    await until('the records from that time', () => seen.length >= 49)
    await consumer.disconnect()
    assert.deepStrictEqual(seen.slice(-49), Array.from({ length: 49 }, (_, i) => 51 + i))
  },

  async transaction () {
    const source = `${topic}-source`
    const groupId = `group-${topic}`
    await create()
    const admin = kafka.admin()
    await admin.connect()
    await admin.createTopics({ topics: [{ topic: source, numPartitions: 1 }] })
    const named = stem => Array.from({ length: 10 }, (_, i) => ({ value: `${stem}-${i}`, partition: 0 }))
    await send(named('read'), { topic: source })
    const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 })
    let count = 0
    await consumer.connect()
    await consumer.subscribe({ topic: source, fromBeginning: true })
    await consumer.run({ autoCommit: false, eachMessage: async () => { count++ } })
    await until('ten records', () => count === 10)
    const producer = kafka.producer({ transactionalId: `id-${topic}`, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const [stem, offset] of [['aborted', '5'], ['committed', '10']]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: named(stem) })
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }] })
      await (stem === 'aborted' ? transaction.abort() : transaction.commit())
      const stored = async () => (await admin.fetchOffsets({ groupId, topics: [source] }))[0].partitions[0].offset
      if (stem === 'aborted') assert.strictEqual(await stored(), '-1')
      for (const end = Date.now() + 30000; stem === 'committed' && await stored() !== '10';) assert.ok(Date.now() < end)
    }
    await consumer.disconnect()
    await producer.disconnect()
    const reader = kafka.consumer({ groupId: `reader-${topic}`, maxWaitTimeInMs: 200, readUncommitted: false })
    const seen = []
    await reader.connect()
    await reader.subscribe({ topic, fromBeginning: true })
    await reader.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()) } })
    await until('ten committed records', () => seen.length >= 10)
    await reader.disconnect()
    assert.deepStrictEqual(seen, named('committed').map(row => row.value))
    await admin.disconnect()
  },

  async admin () {
    const admin = kafka.admin()
    await admin.connect()
    const configEntries = [{ name: 'retention.ms', value: '1234567' }]
    assert.strictEqual(await admin.createTopics({ topics: [{ topic, numPartitions: 3, configEntries }] }), true)
    assert.strictEqual(await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] }), false)
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.strictEqual(metadata.topics[0].partitions.length, 3)
    const resources = [{ type: 2, name: topic, configNames: ['retention.ms'] }]
    const described = await admin.describeConfigs({ resources, includeSynonyms: false })
    assert.strictEqual(described.resources[0].configEntries[0].configValue, '1234567')
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '7654321' }] }]
    })
    const altered = await admin.describeConfigs({ resources, includeSynonyms: false })
    assert.strictEqual(altered.resources[0].configEntries[0].configValue, '7654321')
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await send(numbered(10))
    const offsets = await admin.fetchTopicOffsets(topic)
    assert.deepStrictEqual(offsets.find(row => row.partition === 0), { partition: 0, offset: '10', high: '10', low: '0' })
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    assert.strictEqual((await admin.fetchTopicOffsets(topic)).find(row => row.partition === 0).low, '4')
    assert.ok((await admin.listTopics()).includes(topic))
    assert.strictEqual((await admin.describeCluster()).brokers.length, bootstrap.split(',').length)
    await admin.deleteTopics({ topics: [topic] })
    assert.ok(!(await admin.listTopics()).includes(topic))
    await admin.disconnect()
  },

  // Writes a record every few milliseconds and says which were acknowledged, until standard input ends. One partition at a
  // time: of several, KafkaJS drops those that move to a broker which has answered already (FINDINGS.md).
  async written () {
    const partitions = Number(argument)
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false, retry: FOREVER })
    await producer.connect()
    for (let number = 0; !stopped(); number++) {
      const messages = [{ key: `key-${number % (2 * partitions)}`, value: `${number}`, partition: number % partitions }]
      await producer.send({ topic, messages, acks: -1 })
      console.log('wrote', number)
      await new Promise(resolve => setTimeout(resolve, 5))
    }
    await producer.disconnect()
  },

  // A member that says which offsets it took, then commits them, until standard input ends.
  async rolled () {
    const options = { groupId: `group-${topic}`, heartbeatInterval: 300, rebalanceTimeout: 10000, maxWaitTimeInMs: 200 }
    const consumer = kafka.consumer({ ...options, retry: FOREVER })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommitInterval: 200,
      eachBatch: async ({ batch }) => { console.log('took', batch.partition, ...batch.messages.map(row => row.offset)) }
    })
    while (!stopped()) await new Promise(resolve => setTimeout(resolve, 50))
    await consumer.disconnect()
  },

  // Sends for so many seconds as fast as it may: prints the bytes that were acknowledged, and the seconds.
  async rate () {
    const producer = new Kafka({ ...reach, clientId: 'c', logLevel: logLevel.NOTHING }).producer()
    const messages = Array.from({ length: 100 }, () => ({ value: '0123456789'.repeat(1000), partition: 0 }))
    await producer.connect()
    let done = 0
    const began = Date.now()
    while (Date.now() - began < Number(argument) * 1000) {
      await producer.send({ topic, messages, acks: 1, timeout: 60000 })
      done += 1000000
    }
    console.log(done, (Date.now() - began) / 1000)
    await producer.disconnect()
  }
}

checks[check]().then(
  () => process.exit(0),
  error => {
    console.error(error)
    process.exit(1)
  }
)
