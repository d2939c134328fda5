// franz-go against the broker named on the command line: client host:port check topic [argument].
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
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeout = 60 * time.Second

var (
	bootstrap, topic, argument string
	ctx                        context.Context
	admin                      *kadm.Client
)

func require(holds bool, format string, values ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, format+"\n", values...)
		os.Exit(1)
	}
}

func ok(err error) { require(err == nil, "%v", err) }

// door is what the environment says of TLS and SASL, if anything.
func door() []kgo.Opt {
	if os.Getenv("DOOR_CA") == "" {
		return nil
	}
	authority, err := os.ReadFile(os.Getenv("DOOR_CA"))
	ok(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	settings := &tls.Config{RootCAs: trusted}
	if file := os.Getenv("DOOR_CERTIFICATE"); file != "" {
		own, err := tls.LoadX509KeyPair(file, os.Getenv("DOOR_KEY"))
		ok(err)
		settings.Certificates = []tls.Certificate{own}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(settings)}
	user, password := os.Getenv("DOOR_USER"), os.Getenv("DOOR_PASSWORD")
	switch os.Getenv("DOOR_MECHANISM") {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: os.Getenv("DOOR_TOKEN")}.AsMechanism()))
	}
	return options
}

func client(options ...kgo.Opt) *kgo.Client {
	options = append(door(), options...)
	made, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds()...), kgo.ProducerBatchMaxBytes(4_000_000), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
	ok(err)
	return made
}

func create(name string, partitions int32) {
	_, err := admin.CreateTopic(ctx, partitions, 1, nil, name)
	ok(err)
}

func send(name string, records []*kgo.Record, options ...kgo.Opt) {
	producer := client(options...)
	defer producer.Close()
	for _, record := range records {
		record.Topic = name
	}
	ok(producer.ProduceSync(ctx, records...).FirstErr())
}

func numbered(count int) []*kgo.Record {
	records := make([]*kgo.Record, count)
	for i := range records {
		value := bytes.Repeat([]byte(fmt.Sprintf("%d;", i)), 20)
		records[i] = &kgo.Record{Key: []byte(fmt.Sprintf("key-%d", i)), Value: value}
	}
	return records
}

