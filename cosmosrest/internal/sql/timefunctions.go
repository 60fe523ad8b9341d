package sql

import (
	"math"
	"math/big"
	"strings"
	"time"
)

// Functions of dates and times. Dates are strings in ISO 8601 in UTC, with seven digits of a second, as the service
// writes them. Timestamps are milliseconds since 1970; ticks are 100 ns since 1970.

// The unit of a tick and the last year are those of .NET's DateTime, because the service uses DateTime.
const (
	timeLayout = "2006-01-02T15:04:05.0000000Z"
	tick       = 100 * time.Nanosecond
	maxYear    = 9999
)

// timeFunctions are the functions by name. The current time is the time when the request was bound. So the time is
// the same in all rows, for the static functions and for the others.
var timeFunctions = map[string]*function{
	"GETCURRENTDATETIME":  now(func(t time.Time) value { return timeValue(t) }),
	"GETCURRENTTIMESTAMP": now(timestamp),
	"GETCURRENTTICKS":     now(ticks),

	"GETCURRENTDATETIMESTATIC":  now(func(t time.Time) value { return timeValue(t) }),
	"GETCURRENTTIMESTAMPSTATIC": now(timestamp),
	"GETCURRENTTICKSSTATIC":     now(ticks),

	"DATETIMETOTIMESTAMP": ofTime(timestamp),
	"DATETIMETOTICKS":     ofTime(ticks),
	"TIMESTAMPTODATETIME": toTime(time.Millisecond),
	"TICKSTODATETIME":     toTime(tick),
	"DATETIMEADD":         {3, 3, false, dateTimeAdd},
	"DATETIMEBIN":         {2, 4, false, dateTimeBin},
	"DATETIMEDIFF":        {3, 3, false, dateTimeDiff},
	"DATETIMEPART":        {2, 2, false, dateTimePart},
	"DATETIMEFROMPARTS":   {3, 7, false, dateTimeFromParts},

	"NOW":   {0, 2, false, func(f *frame, a []value) value { return fromNow(f, a, 1) }},
	"AGO":   {2, 2, false, func(f *frame, a []value) value { return fromNow(f, a, -1) }},
	"YEAR":  ofTime(func(t time.Time) value { return numberValue(float64(t.Year())) }),
	"MONTH": ofTime(func(t time.Time) value { return numberValue(float64(t.Month())) }),
	"DAY":   ofTime(func(t time.Time) value { return numberValue(float64(t.Day())) }),
}

// fromNow returns the current time, moved by a number of units: NOW moves it forward, AGO backward.
func fromNow(f *frame, args []value, sign int) value {
	if len(args) == 0 {
		return timeValue(f.now)
	}
	part, known := args[0].part()
	n, whole := args[1].int()
	if !known || !whole {
		return value{}
	}
	return moveTime(f.now, part, sign*n)
}

// compileNow compiles NOW, which has no argument or two.
func compileNow(c *compiler, name string, list []*expr, at int) node {
	least, most := 0, 2
	if len(list) == 1 {
		least = most
	}
	if !c.checkArity(name, len(list), least, most, at) {
		return constant{}
	}
	return call{timeFunctions["NOW"], c.compileList(list)}
}

// now makes a function of the current time.
func now(compute func(time.Time) value) *function {
	return &function{0, 0, false, func(f *frame, _ []value) value { return compute(f.now) }}
}

// ofTime makes a function of a date. If the string is not a date, the result is undefined.
func ofTime(compute func(time.Time) value) *function {
	return &function{1, 1, false, func(_ *frame, args []value) value {
		t, ok := args[0].time()
		if !ok {
			return value{}
		}
		return compute(t)
	}}
}

// toTime makes a function that converts a number of units since 1970 to a date.
func toTime(unit time.Duration) *function {
	return &function{1, 1, false, func(_ *frame, args []value) value {
		perSecond := float64(time.Second / unit)
		if args[0].kind != number || math.Abs(args[0].float()/perSecond) > math.MaxInt32*100 {
			return value{}
		}
		n := int64(args[0].float())
		whole := int64(perSecond)
		return timeValue(time.Unix(n/whole, n%whole*int64(unit)).UTC())
	}}
}

