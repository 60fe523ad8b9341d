package deadletters_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

var lettersSpec = docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}}

// parked is the letter of a change with this LSN.
func parked(key feed.PartitionKey, lsn int64) feed.DeadLetter {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return feed.DeadLetter{
		ID: fmt.Sprint(lsn, ".0"), Disposition: feed.DispositionFailed, Cause: "no such address", Attempts: 5,
		Instance: "one", Lease: "-1F", Range: feed.Range{Max: "1F"}, Failed: at, Parked: at.Add(time.Minute),
		Change: feed.Change{
			ID: "order-7", PartitionKey: key, LSN: lsn, Time: at.Add(-time.Minute), ETag: `"0f"`,
			Body: json.RawMessage(`{"id":"order-7","city":"London","n":1.5}`),
		},
	}
}

// ids are those of the letters that a box gives.
func ids(t *testing.T, b feed.LetterBox) (ids []string) {
	t.Helper()
	for l, err := range b.Letters(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.ID)
	}
	return ids
}

// The form is documented, and scripts read it.
func TestALetterIsReadableJSON(t *testing.T) {
	l := parked(feed.Key("London", 5), 12)
	got, err := deadletters.Marshal("mailer", l)
	want := `{"id":"12.0","version":1,"key":["London",5],"disposition":"failed","cause":"no such address","attempts":5,"processor":"mailer","instance":"one","lease":"-1F","range":"-1F",` +
		`"lsn":12,"index":0,"op":"upsert","item":"order-7","time":"2026-01-02T03:03:05Z","failed":"2026-01-02T03:04:05Z","parked":"2026-01-02T03:05:05Z","etag":"\"0f\"",` +
		`"document":{"id":"order-7","city":"London","n":1.5}}`
	if err != nil || string(got) != want {
		t.Errorf("letter is\n%s, %v, want\n%s", got, err, want)
	}
	l.Change.Body, l.Change.Previous, l.Change.Expired, l.Change.PreviousLSN, l.Change.Op = nil,
		json.RawMessage("{\n}"), true, 3, feed.OpDelete
	got, err = deadletters.Marshal("mailer", l)
	if want := `"etag":"\"0f\"","expired":true,"previous_lsn":3,"previous_raw":"ewp9"}`; err != nil ||
		!strings.HasSuffix(string(got), want) {
		t.Errorf("letter of a delete is %s, %v, want it to end %s", got, err, want)
	}
	l.Change.PartitionKey = "London"
	if got, err := deadletters.Marshal("mailer", l); err == nil {
		t.Errorf("letter of a key that is none is %s, want an error", got)
	}
}

// No error text is worth the place of a document. What is cut off is said, and nothing else is written in its place.
func TestALongCauseIsCutBetweenCharacters(t *testing.T) {
	const most = 64 << 10
	for cause, want := range map[string]string{
		strings.Repeat("x", most):       strings.Repeat("x", most),
		"x" + strings.Repeat("é", most): "x" + strings.Repeat("é", most/2-1) + "…",
	} {
		l := parked(feed.Key("London"), 12)
		l.Cause, l.Stack = cause, cause
		text, err := deadletters.Marshal("mailer", l)
		var got struct{ Cause, Stack string }
		if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || got.Cause != want || got.Stack != want {
			t.Errorf("%d bytes: %d and %d are left, ending in %q, %v", len(cause), len(got.Cause), len(got.Stack),
				got.Cause[len(got.Cause)-8:], err)
		}
	}
}

func TestALetterIsOneDocumentOfItsKey(t *testing.T) {
	c := container(t, lettersSpec)
	if err := opening(t, c, "mailer")().Put(t.Context(), parked(feed.Key("London"), 12)); err != nil {
		t.Fatal(err)
	}
	it, err := c.Item(t.Context(), feed.Key(`["London"]`), "mailer.RID=.12.0")
	if err != nil || !strings.HasPrefix(string(it.Body),
		`{"id":"mailer.RID=.12.0","key":"[\"London\"]","ttl":-1,"letter":{"id":"12.0","version":1,"key":["London"],`) {
		t.Errorf("document is %s, %v", it.Body, err)
	}
}

