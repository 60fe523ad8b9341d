package arg

import "github.com/millrace/changefeed/feed"

// Range is a range of effective partition keys. The zero value is the range of all keys.
type Range struct {
	set  bool
	read feed.Range
}

// Value returns the given range, or the range of all keys.
func (r *Range) Value() feed.Range {
	if !r.set {
		return feed.FullRange()
	}
	return r.read
}

// String returns min-max; empty for all keys.
func (r *Range) String() string {
	if r.Value() == feed.FullRange() {
		return ""
	}
	return r.Value().String()
}

// Type returns range.
func (r *Range) Type() string { return "range" }

// Set reads min-max.
func (r *Range) Set(text string) (err error) {
	r.set = true
	r.read, err = feed.ParseRange(text)
	return err
}