// take polls until it has so many records.
func take(consumer *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := consumer.PollFetches(ctx)
		ok(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	return found
}

func readFrom(offset kgo.Offset, options ...kgo.Opt) *kgo.Client {
	at := map[string]map[int32]kgo.Offset{topic: {0: offset}}
	return client(append(options, kgo.ConsumePartitions(at), kgo.FetchMaxWait(200*time.Millisecond))...)
}

func requireSame(sent, found []*kgo.Record) {
	require(len(sent) == len(found), "sent %d, found %d", len(sent), len(found))
	for i, record := range found {
		require(bytes.Equal(sent[i].Key, record.Key) && (sent[i].Key == nil) == (record.Key == nil), "key of %d", i)
		require(bytes.Equal(sent[i].Value, record.Value) && (sent[i].Value == nil) == (record.Value == nil), "value of %d", i)
		require(len(sent[i].Headers) == len(record.Headers), "headers of %d", i)
		for number, header := range sent[i].Headers {
			require(header.Key == record.Headers[number].Key && bytes.Equal(header.Value, record.Headers[number].Value), "header of %d", i)
		}
	}
}

func checkCodec() {
	codec, acks, _ := strings.Cut(argument, "/")
	create(topic, 1)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	wanted := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	send(topic, numbered(200), kgo.ProducerBatchCompression(codecs[codec]), kgo.RequiredAcks(wanted[acks]), kgo.DisableIdempotentWrite())
	for end := int64(0); end < 200; { // acks=0 does not tell
		ends, err := admin.ListEndOffsets(ctx, topic)
		ok(err)
		row, _ := ends.Lookup(topic, 0)
		end = row.Offset
	}
	consumer := readFrom(kgo.NewOffset().At(137))
	requireSame(numbered(200)[137:], take(consumer, 63))
}

func checkEdges() {
	create(topic, 1)
	records := []*kgo.Record{
		{Key: []byte("key"), Value: []byte("value")}, {Value: []byte("no key")}, {Key: []byte("no value")}, {},
		{Key: []byte{}, Value: []byte{}}, {Key: []byte("large"), Value: bytes.Repeat([]byte("l"), 1<<20)},
		{Value: []byte("headers"), Headers: []kgo.RecordHeader{{Key: "same", Value: []byte("1")}, {Key: "same", Value: []byte("2")}, {Key: "null"}}},
	}
	send(topic, records)
	requireSame(records, take(readFrom(kgo.NewOffset().AtStart()), len(records)))
}

func checkIdempotent() {
	create(topic, 1)
	send(topic, numbered(5000), kgo.ProducerBatchMaxBytes(8000))
	for i, record := range take(readFrom(kgo.NewOffset().AtStart()), 5000) {
		require(record.Offset == int64(i), "offset %d at %d", record.Offset, i)
	}
}

func checkTimes() {
	create(topic, 1)
	base := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	records := numbered(100)
	for i, record := range records {
		record.Timestamp = base.Add(time.Duration(i) * 10 * time.Millisecond)
	}
	send(topic, records)
	for after, expected := range map[int64]int64{0: 0, 1: 1, 505: 51, 990: 99, 991: 100} {
		found, err := admin.ListOffsetsAfterMilli(ctx, base.UnixMilli()+after, topic)
		ok(err)
		row, _ := found.Lookup(topic, 0)
		require(row.Err == nil && row.Offset == expected, "after %d: %d, not %d (%v)", after, row.Offset, expected, row.Err)
	}
	first := take(readFrom(kgo.NewOffset().AfterMilli(base.UnixMilli()+505)), 1)[0]
	require(first.Offset == 51, "read from %d", first.Offset)
}

func member(options ...kgo.Opt) *kgo.Client {
	return client(append(options, kgo.ConsumerGroup("group-"+topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond), kgo.FetchMaxWait(200*time.Millisecond))...)
}

// membersOwn waits until the group's members own so many partitions each, as the broker tells.
func membersOwn(counts ...int) {
	var found []int
	for ctx.Err() == nil {
		found = nil
		if argument == "next" {
			described, err := admin.DescribeConsumerGroups(ctx, "group-"+topic)
			ok(err)
			for _, each := range described["group-"+topic].Members {
				found = append(found, len(each.Assignment[topic]))
			}
		} else {
			described, err := admin.DescribeGroups(ctx, "group-"+topic)
			ok(err)
			for _, each := range described["group-"+topic].Members {
				assigned, _ := each.Assigned.AsConsumer()
				if assigned != nil && len(assigned.Topics) == 1 {
					found = append(found, len(assigned.Topics[0].Partitions))
				}
			}
		}
		slices.Sort(found)
		if slices.Equal(found, counts) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require(false, "members own %v, not %v", found, counts)
}

func checkGroup() {
	var options []kgo.Opt
	if argument == "next" {
		options = append(options, kgo.ServerSideBalancer())
	}
	create(topic, 4)
	send(topic, numbered(20))
	first := member(options...)
	require(take(first, 20)[19].Offset == 19, "twenty records")
	first.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 17}}}, nil)
	membersOwn(4)
	second := member(options...)
	polling, stop := context.WithCancel(ctx)
	go func() {
		for polling.Err() == nil {
			second.PollFetches(polling)
		}
	}()
	go func() {
		for polling.Err() == nil {
			first.PollFetches(polling)
		}
	}()
	membersOwn(2, 2)
	first.Close()
	membersOwn(4)
	stop()
	second.Close()
	stored, err := admin.FetchOffsets(ctx, "group-"+topic)
	ok(err)
	row, _ := stored.Lookup(topic, 0)
	require(row.At == 17, "committed %d", row.At)
	again := member(options...)
	require(take(again, 3)[0].Offset == 17, "read on where it was committed")
	again.Close()
	listed, err := admin.ListGroups(ctx)
	ok(err)
	require(slices.Contains(listed.Groups(), "group-"+topic), "listed")
	_, err = admin.DeleteGroup(ctx, "group-"+topic)
	ok(err)
}