// The service refuses a partition key of more than 2 KB. The text of a key is longer than the key, so its end is a
// hash.
func TestTheKeyOfALetterHasRoom(t *testing.T) {
	c := container(t, lettersSpec)
	for _, key := range []feed.PartitionKey{feed.Key(strings.Repeat("x", 2048)), feed.Key(strings.Repeat("é", 1024))} {
		if err := opening(t, c, "mailer")().Put(t.Context(), parked(key, 12)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := c.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
	if err != nil || len(page.Changes) != 2 {
		t.Fatalf("%d documents, %v", len(page.Changes), err)
	}
	for _, change := range page.Changes {
		var document struct{ Key string }
		if err := json.Unmarshal(change.Body, &document); err != nil || len(document.Key) > 2048 ||
			len(document.Key) < 2000 ||
			!utf8.ValidString(document.Key) {
			t.Errorf("a key of %d bytes, %v", len(document.Key), err)
		}
	}
}

func TestAContainerPartitionedOtherwiseIsRefused(t *testing.T) {
	wrong := container(t, docstore.ContainerSpec{Paths: []string{"/city", "/address/street"}})
	const want = "partitioned by /city,/address/street: want one partitioned by /key"
	if _, err := deadletters.Container(wrong, "mailer", orders); !errors.Is(err, feed.ErrBadRequest) ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("a container of docstore: %v, want %q", err, want)
	}
	if _, err := deadletters.Container(container(t, docstore.ContainerSpec{Paths: []string{"/key", "/city"}}), "mailer",
		orders); !errors.Is(err, feed.ErrBadRequest) {
		t.Errorf("a container partitioned by more than the key: %v", err)
	}
	if _, err := deadletters.Container(container(t, lettersSpec), "", orders); !errors.Is(err, feed.ErrBadRequest) {
		t.Errorf("a processor without a name: %v", err)
	}
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}}); err != nil {
		t.Fatal(err)
	}
	client, err := cosmos.Open(t.Context(), server.URL, cosmos.Key(server.Key), cosmos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := client.Container(t.Context(), docstore.DefaultDatabase, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deadletters.Container(c, "mailer", orders); err == nil ||
		!strings.HasSuffix(err.Error(), "partitioned by /city: want one partitioned by /key") {
		t.Errorf("a container of cosmos: %v", err)
	}
	// A store that does not say how it is partitioned is found out by the first letter, which is not parked.
	silent := struct{ deadletters.Store }{wrong}
	err = opening(t, silent, "mailer")().Put(t.Context(), parked(feed.Key("London"), 1))
	if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "partitioned by /key") ||
		wrong.Count() != 0 {
		t.Errorf("a silent store: %v, and %d documents", err, wrong.Count())
	}
}

