// Package main has RocketMQ's Go client do what applications do with it, against the brokers of a name server.
//
// Usage: go_clients NAME_SERVER. It prints one line of JSON per case, what each was told and has consumed, and ends with
// exit code 1 at the first that fails.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

var nameServers []string

// collected is what a consumer was given, by queue, in order.
type collected struct {
	mutex  sync.Mutex
	bodies map[int][]string
	count  int
	last   *primitive.MessageExt
}

func (c *collected) add(messages ...*primitive.MessageExt) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.bodies == nil {
		c.bodies = map[int][]string{}
	}
	for _, each := range messages {
		c.bodies[each.Queue.QueueId] = append(c.bodies[each.Queue.QueueId], short(each.Body))
		c.count++
		c.last = each
	}
}

func (c *collected) waitFor(count int) map[int][]string {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c.mutex.Lock()
		found := c.count
		c.mutex.Unlock()
		if found >= count {
			return c.bodies
		}
		if time.Now().After(end) {
			fail("%d of %d messages within %s", found, count, patience)
		}
	}
}

// short names a large body by its length.
func short(body []byte) string {
	if len(body) > 100 {
		return fmt.Sprintf("%d bytes", len(body))
	}
	return string(body)
}

func fail(format string, arguments ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func tell(name string, result interface{}) {
	line, err := json.Marshal(map[string]interface{}{"case": name, "result": result})
	check(err)
	fmt.Println(string(line))
}

func all(bodies map[int][]string) []string {
	found := []string{}
	for _, each := range bodies {
		found = append(found, each...)
	}
	sort.Strings(found)
	return found
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body))
}

func sent(result *primitive.SendResult, err error) *primitive.SendResult {
	check(err)
	if result.Status != primitive.SendOK {
		fail("%s", result)
	}
	return result
}

func send(p rocketmq.Producer) {
	ctx := context.Background()
	for number := 0; number < 10; number++ {
		sent(p.SendSync(ctx, message("GoKinds", fmt.Sprintf("sync %d", number))))
	}
	var waiting sync.WaitGroup
	for number := 0; number < 10; number++ {
		waiting.Add(1)
		check(p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			sent(result, err)
			waiting.Done()
		}, message("GoKinds", fmt.Sprintf("async %d", number))))
	}
	waiting.Wait()
	for number := 0; number < 5; number++ {
		check(p.SendOneWay(ctx, message("GoKinds", fmt.Sprintf("oneway %d", number))))
	}
	batch := []*primitive.Message{}
	for number := 0; number < 10; number++ {
		batch = append(batch, message("GoKinds", fmt.Sprintf("batch %d", number)))
	}
	ids := strings.Split(sent(p.SendSync(ctx, batch...)).OffsetMsgID, ",")
	large := message("GoKinds", strings.Repeat("x", 100_000)) // the client compresses it
	sent(p.SendSync(ctx, large))
	tell("send", map[string]int{"ids of a batch": len(ids)})
}

// sendOrdered sends messages of three orders, each of which has one queue.
func sendOrdered(p rocketmq.Producer) {
	queues := map[string]map[int]bool{}
	for number := 0; number < 30; number++ {
		order := fmt.Sprintf("order-%d", number%3)
		each := message("GoOrder", fmt.Sprintf("%s %02d", order, number))
		each.WithShardingKey(order)
		result := sent(p.SendSync(context.Background(), each))
		if queues[order] == nil {
			queues[order] = map[int]bool{}
		}
		queues[order][result.MessageQueue.QueueId] = true
	}
	tell("queues of an order", []int{len(queues["order-0"]), len(queues["order-1"]), len(queues["order-2"])})
}

// waitForRoutes returns when the name server knows of the topics: the broker tells it a moment later.
func waitForRoutes(topics ...string) {
	administrator, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(nameServers)))
	check(err)
	for _, topic := range topics {
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			queues, err := administrator.FetchPublishMessageQueues(context.Background(), topic)
			if err == nil && len(queues) > 0 {
				break
			}
			if time.Now().After(end) {
				fail("no route of %s: %v", topic, err)
			}
		}
	}
	check(administrator.Close())
}

func push(group, instance, topic string, selector consumer.MessageSelector, options ...consumer.Option) (rocketmq.PushConsumer, *collected) {
	found := &collected{}
	options = append(options,
		consumer.WithGroupName(group), consumer.WithInstance(instance), consumer.WithNameServer(nameServers),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	made, err := rocketmq.NewPushConsumer(options...)
	check(err)
	check(made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		found.add(messages...)
		return consumer.ConsumeSuccess, nil
	}))
	check(made.Start())
	return made, found
}

func pull() {
	made, err := rocketmq.NewPullConsumer(consumer.WithGroupName("CG_go_pull"), consumer.WithNameServer(nameServers),
		consumer.WithInstance("pull"), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(made.Subscribe("GoKinds", consumer.MessageSelector{}))
	check(made.Start())
	found := &collected{}
	for end := time.Now().Add(patience); found.count < 37 && time.Now().Before(end); {
		request, err := made.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		check(err)
		found.add(request.GetMsgList()...)
		made.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	tell("pull", all(found.waitFor(37)))
	check(made.Shutdown())
}

func main() {
	rlog.SetLogLevel("error")
	nameServers = []string{os.Args[1]}
	p, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("PG_go"),
		producer.WithRetry(0), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	check(err)
	check(p.Start())
	send(p)
	sendOrdered(p)
	text := message("GoText", "grüße 日本 🙂")
	text.WithTag("TagA").WithKeys([]string{"key-1"}).WithProperty("größe", "Straße 🙂")
	sent(p.SendSync(context.Background(), text))
	sent(p.SendSync(context.Background(), message("GoText", "no tag")))

	waitForRoutes("GoKinds", "GoOrder", "GoText")

	c, found := push("CG_go", "concurrent", "GoKinds", consumer.MessageSelector{})
	tell("concurrent", all(found.waitFor(36)))
	sent(p.SendSync(context.Background(), message("GoKinds", "later")))
	found.waitFor(37)
	check(c.Shutdown())

	c, found = push("CG_go_order", "orderly", "GoOrder", consumer.MessageSelector{}, consumer.WithConsumerOrder(true))
	tell("orderly", found.waitFor(30))
	check(c.Shutdown())

	first, ofFirst := push("CG_go_all", "one", "GoOrder", consumer.MessageSelector{}, consumer.WithConsumerModel(consumer.BroadCasting))
	second, ofSecond := push("CG_go_all", "two", "GoOrder", consumer.MessageSelector{}, consumer.WithConsumerModel(consumer.BroadCasting))
	tell("broadcast", [][]string{all(ofFirst.waitFor(30)), all(ofSecond.waitFor(30))})
	check(first.Shutdown())
	check(second.Shutdown())

	c, found = push("CG_go_tags", "tags", "GoText", consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA"})
	tell("tags", all(found.waitFor(1)))
	tell("properties", map[string]string{"keys": found.last.GetKeys(), "größe": found.last.GetProperty("größe")})
	check(c.Shutdown())
	pull()
	check(p.Shutdown())
}
