package natspub_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// BenchmarkPublish publishes events of 1,000 keys, so many keys at a time, each key's one after the other.
func BenchmarkPublish(b *testing.B) {
	for _, durability := range []struct {
		name string
		opts natspub.Options
	}{{"each synced", natspub.Options{}}, {"synced every 2 minutes", natspub.Options{SyncEvery: 2 * time.Minute}}} {
		for _, at := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d at a time", durability.name, at), func(b *testing.B) {
				to, err := natspub.Embedded(b.Context(), b.TempDir(), durability.opts)
				if err != nil {
					b.Fatal(err)
				}
				defer to.Close()
				b.ResetTimer()
				var next atomic.Int64
				var wg sync.WaitGroup
				for k := range at {
					wg.Go(func() {
						for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
							m := outbox.Message{
								ID:  fmt.Sprintf("0b6bcb6e-8d3c-4f6b-9d55-%012d", n),
								Key: fmt.Sprintf("key-%d", k+at*(n%(1000/at))), Action: "ContactNameUpdatedEvent",
								Source: "/contacts",
								Seq:    1, Time: time.Now(), Data: make([]byte, 400),
							}
							if n, err := to.Publish(b.Context(), []outbox.Message{m}); n != 1 {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
