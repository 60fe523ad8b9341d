package metrics_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// counted returns the series that the hooks have written, each with its value and without the attributes that all have.
func (w *world) counted() (all []string) {
	w.Helper()
	common := strings.NewReplacer(
		"messaging.consumer.group.name=mailer", "", "messaging.destination.name=shop/orders", "", ",", " ")
	for _, line := range w.read() {
		parts := strings.SplitN(line, " ", 3) // the name, the unit, and the attributes with the value
		of := strings.Replace(parts[2][1:], "}", " ", 1)
		all = append(all, strings.Join(strings.Fields(parts[0]+" "+common.Replace(of)), " "))
	}
	return all
}

// Each event is counted by what it is about, and not by its calls.
func TestEachEventIsCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, h := w.Context(), w.m.Hooks()
		h.TakenOver(ctx, feed.TakeOver{Leases: []string{"a", "b", "c"}})
		h.Acquired(ctx, feed.Lease{})
		h.Released(ctx, feed.Lease{}, feed.ReasonStopped)
		h.Parked(ctx, feed.DeadLetter{Disposition: feed.DispositionHeld})
		h.Redriven(ctx, feed.Redriven{})
		h.Redriven(ctx, feed.Redriven{Err: errors.New("once more")})
		h.Skipped(ctx, feed.Skip{Changes: make([]feed.SkippedChange, 2)})
		h.Error(ctx, &feed.Error{Origin: feed.OriginLeaseStore})
		h.ReadDone(ctx, feed.ReadDone{Changes: 4, Charge: 5, Duration: time.Second})
		h.ReadDone(ctx, feed.ReadDone{Duration: time.Second, Err: feed.ErrGone})
		h.StoreDone(ctx, feed.StoreDone{Charge: 7, Duration: 2 * time.Second})
		h.StoreDone(ctx, feed.StoreDone{Renewal: true, Charge: 3, Duration: time.Second, Err: feed.ErrPrecondition})
		h.BatchDone(ctx, feed.BatchDone{Batch: &feed.Batch{Changes: make([]feed.Change, 6)}, Duration: time.Second})
		want := []string{
			"azure.cosmosdb.client.operation.request_charge db.operation.name=query_change_feed 1 times 5",
			"azure.cosmosdb.client.operation.request_charge db.operation.name=replace_lease 2 times 10",
			"changefeed.errors changefeed.origin=lease_store 1",
			"changefeed.lease.acquired 1",
			"changefeed.lease.released changefeed.reason=stopped 1",
			"changefeed.lease.taken_over 3",
			"changefeed.lease.write.duration changefeed.lease.write=checkpoint 1 times 2",
			"changefeed.lease.write.duration changefeed.lease.write=renewal error.type=conflict 1 times 1",
			"changefeed.parked changefeed.disposition=held 1",
			"changefeed.read.changes 4",
			"changefeed.read.duration 1 times 1",
			"changefeed.read.duration error.type=gone 1 times 1",
			"changefeed.redriven 1",
			"changefeed.redriven error.type=_OTHER 1",
			"changefeed.skipped 2",
			"messaging.client.consumed.messages messaging.operation.name=process 6",
			"messaging.process.duration messaging.operation.name=process 1 times 1",
		}
		got := w.counted()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A lag that is unknown has no value, also if no change is known. A lease that is stuck for two reasons is one lease.
func TestALagCountsLeases(t *testing.T) {
	inWorld(t, func(w *world) {
		stuck := changefeed.Lag{Pending: 1, Stuck: []feed.Stuck{feed.StuckPaused, feed.StuckStill}}
		w.m.RecordLag(changefeed.Estimation{
			At: time.Now(), Leases: []changefeed.Lag{stuck, stuck, {}},
			Total: changefeed.Lag{Err: feed.ErrHole}, // and no change that is known
		}, nil)
		if got := w.counted(); !slices.Equal(got, []string{"changefeed.lag.stuck 2", "changefeed.lag.unknown 0"}) {
			t.Errorf("%q", got)
		}
		never := changefeed.Lag{Pending: 1, Pace: &changefeed.Pace{CatchUp: changefeed.Never}}
		w.m.RecordLag(changefeed.Estimation{At: time.Now(), Total: never}, nil)
		if got := w.value("changefeed.lag.catch_up", ""); got != "" {
			t.Errorf("a unit that does not catch up does so in %s s", got)
		}
	})
}

// A change may be newer than the estimate: its age is then none.
func TestAnAgeIsNeverNegative(t *testing.T) {
	inWorld(t, func(w *world) {
		now := time.Now()
		ahead := changefeed.Lag{Pending: 1, Oldest: now.Add(time.Second), Watermark: now.Add(time.Second)}
		w.m.RecordLag(changefeed.Estimation{At: now, Total: ahead}, nil)
		for _, name := range []string{"changefeed.lag.age", "changefeed.watermark.age"} {
			if got := w.value(name, ""); got != "0" {
				t.Errorf("%s is %s s, want 0", name, got)
			}
		}
	})
}

// The span of a write of a lease has the duration of the write.
func TestTheSpanOfAWriteTakesAsLongAsTheWrite(t *testing.T) {
	inWorld(t, func(w *world) {
		w.m.Hooks().StoreDone(w.Context(), feed.StoreDone{Duration: 2 * time.Second})
		span := w.spans.Ended()[0]
		if took := span.EndTime().Sub(span.StartTime()); took != 2*time.Second {
			t.Errorf("the span took %v, want 2 s", took)
		}
	})
}

// The span of a batch is linked to the traces of all changes that have one, whichever comes first.
func TestABatchIsLinkedToEachTrace(t *testing.T) {
	inWorld(t, func(w *world) {
		other := strings.Replace(parent, "4bf9", "5bf9", 1)
		batch := &feed.Batch{}
		for _, body := range []string{
			`{}`, `{"traceparent":"` + parent + `"}`, `{"traceparent":1}`, `{"traceparent":"` + other + `"}`,
		} {
			batch.Changes = append(batch.Changes, feed.Change{Body: []byte(body)})
		}
		h := w.m.Handler(feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil }))
		w.check(h.Handle(w.Context(), batch))
		var traces []string
		for _, link := range w.spans.Ended()[0].Links() {
			traces = append(traces, link.SpanContext.TraceID().String())
		}
		if want := []string{parent[3:35], other[3:35]}; !slices.Equal(traces, want) {
			t.Errorf("links to %q, want %q", traces, want)
		}
	})
}