// timestamp and ticks return a time as a number.
func timestamp(t time.Time) value { return numberValue(float64(t.UnixMilli())) }

func ticks(t time.Time) value {
	return numberValue(float64(t.Unix()*int64(time.Second/tick) + int64(t.Nanosecond())/int64(tick)))
}

// timeValue returns a time as a date, or undefined outside the years that .NET supports.
func timeValue(t time.Time) value {
	if t.Year() < 1 || t.Year() > maxYear {
		return value{}
	}
	return textValue(t.Format(timeLayout))
}

// timeLayouts are the accepted forms of a date. A missing zone means UTC.
var timeLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.9999999", "2006-01-02T15:04Z", "2006-01-02", "2006-01-02Z",
	"2006-01-02 15:04:05.9999999", "2006-01-02 15:04:05.9999999Z",
}

// time reads a date.
func (v value) time() (time.Time, bool) {
	if v.kind != str {
		return time.Time{}, false
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, string(v.bytes())); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// timePart is a unit of a date: a number of months, whose length varies, or a duration.
type timePart struct {
	months int
	span   time.Duration
	of     func(time.Time) int
}

const (
	monthsOfYear = 12
	day          = 24 * time.Hour
)

// timeParts are the units by all their names, in lower case.
var timeParts = func() map[string]timePart {
	parts := map[string]timePart{}
	add := func(names string, p timePart) {
		for name := range strings.FieldsSeq(names) {
			parts[name] = p
		}
	}
	add("year yyyy yy", timePart{monthsOfYear, 0, time.Time.Year})
	add("month mm m", timePart{1, 0, func(t time.Time) int { return int(t.Month()) }})
	add("day dd d", timePart{0, day, time.Time.Day})
	add("hour hh", timePart{0, time.Hour, time.Time.Hour})
	add("minute mi n", timePart{0, time.Minute, time.Time.Minute})
	add("second ss s", timePart{0, time.Second, time.Time.Second})
	add("millisecond ms", timePart{0, time.Millisecond, fraction(time.Millisecond)})
	add("microsecond mcs", timePart{0, time.Microsecond, fraction(time.Microsecond)})
	add("nanosecond ns", timePart{0, time.Nanosecond, fraction(time.Nanosecond)})
	return parts
}()

// fraction makes the function that returns the fraction of a second in a unit: microseconds include milliseconds.
func fraction(unit time.Duration) func(time.Time) int {
	return func(t time.Time) int { return t.Nanosecond() / int(unit) }
}

// part returns the unit that a string names.
func (v value) part() (timePart, bool) {
	if v.kind != str {
		return timePart{}, false
	}
	part, ok := timeParts[strings.ToLower(string(v.bytes()))]
	return part, ok
}

// dateTimeAdd is DateTimeAdd(unit, n, date).
func dateTimeAdd(_ *frame, args []value) value {
	part, ok := args[0].part()
	n, whole := args[1].int()
	t, valid := args[2].time()
	if !ok || !whole || !valid {
		return value{}
	}
	return moveTime(t, part, n)
}

// moveTime adds n units to a time. If the sum is outside a duration's range, the result is undefined.
func moveTime(t time.Time, part timePart, n int) value {
	switch {
	case n != 0 && part.span > math.MaxInt64/time.Duration(max(n, -n)):
		return value{}
	case part.months > 0:
		return timeValue(addMonths(t, n*part.months))
	}
	return timeValue(t.Add(time.Duration(n) * part.span))
}

// addMonths never skips a month: a month after January 31 is the last day of February.
func addMonths(t time.Time, n int) time.Time {
	moved := t.AddDate(0, n, 0)
	if moved.Day() != t.Day() {
		moved = moved.AddDate(0, 0, -moved.Day())
	}
	return moved
}

// dateTimeBin is DateTimeBin(date, unit, size, start): the beginning of the bin that contains the date. Bins have size
// units, and one of them begins at start. As in the service, the largest unit is the day, because months and years
// have no fixed length. Bins before 1601 are undefined there, so they are undefined here.
func dateTimeBin(_ *frame, args []value) value {
	t, ok := args[0].time()
	part, known := args[1].part()
	if !ok || !known || part.months > 0 {
		return value{}
	}
	size, start := 1, time.Unix(0, 0).UTC()
	if len(args) > 2 {
		if size, ok = args[2].int(); !ok || size < 1 {
			return value{}
		}
	}
	if len(args) > 3 {
		if start, ok = args[3].time(); !ok || start.Year() < firstBinYear {
			return value{}
		}
	}
	if t.Year() < firstBinYear {
		return value{}
	}
	width := new(big.Int).Mul(big.NewInt(int64(part.span)), big.NewInt(int64(size)))
	since := new(big.Int).Sub(sinceEpoch(t), sinceEpoch(start))
	_, rest := since.DivMod(since, width, new(big.Int)) // the rest is never negative
	bin := new(big.Int).Sub(sinceEpoch(t), rest)
	seconds, nanos := bin.DivMod(bin, big.NewInt(int64(time.Second)), new(big.Int))
	return timeValue(time.Unix(seconds.Int64(), nanos.Int64()).UTC())
}

// firstBinYear is the first year with bins, as in the service.
const firstBinYear = 1601

// sinceEpoch returns the nanoseconds since 1970, which need more than 64 bits in the year 9999.
func sinceEpoch(t time.Time) *big.Int {
	n := new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(int64(time.Second)))
	return n.Add(n, big.NewInt(int64(t.Nanosecond())))
}

