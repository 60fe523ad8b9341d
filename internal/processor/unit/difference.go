package unit

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/variants"
)

// compareVariants compares what the live instances run. hosts are the presence records of the others. The hook is
// called when instances begin to differ, and when they no longer do; meanwhile [Unit.Variants] says who differs.
func (b *balancer) compareVariants(hosts []feed.Record) {
	mine := feed.Record{
		Kind: feed.KindHost, Owner: b.in.Me.Instance, Updated: b.in.View.Now(), Timestamp: instance.Timestamp(),
	}
	variants.Show(&mine, b.in.Options.Variant, b.in.Since)
	all := variants.Among(append(hosts[:len(hosts):len(hosts)], mine))
	b.unit.variants.Set(all)
	switch {
	case all.Differ() && b.differSince.IsZero():
		b.differSince = time.Now()
		b.tellDifference(feed.Difference{Since: b.differSince, Variants: all})
	case !all.Differ() && !b.differSince.IsZero():
		b.tellDifference(feed.Difference{Since: b.differSince, Ended: time.Now(), Variants: all})
		b.differSince = time.Time{}
	}
}

func (b *balancer) tellDifference(d feed.Difference) {
	instance.CallHook(b.in, b.in.Hooks.Differing, d)
}
