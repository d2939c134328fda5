// sarama against the broker named on the command line: client host:port check topic [argument].
// Exit status 0 when the check holds, else what did not.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const timeout = 60 * time.Second

var (
	bootstrap, topic, argument string
	deadline                   = time.Now().Add(timeout)
)

func require(holds bool, format string, values ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, format+"\n", values...)
		os.Exit(1)
	}
}

func ok(err error) { require(err == nil, "%v", err) }

func until(what string, condition func() bool) {
	for !condition() {
		require(time.Now().Before(deadline), "%s: not in time", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.MaxMessageBytes = 4_000_000
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	made.Consumer.MaxWaitTime = 200 * time.Millisecond
	door(made)
	return made
}

// door puts in what the environment says of TLS and SASL, if anything.
func door(made *sarama.Config) {
	if os.Getenv("DOOR_CA") == "" {
		return
	}
	authority, err := os.ReadFile(os.Getenv("DOOR_CA"))
	ok(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	made.Net.TLS.Enable = true
	made.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	if file := os.Getenv("DOOR_CERTIFICATE"); file != "" {
		own, err := tls.LoadX509KeyPair(file, os.Getenv("DOOR_KEY"))
		ok(err)
		made.Net.TLS.Config.Certificates = []tls.Certificate{own}
	}
	mechanism := os.Getenv("DOOR_MECHANISM")
	if mechanism == "" {
		return
	}
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	made.Net.SASL.User, made.Net.SASL.Password = os.Getenv("DOOR_USER"), os.Getenv("DOOR_PASSWORD")
	made.Net.SASL.TokenProvider = bearer{}
	hashes := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}
	if hash, known := hashes[mechanism]; known {
		made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	}
}

// bearer shows the token of the environment.
type bearer struct{}

func (bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: os.Getenv("DOOR_TOKEN")}, nil
}

// conversation is the SCRAM that sarama asks its users to bring.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authzid string) error {
	client, err := c.hash.NewClient(user, password, authzid)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

func admin() sarama.ClusterAdmin {
	made, err := sarama.NewClusterAdmin(seeds(), config())
	ok(err)
	return made
}

func create(name string, partitions int32) {
	cluster := admin()
	defer cluster.Close()
	ok(cluster.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
}

func message(name string, key, value []byte) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: name}
	if key != nil {
		made.Key = sarama.ByteEncoder(key)
	}
	if value != nil {
		made.Value = sarama.ByteEncoder(value)
	}
	return made
}

func send(messages []*sarama.ProducerMessage, settings *sarama.Config) {
	producer, err := sarama.NewSyncProducer(seeds(), settings)
	ok(err)
	defer producer.Close()
	ok(producer.SendMessages(messages))
}

func numbered(name string, count int) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, count)
	for i := range messages {
		messages[i] = message(name, []byte(fmt.Sprintf("key-%d", i)), bytes.Repeat([]byte(fmt.Sprintf("%d;", i)), 20))
	}
	return messages
}

func read(offset int64, count int, settings *sarama.Config) []*sarama.ConsumerMessage {
	consumer, err := sarama.NewConsumer(seeds(), settings)
	ok(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, offset)
	ok(err)
	defer partition.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case row := <-partition.Messages():
			found = append(found, row)
		case <-time.After(time.Until(deadline)):
			require(false, "%d of %d records", len(found), count)
		}
	}
	return found
}

func bytesOf(encoder sarama.Encoder) []byte {
	if encoder == nil {
		return nil
	}
	value, err := encoder.Encode()
	ok(err)
	return value
}

func requireSame(sent []*sarama.ProducerMessage, found []*sarama.ConsumerMessage) {
	require(len(sent) == len(found), "sent %d, found %d", len(sent), len(found))
	for i, row := range found {
		key, value := bytesOf(sent[i].Key), bytesOf(sent[i].Value)
		require(bytes.Equal(key, row.Key) && (key == nil) == (row.Key == nil), "key of %d", i)
		require(bytes.Equal(value, row.Value) && (value == nil) == (row.Value == nil), "value of %d", i)
		require(len(sent[i].Headers) == len(row.Headers), "headers of %d", i)
		for number, header := range sent[i].Headers {
			require(bytes.Equal(header.Key, row.Headers[number].Key) && bytes.Equal(header.Value, row.Headers[number].Value), "header of %d", i)
		}
	}
}

