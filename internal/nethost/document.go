package nethost

import (
	"time"

	"github.com/millrace/changefeed"
)

// lease is a lease as .NET's class has it.
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

func (l *lease) owner() string {
	if l.Owner == nil {
		return ""
	}
	return *l.Owner
}

func (l *lease) epks() changefeed.Range {
	return changefeed.Range{Min: l.FeedRange.Range.Min, Max: l.FeedRange.Range.Max}
}

func (l *lease) touched() time.Time {
	if l.Timestamp == nil {
		return time.Unix(l.TS, 0)
	}
	return *l.Timestamp
}
