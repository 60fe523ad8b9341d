package cosmos_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestWhatAReadSends has the headers of a read by which the service knows what is asked.
func TestWhatAReadSends(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))
	half := feed.Range{Min: "", Max: "1F"}
	ofKey := func(key string) feed.ReadOptions { return feed.ReadOptions{Key: feed.Key(key)} }
	const latest = "A-Im=Incremental Feed"
	const whole, any = "X-Ms-Documentdb-Partitionkeyrangeid=0", "X-Ms-Max-Item-Count=-1"
	const since = "If-Modified-Since=Fri, 02 Jan 2026 02:04:04 GMT"
	for _, c := range []struct {
		name string
		r    feed.Range
		from feed.Position
		o    feed.ReadOptions
		want []string
	}{
		{
			"from the beginning", feed.FullRange(),
			feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{},
			[]string{latest, whole, any},
		},
		{
			"from now", feed.FullRange(),
			feed.Position{},
			feed.ReadOptions{MaxItems: 7},
			[]string{latest, "If-None-Match=*", whole, "X-Ms-Max-Item-Count=7"},
		},
		{
			"from a time", feed.FullRange(),
			feed.Position{Start: feed.FromTime(at)},
			feed.ReadOptions{},
			[]string{latest, since, whole, any},
		},
		{"a token", feed.FullRange(), feed.At(`"12"`), feed.ReadOptions{}, []string{
			latest, `If-None-Match="12"`, whole,
			any,
		}},
		{
			"a token and a time", feed.FullRange(),
			feed.Position{Token: `"12"`, Start: feed.FromTime(at)},
			feed.ReadOptions{},
			[]string{latest, since, `If-None-Match="12"`, whole, any},
		},
		{"a part of a partition", half, feed.At(`"12"`), feed.ReadOptions{}, []string{
			latest, `If-None-Match="12"`, whole, "X-Ms-End-Epk=1F", any,
			"X-Ms-Read-Key-Type=EffectivePartitionKeyRange", "X-Ms-Start-Epk=",
		}},
		{"a logical partition", feed.FullRange(), feed.At(`"12"`), ofKey("é\uffff𐀀😀\x7f"), []string{
			latest, `If-None-Match="12"`, `X-Ms-Documentdb-Partitionkey=["\u00e9\uffff\ud800\udc00\ud83d\ude00\u007f"]`,
			any,
		}},
		{
			"a logical partition, of a part of a partition",
			feed.Range{Min: "1F", Max: "FF"},
			feed.At(`"12"`), ofKey("a"),
			[]string{
				latest, `If-None-Match="12"`, `X-Ms-Documentdb-Partitionkey=["a"]`, any,
			},
		},
		{
			"all versions", feed.FullRange(),
			feed.Position{Token: `"12"`, Start: feed.FromTime(at)},
			feed.ReadOptions{Mode: feed.AllVersionsAndDeletes},
			[]string{
				"A-Im=Full-Fidelity Feed", "X-Ms-Cosmos-Changefeed-Wire-Format-Version=2021-09-15",
				`If-None-Match="12"`, whole, any,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &account{trouble: refuse(0, 0)}
			items := a.open(t, cosmos.Options{UserAgent: "mine/1"})
			page, err := items.Read(t.Context(), c.r, c.from, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if want := (feed.Position{Token: `"9"`, Start: c.from.Start}); page.Next != want || len(page.Changes) != 0 {
				t.Errorf("page %+v, want an empty one with Next %v", page, want)
			}
			sent := a.log[len(a.log)-1]
			if got, want := strings.Join(varying(sent.Header), " "), strings.Join(slices.Sorted(slices.Values(c.want)),
				" "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			checkConstant(t, sent)
		})
	}
}

// constant are the headers that every read has.
var constant = []string{
	"Accept", "Authorization", "Cache-Control", "User-Agent", "X-Ms-Activity-Id", "X-Ms-Cosmos-Intended-Collection-Rid",
	"X-Ms-Cosmos-Sdk-Supportedcapabilities", "X-Ms-Date", "X-Ms-Version",
}

func varying(h http.Header) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !slices.Contains(constant, name) {
			list = append(list, name+"="+h.Get(name))
		}
	}
	return list
}