func checkCodec() {
	codec, acks, _ := strings.Cut(argument, "/")
	create(topic, 1)
	settings := config()
	settings.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[codec]
	settings.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[acks]
	send(numbered(topic, 200), settings)
	client, err := sarama.NewClient(seeds(), config())
	ok(err)
	defer client.Close()
	until("200 records", func() bool { // acks=0 does not tell
		end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
		return err == nil && end == 200
	})
	requireSame(numbered(topic, 200)[137:], read(137, 63, config()))
}

func checkEdges() {
	create(topic, 1)
	headed := message(topic, nil, []byte("headers"))
	headed.Headers = []sarama.RecordHeader{{Key: []byte("same"), Value: []byte("1")}, {Key: []byte("same"), Value: []byte("2")}, {Key: []byte("null")}}
	messages := []*sarama.ProducerMessage{
		message(topic, []byte("key"), []byte("value")), message(topic, nil, []byte("no key")), message(topic, []byte("no value"), nil),
		message(topic, nil, nil), message(topic, []byte{}, []byte{}), message(topic, []byte("large"), bytes.Repeat([]byte("l"), 1<<20)), headed,
	}
	send(messages, config())
	requireSame(messages, read(0, len(messages), config()))
}

func checkIdempotent() {
	create(topic, 1)
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Flush.MaxMessages = 50
	send(numbered(topic, 2000), settings)
	requireSame(numbered(topic, 2000), read(0, 2000, config()))
}

func checkTimes() {
	create(topic, 1)
	base := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	messages := numbered(topic, 100)
	for i, row := range messages {
		row.Timestamp = base.Add(time.Duration(i) * 10 * time.Millisecond)
	}
	send(messages, config())
	client, err := sarama.NewClient(seeds(), config())
	ok(err)
	defer client.Close()
	for after, expected := range map[int64]int64{0: 0, 1: 1, 505: 51, 990: 99, 991: -1} {
		found, err := client.GetOffset(topic, 0, base.UnixMilli()+after)
		ok(err)
		require(found == expected, "after %d: %d, not %d", after, found, expected)
	}
	at, err := client.GetOffset(topic, 0, base.UnixMilli()+505)
	ok(err)
	requireSame(messages[51:53], read(at, 2, config()))
}

