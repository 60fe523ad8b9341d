package kafkapub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/kafkapub"
)

var (
	full  = feed.FullRange()
	left  = feed.Range{Min: "", Max: "1F"}
	right = feed.Range{Min: "1F", Max: "FF"}
)

// newOnce makes a handler, as in a process that has just begun.
func newOnce(t *testing.T, c *kfake.Cluster, client ...kgo.Opt) *kafkapub.ExactlyOnce {
	t.Helper()
	h, err := kafkapub.NewExactlyOnce(c.ListenAddrs(), topic, "relay",
		kafkapub.ExactlyOnceOptions{Client: impatient(client...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, r := range []feed.Range{full, left, right} {
			if err := h.Close(context.Background(), feed.Lease{Token: r.String()}, feed.ReasonStopped); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	return h
}

// batch has the events from one LSN to another, one for each LSN.
func batch(r feed.Range, epoch int64, from, to int64) *feed.Batch {
	b := &feed.Batch{LeaseToken: r.String(), Range: r, Epoch: epoch, Attempt: 1}
	for lsn := from; lsn <= to; lsn++ {
		key := fmt.Sprint("key-", lsn%3)
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(lsn), PartitionKey: feed.Key(key), LSN: lsn, ETag: fmt.Sprintf(`"%d"`, lsn),
			Body: fmt.Appendf(nil, `{"id":"%d","type":"domainEvent","data":{"action":"Done","n":%d}}`, lsn, lsn),
		})
	}
	return b
}

// wantOnce wants the events up to an LSN once each, those of a key in order.
func wantOnce(t *testing.T, c *kfake.Cluster, upTo int) {
	t.Helper()
	want := map[string][]string{}
	for lsn := 1; lsn <= upTo; lsn++ {
		key := fmt.Sprint("key-", lsn%3)
		want[key] = append(want[key], fmt.Sprint(lsn))
	}
	got := stored(t, c)
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s has %v, want %v", key, got[key], want[key])
		}
	}
}

func handle(t *testing.T, h *kafkapub.ExactlyOnce, b *feed.Batch) {
	t.Helper()
	if err := h.Handle(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func TestWhatComesAgainAfterACrashIsPassedOver(t *testing.T) {
	c := startKafka(t)
	first := newOnce(t, c)
	handle(t, first, batch(full, 1, 1, 3))
	handle(t, first, batch(full, 1, 4, 7)) // and it crashes before the checkpoint
	second := newOnce(t, c)
	handle(t, second, batch(full, 2, 1, 9))
	handle(t, second, batch(full, 2, 8, 12)) // a page that took too long comes again
	wantOnce(t, c, 12)
}

func TestAnEarlierOwnerCommitsNothingMore(t *testing.T) {
	c := startKafka(t)
	deaf, owner := newOnce(t, c), newOnce(t, c)
	handle(t, deaf, batch(full, 1, 1, 3))
	handle(t, owner, batch(full, 2, 1, 5))
	for range 3 { // also when it begins anew
		if err := deaf.Handle(t.Context(), batch(full, 1, 4, 9)); err == nil {
			t.Error("an earlier owner has published")
		}
	}
	for range 2 { // it may have disturbed the owner once
		if err := owner.Handle(t.Context(), batch(full, 2, 6, 9)); err == nil {
			break
		}
	}
	wantOnce(t, c, 9)
}

func TestAnOwnerThatBeginsLateGivesUp(t *testing.T) {
	c := startKafka(t)
	handle(t, newOnce(t, c), batch(full, 3, 1, 3))
	if err := newOnce(t, c).Handle(t.Context(), batch(full, 2, 1, 9)); err == nil {
		t.Error("an earlier owner has published")
	}
	handle(t, newOnce(t, c), batch(full, 4, 1, 9)) // it has changed nothing about what is done
	wantOnce(t, c, 9)
}

// The changes of the whole come again to its parts, whose owner has not seen them.
func TestPartsGoOnWhereTheWholeWas(t *testing.T) {
	c := startKafka(t)
	deaf := newOnce(t, c)
	handle(t, deaf, batch(full, 1, 1, 6))
	// Of key-0 and key-1 the changes are in one part, of key-2 in the other.
	of := func(b *feed.Batch, keys ...string) *feed.Batch {
		b.Changes = slices.DeleteFunc(b.Changes, func(c feed.Change) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return c.PartitionKey == feed.Key(key) })
		})
		return b
	}
	parts := newOnce(t, c)
	handle(t, parts, of(batch(left, 2, 1, 9), "key-0", "key-1"))
	if err := deaf.Handle(t.Context(), batch(full, 1, 7, 12)); err == nil {
		t.Error("the owner of the whole has published")
	}
	handle(t, parts, of(batch(right, 2, 1, 9), "key-2"))
	if err := newOnce(t, c).Handle(t.Context(), batch(full, 1, 7, 12)); err == nil {
		t.Error("an owner of the whole that begins late has published")
	}
	handle(t, newOnce(t, c), of(batch(left, 3, 1, 12), "key-0", "key-1"))
	handle(t, newOnce(t, c), of(batch(right, 3, 1, 12), "key-2"))
	wantOnce(t, c, 12)
}

