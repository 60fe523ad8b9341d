package cosmosrest

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// Headers of the change feed.
const (
	headerIfModified = "If-Modified-Since"
	headerIfNone     = "If-None-Match"
	headerPolling    = "X-Ms-Cosmos-Max-Polling-Interval"
	headerWireFormat = "X-Ms-Cosmos-Changefeed-Wire-Format-Version"
	headerPending    = "X-Changefeed-Count-Pending" // ours: a count in place of a page
)

const (
	wireFormat = "2021-09-15" // items with their metadata beside them

	// maxPolling bounds how long the answer to a poll is held back.
	maxPolling = 30 * time.Second
)

// feedRead is one read of a change feed.
type feedRead struct {
	c       *call
	cont    *docstore.Container
	rng     changefeed.Range
	part    changefeed.Partition
	from    changefeed.Position
	o       changefeed.ReadOptions
	wrapped bool          // items carry metadata
	wait    time.Duration // for something to come
	foreign bool          // the key is in another range: nothing can come
}

// changeFeed serves GET docs with A-IM: a page of either change feed, or 304.
func (c *call) changeFeed() error {
	if err := c.allow(actionReadChangeFeed); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	f := feedRead{c: c, cont: cont}
	if c.flag(headerPending) {
		return f.countPending()
	}
	if err := f.parse(); err != nil {
		return err
	}
	if err := c.admit(cont, f.part.ID); err != nil {
		return err
	}
	page, err := f.read()
	if err != nil {
		return err
	}
	return f.answer(page)
}

// parse reads the request.
func (f *feedRead) parse() (err error) {
	if err := f.parseMode(); err != nil {
		return err
	}
	if f.o.MaxItems, err = f.c.maxItems(); err != nil {
		return err
	}
	if f.from, err = f.c.feedStart(); err != nil {
		return err
	}
	if f.wait, err = f.c.polling(); err != nil {
		return err
	}
	if err := f.choose(); err != nil {
		return err
	}
	if err := f.c.consistent(f.part, f.cont.Newest(f.part.Range.Min)); err != nil {
		return err
	}
	return f.checkVersions()
}

// parseMode reads which feed is asked for, and in which form.
func (f *feedRead) parseMode() error {
	switch aim := f.c.header("A-Im"); {
	case strings.EqualFold(aim, "Incremental Feed"):
	case strings.EqualFold(aim, "Full-Fidelity Feed"):
		f.o.Mode = changefeed.AllVersionsAndDeletes
	default:
		return badRequest("A-IM is %.64q: want Incremental Feed or Full-Fidelity Feed", aim)
	}
	switch version := f.c.header(headerWireFormat); version {
	case "":
	case wireFormat:
		f.wrapped = true
	default:
		return badRequest("x-ms-cosmos-changefeed-wire-format-version is %.64q: want %s", version, wireFormat)
	}
	return nil
}

// feedStart reads where a feed begins: the beginning, unless a header says otherwise. A
// time stays in force behind a continuation, as it must after a merge.
func (c *call) feedStart() (p changefeed.Position, err error) {
	p.Start = changefeed.FromBeginning()
	if text := c.header(headerIfModified); text != "" {
		at, err := parseTime(text)
		if err != nil {
			return p, err
		}
		if !at.IsZero() { // .NET's least time is the beginning
			p.Start = changefeed.FromTime(at.Add(time.Second)) // the header leaves out its second
		}
	}
	switch text := c.header(headerIfNone); {
	case text == "":
	case strings.Trim(text, `"`) == "*":
		p.Start = changefeed.FromNow()
	case !isToken(text):
		return p, badRequest("If-None-Match is %.64q: want an ETag that a feed has given, such as %q, or *", text, `"42"`)
	default:
		p.Token = text
	}
	return p, nil
}

// isToken tells an LSN, with quotes around it or without.
func isToken(text string) bool {
	if n := len(text); n > 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	_, err := strconv.ParseUint(text, 10, 63)
	return err == nil
}

// parseTime reads a date of HTTP. Some clients say UTC where HTTP has GMT.
func parseTime(text string) (time.Time, error) {
	if plain, ok := strings.CutSuffix(text, " UTC"); ok {
		text = plain + " GMT"
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return at, badRequest("If-Modified-Since is %.64q: want a time such as %q", text, "Tue, 02 Jan 2024 03:04:05 GMT")
	}
	return at, nil
}

// polling is how long the client wants to wait for something to come.
func (c *call) polling() (time.Duration, error) {
	text := c.header(headerPolling)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms < 0 {
		return 0, badRequest("x-ms-cosmos-max-polling-interval is %.64q: want milliseconds, 0 or more", text)
	}
	return min(time.Duration(ms)*time.Millisecond, maxPolling), nil
}

// choose finds the partition to read. One is needed: the service reads no feed over
// several.
func (f *feedRead) choose() error {
	s, err := f.c.selection(f.cont)
	if err != nil {
		return err
	}
	f.rng, f.o.Key = s.rng, s.key
	sub, err := s.within(f.cont)
	if err != nil {
		return err
	}
	if sub.Empty() {
		f.part, f.foreign = f.cont.PartitionAt(s.rng.Min), true
		return nil
	}
	f.part = f.cont.PartitionAt(sub.Min)
	switch {
	case f.part.Range.Contains(sub):
		return nil
	case s.named:
		return gone("keys %s of container %q span several partition key ranges: read the ranges again", sub, f.cont.ID())
	}
	return badRequest("the change feed of container %q has several partition key ranges: want one of them in x-ms-documentdb-partitionkeyrangeid", f.cont.ID())
}