// member counts what it owns and what it reads; it commits up to an offset when told to.
type member struct {
	lock    sync.Mutex
	owned   int
	offsets []int64
	commit  int64
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	ended   chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = len(session.Claims()[topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for row := range claim.Messages() {
		m.lock.Lock()
		m.offsets = append(m.offsets, row.Offset)
		if row.Offset+1 == m.commit {
			session.MarkMessage(row, "note")
			session.Commit()
		}
		m.lock.Unlock()
	}
	return nil
}

func (m *member) has(owned, count int) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.owned == owned && len(m.offsets) >= count
}

func (m *member) leave() {
	m.stop()
	<-m.ended
	ok(m.group.Close())
}

func join(commit int64) *member {
	made := &member{commit: commit, ended: make(chan struct{})}
	group, err := sarama.NewConsumerGroup(seeds(), "group-"+topic, config())
	ok(err)
	var ctx context.Context
	ctx, made.stop = context.WithCancel(context.Background())
	made.group = group
	go func() {
		defer close(made.ended)
		for ctx.Err() == nil {
			ok(group.Consume(ctx, []string{topic}, made))
		}
	}()
	return made
}

func checkGroup() {
	create(topic, 4)
	send(numbered(topic, 20), config())
	first := join(17)
	until("all for the first", func() bool { return first.has(4, 20) })
	second := join(0)
	until("two each", func() bool { return first.has(2, 20) && second.has(2, 0) })
	cluster := admin()
	defer cluster.Close()
	described, err := cluster.DescribeConsumerGroups([]string{"group-" + topic})
	ok(err)
	require(len(described[0].Members) == 2, "two members: %v", described[0].Members)
	first.leave()
	until("all for the second", func() bool { return second.has(4, 3) })
	second.leave()
	stored, err := cluster.ListConsumerGroupOffsets("group-"+topic, map[string][]int32{topic: {0}})
	ok(err)
	row := stored.GetBlock(topic, 0)
	require(row.Offset == 17 && row.Metadata == "note", "committed %v", row)
	require(slices.Contains(second.offsets, 17) && !slices.Contains(second.offsets, 16), "read on: %v", second.offsets)
	groups, err := cluster.ListConsumerGroups()
	ok(err)
	_, listed := groups["group-"+topic]
	require(listed, "listed")
	ok(cluster.DeleteConsumerGroup("group-" + topic))
}

func checkTransaction() {
	source, group := topic+"-source", "group-"+topic
	create(topic, 1)
	create(source, 1)
	send(numbered(source, 10), config())
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Transaction.ID = "id-" + topic
	producer, err := sarama.NewSyncProducer(seeds(), settings)
	ok(err)
	for _, stem := range []string{"aborted", "committed"} {
		ok(producer.BeginTxn())
		for i := range 10 {
			_, _, err := producer.SendMessage(message(topic, nil, []byte(fmt.Sprintf("%s-%d", stem, i))))
			ok(err)
		}
		offset := map[string]int64{"aborted": 5, "committed": 10}[stem]
		offsets := map[string][]*sarama.PartitionOffsetMetadata{source: {{Partition: 0, Offset: offset}}}
		ok(producer.AddOffsetsToTxn(offsets, group))
		if stem == "aborted" {
			ok(producer.AbortTxn())
		} else {
			ok(producer.CommitTxn())
		}
	}
	ok(producer.Close())
	committed := config()
	committed.Consumer.IsolationLevel = sarama.ReadCommitted
	for i, row := range read(0, 10, committed) {
		require(string(row.Value) == fmt.Sprintf("committed-%d", i), "read committed: %s at %d", row.Value, i)
	}
}

func checkAdmin() {
	cluster := admin()
	defer cluster.Close()
	retention := "1234567"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	ok(cluster.CreateTopic(topic, detail, false))
	err := cluster.CreateTopic(topic, detail, false)
	require(err != nil && strings.Contains(err.Error(), "already exists"), "created twice: %v", err)
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	found, err := cluster.DescribeConfig(resource)
	ok(err)
	require(len(found) == 1 && found[0].Value == retention, "configs %v", found)
	changed := "7654321"
	entries := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &changed}}
	ok(cluster.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
	until("the changed setting", func() bool { // Kafka applies it a moment after it has answered
		found, err = cluster.DescribeConfig(resource)
		return err == nil && found[0].Value == changed
	})
	ok(cluster.CreatePartitions(topic, 5, nil, false))
	topics, err := cluster.DescribeTopics([]string{topic})
	ok(err)
	require(len(topics[0].Partitions) == 5, "5 partitions")
	settings := config()
	settings.Producer.Flush.MaxMessages = 10
	send(numbered(topic, 100), settings)
	ok(cluster.DeleteRecords(topic, map[int32]int64{0: 42}))
	client, err := sarama.NewClient(seeds(), config())
	ok(err)
	defer client.Close()
	start, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	ok(err)
	require(start == 42, "log start %d", start)
	brokers, controller, err := cluster.DescribeCluster()
	ok(err)
	isController := func(broker *sarama.Broker) bool { return broker.ID() == controller }
	require(len(brokers) == len(seeds()) && slices.ContainsFunc(brokers, isController), "%d brokers", len(brokers))
	_, err = cluster.DescribeLogDirs([]int32{controller})
	ok(err)
	ok(cluster.DeleteTopic(topic))
	until("the topic gone", func() bool {
		left, err := cluster.ListTopics()
		_, there := left[topic]
		return err == nil && !there
	})
}

// checkClassic reads a topic of Kafka 0.7's messages one by one, each with a client of its own that begins where the last
// one committed. The argument is the rows wanted, offset:payload, comma between two.
func checkClassic() {
	var found []string
	wanted := strings.Split(argument, ",")
	settings := config()
	settings.Consumer.MaxWaitTime = 10 * time.Millisecond // a consumer that closes waits for the fetch it has out
	for range wanted {
		client, err := sarama.NewClient(seeds(), settings)
		ok(err)
		manager, err := sarama.NewOffsetManagerFromClient("group-"+topic, client)
		ok(err)
		stored, err := manager.ManagePartition(topic, 0)
		ok(err)
		next, _ := stored.NextOffset()
		consumer, err := sarama.NewConsumerFromClient(client)
		ok(err)
		partition, err := consumer.ConsumePartition(topic, 0, next)
		ok(err)
		select {
		case row := <-partition.Messages():
			require(row.Key == nil && len(row.Headers) == 0, "key or headers at %d", row.Offset)
			found = append(found, fmt.Sprintf("%d:%s", row.Offset, row.Value))
			stored.MarkOffset(row.Offset+1, "")
		case <-time.After(time.Until(deadline)):
			require(false, "%d of %d messages", len(found), len(wanted))
		}
		manager.Commit()
		ok(partition.Close())
		stored.AsyncClose() // its manager's Close ends it
		ok(manager.Close())
		ok(consumer.Close())
		ok(client.Close())
	}
	require(slices.Equal(found, wanted), "wanted %v, found %v", wanted, found)
}