// checkRolled is a member that says which offsets it took, then commits them, until its standard input ends; "next" for
// the newer protocol, else the name of a balancer.
func checkRolled() {
	options := map[string]kgo.Opt{
		"next":               kgo.ServerSideBalancer(),
		"range":              kgo.Balancers(kgo.RangeBalancer()),
		"cooperative-sticky": kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
	reader := member(options[argument])
	reading, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	for reading.Err() == nil {
		fetches := reader.PollFetches(reading)
		fetches.EachPartition(func(part kgo.FetchTopicPartition) {
			if len(part.Records) == 0 {
				return
			}
			took := fmt.Sprintf("took %d", part.Partition)
			for _, record := range part.Records {
				took += fmt.Sprintf(" %d", record.Offset)
			}
			fmt.Println(took)
		})
		if err := reader.CommitUncommittedOffsets(reading); err != nil && reading.Err() == nil {
			fmt.Println("late", err)
		}
	}
	reader.Close()
}

// checkWritten writes a record every few milliseconds and says which were acknowledged, until its standard input ends.
func checkWritten() {
	partitions, err := strconv.Atoi(argument)
	ok(err)
	producer := client()
	writing, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	for number := 0; writing.Err() == nil; number++ {
		producer.Produce(context.Background(), &kgo.Record{
			Topic: topic, Partition: int32(number % partitions),
			Key: []byte(fmt.Sprintf("key-%d", number%(2*partitions))), Value: []byte(strconv.Itoa(number)),
		}, func(_ *kgo.Record, err error) {
			ok(err)
			fmt.Println("wrote", number)
		})
		time.Sleep(5 * time.Millisecond)
	}
	ok(producer.Flush(context.Background()))
	producer.Close()
}

func values(isolation kgo.IsolationLevel, until int64) []string {
	reader := readFrom(kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	defer reader.Close()
	var found []string
	for {
		fetches := reader.PollFetches(ctx)
		ok(fetches.Err())
		for _, record := range fetches.Records() {
			if !record.Attrs.IsControl() {
				found = append(found, string(record.Value))
			}
			if record.Offset == until-1 {
				return found
			}
		}
	}
}

func checkTransaction() {
	source := topic + "-source"
	create(topic, 1)
	create(source, 1)
	send(source, numbered(10))
	for i, stem := range []string{"aborted", "committed"} {
		session, err := kgo.NewGroupTransactSession(append(door(), kgo.SeedBrokers(seeds()...), kgo.TransactionalID("id-"+topic),
			kgo.ConsumerGroup("group-"+topic), kgo.ConsumeTopics(source), kgo.RequireStableFetchOffsets(),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		ok(err)
		read := 0
		ok(session.Begin())
		for read < 10 {
			fetches := session.PollFetches(ctx)
			ok(fetches.Err())
			for range fetches.Records() {
				record := kgo.Record{Topic: topic, Value: []byte(fmt.Sprintf("%s-%d", stem, read))}
				ok(session.ProduceSync(ctx, &record).FirstErr())
				read++
			}
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(i == 1))
		ok(err)
		require(committed == (i == 1), "committed: %v", committed)
		session.Close()
	}
	require(len(values(kgo.ReadUncommitted(), 22)) == 20, "all records")
	found := values(kgo.ReadCommitted(), 22)
	require(len(found) == 10 && found[0] == "committed-0" && found[9] == "committed-9", "read committed: %v", found)
}

func checkAdmin() {
	retention := "1234567"
	_, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, topic)
	ok(err)
	_, err = admin.CreateTopic(ctx, 3, 1, nil, topic)
	require(err != nil && strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS"), "created twice: %v", err)
	config := func() string {
		found, err := admin.DescribeTopicConfigs(ctx, topic)
		ok(err)
		for _, row := range found[0].Configs {
			if row.Key == "retention.ms" {
				return *row.Value
			}
		}
		return ""
	}
	require(config() == retention, "retention.ms %s", config())
	changed := "7654321"
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &changed}}, topic)
	ok(err)
	for config() != changed { // Kafka applies it a moment after it has answered
		time.Sleep(50 * time.Millisecond)
	}
	_, err = admin.UpdatePartitions(ctx, 5, topic)
	ok(err)
	for count := 0; count != 5; time.Sleep(50 * time.Millisecond) {
		details, err := admin.ListTopics(ctx, topic)
		ok(err)
		count = len(details[topic].Partitions)
	}
	send(topic, numbered(100), kgo.ProducerBatchMaxBytes(1000))
	deleting := kadm.Offsets{}
	deleting.AddOffset(topic, 0, 42, -1)
	_, err = admin.DeleteRecords(ctx, deleting)
	ok(err)
	starts, err := admin.ListStartOffsets(ctx, topic)
	ok(err)
	start, _ := starts.Lookup(topic, 0)
	require(start.Offset == 42, "log start %d", start.Offset)
	sizes, err := admin.DescribeAllLogDirs(ctx, nil)
	ok(err)
	require(len(sizes) == len(seeds()), "directories of %d brokers", len(sizes))
	brokers, err := admin.ListBrokers(ctx)
	ok(err)
	require(len(brokers) == len(seeds()), "%d brokers", len(brokers))
	_, err = admin.DeleteTopic(ctx, topic)
	ok(err)
	for { // it answers from metadata that it keeps for a while
		left, err := admin.ListTopics(ctx)
		ok(err)
		if !left.Has(topic) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkRate sends for so many seconds as fast as it may: it prints the bytes that were acknowledged, and the seconds.
func checkRate() {
	wanted, err := time.ParseDuration(argument + "s")
	ok(err)
	producer := client(
		kgo.ClientID("c"), kgo.MaxBufferedRecords(200), kgo.ProducerBatchMaxBytes(900_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	value := bytes.Repeat([]byte("0123456789"), 1000)
	var done atomic.Int64
	began := time.Now()
	for time.Since(began) < wanted {
		producer.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			ok(err)
			done.Add(int64(len(value)))
		})
	}
	fmt.Println(done.Load(), time.Since(began).Seconds())
	ok(producer.Flush(ctx))
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
	var stop context.CancelFunc
	ctx, stop = context.WithTimeout(context.Background(), timeout)
	defer stop()
	admin = kadm.NewClient(client())
	map[string]func(){
		"codec": checkCodec, "edges": checkEdges, "idempotent": checkIdempotent, "times": checkTimes,
		"group": checkGroup, "transaction": checkTransaction, "admin": checkAdmin,
		"rolled": checkRolled, "written": checkWritten, "rate": checkRate,
	}[os.Args[2]]()
}