// dateTimeDiff counts the boundaries of a unit between two times, as the service does: from 23:59 to 00:01 is one
// day.
func dateTimeDiff(_ *frame, args []value) value {
	part, ok := args[0].part()
	from, valid := args[1].time()
	to, valid2 := args[2].time()
	if !ok || !valid || !valid2 {
		return value{}
	}
	if part.months > 0 {
		count := func(t time.Time) int { return (t.Year()*monthsOfYear + int(t.Month()) - 1) / part.months }
		return numberValue(float64(count(to) - count(from)))
	}
	return numberValue(float64(bound1970(to, part.span) - bound1970(from, part.span)))
}

// bound1970 returns the whole units from 1970 to t. bound1970 rounds down, also before 1970.
func bound1970(t time.Time, unit time.Duration) int64 {
	if unit >= time.Second {
		seconds := int64(unit / time.Second)
		n := t.Unix() / seconds
		if t.Unix()%seconds < 0 {
			n--
		}
		return n
	}
	return t.Unix()*int64(time.Second/unit) + int64(t.Nanosecond())/int64(unit)
}

// dateTimePart is DateTimePart(unit, date).
func dateTimePart(_ *frame, args []value) value {
	part, ok := args[0].part()
	t, valid := args[1].time()
	if !ok || !valid {
		return value{}
	}
	return numberValue(float64(part.of(t)))
}

// dateTimeFromParts is DateTimeFromParts(year, month, day, hour, minute, second, ticks). Go would turn the 30th of
// February into a day in March. Here such a date is undefined, so the parts are compared with the result.
func dateTimeFromParts(_ *frame, args []value) value {
	parts := [7]int{}
	for i, v := range args {
		n, ok := v.int()
		if !ok || n < 0 {
			return value{}
		}
		parts[i] = n
	}
	t := time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], parts[6]*int(tick), time.UTC)
	if t.Year() != parts[0] || int(t.Month()) != parts[1] || t.Day() != parts[2] || t.Hour() != parts[3] ||
		t.Minute() != parts[4] || t.Second() != parts[5] {
		return value{}
	}
	return timeValue(t)
}
