// Sends and reads with npm's `kafka` 0.2.3, a client of Kafka 0.7: node client.js PORT TOPIC. Prints what it read as JSON.
// It writes and reads magic 0 only, and encodes offsets of 65536 and above wrongly: few and small messages.
const kafka = require("kafka");

const [port, topic] = [Number(process.argv[2]), process.argv[3]];
const wanted = ["one", "two", "three"];
const at = { host: "127.0.0.1", port, topic, partition: 0 };

function consume() {
  const got = [];
  const consumer = new kafka.Consumer({ ...at, pollInterval: 50 });
  consumer.on("message", (name, payload, offset) => {
    got.push([name, String(payload), Number(offset)]);
    if (got.length === wanted.length) {
      console.log(JSON.stringify(got));
      process.exit(0);
    }
  });
  consumer.connect(() => consumer.subscribeTopic({ name: topic, partition: 0, offset: 0 }));
}

const producer = new kafka.Producer(at);
producer.connect(() => {
  producer.send(wanted[0]);
  producer.send(wanted.slice(1));
  consume();
});
