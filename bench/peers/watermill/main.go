// A peer of `millrace bench relay`: Watermill's forwarder from its table in PostgreSQL to Kafka.
//
//	forwarder POSTGRES_URL BROKERS TABLE_TOPIC
//
// Rows are enveloped like those of Watermill's own publisher; the record key is the metadata field
// "key". Settings: batches of 100, a poll every 10 ms, acks from all replicas.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	watermillSQL "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("forwarder POSTGRES_URL BROKERS TABLE_TOPIC")
	}
	db, err := sql.Open("postgres", os.Args[1])
	must(err)
	logger := watermill.NopLogger{}
	subscriber, err := watermillSQL.NewSubscriber(db, watermillSQL.SubscriberConfig{
		ConsumerGroup:    "forwarder",
		PollInterval:     10 * time.Millisecond,
		SchemaAdapter:    watermillSQL.DefaultPostgreSQLSchema{SubscribeBatchSize: 100},
		OffsetsAdapter:   watermillSQL.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
	}, logger)
	must(err)
	settings := kafka.DefaultSaramaSyncPublisherConfig()
	settings.Producer.RequiredAcks = sarama.WaitForAll
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: strings.Split(os.Args[2], ","),
		Marshaler: kafka.NewWithPartitioningMarshaler(func(topic string, msg *message.Message) (string, error) {
			return msg.Metadata.Get("key"), nil
		}),
		OverwriteSaramaConfig: settings,
	}, logger)
	must(err)
	relay, err := forwarder.NewForwarder(subscriber, publisher, logger, forwarder.Config{ForwarderTopic: os.Args[3]})
	must(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		<-relay.Running()
		log.Print("running")
	}()
	must(relay.Run(ctx))
}