func checkConstant(t *testing.T, r *http.Request) {
	t.Helper()
	for _, name := range constant {
		if r.Header.Get(name) == "" {
			t.Errorf("header %s is missing", name)
		}
	}
	if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "changefeed-go (") ||
		!strings.HasSuffix(agent, ") mine/1") {
		t.Errorf("User-Agent is %q", agent)
	}
	if version := r.Header.Get("X-Ms-Version"); version != "2020-07-15" {
		t.Errorf("X-Ms-Version is %q", version)
	}
	// Without the second bit the service refuses a start time beside a continuation after a merge.
	if can := r.Header.Get("X-Ms-Cosmos-Sdk-Supportedcapabilities"); can != "3" {
		t.Errorf("capabilities are %q, want merged partitions and their start times", can)
	}
}

func TestAReadThatIsWrongIsNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		r    feed.Range
		from feed.Position
		mode feed.Mode
	}{
		"a token that no header can have": {feed.FullRange(), feed.At("a\nb"), feed.LatestVersion},
		"an empty range":                  {feed.Range{Min: "1F", Max: "1F"}, feed.At(`"12"`), feed.LatestVersion},
		"all versions from the beginning": {
			feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.AllVersionsAndDeletes,
		},
	} {
		a := &account{trouble: refuse(0, 0)}
		_, err := a.open(t, cosmos.Options{}).Read(t.Context(), c.r, c.from, feed.ReadOptions{Mode: c.mode})
		if !errors.Is(err, feed.ErrBadRequest) || len(a.asked) > 0 {
			t.Errorf("%s: %v after %d requests, want a bad request", name, err, len(a.asked))
		}
	}
}

func TestAPageHasWhatTheHeadersSay(t *testing.T) {
	a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
		return say(200, `{"_rid":"r","Documents":[{"id":"a","pk":"k","_ts":7,"_etag":"\"e\"","_lsn":12}],"_count":1}`,
			"etag", `"12"`, "x-ms-session-token", "0:-1#15#3=10", "x-ms-request-charge", "2.83", "lsn", "4"), nil
	}}
	page, err := a.open(t, cosmos.Options{}).Read(t.Context(), feed.FullRange(), feed.At(`"5"`), feed.ReadOptions{})
	if err != nil || len(page.Changes) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if page.Next.Token != `"12"` || page.Head != 15 || page.Ahead || page.Session != "0:-1#15#3=10" ||
		page.Charge != 2.83 {
		t.Errorf("page %+v", page)
	}
	if ch := page.Changes[0]; ch.LSN != 12 || ch.ETag != `"e"` || ch.Time != time.Unix(7, 0).UTC() ||
		ch.Op != feed.OpUpsert {
		t.Errorf("change %+v", ch)
	}
}

// A quiet range moves on, or its position would fall out of the retention; and the start
// stays beside the token, which a merge needs.
func TestAnEmptyPageMovesThePositionAndKeepsItsStart(t *testing.T) {
	a := &account{trouble: func(*http.Request, int) (*http.Response, error) { return say(304, "", "etag", `"9"`), nil }}
	from := feed.Position{Token: `"5"`, Start: feed.FromTime(time.Unix(100, 0))}
	page, err := a.open(t, cosmos.Options{}).Read(t.Context(), feed.FullRange(), from, feed.ReadOptions{})
	if from.Token = `"9"`; err != nil || page.Next != from {
		t.Errorf("%+v, %v: want the position %+v", page, err, from)
	}
}

