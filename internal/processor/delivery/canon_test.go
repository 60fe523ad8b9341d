package delivery

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"time"
)

// canon writes a state so that two states are written the same if they will do the same: pointers as numbers in the
// order in which they are met, times as their order and roughly as their distance from now, counters without what is
// beyond every limit. It reads every field of every type, so a new one counts without more ado.
type canon struct {
	out   []byte
	ids   map[uintptr]uint64
	times []int64
	now   int64
	era   int64
	plans map[reflect.Type][]plan

	maxAge time.Duration
}

// plan is how the fields of a type are written.
type plan struct {
	field int
	how   manner
}

type manner uint8

const (
	asItIs manner = iota
	clipped
	relativeEra
	instant // nanoseconds
	seconds
	due      // a time that does not matter when it has passed
	happened // a time of which only matters whether there was one
)

// left says which fields grow for ever and are not looked at, and which count only up to a limit.
var leftOut = []string{
	"Engine.rules", "Engine.now", "Engine.news", "feed.spare", "Engine.parked", "Engine.era", "Engine.limit.full",
	"Breaker.backoff", "Breaker.mu", "Breaker.wakes", "Breaker.wake",
	"Breaker.era", "Breaker.news", "Breaker.keys", "holdings.rules", "lanes.rules", "asides.rules", "feed.unsaved",
	"Page.Next", "world.set", "world.now", "world.life",
	"world.crashes", "world.asked", "world.fair", "world.last", "world.broken", "world.ends", "letter.life",
	"record.token", "Request.Token",
	"Request.Err", "Request.Of", "Batch.Err", "lane.listed", "lane.since", "world.good", "world.born", "truth.failedAt",
	"Engine.width", "Page.added", "Outage.Since", "Page.covers", "Breaker.since",
}

var (
	atMost = []string{
		"Change.calls", "Change.failures", "Batch.streak", "aside.streak", "truth.calls",
		"truth.blamed", "Run.Calls", "Run.Failures", "Breaker.probes", "recalls.probes", "Request.Handled",
	}
	dues = []string{
		"Batch.notBefore", "Batch.asked", "aside.notBefore", "Breaker.next", "recalls.next",
		"recall.notBefore",
	}
	failings = []string{"Batch.failing", "Change.failing", "Run.Failing"}
	instants = []string{"Breaker.trouble", "Breaker.good", "Breaker.before"}
)

func newCanon() *canon {
	return &canon{ids: map[uintptr]uint64{}, plans: map[reflect.Type][]plan{}}
}

// of is the text of a world.
func (c *canon) of(w *world) []byte {
	c.out, c.times = c.out[:0], c.times[:0]
	clear(c.ids)
	c.maxAge = w.set.rules.MaxAge // of the one world that this is for
	c.now, c.era = w.now.UnixNano(), int64(w.e.era)
	c.walk(reflect.ValueOf(w).Elem(), asItIs)
	c.number(int64(w.e.breaker.era) - c.era)
	c.writeTimes()
	return c.out
}

func (c *canon) number(n int64) { c.out = binary.AppendVarint(c.out, n) }

func (c *canon) plan(t reflect.Type, maxAge time.Duration) []plan {
	if p, ok := c.plans[t]; ok {
		return p
	}
	var all []plan
	for i := range t.NumField() {
		name := t.Name() + "." + t.Field(i).Name
		how := asItIs
		switch {
		case slices.Contains(leftOut, name) || t.Field(i).Type.Kind() == reflect.Func:
			continue
		case slices.Contains(atMost, name):
			how = clipped
		case slices.Contains(instants, name):
			how = instant
		case slices.Contains(dues, name):
			how = due
		case slices.Contains(failings, name) && maxAge == 0:
			how = happened
		case name == "Change.failing":
			how = instant
		case name == "Run.Failing":
			how = seconds
		case name == "Batch.era":
			how = relativeEra
		}
		all = append(all, plan{i, how})
	}
	c.plans[t] = all
	return all
}