func TestProcessorsShareAContainer(t *testing.T) {
	c := container(t, lettersSpec)
	key := feed.Key("London")
	names := []string{"mailer", "mailer.RID=", "mailer.1", "mailer.1.2", "mail", "mailer%2E1", "mailer/1"}
	if _, err := c.Upsert(t.Context(), []byte(`{"id":"mailers","key":"[\"London\"]"}`)); err != nil { // somebody else's
		t.Fatal(err)
	}
	for i, name := range names {
		if err := opening(t, c, name)().Put(t.Context(), parked(key, int64(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		b := opening(t, c, name)()
		if got, want := ids(t, b), []string{fmt.Sprint(i+1, ".0")}; !slices.Equal(got, want) {
			t.Errorf("letters of %s are %v, want %v", name, got, want)
		}
		if err := b.Remove(t.Context(), key, "1.0"); err != nil {
			t.Error(err)
		}
	}
	if c.Count() != int64(len(names)) {
		t.Errorf("%d documents are left, want %d", c.Count(), len(names))
	}
}

// A unit is its name and what it reads; the letters of all units of a name are found by their letters.
func TestUnitsOfOneNameKeepTheirLetters(t *testing.T) {
	c := container(t, lettersSpec)
	key := feed.Key("London")
	old := `{"id":"mailer.7.0","key":"[\"London\"]","letter":{"id":"7.0","key":["London"],"op":"create"}}`
	if _, err := c.Upsert(t.Context(), []byte(old)); err != nil {
		t.Fatal(err)
	}
	var units []*deadletters.ContainerBox
	for i, source := range []monitored{{"bills", "ZERO="}, {"orders", "TWO="}, {"orders", "THREE="}} {
		b, err := deadletters.Container(c, "mailer", source)
		if err != nil {
			t.Fatal(err)
		}
		l := parked(key, 1)
		l.Cause = source.rid
		if i == 0 {
			l.Change.Body = noise(1_200_000)
		}
		if err := b.Put(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		units = append(units, b)
	}
	if err := opening(t, c, "mailer.1")().Put(t.Context(), parked(key, 9)); err != nil {
		t.Fatal(err)
	}
	list := func() (list []string) {
		boxes, err := deadletters.Boxes(t.Context(), c, "mailer")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range boxes {
			for l, err := range b.Letters(t.Context(), key) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, b.Source()+" "+l.ID+" "+l.Cause)
			}
		}
		return list
	}
	all := []string{" 7.0 ", "shop/bills 1.0 ZERO=", "shop/orders 1.0 THREE=", "shop/orders 1.0 TWO="}
	if got := list(); !slices.Equal(got, all) {
		t.Errorf("letters %q, want %q", got, all)
	}
	if err := units[2].Remove(t.Context(), key, "1.0"); err != nil {
		t.Fatal(err)
	}
	if got, want := list(), []string{all[0], all[1], all[3]}; !slices.Equal(got, want) {
		t.Errorf("letters %q, want %q", got, want)
	}
	if got := ids(t, units[1]); !slices.Equal(got, []string{"1.0"}) {
		t.Errorf("letters of one unit: %q", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if boxes, err := deadletters.Boxes(ended, c, "mailer"); !errors.Is(err, context.Canceled) {
		t.Errorf("%d boxes, %v, of a search that was cut short", len(boxes), err)
	}
	if _, err := deadletters.Boxes(t.Context(), container(t, docstore.ContainerSpec{Paths: []string{"/city"}}),
		"mailer"); !errors.Is(err, feed.ErrBadRequest) {
		t.Errorf("units in a container partitioned otherwise: %v", err)
	}
}

// Letters above what fits in memory are read one by one, when they are wanted.
func TestTheSuiteHoldsForLettersThatAreReadAgain(t *testing.T) {
	deadletters.HoldLess(t, 700)
	changefeedtest.TestDeadLetters(t, func(t *testing.T) func() feed.LetterBox {
		return opening(t, container(t, lettersSpec), "mailer")
	})
}

// counted is a store that counts the documents that are read by their ids.
type counted struct {
	*docstore.Container
	reads int
}

func (s *counted) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op == feed.WriteRead {
		s.reads++
	}
	return s.Container.Commit(ctx, key, writes)
}

// However many letters there are, those in memory at once have a bound.
func TestLettersInMemoryAreBounded(t *testing.T) {
	c := &counted{Container: container(t, lettersSpec)}
	b := opening(t, c, "mailer")()
	for lsn := range int64(10) {
		if err := b.Put(t.Context(), parked(feed.Key("London"), lsn+1)); err != nil {
			t.Fatal(err)
		}
	}
	deadletters.HoldLess(t, 2000) // four or so
	if got := ids(t, b); len(got) != 10 || c.reads < 5 {
		t.Errorf("%d letters, of which %d were read again", len(got), c.reads)
	}
}

// noise is a document of so many bytes that compresses to no less.
func noise(size int) json.RawMessage {
	text := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	for i, b := range text {
		if text[i] = '#' + b%90; text[i] == '\\' {
			text[i] = '!'
		}
	}
	return fmt.Appendf(nil, `{"id":"a","noise":"%s"}`, text)
}

// flaky is a store whose process ends after some commits.
type flaky struct {
	*docstore.Container
	left int
}

var errEnded = errors.New("the process has ended")

func (s *flaky) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if s.left--; s.left < 0 {
		return nil, errEnded
	}
	return s.Container.Commit(ctx, key, writes)
}

// Wherever a process ends, a letter in several documents is whole, or is none. What it has left is used
// when the letter is parked again, and nothing is left of a letter that was removed.
func TestALetterInPartsIsThereWholeOrNotAtAll(t *testing.T) {
	c := container(t, lettersSpec)
	l := parked(feed.Key("London"), 1)
	l.Change.Body, l.Change.Previous = noise(1_990_000), noise(1_000_000)
	key := l.Change.PartitionKey
	until := func(want []string, f func(b feed.LetterBox) error) {
		t.Helper()
		for left := 0; ; left += detector.Rounds(1, 3) {
			ended := f(opening(t, &flaky{c, left}, "mailer")())
			var there []string
			for got, err := range opening(t, c, "mailer")().Letters(t.Context(), "") {
				if err != nil || string(got.Change.Body) != string(l.Change.Body) ||
					string(got.Change.Previous) != string(l.Change.Previous) {
					t.Fatalf("after %d commits: letter %s, %v, or with another document", left, got.ID, err)
				}
				there = append(there, got.ID+" "+got.Cause)
			}
			if done := ended == nil; slices.Equal(there, want) != done || left > 9 {
				t.Fatalf("after %d commits: %v, letters %q", left, ended, there)
			} else if done {
				return
			}
		}
	}
	put := func(b feed.LetterBox) error { return b.Put(t.Context(), l) }
	until([]string{"1.0 no such address"}, put)
	documents := c.Count()
	if documents < 3 {
		t.Errorf("the letter is in %d documents, want the parts", documents)
	}
	l.Cause = "again"
	until([]string{"1.0 again"}, put)
	if c.Count() != documents {
		t.Errorf("%d documents, want the %d of the letter", c.Count(), documents)
	}
	until(nil, func(b feed.LetterBox) error { return b.Remove(t.Context(), key, l.ID) })
	if c.Count() != 0 {
		t.Errorf("%d documents are left of a letter that was removed", c.Count())
	}
}

// A change that just has room in its own container is parked, however much its handler says of it.
func TestTheLargestDocumentHasRoomBesideALongCause(t *testing.T) {
	b := opening(t, container(t, lettersSpec), "mailer")()
	l := parked(feed.Key("London"), 1)
	l.Change.Body = fmt.Appendf(nil, `{"id":"a","pad":%q}`, strings.Repeat("x", 2<<20-1<<10))
	l.Cause, l.Stack = strings.Repeat("c", 64<<10), strings.Repeat("s", 64<<10)
	if err := b.Put(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for got, err := range b.Letters(t.Context(), "") {
		if err != nil || string(got.Change.Body) != string(l.Change.Body) || got.Cause != l.Cause ||
			got.Stack != l.Stack {
			t.Errorf("letter %s, %v, or with another document or cause", got.ID, err)
		}
	}
}

// failing is a store that refuses one commit, and takes those after it.
type failing struct {
	*docstore.Container
	left int
}

func (s *failing) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if s.left--; s.left == -1 {
		return nil, feed.ErrThrottled
	}
	return s.Container.Commit(ctx, key, writes)
}

// A change counts as parked only if all of its letter is stored.
func TestALetterWhosePartIsRefusedIsNotParked(t *testing.T) {
	l := parked(feed.Key("London"), 1)
	l.Change.Body = noise(1_990_000)
	for left := range 2 {
		c := container(t, lettersSpec)
		if err := opening(t, &failing{c, left}, "mailer")().Put(t.Context(), l); !errors.Is(err, feed.ErrThrottled) {
			t.Errorf("commit %d is refused: %v", left, err)
		}
		if got := ids(t, opening(t, c, "mailer")()); len(got) != 0 {
			t.Errorf("commit %d is refused, and there are letters %q", left, got)
		}
	}
}

// A letter may be parked again with other documents, as by a unit that has begun anew. The process may end on the way.
func TestALetterInPartsIsNoMixtureOfTwo(t *testing.T) {
	c := container(t, lettersSpec)
	l := parked(feed.Key("London"), 1)
	l.Change.Body = noise(1_200_000)
	if err := opening(t, c, "mailer")().Put(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	// a part is no letter of a unit
	if boxes, err := deadletters.Boxes(t.Context(), c, "mailer"); err != nil || len(boxes) != 1 {
		t.Errorf("%d boxes, %v", len(boxes), err)
	}
	again := l
	again.Change.Body = json.RawMessage(strings.Replace(string(l.Change.Body), `"id":"a"`, `"id":"b"`, 1))
	if err := opening(t, &flaky{c, 1}, "mailer")().Put(t.Context(), again); !errors.Is(err, errEnded) {
		t.Fatalf("the process was to end: %v", err)
	}
	for got, err := range opening(t, c, "mailer")().Letters(t.Context(), "") {
		if err != nil || string(got.Change.Body) != string(l.Change.Body) {
			t.Errorf("letter %s, %v, or with another document", got.ID, err)
		}
	}
}

// overtaken is a store in which a letter is removed while its parts are read.
type overtaken struct {
	*docstore.Container
	remove func()
}

func (s *overtaken) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op == feed.WriteRead && strings.HasSuffix(writes[0].ID, ".1") {
		s.remove()
	}
	return s.Container.Commit(ctx, key, writes)
}

// A letter is gone, and no error, for whoever was about to read its parts.
func TestALetterThatIsRemovedWhileItIsReadIsGone(t *testing.T) {
	c := container(t, lettersSpec)
	l := parked(feed.Key("London"), 1)
	l.Change.Body = noise(1_200_000)
	b := opening(t, c, "mailer")()
	if err := errors.Join(b.Put(t.Context(), l), b.Put(t.Context(), parked(feed.Key("London"), 2))); err != nil {
		t.Fatal(err)
	}
	reader := opening(t, &overtaken{c, func() {
		if err := b.Remove(t.Context(), l.Change.PartitionKey, l.ID); err != nil {
			t.Error(err)
		}
	}}, "mailer")()
	if got := ids(t, reader); !slices.Equal(got, []string{"2.0"}) {
		t.Errorf("letters %v, want the one that is left", got)
	}
}

// Whoever reads letters while others are removed gets those that are whole; one that lacks a part is an error,
// and can be removed.
func TestALetterWithoutAPartIsNotGivenOut(t *testing.T) {
	c := container(t, lettersSpec)
	b := opening(t, c, "mailer")()
	key := feed.Key("London")
	for lsn := range int64(2) {
		l := parked(key, lsn+1)
		l.Change.Body = noise(1_200_000)
		if err := b.Put(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for l, err := range b.Letters(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.ID)
		if err := b.Remove(t.Context(), key, "2.0"); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{"1.0"}) {
		t.Errorf("letters %v, want the one that is there", got)
	}
	for id := range c.Items(t.Context(), feed.FullRange(), "") {
		if strings.HasSuffix(id.ID, ".1") {
			if err := c.Delete(t.Context(), id.Key, id.ID, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	var failed error
	for _, err := range b.Letters(t.Context(), key) {
		failed = err
	}
	if !errors.Is(failed, feed.ErrNotFound) || !strings.Contains(failed.Error(), `part "mailer.RID=.1.0.`) {
		t.Errorf("a letter without a part: %v", failed)
	}
	if err := b.Remove(t.Context(), key, "1.0"); err != nil || len(ids(t, b)) > 0 {
		t.Errorf("remove it: %v", err)
	}
}

func TestADocumentThatIsNoLetterIsNamed(t *testing.T) {
	// A few bytes can be made that unpack to gigabytes. What is cut off of them is no document.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 20<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, letter := range []string{
		`1`, `{}`, `{"key":["London"],"op":"create"}`, `{"id":"1.0","key":["London"],"op":"explode"}`,
		`{"id":"1.0","key":["London"],"op":"create","document_gzip":"AAAA"}`,
		`{"id":"1.0","key":["London"],"op":"create","document_gzip":"` +
			base64.StdEncoding.EncodeToString(bomb.Bytes()) + `"}`,
	} {
		c := container(t, lettersSpec)
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"mailer.RID=.1.0","key":"[\"London\"]","letter":%s}`,
			letter)); err != nil {
			t.Fatal(err)
		}
		var failed error
		for _, err := range opening(t, c, "mailer")().Letters(t.Context(), "") {
			failed = err
		}
		if failed == nil || !strings.Contains(failed.Error(), `document "mailer.RID=.1.0" of ["[\"London\"]"]`) {
			t.Errorf("letter %.200s: %v, want an error that names the document", letter, failed)
		}
	}
}

func TestAFunctionIsASink(t *testing.T) {
	failure := errors.New("no")
	var got []string
	sink := feed.DeadLetters(deadletters.Func(func(_ context.Context, l feed.DeadLetter) error {
		got = append(got, l.ID)
		return failure
	}))
	if err := sink.Put(t.Context(), parked(feed.Key("London"), 1)); err != failure ||
		!slices.Equal(got, []string{"1.0"}) {
		t.Errorf("Put = %v, and the function got %v", err, got)
	}
}