// The service keeps whole seconds, so the second in which a start lies is in the page as a
// whole, whatever the server thought of it, and nothing before it is.
func TestAPageFromATimeHasTheWholeOfItsSecond(t *testing.T) {
	a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
		return say(200,
			`{"Documents":[{"id":"before","pk":"k","_ts":6},{"id":"within","pk":"k","_ts":7},{"id":"after","pk":"k","_ts":8}]}`, "etag", `"12"`), nil
	}}
	from := feed.Position{Start: feed.FromTime(time.Unix(7, 900_000_000))}
	page, err := a.open(t, cosmos.Options{}).Read(t.Context(), feed.FullRange(), from, feed.ReadOptions{})
	if err != nil || len(page.Changes) != 2 || page.Changes[0].ID != "within" {
		t.Errorf("%+v, %v: want what is of the second 7 and later", page.Changes, err)
	}
}

// TestAPageWithoutAListIsNoPage has an answer of somebody else, perhaps, which must not
// move the position.
func TestAPageWithoutAListIsNoPage(t *testing.T) {
	for _, body := range []string{"", "{}", `{"status":"ok"}`, `{"Documents":null}`, `{"Documents":[]`, "[]"} {
		a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
			return say(200, body, "etag", `"12"`), nil
		}}
		if page, err := a.open(t, cosmos.Options{}).Read(t.Context(), feed.FullRange(), feed.At(`"5"`),
			feed.ReadOptions{}); err == nil {
			t.Errorf("body %q: %+v, want an error", body, page)
		}
	}
}

func TestAnAnswerWithoutETag(t *testing.T) {
	a := &account{trouble: func(*http.Request, int) (*http.Response, error) { return say(304, ""), nil }}
	items := a.open(t, cosmos.Options{})
	page, err := items.Read(t.Context(), feed.FullRange(), feed.At(`"5"`), feed.ReadOptions{})
	if err != nil || page.Next != feed.At(`"5"`) {
		t.Errorf("%+v, %v: want the same position", page, err)
	}
	if page, err = items.Read(t.Context(), feed.FullRange(), feed.Position{}, feed.ReadOptions{}); err == nil {
		t.Errorf("from now: %+v, want an error", page)
	}
}

// A layout is a transport whose partitions change, and that refuses ids that are no more.
type layout struct {
	*account
	ranges []string // the lists of ranges, as min-max-id min-max-id …; each 410 moves on
}

func (l *layout) Do(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/pkranges") || r.Header.Get("If-None-Match") != "" {
		return l.account.Do(r)
	}
	l.log = append(l.log, r)
	var list []string
	for one := range strings.FieldsSeq(l.ranges[0]) {
		part := strings.Split(one, "-")
		list = append(list, fmt.Sprintf(`{"minInclusive":%q,"maxExclusive":%q,"id":%q}`, part[0], part[1], part[2]))
	}
	return say(200, `{"PartitionKeyRanges":[`+strings.Join(list, ",")+`]}`, "etag", "1"), nil
}

// trip answers reads of gone ids with 410, and shows the next list then.
func (l *layout) trip(r *http.Request, _ int) (*http.Response, error) {
	id := r.Header.Get("x-ms-documentdb-partitionkeyrangeid")
	for one := range strings.FieldsSeq(l.ranges[len(l.ranges)-1]) {
		if strings.HasSuffix(one, "-"+id) {
			return nil, nil
		}
	}
	if len(l.ranges) > 1 {
		l.ranges = l.ranges[1:]
	}
	return say(410, `{"code":"Gone","message":"gone"}`, "x-ms-substatus", "1002"), nil
}