func TestEachEventIsPublishedOnceWhateverFails(t *testing.T) {
	c := startKafka(t)
	every := func(n int) func(kmsg.Request) bool {
		requests := 0
		return func(kmsg.Request) bool { requests++; return requests%n == 0 }
	}
	failed := c.Fault(
		// ends the transaction
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError, Count: -1, When: every(31)},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1, When: every(17)},
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, TopLevel: true, Count: -1,
			When: every(7),
		},
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.InitProducerID}, Err: kerr.NotCoordinator,
			TopLevel: true, Count: -1, When: every(9),
		},
	)
	h := newOnce(t, c)
	attempts := 0
	for lsn := int64(1); lsn <= 200; lsn += 5 {
		for {
			if attempts++; attempts > 1000 {
				t.Fatal("it never gets through")
			}
			b := batch(full, 1, max(1, lsn-7), lsn+4) // with some that are done
			if err := h.Handle(t.Context(), b); err == nil {
				break
			}
		}
	}
	failed.Remove()
	t.Logf("%d calls, %d requests failed", attempts, failed.Hits())
	if attempts < 50 {
		t.Error("too few calls have failed to say anything")
	}
	wantOnce(t, c, 200)
}

// A commit whose answer is lost: the next owner knows, because the mark is part of it.
func TestACommitWhoseAnswerIsLostIsNotRepeated(t *testing.T) {
	c := startKafka(t)
	h := newOnce(t, c)
	handle(t, h, batch(full, 1, 1, 3))
	ctx, stop := context.WithCancelCause(t.Context())
	c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		stop(errors.New("gone"))
		return nil, nil, false // it is done all the same
	})
	if err := h.Handle(ctx, batch(full, 1, 4, 6)); err == nil {
		t.Log("the answer came first")
	}
	handle(t, h, batch(full, 1, 4, 8))
	wantOnce(t, c, 8)
}

func TestBatchesOutOfOrderAreRefused(t *testing.T) {
	c := startKafka(t)
	h := newOnce(t, c)
	for _, b := range []*feed.Batch{{Redriven: true}, {Cut: true}} {
		if err := h.Handle(t.Context(), b); !errors.Is(err, kafkapub.ErrOutOfOrder) {
			t.Errorf("%+v: got %v", b, err)
		}
	}
}

// Two batches of a lease at once have no order.
func TestASecondBatchAtOnceIsRefused(t *testing.T) {
	c := startKafka(t)
	var h *kafkapub.ExactlyOnce
	h, err := kafkapub.NewExactlyOnce(c.ListenAddrs(), topic, "relay", kafkapub.ExactlyOnceOptions{
		Client: impatient(),
		Decode: func(*feed.Change) (outbox.Message, bool, error) {
			return outbox.Message{}, false, h.Handle(context.Background(), batch(full, 1, 2, 2))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Handle(t.Context(), batch(full, 1, 1, 1)); !errors.Is(err, kafkapub.ErrOutOfOrder) {
		t.Errorf("a batch beside another one: %v", err)
	}
	if err := h.Close(t.Context(), feed.Lease{Token: full.String()}, feed.ReasonStopped); err != nil {
		t.Error(err)
	}
}

func TestALeaseThatComesBackGoesOn(t *testing.T) {
	c := startKafka(t)
	h := newOnce(t, c)
	handle(t, h, batch(full, 1, 1, 3))
	if err := h.Close(t.Context(), feed.Lease{Token: full.String()}, feed.ReasonLost); err != nil {
		t.Fatal(err)
	}
	handle(t, h, batch(full, 3, 1, 6))
	wantOnce(t, c, 6)
}

// Two units have their marks in one topic, and the name of one begins as that of the other.
func TestTheMarksOfAnotherUnitSayNothing(t *testing.T) {
	c := startKafka(t)
	for _, unit := range []string{"relay-2", "relay"} {
		h, err := kafkapub.NewExactlyOnce(c.ListenAddrs(), topic, unit, kafkapub.ExactlyOnceOptions{
			Client: impatient(),
			Source: "/" + unit, Marks: "marks",
		})
		if err != nil {
			t.Fatal(err)
		}
		handle(t, h, batch(full, 1, 1, 3))
		if err := h.Close(t.Context(), feed.Lease{Token: full.String()}, feed.ReasonStopped); err != nil {
			t.Error(err)
		}
	}
	published := map[string]int{} // by the unit
	for _, r := range consume(t, c, topic) {
		published[header(r, "ce_source")]++
	}
	if published["/relay"] != 3 || published["/relay-2"] != 3 {
		t.Errorf("published are %v, want 3 by each unit", published)
	}
}

func TestWhoMayNotCreateTheMarksUsesThemAllTheSame(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		c := startKafka(t, kfake.SeedTopics(1, topic+"-marks"))
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: refusal, Count: -1})
		handle(t, newOnce(t, c), batch(full, 1, 1, 3))
		wantOnce(t, c, 3)
	}
}