var timeType = reflect.TypeFor[time.Time]()

func (c *canon) walk(v reflect.Value, how manner) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			c.number(0)
			return
		}
		c.walk(v.Elem(), how)
	case reflect.Interface:
		if v.IsNil() {
			c.number(0)
			return
		}
		c.walk(v.Elem(), how)
	case reflect.Struct:
		c.walkStruct(v, how)
	case reflect.Slice, reflect.Array:
		c.number(int64(v.Len()))
		for i := range v.Len() {
			c.walk(v.Index(i), how)
		}
	case reflect.Map:
		c.walkMap(v)
	case reflect.String:
		c.number(int64(v.Len()))
		c.out = append(c.out, v.String()...)
	case reflect.Bool:
		n := int64(0)
		if v.Bool() {
			n = 1
		}
		c.number(n)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		c.number(int64(v.Uint()))
	case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
		c.walkInt(v.Int(), how)
	case reflect.Func:
	default:
		panic(v.Kind().String())
	}
}

func (c *canon) walkInt(n int64, how manner) {
	switch how {
	case clipped:
		c.number(min(n, 3))
	case relativeEra:
		c.number(max(n-c.era, -1))
	case instant:
		c.times = append(c.times, n)
	case seconds:
		c.times = append(c.times, n*1e9)
	case happened:
		c.number(min(n, 1))
	default:
		c.number(n)
	}
}

func (c *canon) walkStruct(v reflect.Value, how manner) {
	t := v.Type()
	if t == timeType {
		c.walkTime(nanos(v), how)
		return
	}
	if how == instant { // an atomic.Int64
		c.walkInt(v.FieldByName("v").Int(), how)
		return
	}
	if t.Name() == "notifyList" || strings.HasPrefix(t.Name(), "noCopy") {
		return
	}
	if v.CanAddr() && t.NumField() > 4 { // others are not shared
		at := v.Addr().Pointer()
		id := c.ids[at]
		if id > 0 {
			c.number(int64(id))
			return
		}
		c.ids[at] = uint64(len(c.ids) + 1)
		c.number(-1)
	}
	for _, p := range c.plan(t, c.maxAge) {
		c.walk(v.Field(p.field), p.how)
	}
}

func (c *canon) walkTime(at int64, how manner) {
	switch {
	case how == happened && at != 0, how == due && at != 0 && at <= c.now:
		c.number(1)
	case how == due && at > c.now:
		c.number(2)
		c.times = append(c.times, at)
	default:
		c.times = append(c.times, at)
	}
}

func (c *canon) walkMap(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	c.number(int64(len(keys)))
	for _, key := range keys {
		c.walk(key, asItIs)
		c.walk(v.MapIndex(key), asItIs)
	}
}

// nanos reads a time, whose fields are private; 0 is none.
func nanos(v reflect.Value) int64 {
	wall, ext := v.FieldByName("wall").Uint(), v.FieldByName("ext").Int()
	if wall == 0 && ext == 0 {
		return 0
	}
	return (ext-62135596800)*1e9 + int64(wall&(1<<30-1))
}

// writeTimes writes the order of all times, and their distance from now in seconds as long as that matters.
func (c *canon) writeTimes() {
	const longest = 6 // seconds: more than any limit has
	ranks := slices.Clone(c.times)
	ranks = append(ranks, c.now)
	if c.maxAge > 0 {
		for _, t := range c.times {
			ranks = append(ranks, t+int64(c.maxAge))
		}
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	for _, t := range c.times {
		if t == 0 {
			c.number(0)
			continue
		}
		i, _ := slices.BinarySearch(ranks, t)
		c.number(int64(i + 1))
		if left := t - c.now; left < 0 {
			c.number(max(left/1e9, -longest))
		} else {
			c.number((left + 1e9 - 1) / 1e9)
		}
	}
	i, _ := slices.BinarySearch(ranks, c.now)
	c.number(int64(i))
}
