// One flow with npm's `kafka` 0.2.3, a client of Kafka 0.7: node client.js PORT TOPIC FLOW [ARGUMENT]. Prints JSON.
// It writes and reads magic 0 only, and encodes offsets of 65536 and above wrongly: few and small messages.
const kafka = require("kafka");

const [port, topic, flow] = [Number(process.argv[2]), process.argv[3], process.argv[4]];
const argument = Number(process.argv[5]);
const at = { host: "127.0.0.1", port, topic, partition: 0 };

function finish(value) {
  console.log(JSON.stringify(value));
  process.exit(0);
}

// Reads `count` messages of a partition from an offset on: what it is told with each.
function consume(partition, offset, count, done) {
  const got = [];
  const consumer = new kafka.Consumer({ ...at, pollInterval: 50 });
  consumer.on("message", (name, payload, next) => {
    if (got.length < count) got.push([name, String(payload), Number(next)]);
    if (got.length === count) done(got);
  });
  consumer.on("error", (code, name) => done([code, name]));
  consumer.connect(() => consumer.subscribeTopic({ name: topic, partition, offset }));
}

function produce(send) {
  const producer = new kafka.Producer(at);
  producer.connect(() => send(producer));
}

const flows = {
  // One alone and two at once, read back from the beginning.
  echo: () =>
    produce((producer) => {
      producer.send("one");
      producer.send(["two", "three"]);
      consume(0, 0, 3, finish);
    }),
  // A producer may name another topic and partition for each send.
  partitions: () =>
    produce((producer) => {
      producer.send("zero");
      producer.send(["other"], topic, 1);
      consume(0, 0, 1, (zero) => consume(1, 0, 1, (other) => finish([zero, other])));
    }),
  // The message at an offset, as a consumer that stopped there goes on.
  next: () => consume(0, argument, 1, finish),
  // Its request for offsets asks for a time far in the future.
  offsets: () => {
    const client = new kafka.Client(at);
    client.on("offset", (name, offset) => finish([name, offset]));
    client.connect(() => client.fetchOffsets(topic));
  },
};

flows[flow]();