// read is a page. An empty one is held back while the client wants to wait.
func (f *feedRead) read() (changefeed.Page, error) {
	page, err := f.once()
	if f.wait == 0 || err != nil || len(page.Changes) > 0 {
		return page, err
	}
	ctx, cancel := f.c.waiting(f.wait)
	defer cancel()
	for len(page.Changes) == 0 && err == nil {
		if err := f.cont.Wait(ctx, f.waitRange(), page.Next); err != nil {
			if ctx.Err() != nil { // time is up, or the server is about to end
				return page, nil
			}
			return page, err
		}
		f.from = page.Next
		page, err = f.once()
	}
	return page, err
}

// once reads a page, empty or not.
func (f *feedRead) once() (changefeed.Page, error) {
	if f.foreign {
		return f.nothing()
	}
	page, err := f.cont.Read(f.c.ctx, f.rng, f.from, f.o)
	if err == nil {
		size := 0
		for i := range page.Changes {
			ch := &page.Changes[i]
			if ch.Op != changefeed.OpDelete && !f.c.s.o.PreviousImages {
				ch.Previous = nil
			}
			size += len(ch.Body) + len(ch.Previous)
		}
		f.c.spend(f.cont, f.part.ID, chargeScan(len(page.Changes), size))
	}
	return page, err
}

// waitRange lies in one partition, also when a key is all that was given.
func (f *feedRead) waitRange() changefeed.Range { return f.rng.Intersect(f.part.Range) }

// nothing is the page of a range that has nothing of the key, up to the newest change.
func (f *feedRead) nothing() (changefeed.Page, error) {
	page, err := f.cont.Read(f.c.ctx, f.waitRange(), changefeed.Position{}, changefeed.ReadOptions{})
	if err != nil {
		return page, err
	}
	f.c.spend(f.cont, f.part.ID, chargeScan(0, 0))
	if lsn := tokenLSN(f.from.Token); lsn > tokenLSN(page.Next.Token) {
		page.Next.Token = strconv.Quote(strconv.FormatInt(lsn, 10))
	}
	return page, nil
}

// tokenLSN is the LSN of a token that is known to be one, 0 of none.
func tokenLSN(token string) int64 {
	lsn, _ := strconv.ParseInt(strings.Trim(token, `"`), 10, 64) // 0 is right for none
	return lsn
}

// answer sends a page, or 304 for an empty one.
func (f *feedRead) answer(page changefeed.Page) error {
	c := f.c
	c.set(answerETag, page.Next.Token)
	c.set(answerItemCount, strconv.Itoa(len(page.Changes)))
	c.set(answerSession, page.Session)
	c.set(answerLSN, strconv.FormatInt(max(page.Head, f.cont.Head()), 10)) // positions count in the container's LSNs
	if len(page.Changes) == 0 {
		return c.reply(http.StatusNotModified, nil)
	}
	b := newFeedBody(f.cont.RID())
	defer b.free()
	for i := range page.Changes {
		b.next()
		f.append(b, &page.Changes[i])
	}
	return c.reply(http.StatusOK, b.finish())
}

// append adds a change in the form that was asked for.
func (f *feedRead) append(b *feedBody, ch *changefeed.Change) {
	switch {
	case f.o.Mode == changefeed.AllVersionsAndDeletes:
		b.text = appendVersion(b.text, ch, f.cont.Spec().Paths)
	case f.wrapped:
		b.text = appendWrapped(b.text, ch)
	default: // a body ends with the system properties, so it has a member before the brace
		b.text = append(b.text, ch.Body[:len(ch.Body)-1]...)
		b.text = append(b.text, `,"_lsn":`...)
		b.text = strconv.AppendInt(b.text, ch.LSN, 10)
		b.text = append(b.text, '}')
	}
}

// feedBody is the body of an answer with documents: {"_rid":…,"Documents":[…],"_count":n}.
// Clients cut the documents out between the first and the last bracket.
type feedBody struct {
	text  []byte
	count int
}

// Buffers of bodies are used again, unless they have become large.
var feedBodies = sync.Pool{New: func() any { return &feedBody{text: make([]byte, 0, 64<<10)} }}

const maxPooled = 8 << 20 // bytes of a buffer that is kept

func newFeedBody(rid string) *feedBody {
	b, ok := feedBodies.Get().(*feedBody)
	if !ok {
		b = &feedBody{}
	}
	b.count = 0
	b.text = append(append(append(b.text[:0], `{"_rid":"`...), rid...), `","Documents":[`...)
	return b
}

// next begins a document.
func (b *feedBody) next() {
	if b.count > 0 {
		b.text = append(b.text, ',')
	}
	b.count++
}

// add is a whole document.
func (b *feedBody) add(doc []byte) {
	b.next()
	b.text = append(b.text, doc...)
}

func (b *feedBody) finish() []byte {
	b.text = append(b.text, `],"_count":`...)
	b.text = strconv.AppendInt(b.text, int64(b.count), 10)
	b.text = append(b.text, '}')
	return b.text
}

// free gives the buffer back; nobody may use the text any more.
func (b *feedBody) free() {
	if cap(b.text) <= maxPooled {
		feedBodies.Put(b)
	}
}
