package nethost

import (
	"time"

	"github.com/millrace/changefeed/feed"
)

// lease has the members of .NET's class, in its order. The package has its own, apart
// from leasedoc, because a mistake of leasedoc must not be shared by the host that
// tests it.
type lease struct {
	ID                string            `json:"id"`
	Version           int               `json:"version"`
	ETag              *string           `json:"_etag"`
	LeaseToken        string            `json:"LeaseToken"`
	FeedRange         *feedRange        `json:"FeedRange,omitempty"`
	Owner             *string           `json:"Owner"`
	ContinuationToken *string           `json:"ContinuationToken"`
	Properties        map[string]string `json:"properties"`
	Timestamp         *time.Time        `json:"timestamp"`
	TS                int64             `json:"_ts"`
	Mode              string            `json:"Mode,omitempty"`
}

type feedRange struct {
	Range struct {
		Min string `json:"min"`
		Max string `json:"max"`
	}
}

// owner returns the owner, empty for none: .NET writes null.
func (l *lease) owner() string {
	if l.Owner == nil {
		return ""
	}
	return *l.Owner
}

func (l *lease) epks() feed.Range {
	return feed.Range{Min: l.FeedRange.Range.Min, Max: l.FeedRange.Range.Max}
}

// touched is the time by which a host judges expiry: the owner's own timestamp, so a
// skewed clock of the owner counts. Our processor goes by the store's time instead.
func (l *lease) touched() time.Time {
	if l.Timestamp == nil {
		return time.Unix(l.TS, 0)
	}
	return *l.Timestamp
}