// The part that a whole was split into has marks of its own, and those of the whole, of the same transaction.
func TestAMarkOfTheWholeHidesNoneOfItsPart(t *testing.T) {
	for range 4 { // marks are read in any order
		c := startKafka(t)
		transaction := batch(full, 1, 1, 3)
		for i := range transaction.Changes {
			transaction.Changes[i].LSN, transaction.Changes[i].PartitionKey = 7, feed.Key("k")
		}
		first := *transaction
		first.Changes = transaction.Changes[:1]
		handle(t, newOnce(t, c), &first)
		for n := 2; n <= 3; n++ {
			part := batch(left, int64(n), 1, 0)
			part.Changes = transaction.Changes[:n]
			handle(t, newOnce(t, c), part)
		}
		if got := stored(t, c)["k"]; !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("the topic has %v, want 1 2 3", got)
		}
	}
}

// The processor refuses options that change the order, and begins from the beginning.
func TestOptionsThatChangeTheOrderAreRefused(t *testing.T) {
	h := newOnce(t, startKafka(t))
	if needs := h.Needs(); !needs.InOrder || needs.Start != feed.FromBeginning() {
		t.Errorf("needs %+v", needs)
	}
}

func TestATopicOfMarksHasOnePartition(t *testing.T) {
	c := startKafka(t, kfake.SeedTopics(2, topic+"-marks"))
	if err := newOnce(t, c).Handle(t.Context(), batch(full, 1, 1, 1)); err == nil {
		t.Error("marks are spread over two partitions")
	}
}

func TestAnEventThatCannotBeReadStopsItsRange(t *testing.T) {
	c := startKafka(t)
	unread := errors.New("unread")
	h, err := kafkapub.NewExactlyOnce(c.ListenAddrs(), topic, "relay", kafkapub.ExactlyOnceOptions{
		Client: impatient(),
		Decode: func(c *feed.Change) (outbox.Message, bool, error) {
			return outbox.Message{ID: c.ID, Key: "k"}, c.LSN != 2, map[bool]error{true: unread}[c.LSN == 4]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context(), feed.Lease{Token: full.String()}, feed.ReasonStopped)
	if err := h.Handle(t.Context(), batch(full, 1, 1, 5)); !errors.Is(err, unread) {
		t.Error(err)
	}
	handle(t, h, batch(full, 1, 1, 3))
	if got := stored(t, c)["k"]; !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("got %v", got)
	}
}

// A transaction may come in two batches, and a crash between them.
func TestTheRestOfATransactionIsPublishedAfterACrash(t *testing.T) {
	c := startKafka(t)
	transaction := batch(full, 1, 1, 3)
	for i := range transaction.Changes {
		transaction.Changes[i].LSN = 7
	}
	part := *transaction
	part.Changes = transaction.Changes[:1]
	handle(t, newOnce(t, c), &part)
	whole := *transaction
	whole.Epoch = 2
	handle(t, newOnce(t, c), &whole)
	wantOnce(t, c, 3)
}

func TestEventsOfATransactionAreInTheOrderInWhichTheyWereRecorded(t *testing.T) {
	c := startKafka(t)
	b := &feed.Batch{LeaseToken: full.String(), Range: full, Epoch: 1, Attempt: 1}
	for i, place := range []int{2, 3, 1} { // of several objects, each of which has its first event
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(place), PartitionKey: feed.Key("k"), LSN: 7, ETag: fmt.Sprint(place),
			Body: fmt.Appendf(nil, `{"id":"%d","type":"domainEvent","seq":%d,"unitSeq":%[1]d,"data":{"action":"Done"}}`,
				place, 3-i),
		})
	}
	handle(t, newOnce(t, c), b)
	if got := stored(t, c)["k"]; !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("the topic has %v, want 1 2 3", got)
	}
}