func TestReadsFindTheirPartitionAgain(t *testing.T) {
	first, other := feed.Range{Min: "", Max: "1F"}, feed.Range{Min: "1F", Max: "FF"}
	for _, c := range []struct {
		name   string
		ranges []string
		r      feed.Range
		gone   bool
		want   string // the range ids asked, with the key range where there is one
	}{
		{"moved", []string{"-FF-0", "-FF-1"}, feed.FullRange(), false, "0 1"},
		{"split", []string{"-FF-0", "-1F-1 1F-FF-2"}, feed.FullRange(), true, "0"},
		{
			"split, and the range is in one child",
			[]string{"-FF-0", "-1F-1 1F-FF-2"},
			feed.Range{Min: "20", Max: "21"},
			false, "0:20-21 2:20-21",
		},
		{"split, and the range is one child", []string{"-FF-0", "-1F-1 1F-FF-2"}, other, false, "0:1F-FF 2"},
		{"split, and split again", []string{"-FF-0", "-1F-1 1F-FF-2", "-0F-3 0F-1F-4 1F-FF-2"}, first, true, "0:-1F 1"},
		{"merged", []string{"-1F-1 1F-FF-2", "-FF-3"}, first, false, "1 3:-1F"},
		{"the list takes a while", []string{"-FF-0", "-FF-0", "-FF-0", "-FF-1"}, feed.FullRange(), false, "0 0 0 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &layout{account: &account{}, ranges: c.ranges}
				l.trouble = l.trip
				items, begun := l.container(t), time.Now()
				_, err := items.Read(t.Context(), c.r, feed.At(`"5"`), feed.ReadOptions{})
				if moves := strings.Count(c.want, " "); moves > 1 && time.Since(begun) == 0 {
					t.Errorf("%d moves take no time, in which a split could end", moves)
				}
				if c.gone != errors.Is(err, feed.ErrGone) || !c.gone && err != nil {
					t.Errorf("Read: %v, want gone: %v", err, c.gone)
				}
				if got := l.ids(); got != c.want {
					t.Errorf("asked %s, want %s", got, c.want)
				}
			})
		})
	}
}

func (l *layout) container(t *testing.T) *cosmos.Container {
	t.Helper()
	client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"), cosmos.Options{Transport: l})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Container(t.Context(), "db", "items")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ids are the partitions that were asked.
func (l *layout) ids() string {
	var asked []string
	for _, r := range l.log {
		if id := r.Header.Get("x-ms-documentdb-partitionkeyrangeid"); id != "" {
			if r.Header.Get("x-ms-end-epk") != "" {
				id += ":" + r.Header.Get("x-ms-start-epk") + "-" + r.Header.Get("x-ms-end-epk")
			}
			asked = append(asked, id)
		}
	}
	return strings.Join(asked, " ")
}

// TestPartitionsThatAreBeingMoved end as errors that are not ErrGone: there is nothing
// to split.
func TestPartitionsThatAreBeingMoved(t *testing.T) {
	for _, sub := range []string{"1002", "1007", "1008"} {
		synctest.Test(t, func(t *testing.T) {
			a := &account{trouble: refuse(always, 410, "x-ms-substatus", sub)}
			err := read(t.Context(), a.open(t, cosmos.Options{}))
			if e, ok := errors.AsType[*cosmos.Error](err); !ok || e.Status != 410 || errors.Is(err, feed.ErrGone) {
				t.Errorf("410/%s for ever: %v", sub, err)
			}
			if len(a.asked) != 5 {
				t.Errorf("410/%s: %d requests, want 5", sub, len(a.asked))
			}
		})
	}
}

func TestARangeOverCachedPartitionsThatWereMerged(t *testing.T) {
	l := &layout{account: &account{}, ranges: []string{"-1F-1 1F-FF-2"}}
	l.trouble = l.trip
	items := l.container(t)
	if _, err := items.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.ranges = []string{"-FF-3"}
	r := feed.Range{Min: "10", Max: "20"}
	if _, err := items.Read(t.Context(), r, feed.At(`"5"`), feed.ReadOptions{}); err != nil || l.ids() != "3:10-20" {
		t.Errorf("asked %s: %v", l.ids(), err)
	}
}

func TestRangesThatDoNotCoverTheKeySpace(t *testing.T) {
	for _, ranges := range []string{"", "-1F-1", "-1F-1 2F-FF-2", "-2F-1 1F-FF-2", "1F-FF-2"} {
		l := &layout{account: &account{}, ranges: []string{ranges}}
		if parts, err := l.container(t).Partitions(t.Context()); err == nil {
			t.Errorf("ranges %q: %v, want an error", ranges, parts)
		}
	}
}

// tooOld answers that a position is before the retention, in one of the wordings that are looked for.
func tooOld(word string) func(*http.Request, int) (*http.Response, error) {
	return func(*http.Request, int) (*http.Response, error) {
		return say(400, `{"code":"BadRequest","message":"The continuation is `+word+` the Retention"}`), nil
	}
}

func TestAPositionThatTheRetentionHasPassed(t *testing.T) {
	for _, word := range []string{"older than", "outside of"} {
		a := &account{regions: waits, trouble: tooOld(word)}
		items := a.open(t, cosmos.Options{})
		o := feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}
		_, err := items.Read(t.Context(), feed.FullRange(), feed.At(`"5"`), o)
		_, counted := items.Pending(t.Context(), feed.FullRange(), feed.At(`"5"`), o)
		for what, err := range map[string]error{"read": err, "count": counted} {
			if !errors.Is(err, feed.ErrTooOld) || errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("%s: %v, want ErrTooOld", what, err)
			}
		}
		if err := read(t.Context(), items); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("latest version: %v, want ErrBadRequest", err)
		}
	}
}