// checkRate sends for so many seconds as fast as it may: it prints the bytes that were acknowledged, and the seconds.
func checkRate() {
	wanted, err := time.ParseDuration(argument + "s")
	ok(err)
	settings := config()
	settings.ClientID = "c"
	settings.Producer.MaxMessageBytes = 900_000
	producer, err := sarama.NewAsyncProducer(seeds(), settings)
	ok(err)
	value := bytes.Repeat([]byte("0123456789"), 1000)
	var done atomic.Int64
	var readers sync.WaitGroup
	readers.Add(2)
	go func() {
		defer readers.Done()
		for range producer.Successes() {
			done.Add(int64(len(value)))
		}
	}()
	go func() {
		defer readers.Done()
		for failed := range producer.Errors() {
			ok(failed)
		}
	}()
	began := time.Now()
	for time.Since(began) < wanted {
		producer.Input() <- message(topic, nil, value)
	}
	fmt.Println(done.Load(), time.Since(began).Seconds())
	producer.AsyncClose()
	readers.Wait()
}

// stopped is done when standard input ends.
func stopped() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	return ctx
}

// checkWritten writes a record every few milliseconds and says which were acknowledged, until its standard input ends.
func checkWritten() {
	partitions, err := strconv.Atoi(argument)
	ok(err)
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Retry.Max = 1000
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(seeds(), settings)
	ok(err)
	var readers sync.WaitGroup
	readers.Add(2)
	go func() {
		defer readers.Done()
		for row := range producer.Successes() {
			fmt.Println("wrote", string(bytesOf(row.Value)))
		}
	}()
	go func() {
		defer readers.Done()
		for failed := range producer.Errors() {
			ok(failed)
		}
	}()
	writing := stopped()
	for number := 0; writing.Err() == nil; number++ {
		row := message(topic, []byte(fmt.Sprintf("key-%d", number%(2*partitions))), []byte(strconv.Itoa(number)))
		row.Partition = int32(number % partitions)
		producer.Input() <- row
		time.Sleep(5 * time.Millisecond)
	}
	producer.AsyncClose()
	readers.Wait()
}

// taker says which offsets it took, and has them committed.
type taker struct{}

func (taker) Setup(sarama.ConsumerGroupSession) error { return nil }

func (taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (taker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for row := range claim.Messages() {
		fmt.Println("took", row.Partition, row.Offset)
		session.MarkMessage(row, "")
	}
	return nil
}

// checkRolled is a member that says which offsets it took, then commits them, until its standard input ends.
func checkRolled() {
	settings := config()
	settings.Consumer.Offsets.AutoCommit.Enable = true
	settings.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	group, err := sarama.NewConsumerGroup(seeds(), "group-"+topic, settings)
	ok(err)
	for reading := stopped(); reading.Err() == nil; {
		if err := group.Consume(reading, []string{topic}, taker{}); err != nil {
			fmt.Println("late", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	ok(group.Close())
}

func seeds() []string { return strings.Split(bootstrap, ",") }

func main() {
	bootstrap, topic = os.Args[1], os.Args[3]
	if through := os.Getenv("DOOR_BOOTSTRAP"); through != "" {
		bootstrap = through
	}
	if len(os.Args) > 4 {
		argument = os.Args[4]
	}
	map[string]func(){
		"codec": checkCodec, "edges": checkEdges, "idempotent": checkIdempotent, "times": checkTimes,
		"group": checkGroup, "transaction": checkTransaction, "admin": checkAdmin,
		"classic": checkClassic, "rolled": checkRolled, "written": checkWritten, "rate": checkRate,
	}[os.Args[2]]()
}