// Whoever has asked for the partitions may sort or change their list.
func TestAListOfPartitionsIsItsCallersOwn(t *testing.T) {
	a := &account{trouble: refuse(0, 0)}
	items := a.open(t, cosmos.Options{})
	parts, err := items.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parts[0] = feed.Partition{ID: "7", Range: feed.FullRange()}
	if err := read(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	if got := a.log[len(a.log)-1].Header.Get("x-ms-documentdb-partitionkeyrangeid"); got != "0" {
		t.Errorf("asked partition %s, want 0", got)
	}
}

func TestAKeyOutsideTheRange(t *testing.T) {
	items := (&account{trouble: refuse(0, 0)}).open(t, cosmos.Options{})
	o := feed.ReadOptions{Key: feed.Key("a")} // its place is 3A53…
	_, err := items.Read(t.Context(), feed.Range{Min: "", Max: "1F"}, feed.Position{}, o)
	if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "3A5381E1114EB8D3FCC90795045B49B7") {
		t.Errorf("%v, want a bad request with the place of the key", err)
	}
}

// Client and store compute the place of a key alike, as both must be the service's.
func TestAKeyHasOnePlace(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	client := s.client(t, master, nil)
	specs := []docstore.ContainerSpec{
		{ID: "first", Paths: []string{"/pk"}, HashVersion: 1},
		{ID: "second", Paths: []string{"/pk"}},
		{ID: "levels", Paths: []string{"/a", "/b"}},
	}
	keys := []feed.PartitionKey{
		feed.Key("London"), feed.Key(""), feed.Key("é😀\"\\"), feed.Key(strings.Repeat("long", 500)), feed.Key(5),
		feed.Key(-0.5),
		feed.Key(true), feed.Key(nil), feed.Key(feed.Undefined), feed.Key("a", 1), feed.Key(nil, feed.Undefined), "[",
		"",
	}
	for _, spec := range specs {
		stored := s.create(t, spec)
		if got, want := find(t, client, spec.ID).KeyPaths(), stored.KeyPaths(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has paths %v, want %v", spec.ID, got, want)
		}
		for _, key := range keys {
			want, refused := stored.Locate(t.Context(), key)
			got, err := find(t, client, spec.ID).Locate(t.Context(), key)
			if got != want || errors.Is(err, feed.ErrBadRequest) != errors.Is(refused, feed.ErrBadRequest) ||
				(want == "") == (refused == nil) {
				t.Errorf("%.40s in %s is at %q, %v, want %q, %v", key, spec.ID, got, err, want, refused)
			}
		}
	}
}
